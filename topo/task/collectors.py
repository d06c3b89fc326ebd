"""What user code emits with. Collectors only write down; routing, ids and frames come after the batch (`topo.task.routing`).

Part of the per-tuple path: an emit is one check and one list append.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, NamedTuple, TypeGuard

from topo.api.bolt import Anchors
from topo.api.streams import DEFAULT_STREAM, StreamDeclaration
from topo.api.tuples import Origin, Tuple
from topo.errors import EmitError, TupleStateError
from topo.operators.watermarks import InputStatus
from topo.wire.frames import MAX_ROOTS_PER_TUPLE, MAX_WATERMARK, NO_TIMESTAMP

Row = tuple[Any, ...]
ReportError = Callable[[BaseException], None]
RowContents = tuple[list[Row], list[int], dict[int, int]]
"""Rows, targets and timestamps of a stream."""


def checked_timestamp(timestamp: Any, what: str) -> int:
    """Return a timestamp or watermark that users have given. Raises EmitError, beginning with `what`, for anything else."""
    if not isinstance(timestamp, int) or isinstance(timestamp, bool):
        kind = type(timestamp).__name__
        hint = "give whole milliseconds since the epoch, such as int(time.time() * 1000)"
        raise EmitError(f"{what} {timestamp!r} ({kind}); {hint}")
    if not NO_TIMESTAMP < timestamp <= MAX_WATERMARK:
        raise EmitError(f"{what} {timestamp}, which does not fit 64 bits")
    return timestamp


class StreamRows:
    """What one batch of calls has emitted on one stream.

    Attributes:
        rows: the values, in the order of emission.
        ends: after each input of the batch, how many rows there were; kept by the loop that runs the batch.
        stamps: explicit timestamps by row, for the rows that were emitted with one.
        targets: task ids by row; on a direct stream only.
        direct_targets: the tasks that may be named on a direct stream.
    """

    __slots__ = ("declaration", "direct_targets", "ends", "index", "rows", "stamps", "targets", "width")

    def __init__(self, index: int, declaration: StreamDeclaration) -> None:
        self.index = index
        self.declaration = declaration
        self.width = len(declaration.fields)
        self.rows: list[Row] = []
        self.ends: list[int] = []
        self.stamps: dict[int, int] = {}
        self.targets: list[int] = []
        self.direct_targets: frozenset[int] = frozenset()

    def keep(self, rows: Sequence[int]) -> None:
        """Forget all rows but these; `ends` and what is kept by row elsewhere is the caller's concern."""
        stamps = self.stamps
        self.stamps = {place: stamps[row] for place, row in enumerate(rows) if row in stamps}
        if self.targets:
            self.targets[:] = [self.targets[row] for row in rows]
        self.rows[:] = [self.rows[row] for row in rows]

    def stamp_list(self) -> list[int | None] | None:
        """Return the explicit timestamps by row; None when no row has one."""
        return [self.stamps.get(row) for row in range(len(self.rows))] if self.stamps else None

    def contents(self) -> RowContents:
        """Return a copy of what is held, for `hold`."""
        return self.rows[:], self.targets[:], dict(self.stamps)

    def hold(self, contents: RowContents, first: int, last: int) -> None:
        """Hold the rows [first, last) of `contents` alone; `ends` is left as it is."""
        rows, targets, stamps = contents
        self.rows[:] = rows[first:last]
        self.targets[:] = targets[first:last]
        self.stamps = {row - first: stamps[row] for row in range(first, last) if row in stamps} if stamps else {}

    def truncate(self, count: int) -> None:
        """Forget all rows after the first `count`."""
        del self.rows[count:]
        del self.targets[count:]
        if self.stamps:
            self.stamps = {row: stamp for row, stamp in self.stamps.items() if row < count}

    def clear(self) -> None:
        """Begin a new batch."""
        self.rows.clear()
        self.ends.clear()
        self.targets.clear()
        self.stamps.clear()


