"""The job of a master: one topology with everything that its run needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from topo.plan.physical import PhysicalPlan
from topo.storage.state_folder import TopologyFolder
from topo.wire.serializers import SerializerRegistry


@dataclass(frozen=True, slots=True)
class Job:
    """One topology to run.

    Attributes:
        folder: the topology's files.
        reference: the copied code, `path[:attribute]`, as workers import it.
        py_files: copied modules and archives that it imports from, besides its own folder.
        parameters: of the topology function.
        settings: that replace the topology's own, by public name.
        parallelism: tasks by component, where they are not those that the code says.
        foreground: workers end with this process.
        checkpoints: path or URL of this run's own folder of checkpoints; empty where none are taken.
        start_from: path or URL of a savepoint that it begins from, while it has no checkpoint of its own.
        drop_state: components of that savepoint whose state nobody takes.
        otherwise: what the start says when there is nothing to go on from, such as "starts from the beginning".
        is_spread: workers are on other machines, which may share no disk with this one.
        serializers: of the types that tuples carry.
    """

    folder: TopologyFolder
    plan: PhysicalPlan
    reference: str
    code_hash: str
    py_files: tuple[str, ...] = ()
    parameters: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    parallelism: Mapping[str, int] = field(default_factory=dict)
    foreground: bool = True
    checkpoints: str = ""
    start_from: str = ""
    drop_state: tuple[str, ...] = ()
    otherwise: str = "starts from the beginning"
    is_spread: bool = False
    serializers: SerializerRegistry = field(default_factory=SerializerRegistry)
