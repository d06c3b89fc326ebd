"""What user code emits with. Collectors only write down; routing, ids and frames come after the batch (`topo.task.routing`).

Part of the per-tuple path: an emit is a check of each value's type and one list append.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeGuard

from topo.api.bolt import Anchors
from topo.api.streams import DEFAULT_STREAM, StreamDeclaration
from topo.api.tuples import Origin, Tuple
from topo.errors import EmitError, TupleStateError
from topo.operators.independent import ATOMS
from topo.operators.watermarks import InputStatus
from topo.task.emitter import Emitter, ReportError, Row, checked_timestamp
from topo.wire.codec import Codec
from topo.wire.frames import MAX_ROOTS_PER_TUPLE, MAX_WATERMARK, NO_TIMESTAMP


class AnchoringCollector(Emitter):
    """For `BasicBolt`: everything is anchored on the input in hand."""

    elsewhere = "what a BasicBolt emits belongs to the input in hand: emit in the call, or take a Bolt, which any thread may use"

    def emit(self, values: Sequence[Any], stream: str = DEFAULT_STREAM, timestamp: int | None = None) -> None:
        """Emit one tuple, anchored on the input in hand."""
        if stream is DEFAULT_STREAM and timestamp is None and type(values) is tuple and len(values) == self._width:
            for value in values:
                if type(value) not in ATOMS:
                    break
            else:
                if self._mine._is_owned():
                    self._rows.append(values)
                    return
        self._append(values, stream, timestamp)

    def emit_direct(self, task: int, values: Sequence[Any], stream: str = DEFAULT_STREAM, timestamp: int | None = None) -> None:
        """Emit one tuple of a direct stream to the task with that id."""
        self._append(values, stream, timestamp, task)

    def truncate(self) -> None:
        """Discard what was emitted since the last input whose end was noted."""
        for rows in self.streams:
            rows.truncate(rows.ends[-1] if rows.ends else 0)


class OneFieldCollector(AnchoringCollector):
    """The same for a stream of one field, which most streams are where a tuple costs least: there a loop over it would tell."""

    def emit(self, values: Sequence[Any], stream: str = DEFAULT_STREAM, timestamp: int | None = None) -> None:
        """Emit one tuple, anchored on the input in hand."""
        if stream is DEFAULT_STREAM and timestamp is None and type(values) is tuple:
            try:
                (value,) = values
            except ValueError:
                pass
            else:
                if (type(value) is str or type(value) in ATOMS) and self._mine._is_owned():
                    self._rows.append(values)
                    return
        self._append(values, stream, timestamp)


def anchoring_collector(
    component: str, streams: Sequence[StreamDeclaration], report: ReportError, codec: Codec | None = None
) -> AnchoringCollector:
    """Return the collector of a `BasicBolt` with these outputs."""
    main = next((stream for stream in streams if stream.name == DEFAULT_STREAM and not stream.direct), None)
    kind = OneFieldCollector if main is not None and len(main.fields) == 1 else AnchoringCollector
    return kind(component, streams, report, codec)


class TupleState:
    """States of an input of a `Bolt`, in `TrackedTuple.state`."""

    OPEN = 0
    ACKED = 1
    FAILED = 2


class TrackedTuple(Tuple):
    """An input that a `Bolt` acks by itself, and that tuples can be anchored on.

    Attributes:
        epoch: the epoch it arrived in; in a later one it acks, fails and anchors nothing.
        roots: the messages it descends from.
        edges: its own edge id in the tree of each of them.
        out: XOR of the edge ids of everything anchored on it so far; lives as long as the tuple, so it never expires.
        state: one of `TupleState`.
    """

    __slots__ = ("edges", "epoch", "out", "roots", "state")

    epoch: int
    roots: tuple[int, ...]
    edges: tuple[int, ...]
    out: int
    state: int

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
    """How far a bolt had come before a call: rows by stream, rows in all, acks, failures."""

    rows: list[int]
    emitted: int
    acked: int
    failed: int


class BoltCollector(Emitter):
    """For `Bolt`: the user names the anchors, and acks or fails each input.

    Attributes:
        anchors: for each stream, by row: the inputs it is anchored on.
        acked, failed, touched: inputs acked, failed and given a new timeout, in order, since the last batch.
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
        self.takes_calls = True
        self._main: Any = self._by_name.get(DEFAULT_STREAM)

    def emit(
        self, values: Sequence[Any], anchors: Anchors = None, stream: str = DEFAULT_STREAM, timestamp: int | None = None
    ) -> None:
        """Emit one tuple, anchored on the given inputs."""
        self._emit(values, anchors, stream, timestamp, None)

    def emit_stamped(self, values: Sequence[Any], anchors: tuple[TrackedTuple, ...], timestamp: int | None) -> None:
        """Emit one tuple on the main stream, as `emit` does; for anchors that the engine has chosen, which are all open."""
        main = self._main
        is_plain = type(values) is tuple and len(values) == self._width
        if is_plain and type(timestamp) is int and NO_TIMESTAMP < timestamp <= MAX_WATERMARK:
            for value in values:
                if type(value) not in ATOMS:
                    break
            else:
                if self._mine._is_owned():
                    main.stamps[len(main.rows)] = timestamp
                    main.rows.append(values)
                    self.anchors[main.index].append(anchors)
                    return
        self.emit(values, anchors, timestamp=timestamp)

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
            # What is wrong with the row is raised in the thread that emits it.
            chosen = self.stream(stream, values, direct=task is not None)
            values = self._fixed(tuple(values), chosen.index, Codec(self._codec.registry))
            self._hand_over(partial(self._emit, values, anchors, stream, timestamp, task), "an emit")
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
        """Start the input's message timeout anew; does nothing for an input that is done."""
        if not self._mine._is_owned():
            self._hand_over(partial(self.reset_timeout, tup), "a reset_timeout")
        elif self._is_input(tup, "reset the timeout of") and tup.state == TupleState.OPEN:
            self.touched.append(tup)

    def _is_input(self, tup: Tuple, verb: str) -> TypeGuard[TrackedTuple]:
        """Tell an input from a tick, to which acks and fails are nothing."""
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

        An ack that stands while what was emitted before it is gone would complete a tree too early.
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


