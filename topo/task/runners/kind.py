"""What an `InputRunner` asks of the kind of bolt that it runs. `KindOptions` has what only some kinds have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from msgspec import Struct, field

from topo.api.metrics import Histogram
from topo.api.tuples import Tuple
from topo.checkpoint.alignment import Snapshot
from topo.operators.time.watermarks import InputStatus
from topo.task.batch import Batch
from topo.task.runners.base import MessageHandlers, Timed
from topo.task.runners.calls import Calls
from topo.task.timestamp_check import TimestampCheck
from topo.wire.frames import Frame


class InputKind(Protocol):
    """Makes the calls of one kind of bolt, and leaves what they emit, ack and fail in a collector.

    Attributes:
        calls: makes the calls to which no input belongs, and settles.
        holds_inputs: whether inputs that are held back are restored from a checkpoint.
        end_of_input: calls the user's component for the end of its input; None if it has no such callback.
    """

    @property
    def calls(self) -> Calls: ...

    @property
    def holds_inputs(self) -> bool: ...

    @property
    def end_of_input(self) -> Callable[[], object] | None: ...

    def open(self) -> None:
        """Open the user's component, and give it the state that the epoch begins with."""

    def begin_again(self, parts: list[Snapshot] | None, now: float) -> None:
        """Bring the user's open component to where a later epoch begins.

        Args:
            parts: the state of a checkpoint; empty: that of the beginning; None: it keeps its state, and forgets the inputs that
                it holds, since they are replayed.
            now: monotonic seconds.
        """

    def run(self, batch: Batch, first: int, last: int, now: float) -> None:
        """Run user code on some tuples of the batch, and settle. May take fewer, and notes that in `batch.done`."""

    def snapshot(self, checkpoint: int) -> Snapshot:
        """Return the state of the user's component."""

    def close(self) -> None:
        """Call the user's last callback."""


class Firings(Timed, Protocol):
    """Trees that begin at the task: the firings of tracked windows. Without a verdict they time out."""

    @property
    def pending(self) -> int:
        """How many have no verdict."""

    def on_verdicts(self, frame: Frame, now: float) -> None:
        """Take verdicts."""


class ReadyCalls(Protocol):
    """Calls that each take a turn."""

    @property
    def has_ready(self) -> bool:
        """Whether a call can be made; the task takes no input before it."""

    @property
    def held(self) -> int:
        """How many inputs wait, in ready batches and in open ones."""

    def run_ready(self, now: float) -> float:
        """Make one call, and settle; return when it has ended, in monotonic seconds."""

    def close_batches(self) -> None:
        """Make all open batches ready: a barrier or the end waits behind their inputs."""


class KindOptions(Struct, frozen=True, kw_only=True):
    """What a kind of bolt has besides the calls of an `InputKind`: each has `pass_time`, and only some have the rest."""

    pass_time: Callable[[list[int | InputStatus], float], bool]
    """Acts on the event time of the input as a whole; returns False if timers that it makes due have not all fired."""
    takes_batches: bool = False
    """Whether its inputs may be batches of columns; else it is given their rows."""
    tick: Callable[[Tuple], object] | None = None
    """Calls user code for a tick."""
    timed: Timed | None = None
    """Its work that is due by the clock."""
    ready: ReadyCalls | None = None
    """Calls that go before input."""
    firings: Firings | None = None
    """Take verdicts."""
    messages: MessageHandlers = field(default_factory=dict)
    """Handlers of the master's messages that it acts on."""
    has_room: Callable[[], bool] | None = None
    """Whether user code takes another input."""
    opened: Callable[[], object] | None = None
    """Called when the edges of an epoch are open."""
    before_end: Callable[[float], bool] | None = None
    """Called ahead of the end of the input; returns False if it has to be called again."""
    settle_mails: Callable[[float], object] | None = None
    """Routes the results of mails."""
    unfinished: Callable[[], str] | None = None
    """Describes the inputs that user code still has, "" when there are none. END waits for them."""
    refusal: Callable[[], str] | None = None
    """Returns why the target of a sink takes nothing for want of a right, "" when it does."""
    act_last: Callable[[float], object] | None = None
    """Called at the end of each action."""
    levels: Callable[[], dict[str, float]] | None = None
    """Returns what there is of it now, by name of the statistic."""
    latency: Histogram | None = None
    """Of a call, where the time that a slice takes is not of interest."""
    timestamp_check: TimestampCheck | None = None
    """Reports timestamps that are no milliseconds, where the kind goes by them."""
