"""The sending half of a task: one buffer for each edge and stream, frames cut from them, and the window of each edge.

A frame leaves when its batch is full, when the task goes idle, or when the oldest row is `flush_interval` old; it waits here when
the edge's window is full, or when as many tuples are out as the receiver has granted. Rows that are due while there is no room go
on gathering, and leave with the confirmation that makes room. An idle task keeps rows that their receiver could only queue.
Nothing is ever refused: a task whose outbox `is_full` stops taking input instead.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from topo.emission.collectors import TrackedTuple
from topo.errors import UnsupportedValueError
from topo.hot import Column, Row, unpack_words
from topo.ids import ID_BYTES, TaskId
from topo.task.commands import SendFrame, TaskCommand
from topo.task.flow_control import UNLIMITED_WINDOW, OutEdge
from topo.task.observer import TaskObserver
from topo.user_errors import blame_place
from topo.wire.batcher import EdgeBuffer
from topo.wire.codec import Codec
from topo.wire.columns import pack_columns
from topo.wire.frames import HEADER_BYTES, Columns, Frame, FrameKind, SenderStamp, columns_frame, data_frame, encode
from topo.wire.statistics import NO_EDGE_FIGURES, EdgeFigures

RejectRow = Callable[[int, Row, Sequence[int], UnsupportedValueError], None]
"""Called with stream, values, roots and the reason when a row cannot be packed; the roots are to fail."""


class Outbox:
    """All edges that leave one task.

    Attributes:
        edges: by target; made again in every epoch.
        now: monotonic seconds; set before the calls at a later time.
        oldest: when the first row since the last `flush` came in; None when there was none.
        waiting: frames that wait for room, over all edges.
        silent_since: no receiver has confirmed nothing for longer than since then; None while all is confirmed. A lower bound,
            which costs nothing, however many edges there are; `unconfirmed_since` makes it exact.
        places: where, in the user's code, a value that cannot be carried was last emitted, by stream.
        changeable: streams whose values could be changed by their receivers: they are encoded for local targets, too.
        nested: streams with values that may hold others; only their packed rows are checked for depth.
        columnar: streams whose tuples are batches of columns: each has a frame for itself.
    """

    def __init__(
        self,
        codec: Codec,
        commands: list[TaskCommand],
        reject: RejectRow,
        fields_of: Callable[[int], Sequence[str]],
        *,
        batch_size: int,
        batch_bytes: int,
        limit: int,
        max_frame: int,
        max_control_frame: int,
        observer: TaskObserver | None = None,
    ) -> None:
        self.edges: dict[TaskId, OutEdge] = {}
        self.waiting = 0
        self.changeable: Collection[int] = ()
        self.nested: Collection[int] = ()
        self.columnar: Collection[int] = ()
        self.places: Mapping[int, tuple[str, int]] = {}
        self.frames_out = 0
        self.silent_since: float | None = None
        self._buffers: dict[tuple[TaskId, int], EdgeBuffer] = {}
        self._streams: dict[TaskId, list[int]] = {}
        """By target: the streams that have a buffer for it."""
        self._unconfirmed = 0
        """Frames that were offered and not confirmed, over all edges."""
        self._codec = codec
        self._commands = commands
        self._reject = reject
        self._fields_of = fields_of
        self._batch_size = batch_size
        self._batch_bytes = batch_bytes
        self._limit = limit
        self._ids_at_once = {False: _id_bytes(max_frame), True: _id_bytes(max_control_frame)}
        self.observer = observer
        self._stamp = SenderStamp(0, 0, 0)
        self.now = 0.0
        self.oldest: float | None = None
        self._starved: set[TaskId] = set()
        """Targets whose rows were due when their edge had no room."""
        self._full: dict[TaskId, float] = {}
        """Targets whose edge holds all the tuples that it should, and since when."""
        self._earlier: dict[TaskId, EdgeFigures] = {}
        """By target: the figures of edges of earlier epochs, and of all times when an edge was full that are over."""

    def open(self, stamp: SenderStamp, edges: Iterable[OutEdge]) -> None:
        """Begin an epoch: drop all that has not left, and send under a new stamp."""
        self._earlier = {target: self.edge_figures(target)._replace(in_front=0) for target in self.edges}
        self._stamp = stamp
        self.edges = {edge.target: edge for edge in edges}
        self._buffers.clear()
        self._streams.clear()
        self._unconfirmed, self.silent_since = 0, None
        self.waiting = 0
        self.oldest = None
        self._starved.clear()
        self._full.clear()

    @property
    def is_full(self) -> bool:
        """Whether the task should take no more input."""
        return self.waiting > self._limit or bool(self._full)

    @property
    def room(self) -> int:
        """How many rows may be put until the outbox is full, whichever edge they go to; at least 1."""
        spare = [spare for edge in self.edges.values() if (spare := edge.spare) is not None]
        return max(1, min(spare)) if spare else UNLIMITED_WINDOW

    @property
    def has_left(self) -> bool:
        """Whether everything has left; receivers may have it still to process, or to confirm."""
        return self.oldest is None and not self._starved and not self.waiting

    @property
    def is_quiet(self) -> bool:
        """Whether everything has left and has been processed by its receiver."""
        return self.oldest is None and not self._starved and not self._unconfirmed

    @property
    def sent(self) -> int:
        """Frames offered on all edges in this epoch."""
        return sum(edge.next_number for edge in self.edges.values())

    def has_room(self, target: TaskId) -> bool:
        """Whether the edge to `target` would send a frame at once."""
        return self.edges[target].has_room

    def put(self, target: TaskId, stream: int, columns: Columns) -> None:
        """Append columns to the buffer of an edge, and cut the frames that are full."""
        if self.observer is not None:
            self.observer.rows_routed(TaskId(self._stamp.sender), target, stream, columns)
        buffer = self._buffers.get((target, stream))
        if buffer is None:
            is_columnar = stream in self.columnar
            buffer = (
                EdgeBuffer(1, self._batch_bytes, batches=1) if is_columnar else EdgeBuffer(self._batch_size, self._batch_bytes)
            )
            self._buffers[target, stream] = buffer
            self._streams.setdefault(target, []).append(stream)
            buffer.limit = self.edges[target].piece(self._batch_size)
        if self.oldest is None:
            self.oldest = self.now
        if buffer.limit < self._batch_size:
            buffer.ahead = self.edges[target].beyond
        buffer.extend(self.now, columns)
        for piece in buffer.cut():
            self._send_rows(target, stream, buffer, piece)

    def anchored(
        self, anchors: Sequence[Sequence[TrackedTuple]], counts: Sequence[int], roots: Sequence[int], edges: Sequence[int]
    ) -> None:
        """Show the observer the anchors of rows that are put next."""
        if self.observer is not None:
            self.observer.rows_anchored(TaskId(self._stamp.sender), anchors, counts, roots, edges)

    def put_ids(self, kind: FrameKind, target: TaskId, roots: Column, values: Column = b"") -> None:
        """Send ids to an acker, or verdicts to a spout."""
        edge = self.edges[target]
        step = self._ids_at_once[edge.carries_verdicts]
        for begin in range(0, len(roots), step):
            end = begin + step
            self._offer(edge, columns_frame(kind, self._stamp, target, edge.next_number, roots[begin:end], values[begin:end]))

    def signal(self, target: TaskId, make: Callable[[SenderStamp, TaskId, int], Frame]) -> None:
        """Send a frame that must not overtake the rows before it."""
        self._flush_edge(target)
        edge = self.edges[target]
        self._offer(edge, make(self._stamp, target, edge.next_number))

    def flush(self, patience_s: float = 0.0) -> None:
        """Cut frames of all that is buffered for edges that have room.

        Args:
            patience_s: rows that are younger, in seconds, stay if their receiver has those before them to process, and no time.
        """
        if self.oldest is None:
            # Rows of starved targets leave with a confirmation.
            return
        self.oldest = None
        for (target, stream), buffer in self._buffers.items():
            if len(buffer):
                edge = self.edges[target]
                if patience_s and edge.is_late and buffer.oldest is not None and buffer.oldest + patience_s > self.now:
                    self.oldest = buffer.oldest if self.oldest is None else min(self.oldest, buffer.oldest)
                elif edge.has_room:
                    self._flush_buffer(target, stream, buffer)
                else:
                    self._starved.add(target)

    def flush_all(self) -> None:
        """Cut frames of all that is buffered, also for edges without room: what cannot be packed has been rejected then."""
        self.oldest = None
        self._starved.clear()
        for (target, stream), buffer in self._buffers.items():
            self._flush_buffer(target, stream, buffer)

    def confirm(self, target: TaskId, number: int, allowance: int = 0, load: int = 0) -> None:
        """Take a confirmation, its grant, and the load of the receiver's worker; send the frames that may leave now."""
        edge = self.edges.get(target)
        if edge is None:
            return
        edge.load = load
        if allowance != edge.allowance:
            edge.allowance = allowance
            for stream in self._streams.get(target, ()):
                self._buffers[target, stream].limit = edge.piece(self._batch_size)
        confirmed = edge.confirmed
        released = edge.confirm(number, self.now, allowance)
        self._unconfirmed -= edge.confirmed - confirmed
        if not self._unconfirmed:
            self.silent_since = None
        self.waiting -= len(released)
        self._commands.extend([SendFrame(target, frame) for frame in released])
        if target in self._starved and edge.has_room:
            self._flush_edge(target)
        self._note_full(edge)

    def unconfirmed_since(self) -> tuple[TaskId, float] | None:
        """Return the edge whose receiver has been silent for longest, and since when."""
        found: tuple[TaskId, float] | None = None
        for edge in self.edges.values():
            since = edge.unconfirmed_since
            if since is not None and (found is None or since < found[1]):
                found = edge.target, since
        self.silent_since = None if found is None else found[1]
        return found

    def waiting_roots(self, moment: float) -> dict[int, None]:
        """Return the roots of rows that were put before a moment and that no receiver has confirmed."""
        columns = [roots for edge in self.edges.values() for roots in edge.roots_since(moment)]
        for buffer in self._buffers.values():
            if buffer.oldest is not None and buffer.oldest <= moment:
                columns += buffer.roots()
        return {root: None for column in columns for root in unpack_words(column)}

    def edge_figures(self, *targets: TaskId) -> EdgeFigures:
        """Return the figures of some edges together, over all epochs; before the first all are 0."""
        sent, in_front, full_s = 0, 0, 0.0
        for target in targets:
            if (earlier := self._earlier.get(target)) is not None:
                sent += earlier.sent
                full_s += earlier.full_s
            if (edge := self.edges.get(target)) is None:
                continue
            sent += edge.sent
            in_front += edge.held
            for stream in self._streams.get(target, ()):
                in_front += len(self._buffers[target, stream])
            if target in self._full:
                full_s += self.now - self._full[target]
        return EdgeFigures(sent, in_front, full_s)

    def validate(self) -> None:
        """Assert the invariants."""
        edges = self.edges.values()
        for edge in edges:
            edge.validate()
        assert self.waiting == sum(len(edge.waiting) for edge in edges)
        assert self._unconfirmed == sum(edge.next_number - 1 - edge.confirmed for edge in edges)
        silent = [edge.unconfirmed_since for edge in edges if edge.unconfirmed_since is not None]
        assert not silent or (self.silent_since is not None and self.silent_since <= min(silent))

    def _note_full(self, edge: OutEdge) -> None:
        spare = edge.spare
        if spare is not None and spare <= 0:
            self._full.setdefault(edge.target, self.now)
        elif (since := self._full.pop(edge.target, None)) is not None:
            earlier = self._earlier.get(edge.target, NO_EDGE_FIGURES)
            self._earlier[edge.target] = earlier.plus(EdgeFigures(full_s=self.now - since))

    def _flush_edge(self, target: TaskId) -> None:
        self._starved.discard(target)
        for stream in self._streams.get(target, ()):
            self._flush_buffer(target, stream, self._buffers[target, stream])

    def _flush_buffer(self, target: TaskId, stream: int, buffer: EdgeBuffer) -> None:
        buffer.ahead = self.edges[target].beyond
        for piece in buffer.flush():
            self._send_rows(target, stream, buffer, piece)

    def _send_rows(self, target: TaskId, stream: int, buffer: EdgeBuffer, columns: Columns) -> None:
        edge = self.edges[target]
        if edge.local and stream not in self.changeable:
            self._offer(edge, data_frame(self._stamp, target, edge.next_number, stream, columns))
            return
        packed, refused = pack_columns(self._codec, columns, is_flat=stream not in self.nested)
        for piece, payload in packed:
            buffer.note_packed(len(piece.rows), len(payload))
            self._offer(edge, data_frame(self._stamp, target, edge.next_number, stream, piece, payload))
        if refused:
            fields = self._fields_of(stream)
            for tuple_ in refused:
                _, position, type_name, reason = tuple_.rejection
                where = f"field {fields[position]!r}" if position is not None else "the tuple"
                error = UnsupportedValueError(f"{where}: a value of type {type_name}: {reason}")
                if (place := self.places.get(stream)) is not None:
                    blame_place(error, place)
                self._reject(stream, tuple_.values, tuple_.roots, error)

    def _offer(self, edge: OutEdge, frame: Frame) -> None:
        self.frames_out += 1
        self._unconfirmed += 1
        if self.silent_since is None:
            self.silent_since = self.now
        ready: Frame | bytes = frame if edge.local else encode(frame)
        # What acks, verdicts and barriers carry are no tuples.
        is_data = frame.kind is FrameKind.DATA
        if edge.offer(ready, self.now, frame.count if is_data else 0, frame.roots if is_data else b""):
            self._commands.append(SendFrame(edge.target, ready))
        else:
            self.waiting += 1
        if edge.allowance and is_data:
            self._note_full(edge)


def _id_bytes(max_frame: int) -> int:
    """Return the bytes of roots that fit into a frame together with as many of values."""
    return (max_frame - HEADER_BYTES) // (2 * ID_BYTES) * ID_BYTES