class MessageCollector(Emitter):
    """For `Spout`: rows with message ids.

    Attributes:
        messages: for each stream, by row: the message id, or None for an untracked tuple.
        said: what was said besides rows since the last batch, in order: the number of rows on each stream at that moment, and a
            watermark, `InputStatus.IDLE`, or None for the end of the input.
        ended: whether `end_of_input` was called.
    """

    def __init__(
        self, component: str, streams: Sequence[StreamDeclaration], report: ReportError, codec: Codec | None = None
    ) -> None:
        super().__init__(component, streams, report, codec)
        self.messages: tuple[list[Any], ...] = tuple([] for _ in self.streams)
        default = self._by_name.get(DEFAULT_STREAM)
        self._messages: list[Any] = self.messages[default.index] if default is not None else []
        self.said: list[tuple[list[int], int | InputStatus | None]] = []
        self.ended = False

    elsewhere = "take a BlockingSpout, whose run may emit, or give the call to context.executor.execute(...)"

    def emit(
        self, values: Sequence[Any], message_id: Any = None, stream: str = DEFAULT_STREAM, timestamp: int | None = None
    ) -> None:
        """Emit one tuple; tracked when it has a message id."""
        if stream is DEFAULT_STREAM and timestamp is None and type(values) is tuple and len(values) == self._width:
            for value in values:
                if type(value) not in ATOMS:
                    break
            else:
                if self._mine._is_owned():
                    self._rows.append(values)
                    self._messages.append(message_id)
                    return
        self.messages[self._append(values, stream, timestamp).index].append(message_id)

    def emit_direct(
        self,
        task: int,
        values: Sequence[Any],
        message_id: Any = None,
        stream: str = DEFAULT_STREAM,
        timestamp: int | None = None,
    ) -> None:
        """Emit one tuple of a direct stream to the task with that id."""
        self.messages[self._append(values, stream, timestamp, task).index].append(message_id)

    def emit_watermark(self, timestamp: int) -> None:
        """Promise that no tuple with a timestamp <= `timestamp` follows."""
        self._say(checked_timestamp(timestamp, f"component {self.component!r} emitted watermark"))

    def mark_idle(self) -> None:
        """Say that nobody is to wait for watermarks until the next tuple or watermark."""
        self._say(InputStatus.IDLE)

    def end_of_input(self) -> None:
        """Say that the source has no more."""
        self._say(None)
        self.ended = True

    def _say(self, one: int | InputStatus | None) -> None:
        self.check_thread()
        self.said.append(([len(stream.rows) for stream in self.streams], one))

    def roll_back(self, rows: list[int], said: int) -> None:
        """Discard what a call that raised has emitted and said; the input had not ended before it.

        Args:
            rows: how many rows there were before it, by stream.
            said: how many entries of `said` there were.
        """
        del self.said[said:]
        self.ended = False
        for stream, messages, count in zip(self.streams, self.messages, rows, strict=True):
            stream.truncate(count)
            del messages[count:]

    def in_order(self) -> Sequence[Any]:
        """Return the message ids in the order of emission. With several streams only an `OrderedCollector` knows it."""
        return self.messages[0] if self.messages else ()

    def clear(self) -> None:
        """Begin a new batch."""
        self.said.clear()
        for stream, messages in zip(self.streams, self.messages, strict=True):
            stream.clear()
            messages.clear()


class OrderedCollector(MessageCollector):
    """For a spout with positions and several streams: rows are kept by stream, and positions in the order over all of them."""

    def __init__(
        self, component: str, streams: Sequence[StreamDeclaration], report: ReportError, codec: Codec | None = None
    ) -> None:
        super().__init__(component, streams, report, codec)
        self._order: list[Any] = []

    def emit(
        self, values: Sequence[Any], message_id: Any = None, stream: str = DEFAULT_STREAM, timestamp: int | None = None
    ) -> None:
        """Emit one tuple; tracked when it has a message id."""
        super().emit(values, message_id, stream, timestamp)
        self._order.append(message_id)

    def emit_direct(
        self,
        task: int,
        values: Sequence[Any],
        message_id: Any = None,
        stream: str = DEFAULT_STREAM,
        timestamp: int | None = None,
    ) -> None:
        """Emit one tuple of a direct stream to the task with that id."""
        super().emit_direct(task, values, message_id, stream, timestamp)
        self._order.append(message_id)

    def in_order(self) -> Sequence[Any]:
        """Return the message ids in the order of emission."""
        return self._order

    def roll_back(self, rows: list[int], said: int) -> None:
        """Discard what a call that raised has emitted and said."""
        super().roll_back(rows, said)
        del self._order[sum(rows) :]

    def clear(self) -> None:
        """Begin a new batch."""
        super().clear()
        self._order.clear()
