"""The collectors of bolts. They only record; routing, ids and frames come after the batch (`topo.emission.router`).

Part of the per-tuple path: an emit is a check of each value's type and one list append.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import chain
from typing import Any, NamedTuple, TypeGuard

from topo.api.bolt import Anchors
from topo.api.streams import DEFAULT_STREAM, StreamDeclaration
from topo.api.tuples import Origin, Tuple
from topo.emission.emitter import Emitter, ReportError, StreamRows
from topo.errors import EmitError, TupleStateError, UnsupportedValueError
from topo.hot import ATOMS, NO_TIMESTAMP, Emit, EmitFour, EmitOne, EmitThree, EmitTwo, Row
from topo.wire.codec import Codec
from topo.wire.frames import MAX_ROOTS_PER_TUPLE, MAX_WATERMARK


class AnchoringCollector(Emit, Emitter):
    """For `BasicBolt`: every row is anchored on the input that the bolt is processing."""

    def __init__(
        self, component: str, streams: Sequence[StreamDeclaration], report: ReportError, codec: Codec | None = None
    ) -> None:
        super().__init__(component, streams, report, codec)
        self.add_plain: Callable[[Row], None] = self._rows.append
        """Takes a row of the main stream that has its width and holds only ATOMS, from the task's own thread.

        Of a stream of counted rows it takes a str, too (`topo.emission.counted_rows`).
        """

    _emit_slow = Emitter._append
    elsewhere = "a BasicBolt's rows belong to its current input: emit in the call, or take a Bolt, which any thread may use"

    def emit_direct(self, task: int, values: Sequence[Any], stream: str = DEFAULT_STREAM, timestamp: int | None = None) -> None:
        """Emit one tuple of a direct stream to the task with that id."""
        self._append(values, stream, timestamp, task)

    def truncate(self) -> None:
        """Discard the rows emitted since the last recorded end of an input."""
        for rows in self.streams:
            rows.truncate(rows.ends[-1] if rows.ends else 0)


class OneFieldCollector(EmitOne, AnchoringCollector):
    """For a main stream of one field."""


class TwoFieldsCollector(EmitTwo, AnchoringCollector):
    """For a main stream of two fields."""


class ThreeFieldsCollector(EmitThree, AnchoringCollector):
    """For a main stream of three fields."""


class FourFieldsCollector(EmitFour, AnchoringCollector):
    """For a main stream of four fields."""


_BY_WIDTH = {1: OneFieldCollector, 2: TwoFieldsCollector, 3: ThreeFieldsCollector, 4: FourFieldsCollector}


def anchoring_collector(
    component: str, streams: Sequence[StreamDeclaration], report: ReportError, codec: Codec | None = None
) -> AnchoringCollector:
    """Return the collector of a `BasicBolt` with these outputs: the fastest for the width of its main stream."""
    main = next((stream for stream in streams if stream.name == DEFAULT_STREAM and not stream.direct), None)
    kind = AnchoringCollector if main is None else _BY_WIDTH.get(len(main.fields), AnchoringCollector)
    return kind(component, streams, report, codec)


class TupleState:
    """States of an input of a `Bolt`, in `TrackedTuple.state`."""

    OPEN = 0
    ACKED = 1
    FAILED = 2


class TrackedTuple(Tuple):
    """An input of a `Bolt`, which acks it and can anchor tuples on it.

    Attributes:
        epoch: the epoch it arrived in; in a later one it acks, fails and anchors nothing.
        roots: the messages it descends from.
        edges: its own edge id in the tree of each of them.
        out: XOR of the edge ids of everything anchored on it so far; lives as long as the tuple, so it never expires.
        state: one of `TupleState`.
        since: monotonic seconds at which its call returned and left it undecided; set only then.
        has_emitted: rows were emitted in that call, or have been anchored on it since; set only then, too.
    """

    __slots__ = ("edges", "epoch", "has_emitted", "out", "roots", "since", "state")

    epoch: int
    roots: tuple[int, ...]
    edges: tuple[int, ...]
    out: int
    state: int
    since: float
    has_emitted: bool

    @classmethod
    def made(
        cls, values: Row, origin: Origin, timestamp: int | None, epoch: int, roots: tuple[int, ...], edges: tuple[int, ...]
    ) -> TrackedTuple:
        """Make one without the checks and copies of the public constructor."""
        tup = cls.__new__(cls)
        tup.values = values
        tup.origin = origin
        tup.timestamp = timestamp
        tup.epoch = epoch
        tup.roots = roots
        tup.edges = edges
        tup.out = 0
        tup.state = TupleState.OPEN
        return tup


class Mark(NamedTuple):
    """The output of a bolt before a call: rows by stream, rows in all, acks, failures."""

    rows: list[int]
    emitted: int
    acked: int
    failed: int


class BoltCollector(Emitter):
    """For `Bolt`: the user names the anchors, and acks or fails each input.

    Attributes:
        anchors: for each stream, by row: the inputs it is anchored on.
        acked, failed, touched: inputs acked, failed and given a new timeout, in order, since the last batch.
        current: anchors of the rows that an operator emits next.
        takes_calls: whether other threads may emit, ack and fail; what they say is done on the task's thread, as mails.
    """

    def __init__(
        self, component: str, streams: Sequence[StreamDeclaration], report: ReportError, codec: Codec | None = None
    ) -> None:
        super().__init__(component, streams, report, codec)
        self.anchors: tuple[list[tuple[TrackedTuple, ...]], ...] = tuple([] for _ in self.streams)
        self.acked: list[TrackedTuple] = []
        self.failed: list[TrackedTuple] = []
        self.touched: list[TrackedTuple] = []
        self.current: tuple[TrackedTuple, ...] = ()
        self.takes_calls = True

    def emit(
        self, values: Sequence[Any], anchors: Anchors = None, stream: str = DEFAULT_STREAM, timestamp: int | None = None
    ) -> None:
        """Emit one tuple, anchored on the given inputs."""
        self._emit(values, anchors, stream, timestamp, None)

    def emit_stamped(self, values: Sequence[Any], timestamp: int | None) -> None:
        """Emit one tuple on the main stream, as `emit` does, with the current anchors: these are all open."""
        main = self._main
        is_plain = type(values) is tuple and len(values) == self._width
        if is_plain and type(timestamp) is int and NO_TIMESTAMP < timestamp <= MAX_WATERMARK:
            for value in values:
                kind = type(value)
                if kind is not str and kind is not int and kind not in ATOMS:
                    break
            else:
                if self._mine._is_owned():
                    main.stamps[len(main.rows)] = timestamp
                    main.rows.append(values)
                    self.anchors[main.index].append(self.current)
                    return
        self.emit(values, self.current, timestamp=timestamp)

    @property
    def main(self) -> StreamRows:
        """The main stream, of a bolt that has one."""
        return self._main  # type: ignore[no-any-return]

    def put_rows(self, rows: Sequence[Any], timestamp: int) -> bool:
        """Append rows with one timestamp and the current anchors to the main stream; False, and none, if one cannot be."""
        if not rows:
            return True
        main = self._main
        is_plain = {tuple}.issuperset(map(type, rows)) and {self._width}.issuperset(map(len, rows))
        is_plain = is_plain and ATOMS.issuperset(map(type, chain.from_iterable(rows)))
        if not is_plain or not NO_TIMESTAMP < timestamp <= MAX_WATERMARK or not self._mine._is_owned():
            mark = self.mark()
            try:
                for row in rows:
                    self.emit_stamped(row, timestamp)
            except (EmitError, UnsupportedValueError):
                self.rewind(mark)
                return False
            return True
        main.stamps.update(dict.fromkeys(range(len(main.rows), len(main.rows) + len(rows)), timestamp))
        main.rows.extend(rows)
        self.anchors[main.index].extend([self.current] * len(rows))
        return True

    def emit_direct(
        self,
        task: int,
        values: Sequence[Any],
        anchors: Anchors = None,
        stream: str = DEFAULT_STREAM,
        timestamp: int | None = None,
    ) -> None:
        """Emit one tuple of a direct stream to the task with that id."""
        self._emit(values, anchors, stream, timestamp, task)

    elsewhere = "emit in the call, or take a Bolt, which any thread may use"

    def _hand_over(self, call: Callable[[], object], what: str) -> None:
        """Have a call of another thread made on the task's thread, behind those that were handed over before."""
        if self.executor is None or not self.takes_calls:
            self.check_thread()
        else:
            self.executor.execute(call, f"{what} of another thread")

    def _emit(self, values: Any, anchors: Anchors, stream: str, timestamp: int | None, task: int | None) -> None:
        if not self._mine._is_owned():
            # A fault of the row is raised in the thread that emits it.
            chosen = self.stream(stream, values, direct=task is not None)
            values = self._fixed(tuple(values), chosen.index, Codec(self._codec.registry))
            # A list of anchors may be cleared as soon as this call has returned.
            on = anchors if anchors is None or isinstance(anchors, Tuple) else self._several(anchors)
            self._hand_over(partial(self._emit, values, on, stream, timestamp, task), "an emit")
            return
        on = () if anchors is None else (anchors,) if isinstance(anchors, Tuple) else self._several(anchors)
        for anchor in on:
            if isinstance(anchor, TrackedTuple):
                if anchor.state != TupleState.OPEN:
                    raise TupleStateError(
                        f"component {self.component!r} anchored a tuple on {anchor!r} after its ack or fail: emit first, then ack"
                    )
            elif not isinstance(anchor, Tuple):
                raise EmitError(f"component {self.component!r} anchored a tuple on {anchor!r}, which is not an input tuple")
        if timestamp is None and on:
            timestamp = on[0].timestamp
        chosen = self._append(values, stream, timestamp, task)
        self.anchors[chosen.index].append(tuple([anchor for anchor in on if isinstance(anchor, TrackedTuple)]))

    def _several(self, anchors: Any) -> tuple[Any, ...]:
        """Return the anchors of a row that names more than one, as many as a frame can carry."""
        if not isinstance(anchors, Iterable):
            raise EmitError(f"component {self.component!r} anchored a tuple on {anchors!r}, which is not an input tuple")
        on = tuple(anchors)
        roots = [anchor.roots for anchor in on if isinstance(anchor, TrackedTuple)]
        if sum(map(len, roots)) > MAX_ROOTS_PER_TUPLE and (several := len(set().union(*roots))) > MAX_ROOTS_PER_TUPLE:
            raise EmitError(
                f"component {self.component!r} emitted a tuple that descends from {several} messages; "
                f"at most {MAX_ROOTS_PER_TUPLE} are tracked: emit the result in parts, or anchor it on fewer inputs"
            )
        return on

    def ack(self, tup: Tuple) -> None:
        """Say that the input is done."""
        if not self._mine._is_owned():
            self._hand_over(partial(self.ack, tup), "an ack")
        elif self._complete(tup, TupleState.ACKED, "acked"):
            self.acked.append(tup)

    def fail(self, tup: Tuple) -> None:
        """Say that the input could not be processed."""
        if not self._mine._is_owned():
            self._hand_over(partial(self.fail, tup), "a fail")
        elif self._complete(tup, TupleState.FAILED, "failed"):
            self.failed.append(tup)

    def reset_timeout(self, tup: Tuple) -> None:
        """Restart the input's message timeout; does nothing for an input that is done."""
        if not self._mine._is_owned():
            self._hand_over(partial(self.reset_timeout, tup), "a reset_timeout")
        elif self._is_input(tup, "reset the timeout of") and tup.state == TupleState.OPEN:
            self.touched.append(tup)

    def _is_input(self, tup: Tuple, verb: str) -> TypeGuard[TrackedTuple]:
        """Return False for a tick, which cannot be acked or failed. Raises TupleStateError for anything but a tuple."""
        if isinstance(tup, TrackedTuple):
            return True
        if isinstance(tup, Tuple):
            return False
        raise TupleStateError(f"component {self.component!r} {verb} {tup!r}, which is not an input tuple")

    def _complete(self, tup: Tuple, state: int, verb: str) -> TypeGuard[TrackedTuple]:
        if not self._is_input(tup, verb):
            return False
        if tup.state != TupleState.OPEN:
            before = "acked" if tup.state == TupleState.ACKED else "failed"
            raise TupleStateError(f"component {self.component!r} {verb} {tup!r}, which it has {before} already: do either once")
        tup.state = state
        return True

    def mark(self) -> Mark:
        """Remember this moment for `roll_back`."""
        rows = [len(stream.rows) for stream in self.streams]
        return Mark(rows, sum(rows), len(self.acked), len(self.failed))

    def rewind(self, mark: Mark) -> None:
        """Undo what a call has emitted, acked and failed, so that it can be repeated."""
        for stream, anchors, count in zip(self.streams, self.anchors, mark.rows, strict=True):
            stream.truncate(count)
            del anchors[count:]
        for tup in (*self.acked[mark.acked :], *self.failed[mark.failed :]):
            tup.state = TupleState.OPEN
        del self.acked[mark.acked :]
        del self.failed[mark.failed :]

    def roll_back(self, mark: Mark, culprit: TrackedTuple | None) -> None:
        """Discard what a call that raised has emitted, and fail the inputs it acked together with its own input.

        An ack that stands while the rows emitted before it are gone would complete a tree too early.
        """
        for stream, anchors, count in zip(self.streams, self.anchors, mark.rows, strict=True):
            stream.truncate(count)
            del anchors[count:]
        undone = self.acked[mark.acked :]
        del self.acked[mark.acked :]
        for tup in undone:
            tup.state = TupleState.FAILED
        self.failed.extend(undone)
        if culprit is not None and culprit.state == TupleState.OPEN:
            culprit.state = TupleState.FAILED
            self.failed.append(culprit)

    def clear(self) -> None:
        """Begin a new batch."""
        for stream, anchors in zip(self.streams, self.anchors, strict=True):
            stream.clear()
            anchors.clear()
        self.acked.clear()
        self.failed.clear()
        self.touched.clear()
