"""The output of a task on its way to the router: timestamps, the watermark strategy, routing, event time between rows.

For the rows of a slice a bolt calls `begin`, then one of `untracked`, `single` and `anchored` for each stream, then `finish`.
Where the strategy may change event time at any row of the main stream, the router holds rows until `finish` and releases them in
pieces, with the changes of event time between them.

For the rows of a burst a spout calls `read_messages`, then `send_in_pieces`, and for each stream of a piece `drop_unreadable` and
one of `messages` and `untracked_messages`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Protocol

from topo.api.streams import DEFAULT_STREAM
from topo.emission.collectors import TrackedTuple
from topo.emission.emitter import StreamRows
from topo.emission.output_watermarks import OutputWatermarks, UnreadableRows
from topo.emission.router import Reject, Router, Stamps, owners_of
from topo.hot import Column, Row
from topo.operators.time.watermarks import InputStatus
from topo.wire.statistics import Counters

Inherited = list[int | None] | None
"""Timestamps of the inputs of a slice; None if they have none, or if rows do not inherit them."""

Owe = Callable[[Column, Column], None]
"""Called with the roots of messages that have been sent, and for each the XOR of its edges."""


class OutputTap(Protocol):
    """Who watches the output, if anybody does: is given stream, fields and rows."""

    out: Callable[[str, Sequence[str], Sequence[Row]], None] | None


class Emission:
    """The output of one task.

    Args:
        router: knows the readers of each stream.
        watermarks: event time of the output.
        streams: names of the task's streams, in order.
        counters: of the task.
        send_time: sends changes of event time to the readers.
        taps: who watches the rows.

    Attributes:
        runs_singly: inputs have to run one by one, because the order of rows on different streams is known between calls alone.
        attempts: how many calls were made for the row that is being rejected.
    """

    attempts = 1

    def __init__(
        self,
        router: Router,
        watermarks: OutputWatermarks,
        streams: Sequence[str],
        counters: Counters,
        send_time: Callable[[Sequence[int | InputStatus]], None],
        taps: OutputTap,
    ) -> None:
        self._taps = taps
        self._router = router
        self._watermarks = watermarks
        self._counters = counters
        self._send_time = send_time
        self._cut_stream = streams.index(DEFAULT_STREAM) if watermarks.cuts and DEFAULT_STREAM in streams else None
        """The number of the main stream where the strategy may change event time at any of its rows."""
        self.runs_singly = self._cut_stream is not None and len(streams) > 1
        self._readings: Sequence[int | None] = ()
        """Timestamps of the main stream's rows, as the strategy has read them."""
        self._cuts: list[tuple[int, list[int | InputStatus]]] = []
        """Changes of event time in this slice, each with the number of rows of the main stream before it."""
        self._unreadable: dict[int, Exception] = {}
        """Why messages of this burst have no timestamp, by the `id()` of their values: rows are chosen and cut meanwhile."""

    def begin(self, streams: Iterable[StreamRows]) -> UnreadableRows:
        """Begin a slice: have the strategy read timestamps. Returns the rows of the main stream where it cannot."""
        if self._cut_stream is not None:
            self._router.hold()
        if self._watermarks.reads:
            for stream in streams:
                if stream.rows and stream.declaration.name == DEFAULT_STREAM:
                    self._readings, refused = self._watermarks.read(stream.rows, None)
                    return refused
        return {}

    def keep(self, stream: StreamRows, rows: Sequence[int]) -> None:
        """Drop all rows of a stream but these."""
        if stream.declaration.name == DEFAULT_STREAM and self._watermarks.reads:
            self._readings = [self._readings[row] for row in rows]
        stream.keep(rows)

    def untracked(self, stream: StreamRows, reject: Reject, inherited: Inherited = None) -> None:
        """Send the rows of a stream without ids."""
        stamps = self._stamps(stream, inherited)
        self._counters.transferred += self._router.untracked(stream, stamps, reject)

    def single(self, stream: StreamRows, roots: Column, owed: bytearray, reject: Reject, inherited: Inherited) -> None:
        """Send rows whose inputs have one root each; their edges are folded into `owed`."""
        stamps = self._stamps(stream, inherited)
        self._counters.transferred += self._router.single(stream, roots, owed, stream.ends, stamps, reject)

    def anchored(
        self,
        stream: StreamRows,
        anchors: Sequence[Sequence[TrackedTuple]],
        epoch: int,
        reject: Reject,
        inherited: Inherited = None,
    ) -> None:
        """Send rows with their anchors; the edges are folded into the anchors."""
        stamps = self._stamps(stream, inherited)
        self._counters.transferred += self._router.anchored(stream, anchors, epoch, stamps, reject)

    def finish(self) -> None:
        """End a slice: release the rows that the router holds."""
        if self._cut_stream is not None:
            cuts, self._cuts = self._cuts, []
            self._router.release(self._cut_stream, [(count, partial(self._send_time, changes)) for count, changes in cuts])

    def has_readers(self, stream: StreamRows) -> bool:
        """Whether any task reads the stream."""
        return self._router.has_targets(stream.index)

    def read_messages(self, streams: Iterable[StreamRows], *, is_replay: bool) -> Iterable[Exception]:
        """Begin a burst: have the strategy read the timestamps of messages that have none. Returns why it cannot read some.

        Args:
            streams: with the messages of the burst.
            is_replay: the messages have been sent before; the strategy is shown those that can be read by now.
        """
        self._unreadable = {}
        if self._watermarks.reads:
            for stream in streams:
                if len(stream.stamps) < len(stream.rows) and stream.declaration.name == DEFAULT_STREAM:
                    places = [row for row in range(len(stream.rows)) if row not in stream.stamps]
                    rows = [stream.rows[row] for row in places]
                    stamps, refused = self._watermarks.read(rows, None)
                    if is_replay:
                        self._watermarks.show(rows, stamps)
                    stream.stamps |= {row: stamp for row, stamp in zip(places, stamps, strict=True) if stamp is not None}
                    self._unreadable = {id(rows[row]): error for row, error in refused.items()}
                    return refused.values()
        return ()

    def drop_unreadable(self, stream: StreamRows) -> list[tuple[int, Row, Exception]]:
        """Drop the messages of a stream whose timestamps cannot be read. Returns place, values and fault of each."""
        if not self._unreadable or stream.declaration.name != DEFAULT_STREAM:
            return []
        faults = [self._unreadable.get(id(values)) for values in stream.rows]
        dropped = [(row, stream.rows[row], fault) for row, fault in enumerate(faults) if fault is not None]
        stream.keep([row for row, fault in enumerate(faults) if fault is None])
        return dropped

    def messages(self, stream: StreamRows, roots: Column, reject: Reject, owe: Owe) -> None:
        """Send messages, each under a root; `owe` takes the XOR of the edges of each."""
        owed = bytearray(len(roots))
        self._note_rows(stream)
        self._counters.transferred += self._router.single(stream, roots, owed, None, stream.stamp_list(), reject)
        owe(roots, owed)

    def untracked_messages(self, stream: StreamRows, reject: Reject) -> None:
        """Send messages without ids."""
        self._note_rows(stream)
        self._counters.transferred += self._router.untracked(stream, stream.stamp_list(), reject)

    def _note_rows(self, stream: StreamRows) -> None:
        if self._taps.out is not None and stream.rows:
            self._taps.out(stream.declaration.name, stream.declaration.fields, stream.rows)
        if stream.declaration.columnar:
            self._counters.batch_rows_out += sum([len(batch) for (batch,) in stream.rows])

    def _stamps(self, stream: StreamRows, inherited: Inherited) -> Stamps:
        """Return the timestamp of each row: the explicit one, else that of its input, else the reading of the strategy."""
        self._counters.emitted += len(stream.rows)
        self._note_rows(stream)
        explicit = stream.stamps
        stamps: Stamps = None
        if inherited is not None:
            stamps = [explicit.get(row, inherited[owner]) for row, owner in enumerate(owners_of(stream.ends))]
        else:
            stamps = stream.stamp_list()
        if self._watermarks.is_used and stream.declaration.name == DEFAULT_STREAM:
            if self._watermarks.reads:
                stamps = self._readings
            time, cuts = self._watermarks, self._cuts
            time.show(stream.rows, stamps, lambda shown: cuts.append((shown, time.drain_updates())))
        return stamps
