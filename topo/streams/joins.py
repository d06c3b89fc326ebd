"""Two keyed streams in one operator: joins, tables and `CoProcess`. Both sides travel as one stream of tagged records."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Any, Generic, TypeVar

from msgspec import Struct

from topo.api.durations import duration_ms
from topo.api.metrics import Metrics
from topo.errors import LateReplayError, UserError
from topo.streams.chain import open_function
from topo.streams.functions import own_reader
from topo.streams.key_types import FirstKeys
from topo.streams.process import OUT_EMIT, KeyedProcess, KeyedValue, StreamContext, StreamOutput
from topo.streams.records import layout_of
from topo.streams.results import Change, SideOutput, Windowed
from topo.streams.time_buffer import KeyedBuffer
from topo.user_errors import call_for_effect

K = TypeVar("K")
A = TypeVar("A")
B = TypeVar("B")
R = TypeVar("R")

UNMATCHED_LEFT, UNMATCHED_RIGHT = "unmatched_left", "unmatched_right"
"""Counters of the records without a partner that a join leaves out."""


class Sided(Struct, frozen=True, gc=False):
    """A record of one of two streams, as plain values, which refer to nothing that refers to it."""

    left: bool
    deleted: bool
    packed: Any


class LateRecords:
    """Reads the late records of a window join that have one tag.

    Args:
        sides: types of the left and the right records.
        late: their tags.
        tag: the one to read.
    """

    def __init__(self, sides: tuple[Any, Any], late: Sequence[SideOutput[Any]], tag: SideOutput[Any]) -> None:
        self._sides, self._wanted = sides, [one == tag for one in late]

    def open(self, _context: Any) -> None:
        """Compile how records are read."""
        self._readers = [layout_of(record).unpacker() for record in self._sides]

    def __call__(self, record: Sided) -> Sequence[Any]:
        """Return the record, if it has the tag."""
        place = 0 if record.left else 1
        return [self._readers[place](record.packed)] if self._wanted[place] else []


class Tag:
    """Makes a `Sided` of each record.

    Args:
        merged: the records are of merged streams of several types.
        deleted: of a table: whether a record removes its key.
    """

    def __init__(
        self, record: Any, place: str, *, left: bool, merged: bool, deleted: Callable[[Any], object] | None = None
    ) -> None:
        self._record, self._place, self._left, self._merged, self._deleted = record, place, left, merged, deleted

    def open(self, context: Any) -> None:
        """Compile how records are packed, and open the function."""
        self._pack = layout_of(self._record).packer(self._place, merged=self._merged)
        open_function(self._deleted, context)

    def __call__(self, record: Any) -> Sided:
        """Return the tagged record."""
        deleted = self._deleted
        return Sided(self._left, deleted is not None and bool(deleted(record)), self._pack(record))


class CoProcess(KeyedProcess[K, Sided, R], Generic[K, A, B, R]):
    """A function of each record of two streams with the same key, with state and timers that both share.

    State is declared on the class, as for a `KeyedProcess`.
    """

    sides: tuple[Any, Any] = (None, None)
    """Types of the left and the right records; set when the program is drawn."""

    def _prepare(self) -> None:
        self._left, self._right = (layout_of(record).unpacker() for record in self.sides)

    @abstractmethod
    def process_left(self, record: A, context: StreamContext[K], out: StreamOutput[R]) -> None:
        """Called for each record of the first stream."""

    @abstractmethod
    def process_right(self, record: B, context: StreamContext[K], out: StreamOutput[R]) -> None:
        """Called for each record of the second stream."""

    def process(self, record: Sided, context: Any, out: Any) -> None:
        """Call the method of the record's side."""
        if record.left:
            call_for_effect(self.process_left, self._left(record.packed), context, out, fix=OUT_EMIT)
        else:
            call_for_effect(self.process_right, self._right(record.packed), context, out, fix=OUT_EMIT)