class Emitter:
    """The part that all collectors share: streams, checks, direct emits."""

    def __init__(self, component: str, streams: Sequence[StreamDeclaration], report: ReportError) -> None:
        self.component = component
        self.streams = tuple(StreamRows(index, declaration) for index, declaration in enumerate(streams))
        self._by_name: Mapping[str, StreamRows] = {stream.declaration.name: stream for stream in self.streams}
        default = self._by_name.get(DEFAULT_STREAM)
        is_plain = default is not None and not default.declaration.direct
        self._width = default.width if default is not None and is_plain else -1
        self._rows: list[Row] = default.rows if default is not None else []
        self._report = report

    def report_error(self, error: BaseException) -> None:
        """Show an error to whoever watches the topology; nothing fails by it."""
        self._report(error)

    def count(self) -> int:
        """How many rows there are, over all streams."""
        return sum([len(stream.rows) for stream in self.streams])

    def check_emitted(self, count: int, most: float) -> None:
        """Raise EmitError when one call has emitted more than `most` rows."""
        if count > most:
            raise EmitError(
                f"component {self.component!r} emitted {count} tuples in one call; at most {most} are allowed "
                "(setting max_task_emit): emit them over several calls"
            )

    def stream(self, name: str, values: Any, *, direct: bool) -> StreamRows:
        """Return the stream that `values` may be emitted on. Raises EmitError with the fix otherwise."""
        stream = self._by_name.get(name)
        who = f"component {self.component!r}"
        if stream is None:
            near = get_close_matches(str(name), self._by_name, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"its outputs are {', '.join(map(repr, self._by_name)) or 'empty'}"
            raise EmitError(f"{who} emitted on stream {name!r}, which it does not declare; {hint}")
        if stream.declaration.direct is not direct:
            fix = (
                "use emit_direct(task, values)"
                if stream.declaration.direct
                else "use emit(values), or declare direct(...) fields"
            )
            raise EmitError(f"{who}: stream {name!r} is {'' if stream.declaration.direct else 'not '}a direct stream; {fix}")
        if not isinstance(values, tuple | list):
            kind = type(values).__name__
            raise EmitError(f"{who} emitted {values!r} ({kind}); emit a tuple of values, for one value emit(({values!r},))")
        if len(values) != stream.width:
            fields = stream.declaration.fields
            raise EmitError(f"{who} emitted {len(values)} values on stream {name!r}, which has {len(fields)} fields: {fields!r}")
        return stream

    def _append(self, values: Any, stream: str, timestamp: int | None, task: int | None = None) -> StreamRows:
        chosen = self.stream(stream, values, direct=task is not None)
        if task is not None and task not in chosen.direct_targets:
            raise EmitError(
                f"component {self.component!r} emitted to task {task}, which does not read the direct stream {stream!r}; "
                f"its readers are {sorted(chosen.direct_targets)} (see context.tasks_of)"
            )
        if timestamp is not None:
            chosen.stamps[len(chosen.rows)] = self._checked(timestamp)
        if task is not None:
            chosen.targets.append(task)
        chosen.rows.append(values if type(values) is tuple else tuple(values))
        return chosen

    def _checked(self, timestamp: Any) -> int:
        return checked_timestamp(timestamp, f"component {self.component!r} emitted with timestamp")


class AnchoringCollector(Emitter):
    """For `BasicBolt`: everything is anchored on the input in hand."""

    def emit(self, values: Sequence[Any], stream: str = DEFAULT_STREAM, timestamp: int | None = None) -> None:
        """Emit one tuple, anchored on the input in hand."""
        if stream is DEFAULT_STREAM and timestamp is None and type(values) is tuple and len(values) == self._width:
            self._rows.append(values)
        else:
            self._append(values, stream, timestamp)

    def emit_direct(self, task: int, values: Sequence[Any], stream: str = DEFAULT_STREAM, timestamp: int | None = None) -> None:
        """Emit one tuple of a direct stream to the task with that id."""
        self._append(values, stream, timestamp, task)

    def truncate(self) -> None:
        """Discard what was emitted since the last input whose end was noted."""
        for rows in self.streams:
            rows.truncate(rows.ends[-1] if rows.ends else 0)


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
    """

    def __init__(self, component: str, streams: Sequence[StreamDeclaration], report: ReportError) -> None:
        super().__init__(component, streams, report)
        self.anchors: tuple[list[tuple[TrackedTuple, ...]], ...] = tuple([] for _ in self.streams)
        self.acked: list[TrackedTuple] = []
        self.failed: list[TrackedTuple] = []
        self.touched: list[TrackedTuple] = []
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
            main.stamps[len(main.rows)] = timestamp
            main.rows.append(values)
            self.anchors[main.index].append(anchors)
        else:
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

    def _emit(self, values: Any, anchors: Anchors, stream: str, timestamp: int | None, task: int | None) -> None:
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
        if self._complete(tup, TupleState.ACKED, "acked"):
            self.acked.append(tup)

    def fail(self, tup: Tuple) -> None:
        """Say that the input could not be processed."""
        if self._complete(tup, TupleState.FAILED, "failed"):
            self.failed.append(tup)

    def reset_timeout(self, tup: Tuple) -> None:
        """Start the input's message timeout anew; does nothing for an input that is done."""
        if self._is_input(tup, "reset the timeout of") and tup.state == TupleState.OPEN:
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

    def __init__(self, component: str, streams: Sequence[StreamDeclaration], report: ReportError) -> None:
        super().__init__(component, streams, report)
        self.messages: tuple[list[Any], ...] = tuple([] for _ in self.streams)
        default = self._by_name.get(DEFAULT_STREAM)
        self._messages: list[Any] = self.messages[default.index] if default is not None else []
        self.said: list[tuple[list[int], int | InputStatus | None]] = []
        self.ended = False

    def emit(
        self, values: Sequence[Any], message_id: Any = None, stream: str = DEFAULT_STREAM, timestamp: int | None = None
    ) -> None:
        """Emit one tuple; tracked when it has a message id."""
        if stream is DEFAULT_STREAM and timestamp is None and type(values) is tuple and len(values) == self._width:
            self._rows.append(values)
            self._messages.append(message_id)
        else:
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
        self.ended = True
        self._say(None)

    def _say(self, one: int | InputStatus | None) -> None:
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

    def __init__(self, component: str, streams: Sequence[StreamDeclaration], report: ReportError) -> None:
        super().__init__(component, streams, report)
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
