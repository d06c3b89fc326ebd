"""The output of a spout whose rows go through a chain in its task: a bolt that runs on them in slices, before they are routed.

A message is pending with the row that the spout has emitted, so that a replay runs the chain again. All rows that the chain makes
of it are anchored on its root. Where the watchdog cuts a slice short, its rest waits here, and what follows it waits behind it:
rows, event time, barriers. The spout emits nothing meanwhile.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from topo.api.tuples import Origin
from topo.emission.collectors import anchoring_collector
from topo.emission.emission import Emission, Owe
from topo.emission.emitter import Emitter, StreamRows
from topo.emission.output_watermarks import OutputWatermarks
from topo.emission.router import Reject, owners_of
from topo.errors import UnsupportedValueError
from topo.hot import Column, pack_words, unpack_words
from topo.ids import ID_BYTES
from topo.operators.time.watermarks import InputStatus
from topo.task.batch import Batch
from topo.task.guarantees.base import repeated
from topo.task.parts import TaskParts
from topo.task.router_factory import make_router
from topo.task.runners.basic_bolt import BasicBoltKind
from topo.wire.frames import Anchoring, Frame, FrameKind


@dataclass(slots=True)
class _Piece:
    """Rows that a spout has emitted, on their way through the chain.

    Attributes:
        batch: the rows, each under its root, with no edge yet.
        places: where they are among the rows that `reject` knows.
        reject: called for the place of a row that raises, or cannot be sent.
        owe: takes roots and edges; None without ids.
    """

    batch: Batch
    places: Sequence[int]
    reject: Reject
    owe: Owe | None


class ChainedEmission(Emission):
    """The output of one spout task with a chain.

    Args:
        parts: of the task.
        emitter: the collector that the spout's rows come from.
        watermarks: event time of the spout's rows.
        send_time: sends changes of event time to the readers.
    """

    def __init__(
        self,
        parts: TaskParts,
        emitter: Emitter,
        watermarks: OutputWatermarks,
        send_time: Callable[[Sequence[int | InputStatus]], None],
    ) -> None:
        state, chain = parts.state, parts.spec.chain
        assert chain is not None
        collector = anchoring_collector(state.component_id, state.streams, parts.reports.record_misuse, parts.env.codec)
        emitter.executor = parts.spec.context.executor
        router = make_router(parts.spec, parts.env.ids, parts.outbound.outbox, collector)
        names = [stream.declaration.name for stream in emitter.streams]
        super().__init__(router, watermarks, names, state.counters, send_time, parts.taps)
        self._state, self._env, self._reports = state, parts.env, parts.reports
        self._emitter = emitter
        guarantee: Any = self
        self._kind = BasicBoltKind(parts, chain, guarantee, collector)
        self.open = self._kind.open
        fields = [stream.declaration for stream in emitter.streams]
        self._origins = [Origin(state.component_id, state.id, one.name, one.fields) for one in fields]
        self._waiting: deque[_Piece | Callable[[], object]] = deque()
        self._running: Batch | None = None
        parts.cuts.append(self._cut_short)
        parts.waiting.append(self._waiting_roots)

    # -- the order of what leaves ----------------------------------------------------------------------------------------

    @property
    def is_behind(self) -> bool:
        """Whether rows wait for the chain."""
        return bool(self._waiting)

    def then(self, action: Callable[[], object]) -> None:
        """Do something behind all rows that the spout has emitted so far."""
        self._waiting.append(action)
        if len(self._waiting) == 1:
            self.catch_up()

    def catch_up(self) -> None:
        """Run the chain on rows that wait, until a slice is cut short."""
        while self._waiting:
            first = self._waiting[0]
            if isinstance(first, _Piece) and not self._run(first):
                return
            self._waiting.popleft()
            if not isinstance(first, _Piece):
                first()

    def forget(self) -> None:
        """Forget what waits: an epoch begins, or the rows before are emitted again."""
        self._waiting.clear()

    def _cut_short(self) -> None:
        running = self._running
        if running is not None:
            running.cut_short()

    def _waiting_roots(self, _roots: dict[int, None], _now: float) -> dict[int, None]:
        waiting = [one.batch for one in self._waiting if isinstance(one, _Piece)]
        return {root: None for batch in waiting for root in batch.ids()[0][batch.done :]}

    # -- rows ------------------------------------------------------------------------------------------------------------

    def has_readers(self, stream: StreamRows) -> bool:
        """Return True: the chain reads it."""
        return True

    def messages(self, stream: StreamRows, roots: Column, reject: Reject, owe: Owe) -> None:
        """Run the chain on messages, and send its rows under their roots."""
        self._take(stream, roots, reject, owe)

    def untracked_messages(self, stream: StreamRows, reject: Reject) -> None:
        """Run the chain on messages, and send its rows without ids."""
        self._take(stream, b"", reject, None)

    def _take(self, stream: StreamRows, roots: Column, reject: Reject, owe: Owe | None) -> None:
        rows, stamps, payload = stream.rows[:], stream.stamp_list(), None
        places: Sequence[int] = range(len(rows))
        if stream.index in self._emitter.changeable:
            # The chain may change a value in place: like any receiver it is given another one.
            payload, places, rejected = self._env.codec.pack_or_split(rows)
            for row, field, kind, reason in rejected:
                where = f"component {self._state.component_id!r}, field {stream.declaration.fields[field or 0]!r}"
                reject(row, UnsupportedValueError(f"{where}: a value of type {kind}: {reason}"))
                if owe is not None:
                    owe(bytes(roots[ID_BYTES * row : ID_BYTES * (row + 1)]), bytes(ID_BYTES))
            rows = self._env.codec.unpack_rows(payload, len(places))
            if rejected:
                roots = pack_words([root for row, root in enumerate(unpack_words(roots)) if row in places])
                stamps = None if stamps is None else [stamps[row] for row in places]
        if not rows:
            return
        how = Anchoring.NONE if owe is None else Anchoring.SINGLE
        edges = bytes(len(roots))
        frame = Frame(FrameKind.DATA, (0, 0, 0), 0, 0, 0, len(rows), how, roots, edges, payload=payload)
        frame.rows = rows if payload is None else None
        batch = Batch(frame, rows, self._origins[stream.index])
        batch.stamps = stamps
        self._waiting.append(_Piece(batch, places, reject, owe))
        if len(self._waiting) == 1:
            self.catch_up()

    def _run(self, piece: _Piece) -> bool:
        """Run the chain on the rest of a piece; False if it was cut short."""
        batch, env = piece.batch, self._env
        env.marker.hold(self._state.id, batch.packed_roots(batch.done, batch.count))
        began = env.clock()
        self._running = batch
        self._kind.run(batch, batch.done, batch.count, self._state.now)
        self._running = None
        env.marker.release()
        self._counters.busy_s += env.clock() - began
        return batch.done == batch.count

    # -- the guarantee of the chain's runner --------------------------------------------------------------------------------

    def raised(self, error: Exception, call: Callable[[], object], undo: Callable[[], object]) -> Exception | None:
        """Take back a call that has raised, and repeat it where calls are repeated: see `InputGuarantee.raised`."""
        undo()
        return repeated(self._state.config, error, call, undo) if self._state.is_checkpointed else error

    def settle_slice(
        self, streams: Sequence[StreamRows], batch: Batch, first: int, last: int, failures: dict[int, Exception], _now: float
    ) -> None:
        """Route the rows of a slice: see `InputGuarantee.settle_slice`."""
        piece = self._waiting[0]
        assert isinstance(piece, _Piece)
        roots, owed, inherited = batch.packed_roots(first, last), batch.packed_edges(first, last), batch.stamps_of(first, last)
        for stream in streams:
            owners = owners_of(stream.ends)
            stamps = None if inherited is None else [inherited[owner] for owner in owners]

            def reject(row: int, error: Exception, owners: list[int] = owners) -> None:
                piece.reject(piece.places[first + owners[row]], error)

            if stream.rows:
                self._note_rows(stream)
                if piece.owe is None:
                    self._counters.transferred += self._router.untracked(stream, stamps, reject)
                else:
                    self._counters.transferred += self._router.single(stream, roots, owed, stream.ends, stamps, reject)
        for stream in streams:
            stream.clear()
        self.attempts = self._state.config.attempts
        for index, error in failures.items():
            if piece.owe is None and self._state.plan.ackers and not self._state.is_checkpointed:
                # No message of the topology's is lost, as when a bolt fails such a row.
                self._reports.record(error, self._env.clock())
            else:
                piece.reject(piece.places[first + index], error)
        self.attempts = 1
        if piece.owe is not None:
            piece.owe(roots, owed)
        for error in failures.values():
            self._reports.end_if_fatal(error)
