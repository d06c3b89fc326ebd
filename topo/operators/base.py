"""The contract between an operator and its driver: a task, or the test harness.

An operator is one step of a dataflow: it takes elements, watermarks and timers, and puts elements and watermarks out. It has one
driver, on one thread, which calls it in this order:

    setup(context)                        once; gives it its surroundings
    restore(snapshot)                     at most once, if there is a snapshot to resume from
    open()                                once; from now on it may emit
    process_element / process_batch / process_watermark / timer callbacks / snapshot      in any order
    end_of_input()                        at most once, after the last element and the last watermark
    close()                               once, also when something failed before

Nothing in an operator may block, sleep, or touch a socket or a file. The one way to wait is `context.executor.yield_()`, which
runs mails until one of them made room. An exception leaves the operator and reaches the driver, who decides what fails.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from msgspec import Struct, field

from topo.api.metrics import Metrics
from topo.errors import ConfigError
from topo.keys import KeyGroupRange
from topo.operators.mailbox.executor import MailboxExecutor
from topo.operators.state.deep_copy import independent
from topo.operators.state.keyed_state import KeyContext, KeyedState
from topo.operators.state.undo_log import UndoableTable, UndoLog
from topo.operators.time.clock import ProcessingTimeService
from topo.operators.time.timers import Brake, TimerServices


class Output(Protocol):
    """Takes the results of an operator. Each call takes effect at once and in order; none blocks."""

    def emit(self, value: Any, timestamp: int | None) -> None:
        """Put out one element; `timestamp` is its event time in milliseconds, None if it has none."""

    def side(self, stream: str, value: Any, timestamp: int | None) -> None:
        """Put out one element on another stream than the main one."""

    def watermark(self, timestamp: int) -> None:
        """Say that no element with a timestamp <= `timestamp` follows."""

    def mark_idle(self) -> None:
        """Say that downstream shall not wait for watermarks from here until further notice."""

    def mark_active(self) -> None:
        """Take the idleness back."""


Keyed = dict[int, dict[str, Any]]


class OperatorSnapshot(Struct, frozen=True):
    """Everything an operator has to remember, as plain data.

    It is a copy: later calls of the operator do not change it.

    Attributes:
        keyed: by key group, what belongs to keys of that group: state and timers. This part can be handed to other tasks.
        own: what belongs to no key, in order, such as the inputs of an async queue.
    """

    keyed: Keyed = field(default_factory=dict)
    own: list[Any] = field(default_factory=list)

    def within(self, groups: KeyGroupRange) -> OperatorSnapshot:
        """Return the part that a task with these key groups resumes from; `own` stays with the snapshot it came in."""
        return OperatorSnapshot({group: data for group, data in self.keyed.items() if group in groups})

    @staticmethod
    def merged(snapshots: Iterable[OperatorSnapshot]) -> OperatorSnapshot:
        """Return one snapshot of several that have no key group in common."""
        whole = OperatorSnapshot()
        for snapshot in snapshots:
            whole.keyed.update(snapshot.keyed)
            whole.own.extend(snapshot.own)
        return whole


class OperatorContext(Struct, frozen=True):
    """The surroundings of one operator.

    Attributes:
        output: where results go.
        executor: the operator's way to its mailbox.
        max_parallelism: number of key groups; the same for the whole life of the topology.
        undo_log: notes changes of state and timers, where the driver undoes calls that raise.
        metrics: of the task.
    """

    output: Output
    clock: ProcessingTimeService
    executor: MailboxExecutor
    max_parallelism: int = 128
    key_groups: KeyGroupRange = field(default_factory=lambda: KeyGroupRange(0, 127))
    undo_log: UndoLog | None = None
    brake: Brake = field(default_factory=Brake)
    metrics: Metrics = field(default_factory=Metrics)

    def __post_init__(self) -> None:
        if self.key_groups.end >= self.max_parallelism:
            raise ConfigError(f"{self.key_groups} lies beyond the key groups 0 to {self.max_parallelism - 1} (max_parallelism)")


class Operator(ABC):
    """An operator without keys; the order of the calls is in the module's docstring.

    Attributes:
        context: set by `setup`.
        output: the context's output, at hand.
        is_behind: whether not all that the last watermark makes due has been done, because the context's brake was pulled. The
            caller gives the same watermark again before anything else.
    """

    context: OperatorContext
    output: Output
    is_behind = False

    def setup(self, context: OperatorContext) -> None:
        """Take the surroundings. Nothing is emitted yet."""
        self.context = context
        self.output = context.output

    def restore(self, snapshot: OperatorSnapshot) -> None:  # noqa: B027
        """Take over what an earlier instance remembered. Watermarks are no part of it: they start at MIN_TIMESTAMP again."""

    def open(self) -> None:  # noqa: B027
        """Get ready; may register timers and emit. Operators in a row open from last to first, for a restored one may emit."""

    @abstractmethod
    def process_element(self, key: Any, value: Any, timestamp: int | None) -> None:
        """Take one element of `key` (None where nothing is keyed) with its event time in milliseconds, or None."""

    def process_batch(self, keys: Sequence[Any], values: Sequence[Any], timestamps: Sequence[int | None]) -> None:
        """Take several elements at once; the same as taking them one by one, for operators that can do better."""
        process_element = self.process_element
        for key, value, timestamp in zip(keys, values, timestamps, strict=True):
            process_element(key, value, timestamp)

    def process_watermark(self, timestamp: int) -> None:
        """Take a watermark, always greater than the one before, and pass it on after everything it caused."""
        self.output.watermark(timestamp)

    def process_idle(self, idle: bool) -> None:
        """Take a change of the input as a whole to idle or back to active."""
        if idle:
            self.output.mark_idle()
        else:
            self.output.mark_active()

    def end_of_input(self) -> None:  # noqa: B027
        """No element and no watermark follows: put out all that is held back. May wait by yielding."""

    def snapshot(self) -> OperatorSnapshot:
        """Return everything that `restore` needs; must not emit or change anything."""
        return OperatorSnapshot(independent(self.freeze()()), self.own())

    def freeze(self) -> Callable[[], Keyed]:
        """Hold on to what belongs to keys as it is now, as fast as that can be done.

        Returns:
            What makes the keyed part of a snapshot of it: once, at any later time, on any thread. It has to be kept until that
            part is no longer needed (see `KeyedState.freeze`).
        """
        return dict

    def own(self) -> list[Any]:
        """Return a copy of what belongs to no key."""
        return []

    def close(self) -> None:  # noqa: B027
        """Let go of everything. Nothing is emitted any more; results that were not put out are dropped."""


class KeyedOperator(Operator):
    """An operator whose elements have keys, with keyed state and timers.

    Attributes:
        keys: the key that state and timers go by: `keys.key` is set by the operator for each element, by timers for themselves.
        state: keyed state, by name.
        timers: timer services, by name.
    """

    keys: KeyContext
    state: KeyedState
    timers: TimerServices
    undo_log: UndoLog | None

    def setup(self, context: OperatorContext) -> None:
        """Take the surroundings; make state and timers that are empty."""
        super().setup(context)
        self.keys = KeyContext(context.max_parallelism)
        log = self.undo_log = context.undo_log
        if log is None:
            self.state = KeyedState(self.keys, context.clock.now_ms)
        else:
            self.state = KeyedState(self.keys, context.clock.now_ms, lambda _name: UndoableTable(log))
        self.timers = TimerServices(self.keys, context.clock, log, context.brake)

    def begin_call(self) -> None:
        """A call of user code begins, for one element or timer: `undo` returns to this moment."""
        if self.undo_log is not None:
            self.undo_log.begin()

    def undo(self) -> None:
        """Take back the changes of the current call to state and timers, where there is a log of them."""
        if self.undo_log is not None:
            self.undo_log.undo()

    def restore(self, snapshot: OperatorSnapshot) -> None:
        """Take over the state and the timers of this task's key groups."""
        keyed = snapshot.within(self.context.key_groups).keyed
        self.state.restore({group: data["state"] for group, data in keyed.items()}, self.decode_namespace)
        self.timers.restore({group: data["timers"] for group, data in keyed.items()}, self.decode_namespace)

    def decode_namespace(self, encoded: Any) -> Any:
        """Return the namespace that was written as `encoded`: a snapshot that was stored has plain tuples for windows."""
        return encoded

    @property
    def ends(self) -> Sequence[Any]:
        """The windows with one timer for all keys, by their ends."""
        return ()

    @property
    def pending_timers(self) -> int:
        """How many timers are registered, of both kinds."""
        return self.timers.pending + len(self.ends)

    def advance(self, watermark: int) -> bool:
        """Fire the timers that a watermark makes due; False if the brake has left some: to be called again."""
        return self.timers.advance_watermark(watermark)

    def process_watermark(self, timestamp: int) -> None:
        """Fire the timers that are due, then pass the watermark on."""
        self.is_behind = not self.advance(timestamp)
        if not self.is_behind:
            self.output.watermark(timestamp)

    def freeze(self) -> Callable[[], Keyed]:
        """Hold on to state and timers; they are sorted by key group later."""
        self.keys.group_of.note_keys(self.state.entries + self.timers.pending)
        frozen_state, frozen_timers = self.state.freeze(), self.timers.freeze()

        def sort() -> Keyed:
            state, timers = frozen_state(), frozen_timers()
            return {
                group: {"state": state.get(group, {}), "timers": timers.get(group, {})} for group in sorted({*state, *timers})
            }

        return sort
