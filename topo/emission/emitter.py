"""The base of all collectors: the streams of a component, the checks of emitted rows, and the copies of values that can change.

A value that can change (a list, a dict, an object) is replaced by what its receiver will get, in the call that emits it: its
owner may change the original later. Strings, numbers, bytes and tuples of these stay as they are. Part of the per-tuple path.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from functools import partial
from typing import Any, NoReturn

from topo.api.column_batch import ColumnBatch
from topo.api.context import Executor
from topo.api.streams import DEFAULT_STREAM, StreamDeclaration
from topo.dead_letters.payload import in_words
from topo.emission.carried_batches import carried, check_size
from topo.errors import EmitError, FrameError
from topo.hot import ATOMS, NO_TIMESTAMP, Row, stays
from topo.operators.mailbox.mailbox import RejectedExecution, owner_lock
from topo.user_errors import blame_place, calling_place
from topo.wire.codec import Codec
from topo.wire.frames import MAX_WATERMARK
from topo.wire.serializers import RefusedValue

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
    """The rows of one batch of calls on one stream.

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
        self.width = 1 if declaration.columnar else len(declaration.fields)
        self.rows: list[Row] = []
        self.ends: list[int] = []
        self.stamps: dict[int, int] = {}
        self.targets: list[int] = []
        self.direct_targets: frozenset[int] = frozenset()

    def keep(self, rows: Sequence[int]) -> None:
        """Forget all rows but these; `ends`, and other records kept by row, are the caller's concern."""
        stamps = self.stamps
        self.stamps = {place: stamps[row] for place, row in enumerate(rows) if row in stamps}
        if self.targets:
            self.targets[:] = [self.targets[row] for row in rows]
        self.rows[:] = [self.rows[row] for row in rows]

    def stamp_list(self) -> list[int | None] | None:
        """Return the explicit timestamps by row; None when no row has one."""
        stamps, count = self.stamps, len(self.rows)
        if stamps and list(stamps) == list(range(count)):
            return list(stamps.values())
        return [stamps.get(row) for row in range(count)] if stamps else None

    def contents(self) -> RowContents:
        """Return a copy of the rows, for `hold`."""
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


def _raise(error: Exception) -> NoReturn:
    raise error


