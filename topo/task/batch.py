"""A frame of input as a bolt works on it."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from itertools import accumulate, chain, pairwise, repeat
from typing import Any, NamedTuple

from topo.api.tuples import Origin
from topo.errors import FrameError, UnsupportedValueError
from topo.hot import Row, has_suspect, pack_words, stays, unpack_words
from topo.ids import ID_BYTES, TaskId
from topo.plan.physical import PhysicalPlan
from topo.wire.codec import Codec
from topo.wire.frames import Anchoring, Frame

EventTime = int | None


class Origins:
    """Origin of the tuples of a frame: component, task and stream that emitted them."""

    def __init__(self, plan: PhysicalPlan) -> None:
        self._plan = plan
        self._known: dict[tuple[int, int], Origin] = {}

    def of(self, frame: Frame) -> Origin:
        """Return the origin of a frame's tuples. Raises FrameError for a stream that the sender does not have."""
        key = (frame.sender, frame.stream)
        origin = self._known.get(key)
        if origin is None:
            component = self._plan.task(TaskId(frame.sender)).component
            streams = self._plan.streams(component)
            if frame.stream >= len(streams):
                raise FrameError(f"{frame!r} is of a stream that {component!r} does not have")
            stream = streams[frame.stream]
            origin = self._known[key] = Origin(component, frame.sender, stream.name, stream.fields, columnar=stream.columnar)
        return origin


