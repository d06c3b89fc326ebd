"""From what a batch emitted to columns for each target task: routes, fresh edge ids, and the XOR that each input owes.

Part of the per-tuple path; works on whole columns. The rows of a batch come with their anchoring in one of three forms:

    untracked   no ids at all
    single      each row descends from one message: the i-th input's root. What the input owes for its rows is folded into
                `xors[i]`. With telescoped ids (`IdSource.telescoped`) that is one XOR for each input and target set.
    anchored    each row names its anchors (`BoltCollector`): any number of inputs, with any number of roots. Slower.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from math import inf
from operator import itemgetter, xor
from typing import Protocol, TypeVar

from topo.emission.collectors import TrackedTuple
from topo.emission.emitter import StreamRows
from topo.emission.groupers import EVERY_ROW, Grouper, Rows, Selection, TargetShare
from topo.errors import EmitError
from topo.ids import ID_BYTES, IdSource, TaskId
from topo.wire.columns import split
from topo.wire.frames import Anchoring, Column, Columns, pack_counts, pack_timestamps, pack_words, unpack_words

T = TypeVar("T")
Stamps = Sequence[int | None] | None
"""Event timestamps by row, in milliseconds; None when no row has one."""

Reject = Callable[[int, Exception], None]
"""Called with the index of a row that cannot be routed, and why; the row is left out."""


class ColumnSink(Protocol):
    """Where columns go: the task's outbox."""

    def put(self, target: TaskId, stream: int, columns: Columns) -> None:
        """Append columns to the buffer of the edge to `target`."""


class RoutedSubscription:
    """One grouping of one consumer on a stream, resolved for this sender."""

    __slots__ = ("grouper", "targets")

    def __init__(self, grouper: Grouper, targets: Sequence[TaskId]) -> None:
        self.grouper = grouper
        self.targets = list(targets)

    def split(self, rows: Rows, reject: Reject) -> list[TargetShare]:
        """Split the rows among the targets; rows that cannot be routed are rejected one by one, the rest goes."""
        try:
            return self.grouper.split(rows)
        except EmitError:
            pass
        shares: dict[int, list[int]] = {}
        for index, row in enumerate(rows):
            try:
                for position, _ in self.grouper.split([row]):
                    shares.setdefault(position, []).append(index)
            except EmitError as error:
                reject(index, error)
        return list(shares.items())


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


def pick(values: Sequence[T], selection: Selection) -> Sequence[T]:
    """Return the selected values."""
    if isinstance(selection, slice):
        return values[selection]
    return itemgetter(*selection)(values) if len(selection) > 1 else [values[index] for index in selection]


def pick_stamps(stamps: Stamps, selection: Selection) -> bytes:
    """Return the selected timestamps as a column; empty when there are none."""
    return b"" if stamps is None else pack_timestamps(pick(stamps, selection))


def owners_of(ends: Sequence[int]) -> list[int]:
    """Return, by row, the index of the input that emitted it."""
    owners: list[int] = []
    start = 0
    for index, end in enumerate(ends):
        if end != start:
            owners.extend([index] * (end - start))
            start = end
    return owners


def repeated(words: Column, ends: Sequence[int]) -> bytes:
    """Repeat each input's packed word once for each of its rows."""
    words, out, start = bytes(words), [], 0
    for at, end in enumerate(ends):
        out.append(words[ID_BYTES * at : ID_BYTES * at + ID_BYTES] * (end - start))
        start = end
    return b"".join(out)


