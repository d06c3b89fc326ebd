"""From what a batch emitted to columns for each target task: routes, fresh edge ids, and the XOR that each input owes.

Part of the per-tuple path; works on whole columns. The rows of a batch come with their anchoring in one of three forms:

    untracked   no ids at all
    single      each row descends from one message: the i-th input's root. The edges of its rows are folded into the i-th word
                of a column (`Ids.weave`).
    anchored    each row names its anchors (`BoltCollector`): any number of inputs, with any number of roots. Slower.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from math import inf
from typing import Any, Protocol

from topo.emission.collectors import TrackedTuple
from topo.emission.emitter import StreamRows
from topo.emission.groupers import FieldsGrouper, Grouper, Rows, TargetShare
from topo.errors import EmitError
from topo.hot import EVERY_ROW, Column, Ids, Row, RowShare, Selection, pack_counts, pack_timestamps, pack_words, take
from topo.ids import TaskId
from topo.wire.columns import split
from topo.wire.frames import Anchoring, Columns

Stamps = Sequence[int | None] | None
"""Event timestamps by row, in milliseconds; None when no row has one."""


Reject = Callable[[int, Exception], None]
"""Called with the index of a row that cannot be routed, and why; the row is left out."""


class ColumnSink(Protocol):
    """The destination of columns: the task's outbox.

    Attributes:
        observer: watches them; None as a rule.
    """

    observer: Any

    def anchored(
        self, anchors: Sequence[Sequence[TrackedTuple]], counts: Sequence[int], roots: Sequence[int], edges: Sequence[int]
    ) -> None:
        """Show the observer the anchors of rows that are put next."""

    def put(self, target: TaskId, stream: int, columns: Columns) -> None:
        """Append columns to the buffer of the edge to `target`."""


class RoutedSubscription(Protocol):
    """One grouping of one consumer on a stream, resolved for this sender.

    Attributes:
        targets: the tasks of the consumer.
        partitions: whether each row goes to exactly one of them.
    """

    targets: Sequence[TaskId]
    partitions: bool

    def share(self, rows: list[Row], reject: Reject, *columns: Column) -> list[RowShare]:
        """Share rows and their columns among the targets; rows that cannot be routed are rejected one by one, the rest goes."""


class GroupedSubscription:
    """A subscription whose rows a grouper shares out."""

    __slots__ = ("_grouper", "partitions", "targets")

    def __init__(self, grouper: Grouper, targets: Sequence[TaskId]) -> None:
        self._grouper = grouper
        self.partitions = grouper.partitions
        self.targets: Sequence[TaskId] = targets

    def share(self, rows: list[Row], reject: Reject, *columns: Column) -> list[RowShare]:
        """Have the grouper share all rows, or each alone where one cannot be routed."""
        try:
            if isinstance(self._grouper, FieldsGrouper):
                return self._grouper.share(rows, *columns)
            return take(self._grouper.split(rows), rows, *columns)
        except EmitError:
            pass
        shares: dict[int, list[int]] = {}
        for index, row in enumerate(rows):
            try:
                for position, _ in self._grouper.split([row]):
                    shares.setdefault(position, []).append(index)
            except EmitError as error:
                reject(index, error)
        return take(list(shares.items()), rows, *columns)


class DirectGrouper:
    """Direct grouping: the emitter named the task of each row; a row for a task of another subscriber is none of ours."""

    partitions = False

    def __init__(self, stream: StreamRows, targets: Sequence[TaskId]) -> None:
        self._stream = stream
        self._positions = {target: position for position, target in enumerate(targets)}

    def split(self, rows: Rows) -> list[TargetShare]:
        """Group the rows by the task they were emitted to."""
        shares: dict[int, list[int]] = {}
        for index, target in enumerate(self._stream.targets):
            position = self._positions.get(TaskId(target))
            if position is not None:
                shares.setdefault(position, []).append(index)
        return list(shares.items())


def _packed(stamps: Stamps) -> bytes:
    """Return timestamps as a column; empty when there are none."""
    return b"" if stamps is None else pack_timestamps(stamps)


def owners_of(ends: Sequence[int]) -> list[int]:
    """Return, by row, the index of the input that emitted it."""
    owners: list[int] = []
    start = 0
    for index, end in enumerate(ends):
        if end != start:
            owners.extend([index] * (end - start))
            start = end
    return owners


def _ends_within(places: Selection, ends: Sequence[int] | None, count: int) -> Sequence[int] | None:
    """Return `ends` for the rows at these places alone."""
    if places is EVERY_ROW:
        return ends
    chosen = range(*places.indices(count)) if isinstance(places, slice) else places
    return [bisect_left(chosen, end) for end in (range(1, count + 1) if ends is None else ends)]


def _once(reject: Reject) -> Reject:
    rejected: set[int] = set()

    def reject_once(row: int, error: Exception) -> None:
        if row not in rejected:
            rejected.add(row)
            reject(row, error)

    return reject_once


class Router:
    """Routes the batches of one sending task."""

    def __init__(self, subscriptions: Sequence[Sequence[RoutedSubscription]], ids: Ids, outlet: ColumnSink) -> None:
        self._subscriptions = subscriptions
        self._ids = ids
        self._outlet = outlet
        self._held: list[tuple[TaskId, int, Sequence[int], Columns]] | None = None

    def hold(self) -> None:
        """Keep routed columns until `release`."""
        self._held = []

    def release(self, stream: int, cuts: Sequence[tuple[int, Callable[[], None]]]) -> None:
        """Put the columns routed since `hold` into the outbox, in pieces.

        Args:
            stream: the one whose rows are cut; rows of other streams go before the first cut.
            cuts: in order, for each cut: how many rows of the stream go before it, and the function to call there.
        """
        held, self._held = self._held or [], None
        for count, then in (*cuts, (inf, lambda: None)):
            rest = []
            for target, index, places, columns in held:
                before, behind = split(columns, bisect_left(places, count) if index == stream else len(places))
                if before.rows:
                    self._outlet.put(target, index, before)
                if behind.rows:
                    rest.append((target, index, places[len(before.rows) :], behind))
            held = rest
            then()

    def _put(self, target: TaskId, stream: int, selection: Selection, columns: Columns) -> None:
        if self._held is None:
            self._outlet.put(target, stream, columns)
            return
        first = (selection.start or 0) if isinstance(selection, slice) else 0
        places = range(first, first + len(columns.rows)) if isinstance(selection, slice) else selection
        self._held.append((target, stream, places, columns))

    def has_targets(self, stream: int) -> bool:
        """Whether any task reads the stream."""
        return bool(self._subscriptions[stream])

    def untracked(self, stream: StreamRows, stamps: Stamps, reject: Reject) -> int:
        """Route rows without ids. A row that several groupings refuse is rejected once. Returns how many tuples that made."""
        transferred = 0
        times = _packed(stamps)
        subscriptions = self._subscriptions[stream.index]
        if len(subscriptions) > 1:
            reject = _once(reject)
        for subscription in subscriptions:
            for position, places, rows, (timestamps,) in subscription.share(stream.rows, reject, times):
                transferred += len(rows)
                columns = Columns(Anchoring.NONE, rows, timestamps=timestamps)
                self._put(subscription.targets[position], stream.index, places, columns)
        return transferred

    def single(
        self,
        stream: StreamRows,
        roots: Column,
        owed: bytearray,
        ends: list[int] | None,
        stamps: Stamps,
        reject: Reject,
    ) -> int:
        """Route rows whose inputs have one root each, and fold the new edges into `owed`. Returns the tuples made.

        Args:
            stream: the emitted rows.
            roots: by input.
            owed: by input: the XOR that it owes its acker so far.
            ends: by input: how many rows there were after it; None when each input has one row.
            stamps: event timestamps by row, or None.
            reject: called for rows that cannot be routed.
        """
        rows, weave = stream.rows, self._ids.weave
        count, transferred = len(rows), 0
        if ends is not None and len(ends) == count and ends == list(range(1, count + 1)):
            ends = None
        times = _packed(stamps)
        for subscription in self._subscriptions[stream.index]:
            targets = subscription.targets
            if subscription.partitions:
                woven = weave(roots, ends, owed)
                for position, places, picked, columns in subscription.share(rows, reject, *woven, times):
                    self._put(targets[position], stream.index, places, Columns(Anchoring.SINGLE, picked, *columns))
                transferred += count
                continue
            # A row may go to several tasks: each copy has a separate edge.
            for position, places, picked, (timestamps,) in subscription.share(rows, reject, times):
                woven = weave(roots, _ends_within(places, ends, count), owed)
                self._put(targets[position], stream.index, places, Columns(Anchoring.SINGLE, picked, *woven, timestamps))
                transferred += len(picked)
        return transferred

    def anchored(
        self, stream: StreamRows, anchors: Sequence[Sequence[TrackedTuple]], epoch: int, stamps: Stamps, reject: Reject
    ) -> int:
        """Route rows with their anchors: for each row, target and anchor a fresh edge id. Returns the tuples made.

        The id is folded into the anchor's `out` and, for each root of the anchor, into the child's word for that root.
        An anchor of an older epoch, or without roots, contributes nothing.
        """
        transferred = 0
        times = _packed(stamps)
        for subscription in self._subscriptions[stream.index]:
            for position, places, rows, (timestamps,) in subscription.share(stream.rows, reject, times):
                chosen = anchors[places] if isinstance(places, slice) else [anchors[place] for place in places]
                ids = iter(self._ids.roots(sum(map(len, chosen))))
                counts: list[int] = []
                roots: list[int] = []
                edges: list[int] = []
                for row_anchors in chosen:
                    carried: dict[int, int] = {}
                    for anchor in row_anchors:
                        if anchor.epoch == epoch and anchor.roots:
                            edge = next(ids)
                            anchor.out ^= edge
                            for root in anchor.roots:
                                carried[root] = carried.get(root, 0) ^ edge
                    counts.append(len(carried))
                    roots.extend(carried)
                    edges.extend(carried.values())
                if self._outlet.observer is not None:
                    self._outlet.anchored(chosen, counts, roots, edges)
                if not roots:
                    columns = Columns(Anchoring.NONE, rows, timestamps=timestamps)
                else:
                    is_single = counts == [1] * len(counts)
                    anchoring = Anchoring.SINGLE if is_single else Anchoring.MULTI
                    packed_counts = b"" if is_single else pack_counts(counts)
                    columns = Columns(anchoring, rows, pack_words(roots), pack_words(edges), timestamps, packed_counts)
                self._put(subscription.targets[position], stream.index, places, columns)
                transferred += len(rows)
        return transferred
