"""Bolts: what processes tuples."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol

from topo.api.context import TaskContext
from topo.api.streams import DEFAULT_STREAM, Outputs
from topo.api.tuples import Tuple

Anchors = Tuple | Sequence[Tuple] | None
"""Anchors of a tuple: nothing, one input, or several."""


class WithRequiredFields:
    """A bolt whose inputs are checked for fields when a topology is built.

    Attributes:
        required_fields: fields that every tuple must have. An input without one of them is refused.
        missing_field_fix: the last words of the refusal; "" for none.
    """

    required_fields: Sequence[str] = ()
    missing_field_fix = ""


class WithOwnFile:
    """A sink whose file no other component writes to, which is checked when a topology is built.

    Attributes:
        own_file: its path, without links; "" for none.
    """

    own_file = ""


class Collector(Protocol):
    """The collector of a `Bolt`, which emits and acks with it. The engine passes it to `prepare`.

    Any thread may use it. A call on another thread than the task's is done by the task, between two calls of the bolt and in the
    order in which that thread makes them; threads have no order among each other. A row that cannot be sent raises where it is
    emitted; a second ack of one input is an error of the component.
    """

    def emit(
        self, values: Sequence[Any], anchors: Anchors = None, stream: str = DEFAULT_STREAM, timestamp: int | None = None
    ) -> None:
        """Emit one tuple. It leaves after the call that emits it has returned, together with others.

        Args:
            values: one value for each field of the stream, taken as they are now: what becomes of a list later is not emitted.
            anchors: the input or inputs it descends from. It joins their tuple trees: the spout's message is acked only when
                this tuple is acked too. None: the tuple is not tracked.
            stream: one of the declared streams.
            timestamp: event time in milliseconds since the epoch. None: the timestamp of the (first) anchor.

        Raises:
            EmitError: the stream is not declared or is a direct one, or the number of values is wrong.
            TupleStateError: an anchor has been acked or failed already.
        """

    def emit_direct(
        self,
        task: int,
        values: Sequence[Any],
        anchors: Anchors = None,
        stream: str = DEFAULT_STREAM,
        timestamp: int | None = None,
    ) -> None:
        """Emit one tuple of a direct stream to the task with that id, which must have a direct grouping on it."""

    def ack(self, tup: Tuple) -> None:
        """Say that the input is done and everything anchored on it has been emitted.

        Each input must be acked or failed exactly once, in `execute` or later; a forgotten input fails when
        `message_timeout` has passed.

        Raises:
            TupleStateError: the tuple has been acked or failed already.
        """

    def fail(self, tup: Tuple) -> None:
        """Say that the input could not be processed: its spout messages fail at once.

        Raises:
            TupleStateError: the tuple has been acked or failed already.
        """

    def reset_timeout(self, tup: Tuple) -> None:
        """Restart the input's message timeout, for work that takes longer. Call it well before the timeout."""

    def report_error(self, error: BaseException) -> None:
        """Report an error in `topo errors`. No tuple fails because of it."""


class BasicCollector(Protocol):
    """Output of a `BasicBolt`: anchors every tuple on the current input, which is acked when `execute` returns."""

    def emit(self, values: Sequence[Any], stream: str = DEFAULT_STREAM, timestamp: int | None = None) -> None:
        """Emit one tuple, anchored on the current input; otherwise as `Collector.emit`."""

    def emit_direct(self, task: int, values: Sequence[Any], stream: str = DEFAULT_STREAM, timestamp: int | None = None) -> None:
        """Emit one tuple of a direct stream to the task with that id, anchored on the current input."""

    def report_error(self, error: BaseException) -> None:
        """Report an error in `topo errors`. No tuple fails because of it."""


class Bolt(ABC):
    """A bolt that anchors and acks explicitly. All its methods are called by one thread, one at a time.

    The order of calls: `prepare`; `execute` for each input, `on_reset` between them after a recovery; `end_of_input` when all
    inputs have ended; `cleanup` at an orderly end. A killed process calls nothing, and what a bolt keeps in its attributes
    dies with its process.

    An exception in `execute` discards the output of the call, fails the input and is reported with its traceback; the
    process continues (setting `on_error`).

    Attributes:
        outputs: its output streams, as of a `Spout`.
        component_settings: its own settings, as of a `Spout`, such as `{"tick_interval": "1s"}`.
    """

    outputs: Outputs = ()
    component_settings: Mapping[str, Any] = {}

    def prepare(self, context: TaskContext, collector: Collector) -> None:
        """Called once in each process, before the first input: create heavy resources, keep the collector."""

    @abstractmethod
    def execute(self, tup: Tuple) -> None:
        """Process one input, and ack or fail it here or later. Must not block for long."""

    def end_of_input(self) -> None:
        """Called when all inputs have ended: emit the remaining results.

        Called at most once in each epoch. Replays can follow, and are executed as ever.
        """

    def on_reset(self) -> None:
        """Called after a lost process has been replaced, before the replays come.

        Drop the inputs that are held back: they will be replayed, and to ack, fail or anchor the old ones has no effect.
        """

    def cleanup(self) -> None:
        """Called at an orderly end: release what `prepare` took."""


class BasicBolt(ABC):
    """A bolt whose inputs are acked by the engine when `execute` returns, and failed when it raises.

    Its output is anchored on the current input. Take `Bolt` to hold inputs back, to join several, or to ack later. The
    order of calls is that of `Bolt`, and so are its attributes.
    """

    outputs: Outputs = ()
    component_settings: Mapping[str, Any] = {}

    def prepare(self, context: TaskContext) -> None:
        """Called once in each process, before the first input: create heavy resources here."""

    @abstractmethod
    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        """Process one input. Raise any exception to fail it; the output of the call is then discarded."""

    def end_of_input(self, collector: BasicCollector) -> None:
        """Called when all inputs have ended: emit the remaining results. They have no input, so they are not tracked.

        Called at most once in each epoch. Replays can follow, and are executed as ever.
        """

    def on_reset(self) -> None:
        """Called after a lost process has been replaced, before the replays come."""

    def cleanup(self) -> None:
        """Called at an orderly end: release what `prepare` took."""


class StatefulBolt(BasicBolt):
    """A `BasicBolt` whose state is part of the checkpoints of an `exactly_once` topology.

    After a recovery `restore` brings it back to the last checkpoint, and the inputs since then are replayed: each has changed the
    state once. With another mode of delivery neither method is called, and the state dies with its process.

    Attributes:
        key: fields that the state goes by, those of its fields grouping. With it `snapshot` returns a dict by key (by tuple of
            keys for several), which is split by key groups, so that the parallelism can be changed. None: the state of a task
            is one thing, and the parallelism has to stay.
        is_broadcast: all tasks have the same state, since it comes from inputs that all are given (`all_grouping`). A checkpoint
            has that of the first task, and each task is given it, also at another parallelism. For a bolt without a key.
    """

    key: ClassVar[str | tuple[str, ...] | None] = None
    is_broadcast: ClassVar[bool] = False

    @abstractmethod
    def snapshot(self) -> Any:
        """Return all that has to be remembered, as values that a tuple could carry. It is encoded before the next call."""

    @abstractmethod
    def restore(self, state: Any) -> None:
        """Take the state that `snapshot` returned, sequences as tuples; None: begin with nothing.

        Called after `prepare`, when there is something to restore; and in a surviving process, at every recovery, before
        `on_reset`.
        """