class JoinFunction:
    """The user's function of a left and a right record, and what becomes of those that it is not called for.

    Args:
        sides: types of the left and the right records.
        late: tags of the side outputs for late records, left and right; may be shorter.
        outer: whether left records without a partner count, too.
    """

    def __init__(
        self, function: Callable[[Any, Any], Any], sides: tuple[Any, Any], late: Sequence[SideOutput[Any]], *, outer: bool
    ) -> None:
        self._function, self._sides, self._outer, self._late = function, sides, outer, late

    def open(self) -> None:
        """Compile how records are read, and open the function."""
        self._readers = [own_reader(layout_of(record)) for record in self._sides]
        open_function(self._function)

    def join(self, left: Any, right: Any, context: StreamContext[Any], out: StreamOutput[Any]) -> None:
        """Emit a pair of plain records. `right` is in a tuple; None for no partner, which is counted where it is left out."""
        if right is not None or self._outer:
            read_left, read_right = self._readers
            out.emit(self._function(read_left(left), None if right is None else read_right(right[0])))
        else:
            context.metrics.counter(UNMATCHED_LEFT).add()

    def join_each(self, lefts: Sequence[Any], right: Any, context: StreamContext[Any], out: StreamOutput[Any]) -> list[Any]:
        """Emit the pairs of plain left records with one right record, as `join` does; return the left ones whose call has raised.

        Raises:
            Exception: of the function, where it has raised for all.
        """
        if right is None and not self._outer:
            context.metrics.counter(UNMATCHED_LEFT).add(len(lefts))
            return []
        read_left, read_right = self._readers
        results: list[Any] = []
        failed: list[Any] = []
        for left in lefts:
            try:
                results.append(self._function(read_left(left), None if right is None else read_right(right[0])))
            except Exception:
                failed.append(left)
                if len(failed) == len(lefts):
                    raise
        for result in results:
            out.emit(result)
        return failed

    def goes_late(self, record: Sided, context: StreamContext[Any], out: Any) -> bool:
        """Count a late record, and emit it to its side output; return False where it is not late, or has none.

        Raises:
            UserError: the record has no timestamp.
            LateReplayError: it is late because its message has failed before, and it has no side output.
        """
        if context.timestamp is None:
            raise UserError("a join by event time was given a record without a timestamp; put .with_event_time(...) before it")
        if context.timestamp > context.current_watermark:
            return False
        context.metrics.counter("late_left" if record.left else "late_right").add()
        place = 0 if record.left else 1
        if place < len(self._late):
            out.side(self._late[place], self._readers[place](record.packed))
            return True
        if out.is_replayed:
            raise LateReplayError("the replay of a failed message came too late for its partners in a join")
        return False


class _Pairing(KeyedProcess[Any, Sided, Any]):
    """A join by key, whose function is prepared when it opens."""

    _emits_state = False

    def __init__(self, function: JoinFunction) -> None:
        self._pairs = function

    def open(self) -> None:
        """Prepare the function, and look at the keys until one of either side was seen."""
        self._pairs.open()
        self._first_keys = FirstKeys()
        vars(self)["process"] = self._process_first

    def _process_first(self, record: Sided, context: Any, out: Any) -> None:
        if self._first_keys.are_known(context.key, left=record.left):
            vars(self).pop("process", None)
        type(self).process(self, record, context, out)


def _try_again(failed: Sequence[Any], buffer: Any, time: int, timer: int, context: StreamContext[Any]) -> None:
    """Keep records whose function has raised for a timer of their own: others of their time have been emitted."""
    for packed in failed:
        buffer.add(time, packed)
    if failed:
        context.register_event_time_timer(timer)


class IntervalJoin(_Pairing):
    """Pairs of records whose times are near. A late record without a side output meets those that are still kept.

    Args:
        function: its left records without a partner come when the watermark has passed their interval.
        before, after: how far the right record may be from the left one, as durations.
    """

    lefts: Any = KeyedBuffer()
    rights: Any = KeyedBuffer()

    def __init__(self, function: JoinFunction, before: str | timedelta, after: str | timedelta) -> None:
        super().__init__(function)
        self._bounds = (before, after)

    def open(self) -> None:
        """Prepare the function, and read the durations, which are checked at build."""
        super().open()
        self._before, self._after = (duration_ms(bound) for bound in self._bounds)

    def process(self, record: Sided, context: Any, out: StreamOutput[Any]) -> None:
        """Emit the pairs of a record with those that are kept, and keep it."""
        at, packed = context.timestamp, record.packed
        if (at is None or at <= context.current_watermark) and self._pairs.goes_late(record, context, out):
            return
        mine, others = (self.lefts, self.rights) if record.left else (self.rights, self.lefts)
        first, last = (at - self._before, at + self._after) if record.left else (at - self._after, at + self._before)
        start, partners = others.between(first, last)
        for time, other, _ in partners:
            context.stamp_output(max(at, time))  # whichever of the two has arrived first
            left, right = (packed, other) if record.left else (other, packed)
            self._pairs.join(left, (right,), context, out)
        # Behind the calls: with `at_least_once` nothing undoes changes of state, and without a pair a left record comes alone.
        others.pair(start, partners)
        mine.add(at, packed, is_paired=bool(partners))
        context.register_event_time_timer(last)

    def on_timer(self, timestamp: int, context: StreamContext[Any], out: StreamOutput[Any]) -> None:
        """Drop what can have no partner any more."""
        # Each left record has its timer. Earlier ones that are still here are those whose function has raised then.
        at = timestamp - self._after
        if alone := [packed for time, packed, is_paired in self.lefts.take_until(at) if not is_paired and time == at]:
            _try_again(self._pairs.join_each(alone, None, context, out), self.lefts, at, timestamp, context)
        gone = self.rights.take_until(timestamp - self._before)
        if gone and (unmatched := sum([not is_paired for _time, _packed, is_paired in gone])):
            context.metrics.counter(UNMATCHED_RIGHT).add(unmatched)