class Router:
    """Routes the batches of one sending task."""

    def __init__(self, subscriptions: Sequence[Sequence[RoutedSubscription]], ids: IdSource, outlet: ColumnSink) -> None:
        self._subscriptions = subscriptions
        self._ids = ids
        self._outlet = outlet
        self._held: list[tuple[TaskId, int, Sequence[int], Columns]] | None = None

    def hold(self) -> None:
        """Keep what is routed until `release`."""
        self._held = []

    def release(self, stream: int, cuts: Sequence[tuple[int, Callable[[], None]]]) -> None:
        """Let out what was routed since `hold`, in pieces.

        Args:
            stream: the one whose rows are cut; rows of other streams go before the first cut.
            cuts: how many rows of the stream go before it, in order, and what is to be done there.
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
        """Route rows without ids. Returns how many tuples that made."""
        transferred = 0
        for subscription in self._subscriptions[stream.index]:
            for position, selection in subscription.split(stream.rows, reject):
                rows = list(pick(stream.rows, selection))
                transferred += len(rows)
                columns = Columns(Anchoring.NONE, rows, timestamps=pick_stamps(stamps, selection))
                self._put(subscription.targets[position], stream.index, selection, columns)
        return transferred

    def single(
        self,
        stream: StreamRows,
        roots: Column,
        xors: list[int],
        ends: list[int] | None,
        stamps: Stamps,
        reject: Reject,
    ) -> int:
        """Route rows whose inputs have one root each, and fold the new edges into `xors`. Returns the tuples made.

        Args:
            stream: the emitted rows.
            roots: by input, packed.
            xors: by input: what the input owes its acker so far.
            ends: by input: how many rows there were after it; None when each input has one row.
            stamps: event timestamps by row, or None.
            reject: called for rows that cannot be routed.
        """
        rows = stream.rows
        count, transferred = len(rows), 0
        if ends is not None and len(ends) == count and ends == list(range(1, count + 1)):
            ends = None
        row_roots = roots if ends is None else repeated(roots, ends)
        for subscription in self._subscriptions[stream.index]:
            shares = subscription.split(rows, reject)
            if not subscription.grouper.partitions:
                owners = range(count) if ends is None else owners_of(ends)
                transferred += self._copy(subscription, shares, stream, unpack_words(row_roots), owners, xors, stamps)
                continue
            states, edges = self._ids.telescoped(count)
            if ends is None:
                xors[:] = map(xor, xors, unpack_words(edges))
            else:
                start = 0
                for index, end in enumerate(ends):
                    if end != start:
                        xors[index] ^= states[start] ^ states[end]
                        start = end
            transferred += count
            words: tuple[list[int], list[int]] | None = None
            for position, selection in shares:
                if isinstance(selection, slice):
                    first, last, _ = selection.indices(count)
                    low, high = first * ID_BYTES, last * ID_BYTES
                    share_roots, share_edges = row_roots[low:high], edges[low:high]
                else:
                    words = words or (unpack_words(row_roots), unpack_words(edges))
                    share_roots, share_edges = (pack_words(pick(column, selection)) for column in words)
                share = rows if selection is EVERY_ROW else list(pick(rows, selection))
                columns = Columns(Anchoring.SINGLE, share, share_roots, share_edges, pick_stamps(stamps, selection))
                self._put(subscription.targets[position], stream.index, selection, columns)
        return transferred

    def _copy(
        self,
        subscription: RoutedSubscription,
        shares: list[TargetShare],
        stream: StreamRows,
        row_roots: Sequence[int],
        owners: Sequence[int],
        xors: list[int],
        stamps: Stamps,
    ) -> int:
        """Route rows that go to any number of tasks each: every copy has an edge of its own."""
        transferred = 0
        for position, selection in shares:
            chosen = range(len(stream.rows))[selection] if isinstance(selection, slice) else selection
            states, edges = self._ids.telescoped(len(chosen))
            for place, row in enumerate(chosen):
                xors[owners[row]] ^= states[place] ^ states[place + 1]
            columns = Columns(
                Anchoring.SINGLE,
                list(pick(stream.rows, selection)),
                pack_words(pick(row_roots, selection)),
                edges,
                pick_stamps(stamps, selection),
            )
            self._put(subscription.targets[position], stream.index, selection, columns)
            transferred += len(chosen)
        return transferred

    def anchored(
        self, stream: StreamRows, anchors: Sequence[Sequence[TrackedTuple]], epoch: int, stamps: Stamps, reject: Reject
    ) -> int:
        """Route rows with their anchors: for each row, target and anchor a fresh edge id. Returns the tuples made.

        The id is folded into the anchor's `out` and, for each root of the anchor, into what the child carries for that root.
        An anchor of an older epoch, or without roots, contributes nothing.
        """
        transferred = 0
        for subscription in self._subscriptions[stream.index]:
            for position, selection in subscription.split(stream.rows, reject):
                chosen = pick(anchors, selection)
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
                rows, share_stamps = list(pick(stream.rows, selection)), pick_stamps(stamps, selection)
                if not roots:
                    columns = Columns(Anchoring.NONE, rows, timestamps=share_stamps)
                else:
                    is_single = counts == [1] * len(counts)
                    anchoring = Anchoring.SINGLE if is_single else Anchoring.MULTI
                    packed_counts = b"" if is_single else pack_counts(counts)
                    columns = Columns(anchoring, rows, pack_words(roots), pack_words(edges), share_stamps, packed_counts)
                self._put(subscription.targets[position], stream.index, selection, columns)
                transferred += len(rows)
        return transferred