class Emitter:
    """The part that all collectors share: streams, checks, direct emits.

    Args:
        component: whose collector it is.
        streams: the declared outputs of the component.
        report: reports an error of user code to the master.
        codec: knows the types that tuples may carry; without it topo's own.

    Attributes:
        changeable: numbers of the streams on which a value was emitted that could change. Their rows are encoded for tasks of the
            same worker, too, so that no two receivers share a value.
        nested: numbers of the streams on which a value was emitted that is none of ATOMS: it may hold others, to any depth.
        places: the user's file and line that has last emitted, on each stream, a value that cannot be carried.
        executor: the way to the task's thread, for calls of other threads; None outside of a task.
        elsewhere: what to do instead of calling the collector from another thread.
    """

    elsewhere = "call it on the thread that the engine calls the component on"

    def __init__(
        self, component: str, streams: Sequence[StreamDeclaration], report: ReportError, codec: Codec | None = None
    ) -> None:
        self.component = component
        self._who = f"component {component!r}"
        self.changeable: set[int] = set()
        self.nested: set[int] = set()
        self.places: dict[int, tuple[str, int]] = {}
        self.executor: Executor | None = None
        self.streams = tuple(StreamRows(index, declaration) for index, declaration in enumerate(streams))
        self._by_name: Mapping[str, StreamRows] = {stream.declaration.name: stream for stream in self.streams}
        default = self._by_name.get(DEFAULT_STREAM)
        self._main: Any = default
        is_plain = default is not None and not default.declaration.direct and not default.declaration.columnar
        self._width = default.width if default is not None and is_plain else -1
        self._rows: list[Row] = default.rows if default is not None else []
        self._report = report
        self._codec = codec or Codec()
        self._mine = owner_lock()
        self.count: Callable[[], int] = self._rows_of_all
        """Returns the number of rows, over all streams."""
        if len(self.streams) <= 1:
            self.count = self.streams[0].rows.__len__ if self.streams else int

    def check_thread(self) -> None:
        """Raise EmitError in every thread but the task's own."""
        if not self._mine._is_owned():
            error = EmitError(
                f"component {self.component!r} used its collector on another thread than the task's own; {self.elsewhere}"
            )
            if self.executor is not None:
                if (place := calling_place()) is not None:
                    blame_place(error, place)
                # The thread may end without showing the error: the task reports it as well, and counts the missing rows.
                with suppress(RejectedExecution):
                    self.executor.execute(partial(_raise, error), "a call of another thread that is refused")
            raise error

    def report_error(self, error: BaseException) -> None:
        """Report an error to the master; nothing fails by it. Any thread may call it."""
        if self.executor is None or self._mine._is_owned():
            self._report(error)
        else:
            self.executor.execute(partial(self._report, error), "an error that another thread reports")

    def _rows_of_all(self) -> int:
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
        stream = self._by_name.get(name) if isinstance(name, str) else None
        who = self._who
        if stream is None:
            near = get_close_matches(str(name), self._by_name, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"its outputs are {', '.join(map(repr, self._by_name)) or 'empty'}"
            if not isinstance(values, tuple | list):
                hint = f"give all values as one tuple: emit(({values!r:.40}, {name!r:.40}))"
            raise EmitError(f"{who} emitted on stream {name!r:.80}, which it does not declare; {hint}")
        if stream.declaration.direct is not direct:
            fix = (
                "use emit_direct(task, values)"
                if stream.declaration.direct
                else "use emit(values), or declare direct(...) fields"
            )
            raise EmitError(f"{who}: stream {name!r} is {'' if stream.declaration.direct else 'not '}a direct stream; {fix}")
        if not isinstance(values, tuple | list):
            shown = reprlib.repr(values)
            fix = (
                "emit a tuple of values, one a call: for value in ...: emit((value,))"
                if isinstance(values, Iterator)
                else f"emit a tuple of values, for one value emit(({shown},))"
            )
            raise EmitError(f"{who} emitted {shown} ({type(values).__name__}); {fix}")
        if stream.declaration.columnar and not (len(values) == 1 and isinstance(values[0], ColumnBatch)):
            raise EmitError(f"{who} emitted {values!r:.80} on stream {name!r}, which carries batches; use emit_batch(...)")
        if len(values) != stream.width:
            fields = stream.declaration.fields
            raise EmitError(f"{who} emitted {len(values)} values on stream {name!r}, which has {len(fields)} fields: {fields!r}")
        return stream

    def _emit_nested(self, values: Row) -> None:
        """Append a row of the main stream's width, emitted by the task's own thread, in which not all values are ATOMS."""
        main = self._main
        if main.index not in self.nested:
            self.nested.add(main.index)
        main.rows.append(values if stays(values) else self._fixed(values, main.index, self._codec))

    def _append(self, values: Any, stream: str, timestamp: int | None, task: int | None = None) -> StreamRows:
        if not self._mine._is_owned():
            self.check_thread()
        if stream is DEFAULT_STREAM and task is None and type(values) is tuple and len(values) == self._width:
            chosen: StreamRows = self._main
        else:
            chosen = self.stream(stream, values, direct=task is not None)
        if task is not None and task not in chosen.direct_targets:
            raise EmitError(
                f"component {self.component!r} emitted to task {task}, which does not read the direct stream {stream!r}; "
                f"its readers are {sorted(chosen.direct_targets)} (see context.tasks_of)"
            )
        if chosen.declaration.columnar:
            self._append_batch(chosen, values[0])
            return chosen
        if timestamp is not None:
            chosen.stamps[len(chosen.rows)] = self._checked(timestamp)
        if task is not None:
            chosen.targets.append(task)
        row = values if type(values) is tuple else tuple(values)
        for value in row:
            if type(value) not in ATOMS:
                self.nested.add(chosen.index)
                if not stays(value):
                    row = self._fixed(row, chosen.index, self._codec)
                    break
        chosen.rows.append(row)
        return chosen

    def _append_batch(self, stream: StreamRows, batch: ColumnBatch) -> None:
        """Append a batch; its own timestamps count. Raises UnsupportedValueError when it cannot be carried."""
        if batch.is_arrow:
            check_size(self._codec, batch)
        elif not all(ATOMS.issuperset(map(type, column)) for column in batch.columns):
            self.changeable.add(stream.index)
            batch = carried(self._codec, batch)
        if batch.earliest is not None:
            stream.stamps[len(stream.rows)] = batch.earliest
        stream.rows.append((batch,))

    def _fixed(self, values: Row, stream: int, codec: Codec) -> Row:
        """Return a row that does not change with the values that it was made of."""
        if stays(values):
            return values
        self.nested.add(stream)
        self.changeable.add(stream)
        packed = codec.pack_or_split((values,))
        if packed.rejected:
            # Packing the batch fails this row alone; then no frame of the caller is left.
            if (place := calling_place()) is not None:
                self.places[stream] = place
            _, field, type_name, reason = packed.rejected[0]
            return tuple([
                RefusedValue(in_words(value), type_name, reason)
                if place == field or (field is None and not stays(value))
                else value
                for place, value in enumerate(values)
            ])  # fmt: skip
        try:
            return codec.unpack_rows(packed.payload, 1)[0]
        except FrameError:
            # The receiver reports that it cannot decode the value.
            return values

    def _checked(self, timestamp: Any) -> int:
        if type(timestamp) is int and NO_TIMESTAMP < timestamp <= MAX_WATERMARK:
            return timestamp
        return checked_timestamp(timestamp, f"{self._who} emitted with timestamp")