class Batch:
    """The tuples of one DATA frame, worked on slice by slice.

    Attributes:
        done: how many of the `count` tuples have been taken; a slice that ends early sets it back.
        runs_singly: whether the tuples are run one by one, since one of them may kill the process.
        stamps: event times by tuple; None when the frame has none.
    """

    __slots__ = (
        "_edges", "_kept", "_packed_edges", "_packed_roots", "_payload", "_roots", "_slice", "anchoring", "count", "done",
        "origin", "rows", "runs_singly", "stamps",
    )  # fmt: skip

    def __init__(self, frame: Frame, rows: list[Row], origin: Origin) -> None:
        self.rows = rows
        self.origin = origin
        self.count = len(rows)
        self.done = 0
        self.runs_singly = False
        self._slice: list[Row] = []
        self._payload = None if frame.rows is not None else frame.payload
        """The packed rows; None where the frame carried the rows as objects."""
        self._kept: list[int] | None = None
        """The places of the rows in the payload, where it has others that could not be decoded."""
        self.anchoring = frame.anchoring
        self.stamps: list[EventTime] | None = frame.timestamp_list() if frame.timestamps else None
        self._packed_roots = frame.roots
        self._packed_edges = frame.edges
        self._roots: list[Any] | None = None
        self._edges: list[Any] = []
        if frame.anchoring is Anchoring.MULTI:
            bounds = list(accumulate(frame.count_list(), initial=0))
            roots, edges = ([tuple(ids[a:b]) for a, b in pairwise(bounds)] for ids in (frame.root_list(), frame.edge_list()))
            self._roots, self._edges = roots, edges

    def ids(self) -> tuple[list[Any], list[Any]]:
        """Return roots and edges by tuple: tuples of ids when the frame is MULTI, ids when it is SINGLE, and none without ids.

        They are made of the columns when they are asked for: most batches go their whole way as columns.
        """
        if self._roots is None:
            self._roots, self._edges = unpack_words(self._packed_roots), unpack_words(self._packed_edges)
        return self._roots, self._edges

    @property
    def is_replay(self) -> bool:
        """Whether a tuple descends from a message that has failed before."""
        return not bytes(self._packed_roots[ID_BYTES - 1 :: ID_BYTES]).isascii()

    @property
    def has_suspect(self) -> bool:
        """Whether a tuple descends from a message that was in processing when a process died."""
        return has_suspect(self._packed_roots)

    def keep(self, kept: list[int]) -> None:
        """Leave only the tuples at these indices. For a batch of which none has been taken."""
        self.rows = [self.rows[index] for index in kept]
        self._kept = kept
        self.count = len(kept)
        if self.stamps is not None:
            self.stamps = [self.stamps[index] for index in kept]
        if self.anchoring is not Anchoring.NONE:
            self._roots, self._edges = ([ids[index] for index in kept] for ids in self.ids())
            is_single = self.anchoring is Anchoring.SINGLE
            self._packed_roots, self._packed_edges = (
                pack_words(ids if is_single else chain.from_iterable(ids)) for ids in (self._roots, self._edges)
            )

    def inputs(self, first: int, last: int) -> Iterable[tuple[int, Row, EventTime]]:
        """Return index, values and timestamp of the tuples of a slice, up to where it is cut short."""
        stamps = repeat(None) if self.stamps is None else self.stamps[first:last]
        return zip(range(first, last), self.to_cut(self.rows[first:last]), stamps)  # noqa: B905

    def to_cut(self, rows: list[Row]) -> list[Row]:
        """Return the rows of a slice, over which a loop is to go; they are what `cut_short` empties."""
        self._slice = rows
        return rows

    def unchanged(self, index: int, codec: Codec) -> Row:
        """Return a row as it arrived, although a call may have changed values of it in place."""
        row = self.rows[index]
        if self._payload is None or all(map(stays, row)):
            return row
        return codec.unpack_one(self._payload, index if self._kept is None else self._kept[index])

    def cut_short(self) -> None:
        """End the slice at hand with the tuple at hand; any thread may call it.

        An iterator over a list ends where the list does, so looking for it costs the loop over the tuples nothing.
        """
        self._slice.clear()

    def stamps_of(self, first: int, last: int) -> list[EventTime] | None:
        """Return the timestamps of a slice; None when the frame has none."""
        return None if self.stamps is None else self.stamps[first:last]

    def packed_roots(self, first: int, last: int) -> bytes:
        """Return the roots of a slice as packed words."""
        if self.anchoring is Anchoring.SINGLE:
            return bytes(self._packed_roots[8 * first : 8 * last])
        return pack_words(chain.from_iterable(self.ids()[0][first:last]))

    def packed_edges(self, first: int, last: int) -> bytearray:
        """Return the edges of a slice, whose tuples have one root each, as a column that may be changed."""
        return bytearray(self._packed_edges[8 * first : 8 * last])

    def word_columns(self, first: int, last: int) -> tuple[array[int], array[int]]:
        """Return roots and edges of a slice, whose tuples have one root each, as arrays of words."""
        columns = array("Q"), array("Q")
        for column, packed in zip(columns, (self._packed_roots, self._packed_edges), strict=True):
            column.frombytes(packed[8 * first : 8 * last])
        return columns

    def ids_at(self, index: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the roots and edges of one tuple."""
        if self.anchoring is Anchoring.NONE:
            return (), ()
        roots, edges = self.ids()
        if self.anchoring is Anchoring.MULTI:
            return roots[index], edges[index]
        return (roots[index],), (edges[index],)


class Undecoded(NamedTuple):
    """A tuple that arrived and cannot be decoded: its roots, its values with text for those that cannot be, and why."""

    roots: tuple[int, ...]
    values: Row
    error: UnsupportedValueError


def read_batch(frame: Frame, codec: Codec, origin: Origin, component: str) -> tuple[Batch, list[Undecoded]]:
    """Return the tuples of a DATA frame that can be decoded, and the others.

    Args:
        component: the receiver's id, for errors.

    Raises:
        FrameError: the frame's payload is not the rows that its header announces.
        MemoryError: the process is short of memory; no tuple is at fault.
    """
    if frame.rows is not None:
        return Batch(frame, frame.rows, origin), []
    rows, unreadable = codec.unpack_or_split(frame.payload or b"", frame.count)
    batch = Batch(frame, rows, origin)
    undecoded = []
    for index, (position, cause) in unreadable.items():
        field = repr(origin.fields[position]) if position < len(origin.fields) else str(position)
        error = UnsupportedValueError(f"component {component!r}, field {field} of a tuple from {origin.component!r}: {cause}")
        error.__cause__ = cause
        undecoded.append(Undecoded(batch.ids_at(index)[0], rows[index], error))
    if undecoded:
        batch.keep([index for index in range(len(rows)) if index not in unreadable])
    return batch, undecoded
