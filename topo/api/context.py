"""What a task knows about itself and its topology."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from topo.api.metrics import Metrics
from topo.config import TopologyConfig


@dataclass(frozen=True, slots=True)
class TaskContext:
    """Given to `open` and `prepare`, one for each task.

    Attributes:
        topology: name of the topology.
        component: id of the component.
        task: id of the task, unique in the topology.
        task_index: number of the task within its component, from 0.
        parallelism: how many tasks the component has.
        config: the settings that hold for the component.
        tasks: task ids of every component, by component id.
        committed_position: for a spout, the position up to which everything is done, as stored before the last start; None at
            the first start, and for bolts.
        metrics: the task's own counters, gauges and histograms.
    """

    topology: str
    component: str
    task: int
    task_index: int = 0
    parallelism: int = 1
    config: TopologyConfig = field(default_factory=TopologyConfig)
    tasks: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    committed_position: Any = None
    metrics: Metrics = field(default_factory=Metrics)

    def tasks_of(self, component: str) -> tuple[int, ...]:
        """Return the ids of a component's tasks, by task index; empty for an unknown component."""
        return self.tasks.get(component, ())

    @property
    def logger(self) -> logging.Logger:
        """A standard logger named for topology, component and task; what it writes shows in `topo logs`."""
        return logging.getLogger(f"topo.user.{self.topology}.{self.component}.{self.task_index}")
