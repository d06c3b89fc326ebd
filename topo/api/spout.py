"""Spouts: where messages enter a topology."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol

from topo.api.context import TaskContext
from topo.api.streams import DEFAULT_STREAM, Outputs
from topo.errors import TopoInternalError


class SourceSignals(Protocol):
    """The calls that the collectors of all spouts have besides those that emit."""

    def emit_watermark(self, timestamp: int) -> None:
        """Promise that no tuple with a timestamp <= `timestamp` (milliseconds) follows, replays of failed messages aside.

        It keeps its place in the stream: readers get it between the tuples before and after it, also within one call.
        Lower than one before: nothing happens. Not needed with a `WatermarkStrategy`.
        """

    def mark_idle(self) -> None:
        """Declare the spout idle: readers do not wait for its watermarks until its next tuple or watermark."""

    def nothing_before(self, seconds: float) -> None:
        """Say that the source has no message for that long, so `next_tuple` need not be called before.

        Counts from the return of this call of `next_tuple`, which may have emitted; less than 0.25 ms, and more than 0, counts as
        0.25 ms, so that messages that are due shortly after one another leave together. The next call comes earlier when an
        action of `context.executor`, or of another thread, has run in the task. Without it, a spout that has emitted nothing is
        called again after 0.25 ms, and ever less often: every 20 ms in the end. A `BlockingSpout` is not polled and needs none
        of this.

        Args:
            seconds: 0 or more; the next call of `nothing_before` replaces it.

        Raises:
            ValueError: it is negative, infinite or no number.
        """

    def end_of_input(self) -> None:
        """Say that the source has no more. `next_tuple` is not called again; failed messages are still replayed.

        A topology whose spouts have all ended finishes when every message is acked or given up.
        """

    def report_error(self, error: BaseException) -> None:
        """Report an error in `topo errors`. No tuple fails because of it."""


class SpoutCollector(SourceSignals, Protocol):
    """The collector of a spout. The engine passes it to `open`."""

    def emit(
        self, values: Sequence[Any], message_id: Any = None, stream: str = DEFAULT_STREAM, timestamp: int | None = None
    ) -> None:
        """Emit one tuple. It leaves after the call that emits it has returned, together with others.

        Args:
            values: one value for each field of the stream.
            message_id: the argument of the later `ack` or `fail` of the tuple tree. None: the tuple is not
                tracked, and neither is called. For a `RetryingSpout` it is the message's position in the source.
            stream: one of the declared streams.
            timestamp: event time in milliseconds since the epoch.

        Raises:
            EmitError: the stream is not declared or is a direct one, or the number of values is wrong.
        """

    def emit_direct(
        self, task: int, values: Sequence[Any], message_id: Any = None, stream: str = DEFAULT_STREAM, timestamp: int | None = None
    ) -> None:
        """Emit one tuple of a direct stream to the task with that id, which must have a direct grouping on it.

        Ids of the tasks come from `context.tasks_of(component)`.
        """


class Spout(ABC):
    """A source. All its methods are called by one thread, one at a time, in the process that hosts the task.

    The order of calls: `open`; `activate` when the topology starts or is activated again; `next_tuple`, `ack` and `fail` in
    any order; `deactivate` when it is paused; `close` at an orderly end. A killed process calls nothing.

    An exception in `next_tuple` is reported and all output of the call (tuples, watermarks, idleness, end of input) is
    discarded; the next call follows after a pause.

    A message that fails and is not emitted again by the spout counts as finally failed, and the run reports it. Take
    `RetryingSpout` to have the engine replay it.

    Attributes:
        outputs: its output streams: a tuple of field names, or `{stream: fields}`. Set on the class or in `__init__`; read once,
            when the topology is built.
        component_settings: its own settings, which those of `set_spout` or `set_bolt` override, such as
            `{"max_spout_pending": 100}`. Set and read as `outputs`.
        wants_values: True makes the engine call `ack(message_id, values)` and `fail(message_id, values)` with the values that
            were emitted. Declare the second parameter with a default, as in `def fail(self, message_id, values=())`. Not with
            `exactly_once`, which keeps no values.
    """

    outputs: Outputs = ()
    component_settings: Mapping[str, Any] = {}
    wants_values: ClassVar[bool] = False

    @property
    def is_endless(self) -> bool:
        """Whether its input is known to have no end: a program of streams that waits for the end is refused then."""
        return False

    def open(self, context: TaskContext, collector: SpoutCollector) -> None:
        """Called once in each process, before everything else: connect to the source, keep the collector.

        A `RetryingSpout` continues after `context.committed_position` when that is not None.
        """

    @abstractmethod
    def next_tuple(self) -> None:
        """Emit the next message or messages, if there are any, and return soon.

        Called again and again while the spout is active, has not ended, has room downstream, and has fewer than
        `max_spout_pending` messages in flight. It must not block: acks and failures wait while it runs. Return without an
        emit when there is nothing yet; the engine then waits a little, longer each time.
        """

    def ack(self, message_id: Any) -> None:
        """Called when every tuple that descends from the message has been acked. Forget the message."""

    def fail(self, message_id: Any) -> None:
        """Called when a tuple of the tree failed, when `message_timeout` passed, or when a process was lost.

        Emit the message again, under the same message id, or give it up.
        """

    def activate(self) -> None:
        """Called before the first `next_tuple` and when a paused topology continues."""

    def deactivate(self) -> None:
        """Called when the topology is paused or drained. `ack` and `fail` still follow."""

    def close(self) -> None:
        """Called at an orderly end: release what `open` took."""


class RetryingSpout(Spout):
    """A spout whose failed messages the engine replays from the values it keeps.

    A message that fails is emitted again after a wait (setting `backoff`), in all at most `attempts` times; then it goes to
    the dead letters, which are stored before it counts as done. Messages that a lost process had in flight are replayed at
    once and in order, and that is no attempt.

    So `ack` is called when a message is through, and `fail` only when it has been given up and its dead letter is stored.

    Message ids must be positions: each one later in the source than the one before, and made of ints, strings and tuples. Every
    message needs one. A message whose id is none of that is refused: it is not sent, counts as `refused`, and the run fails.

    The engine stores the last position up to which every message is done, acked or dead-lettered, and gives it to `open` as
    `context.committed_position` when the spout starts again.
    """


class BlockingSpout(Spout):
    """A source that blocks: `run` loops in a separate thread and emits as messages come.

    `open`, `ack`, `fail`, `activate`, `deactivate` and `close` are called by the task's thread as in every spout, while `run`
    is under way: share with it only thread-safe objects. `collector.emit` may be called by the thread of `run`; it blocks
    while there is no room, while `max_spout_pending` is reached, and while the topology is paused.
    """

    @abstractmethod
    def run(self) -> None:
        """Read and emit until the source ends or `cancel` is called. Returning is the end of input.

        An exception is reported; `run` is called again after a pause.
        """

    @abstractmethod
    def cancel(self) -> None:
        """Make `run` return soon. Called by the task's thread, before `close`."""

    def next_tuple(self) -> None:
        """Never called for a blocking spout."""
        raise TopoInternalError("next_tuple of a BlockingSpout was called")