class TableJoin(_Pairing):
    """Each left record with the latest right one of its key."""

    latest = KeyedValue[Any](Any)

    def process(self, record: Sided, context: StreamContext[Any], out: StreamOutput[Any]) -> None:
        """Join a left record, or keep a right one."""
        if record.left:
            self._pairs.join(record.packed, self.latest.get(), context, out)
        elif record.deleted:
            self.latest.clear()
        else:
            self.latest.set((record.packed,))


class AsOfJoin(_Pairing):
    """Each left record with the right record that held at its time. It waits until the watermark has passed it.

    A left record that is late and has no side output is dropped; a late right one counts for the left ones that still wait.
    """

    waiting: Any = KeyedBuffer()
    versions: Any = KeyedBuffer()  # the packed record in a tuple, or None where the key was deleted

    def process(self, record: Sided, context: Any, out: StreamOutput[Any]) -> None:
        """Keep the record."""
        is_late = self._pairs.goes_late(record, context, out) or (record.left and context.timestamp <= context.current_watermark)
        if not record.left:
            self.versions.add(context.timestamp, None if record.deleted else (record.packed,))
        elif not is_late:
            self.waiting.add(context.timestamp, record.packed)
        if not is_late:
            context.register_event_time_timer(context.timestamp)

    def on_timer(self, timestamp: int, context: StreamContext[Any], out: StreamOutput[Any]) -> None:
        """Join the records of this time, and drop the versions that hold no more."""
        # Each has its timer. An earlier one is here only if its function has raised then, and it was given up.
        if lefts := [packed for time, packed, _ in self.waiting.take_until(timestamp) if time == timestamp]:
            failed = self._pairs.join_each(lefts, self.versions.at(timestamp), context, out)
            _try_again(failed, self.waiting, timestamp, timestamp, context)
        self.versions.take_until(timestamp, but=0 if self.versions.at(timestamp) is None else 1)


class TableChanges(KeyedProcess[Any, Sided, Any]):
    """The row before and the row after, for each record of a table.

    Args:
        record: type of the rows.
    """

    _emits_state = False
    latest = KeyedValue[Any](Any)

    def __init__(self, record: Any) -> None:
        self._of = record

    def open(self) -> None:
        """Compile how rows are read."""
        self._row = own_reader(layout_of(self._of))

    def process(self, record: Sided, context: StreamContext[Any], out: StreamOutput[Any]) -> None:
        """Emit the change, and keep the row."""
        kept = self.latest.get()
        old = None if kept is None else self._row(kept[0])
        if not record.deleted:
            self.latest.set((record.packed,))
            out.emit(Change(old, self._row(record.packed)))
        elif kept is not None:
            self.latest.clear()
            out.emit(Change(old, None))


class WindowJoin:
    """The function of a window that joins the records in it."""

    def __init__(self, function: Callable[[Any, Any], Any], sides: tuple[Any, Any], *, left: bool, right: bool) -> None:
        self._function, self._sides, self._outer = function, sides, (left, right)

    def open(self, _context: Any) -> None:
        """Compile how records are read, and open the function."""
        self._left, self._right = (own_reader(layout_of(record)) for record in self._sides)
        open_function(self._function)
        self._first_keys: FirstKeys | None = FirstKeys()

    def __call__(self, key: Any, window: Windowed[Sequence[Sided]]) -> Iterable[Any]:
        """Return the results of all pairs."""
        if self._first_keys is not None and window.value and self._first_keys.are_known(key, left=window.value[0].left):
            self._first_keys = None
        lefts = [one.packed for one in window.value if one.left]
        rights = [one.packed for one in window.value if not one.left]
        function, read_left, read_right = self._function, self._left, self._right
        if not rights:
            return [function(read_left(left), None) for left in lefts] if self._outer[0] else []
        if not lefts:
            return [function(None, read_right(right)) for right in rights] if self._outer[1] else []
        # Each pair has other copies, as in the other joins: the function may change them, and so may an operator behind it.
        return [function(read_left(left), read_right(right)) for left in lefts for right in rights]

    def count_unmatched(self, window: Windowed[Sequence[Sided]], metrics: Metrics) -> None:
        """Count the records without a partner that are left out."""
        lefts = sum(one.left for one in window.value)
        rights = len(window.value) - lefts
        if not rights and not self._outer[0]:
            metrics.counter(UNMATCHED_LEFT).add(lefts)
        if not lefts and not self._outer[1]:
            metrics.counter(UNMATCHED_RIGHT).add(rights)
