"""A request to run a topology, as the command line, notebooks and tests pass it on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from topo.api.topology import Topology, TopologySource
from topo.storage.submitted import SparkCluster


class RunRequest(Struct, frozen=True):
    """A topology to run, and how.

    Attributes:
        topology: a reference as users write it, or a topology or a program of streams of this process.
        name: to run under; by default the topology's own.
        parameters: of the topology function.
        settings: that replace the topology's own, by public name.
        home: the state folder; by default that of the environment.
        start_from: path or URL of a savepoint, or of a folder of checkpoints, to continue from; "" for none.
        drop_state: components of the savepoint whose state no task takes.
        cluster: whose machines the workers run on; by default this one. The master runs here in any case.
        parallelism: tasks by component, where they differ from those in the code.
        py_files: modules and archives that the topology imports from, besides the folder it lies in; copied with the code.
        resume: continue from the state of the last run of that name, however it ended, with the code of now; start from the
            beginning if there is none.
        foreground: the topology ends with the process that starts it.
    """

    topology: str | Path | Topology | TopologySource
    name: str | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    home: Path | None = None
    start_from: str = ""
    drop_state: Sequence[str] = ()
    cluster: SparkCluster | None = None
    parallelism: Mapping[str, int] = field(default_factory=dict)
    py_files: Sequence[str] = ()
    resume: bool = False
    foreground: bool = False
