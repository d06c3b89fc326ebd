"""The context of a task: its identity and its topology."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Protocol

from msgspec import Struct

from topo.api.metrics import Metrics
from topo.api.streams import DEFAULT_STREAM
from topo.config import TopologyConfig
from topo.errors import NotFoundError


class Executor(Protocol):
    """The way to the task's own thread, where all calls of a component run one at a time."""

    def execute(self, action: Callable[[], object], description: str = "") -> None:
        """Have `action` run on the task's thread, between two calls or inside a `yield_`. From any thread.

        It may emit, ack and fail. An exception in it is reported as an error of the component, and fails no tuple.
        """

    def yield_(self) -> None:
        """Run the oldest action that waits, and wait until there is one. Meanwhile the other tasks of the worker run.

        For a call that needs another thread's result. On the task's thread only; an exception of the action is raised here as
        the cause of a `MailFailed`. The task itself takes no other input, and continues only when the calls that other tasks have
        begun meanwhile are over: two tasks of a worker must not wait for each other.
        """

    def try_yield(self) -> bool:
        """Run the oldest action that waits, if there is one; return whether there was. On the task's thread only."""


class Connection(Struct, frozen=True):
    """One stream of one component, read by another.

    Attributes:
        source: id of the component that emits.
        stream: the stream.
        target: id of the component that reads.
        grouping: the kind of grouping, such as "shuffle" or "fields".
        fields: names of the key fields, where the grouping has any.
    """

    source: str
    stream: str
    target: str
    grouping: str
    fields: tuple[str, ...] = ()


def _run_now(action: Callable[[], object]) -> None:
    action()


@dataclass(frozen=True, slots=True)
class TaskContext:
    """Given to `open` and `prepare`, one for each task.

    Attributes:
        topology: name of the topology.
        component: id of the component.
        task: id of the task, unique in the topology.
        task_index: number of the task within its component, from 0.
        parallelism: how many tasks the component has.
        config: the settings that hold for the component; `config.user` has those of your own.
        tasks: task ids of every component, by component id.
        streams: what every component emits: fields by stream, by component id.
        connections: who reads what, of the whole topology.
        committed_position: for a spout, the position up to which everything is done, as stored before the last start; None at
            the first start, and for bolts.
        metrics: the task's own counters, gauges and histograms.
        executor: runs actions on the task's thread; None outside of a running topology.
        clock: returns monotonic seconds; those of its clock in the test kit.
        run_beside: runs an action that may block on the task's helper thread, one after the other; in the test kit at once. What
            it returns or raises is dropped: it gives its result to the task by `executor`.
        folder: where components may keep files of their own for as long as the topology's positions are kept; its tasks share it.
            It may not be there yet. None where the tasks share no disk, and in the test kit.
        epoch: number of the recoveries so far; it changes while the task lives on, before `fail` is called for lost messages.
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
    executor: Executor | None = field(default=None, repr=False, compare=False)
    clock: Callable[[], float] = field(default=lambda: 0.0, repr=False, compare=False)
    run_beside: Callable[[Callable[[], object]], None] = field(default=_run_now, repr=False, compare=False)
    folder: Path | None = None
    streams: Mapping[str, Mapping[str, tuple[str, ...]]] = field(default_factory=dict, repr=False)
    connections: tuple[Connection, ...] = field(default=(), repr=False)
    epoch: int = field(default=0, compare=False)
    report_progress: Callable[[str], bool] = field(default=lambda _text: False, repr=False, compare=False)
    check_state: Callable[[Any], object] | None = field(default=None, repr=False, compare=False)
    """Raises for state that no checkpoint could store; None where there are no checkpoints."""

    def progress(self, text: str = "") -> bool:
        """Report that a call which takes long is not stuck: `progress_timeout` counts from here.

        Args:
            text: the work under way, such as "loading the model"; `topo status` shows it. "" leaves the last text as it is.

        Returns:
            True when the call has lasted long enough to hold up the worker. A call that can continue in the next
            one, such as `next_tuple` while it looks for its position, should return.
        """
        return self.report_progress(text)

    @property
    def has_helper_thread(self) -> bool:
        """Whether `run_beside` has another thread; False in the test kit, where an action that waits holds up the clock."""
        return self.run_beside is not _run_now

    @property
    def sources(self) -> tuple[Connection, ...]:
        """The inputs of this component, in the order of declaration."""
        return tuple(found for found in self.connections if found.target == self.component)

    @property
    def targets(self) -> tuple[Connection, ...]:
        """The readers of this component."""
        return tuple(found for found in self.connections if found.source == self.component)

    def output_fields(self, stream: str = DEFAULT_STREAM, component: str | None = None) -> tuple[str, ...]:
        """Return the fields of a stream, of this component or another.

        Raises:
            NotFoundError: there is no such component, or it has no such stream.
        """
        name = self.component if component is None else component
        streams = self.streams.get(name)
        if streams is None:
            raise NotFoundError(f"the topology has no component {name!r}.", tuple(get_close_matches(name, self.streams, n=2)))
        if stream not in streams:
            has = ", ".join(map(repr, streams)) or "none"
            near = tuple(get_close_matches(stream, streams, n=2))
            raise NotFoundError(f"component {name!r} has no stream {stream!r}; it has {has}.", near)
        return streams[stream]

    def tasks_of(self, component: str) -> tuple[int, ...]:
        """Return the ids of a component's tasks, by task index; empty for an unknown component."""
        return self.tasks.get(component, ())

    @property
    def logger(self) -> logging.Logger:
        """A standard logger named for topology, component and task; its records show in `topo logs`."""
        return logging.getLogger(f"topo.user.{self.topology}.{self.component}.{self.task_index}")
