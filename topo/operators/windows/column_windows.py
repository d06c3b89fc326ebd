"""Batches of columns into the accumulators of windows that fire whole: one step for each key of a batch, not for each row.

The accumulators, their windows and what fires them are those of `WindowOperator`; a snapshot does not show which way a row has
taken. Time is cut into *slots*, as in `OpenWindows`: all timestamps of a slot are in the same windows. A batch goes into its
windows whole or not at all: what can raise is done before anything changes. Rows of Arrow arrays wait (`ArrowRows`): the driver
calls `flush` before it takes a snapshot, and `rise` before each watermark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from math import inf
from typing import Any, NamedTuple, cast

from topo.api.aggregates import AggregateFunction
from topo.api.column_batch import LISTS, ColumnBatch, compute, int64, pyarrow
from topo.api.windows import TimeWindow
from topo.operators.time.clock import MIN_TIMESTAMP
from topo.operators.windows.arrow_rows import MAX_ROWS, ArrowColumns, ArrowRows
from topo.operators.windows.assigners import SlidingAssigner, TumblingAssigner, window_start
from topo.operators.windows.column_aggregates import ColumnAggregate
from topo.operators.windows.operator import WindowOperator
from topo.operators.windows.window_tables import LEAST_KEYS, WindowTables, results_of

WindowsOfSlots = dict[int, list[TimeWindow]]
"""By start of a slot: its windows that are not over."""
_FAR = 1 << 62
_AT_ONCE = 1 << 14
"""Rows of one batch of results."""


class _Rows(NamedTuple):
    """Rows of a batch: as columns of values, or as Arrow arrays that can wait; and the start of each row's slot, or of all."""

    batch: ColumnBatch
    arrow: ArrowColumns | None
    slots: Any


class ColumnWindows:
    """The way of batches into the windows of one operator.

    Args:
        windows: the operator; its windows fire whole.
        aggregate: its aggregate, bound to the fields.
        keys: places of the key fields in a batch.
        no_key: the key of all rows, where there are no key fields.
        most_rows: how many rows of Arrow arrays wait.
        least_keys: how many keys a window has in its tables, at least.

    Attributes:
        position: of the last batch that was taken among those that were given; after an exception, of that which raised.
    """

    def __init__(
        self,
        windows: WindowOperator,
        aggregate: AggregateFunction,
        keys: Sequence[int],
        no_key: Any,
        most_rows: int = MAX_ROWS,
        least_keys: int = LEAST_KEYS,
    ) -> None:
        self._windows = windows
        self._assigner = cast(TumblingAssigner | SlidingAssigner, windows.assigner)
        self._aggregate = ColumnAggregate(aggregate)
        self._keys = keys
        self._no_key = no_key
        self._waiting = ArrowRows(self._aggregate, keys, no_key, most_rows)
        self._tables = WindowTables(self._waiting, least_keys if keys else inf)
        self._awaited: WindowsOfSlots = {}
        """The slots of the rows that wait."""
        self._first_end: float = inf
        """When the first of their windows ends."""
        self.position = -1

    def process_batch(self, _keys: Sequence[Any], rows: Sequence[Any], _timestamps: Sequence[Any]) -> None:
        """Take tuples, each of which is a batch; ends early when the list is emptied meanwhile."""
        self.position = -1
        for self.position, (batch,) in enumerate(rows):
            self._take(batch)

    def undo(self) -> None:
        """Take back the output of a batch that has raised; nothing else has changed."""
        self._windows.undo()

    @property
    def open_panes(self) -> int:
        """How many keys in windows have accumulators in tables, at least."""
        return self._tables.open_panes

    def added_to(self, frozen: Callable[[], Mapping[int, Any]]) -> Callable[[], Mapping[int, Any]]:
        """Return a function that gives a snapshot of the operator, `frozen`, with all that is here. Call `flush` before."""
        group_of = self._windows.keys.group_of
        group_of.note_keys(self.open_panes)
        return self._tables.added_to(frozen, group_of)

    def rise(self, watermark: int) -> None:
        """Put out the results of windows in tables that a watermark reaches; those in cells are ready to fire."""
        if watermark >= self._first_end:
            self.flush()
        for window in self._tables.due(watermark):
            self._fire(window, self._tables.take(window))

    def _fire(self, window: TimeWindow, table: Any) -> None:
        windows = self._windows
        results: Any = results_of(table, self._aggregate.parts, len(self._keys), window)
        for first in range(0, len(results), _AT_ONCE):
            windows.begin_call()
            if not windows.scope.fired_whole((), window, results.slice(first, first + _AT_ONCE), (), window.max_timestamp):
                # These results leave one by one, as those of cells.
                self._merge(window, self._waiting.accumulators(table.slice(first)))
                break

    def flush(self) -> None:
        """Put the rows that wait into their accumulators."""
        awaited, self._awaited, self._first_end = self._awaited, {}, inf
        grouped, most = self._waiting.take()
        if grouped is None:
            return
        in_cells = set(self._windows.contents.handle.table.namespaces())
        windows = {window for found in awaited.values() for window in found}
        in_cells |= self._tables.refused(windows, grouped.num_rows, len(awaited))
        if windows <= in_cells:
            for window in windows:
                self._to_cells(window)
            self._merge_slots(grouped, awaited)
            return
        slots, columns = grouped.column("slot"), grouped.drop_columns(["slot"])
        for slot, found in awaited.items():
            # With few slots, as there are here, this costs less than sorting the rows by slot.
            part = columns if len(awaited) == 1 else columns.filter(compute().equal(slots, int64(slot)))
            for window in found:
                if window in in_cells or not self._tables.add(window, part, most):
                    in_cells.add(window)
                    self._to_cells(window)
                    self._merge(window, self._waiting.accumulators(part))

    def _merge_slots(self, grouped: Any, windows: WindowsOfSlots) -> None:
        """Merge one row for each key of a slot into the cells of its windows, where there may be a slot for each row."""
        by_slot = grouped.sort_by("slot")
        counts = compute().value_counts(by_slot.column("slot"))
        runs = list(zip(counts.field(0).to_pylist(), counts.field(1).to_pylist(), strict=True))
        columns = by_slot.drop_columns(["slot"])
        # Accumulators may be lists: those of each window are its own.
        for place in range(max(len(windows[slot]) for slot, _ in runs)):
            accumulators = self._waiting.accumulators(columns)
            for slot, count in runs:
                own = list(islice(accumulators, count))
                if place < len(windows[slot]):
                    self._merge(windows[slot][place], own)

    def _to_cells(self, window: TimeWindow) -> None:
        """Have the accumulators of a window in cells from now on."""
        part = self._tables.take(window)
        if part is not None:
            self._merge(window, self._waiting.accumulators(part))

    def _merge(self, window: TimeWindow, accumulators: Iterable[tuple[Any, Any]]) -> None:
        merge, table = self._aggregate.merge, self._windows.contents.handle.table
        cells = table.rows(window)
        for key, added in accumulators:
            kept = cells.get(key)
            cells[key] = added if kept is None else merge(kept, added)
        table.give_back(window)

    def _take(self, batch: ColumnBatch) -> None:
        windows = self._windows
        windows.begin_call()
        if batch.earliest is None or batch.latest is None:
            # Raises the error of a row without timestamp.
            self._assigner.assign(None, MIN_TIMESTAMP, windows.now_ms)
            return
        rows = self._cut(batch, batch.earliest, batch.latest)
        slots, closed = self._find_windows([rows.slots] if isinstance(rows.slots, int) else _distinct(rows.slots))
        late = None
        if closed:
            rows, late = self._without(closed, rows)
        folded = {}
        if rows.arrow is None:
            # In order of arrival: of equal values the first is kept, and a not-a-number compares with none.
            self.flush()
            for window in {window: None for found in slots.values() for window in found}:
                self._to_cells(window)
            folded = self._fold(rows, slots)
        if late is not None:
            self._put_late(late)
        # From here on nothing raises.
        if rows.arrow is not None and slots:
            self._wait(rows.arrow, rows.slots, slots)
        self._put(folded)
        for window in dict.fromkeys(window for found in slots.values() for window in found):
            windows.register_cleanup(window)
            windows.scope.held(self.position, None, window)

    def _cut(self, batch: ColumnBatch, earliest: int, latest: int) -> _Rows:
        """Return the rows of a batch with the starts of their slots."""
        step, offset = self._assigner.slots(self._windows.now_ms)
        first, last = window_start(earliest, offset, step), window_start(latest, offset, step)
        arrow = self._waiting.columns_of(batch) if batch.is_arrow and latest - first < _FAR else None
        if arrow is None:
            batch = batch.in_form(LISTS) if batch.is_arrow else batch
            return _Rows(batch, None, first if first == last else [stamp - (stamp - offset) % step for stamp in batch.timestamps])
        if first == last:
            return _Rows(batch, arrow, first)
        pc, begin, length = compute(), int64(first), int64(step)
        # Arrow's division cuts off; no stamp is before the first slot.
        number = pc.divide(pc.subtract(batch.timestamps, begin), length)
        return _Rows(batch, arrow, pc.add(pc.multiply(number, length), begin))

    def _find_windows(self, starts: Iterable[int]) -> tuple[WindowsOfSlots, list[int]]:
        """Return the slots with windows that are not over, and the other slots."""
        windows, slots, closed = self._windows, WindowsOfSlots(), list[int]()
        for start in starts:
            given = self._assigner.assign(None, start, windows.now_ms)
            found = [window for window in given if not windows.is_late(window)]
            # Rows of a slot whose windows are all over go to the late stream, and are not missed then.
            if len(found) < len(given) and (found or windows.late_stream is None):
                windows.scope.missed(self.position)
            if found:
                slots[start] = found
            else:
                closed.append(start)
        return slots, closed

    def _without(self, closed: list[int], rows: _Rows) -> tuple[_Rows, ColumnBatch | None]:
        """Return the rows that are in no closed slot; and those of the others that are late, if there are any.

        Between windows that do not touch there are slots without windows, whose rows are only dropped.
        """
        batch, arrow, slots = rows
        watermark = self._windows.timer_service.current_watermark
        if arrow is not None:
            pa, pc = pyarrow(), compute()
            if isinstance(slots, int):
                slots = pa.repeat(int64(slots), len(batch))
            is_closed = pc.is_in(slots, pa.array(closed, pa.int64()))
            kept = pc.indices_nonzero(pc.invert(is_closed))
            over = pc.indices_nonzero(pc.and_(is_closed, pc.less_equal(batch.timestamps, int64(watermark))))
            return _Rows(batch, arrow.take(kept), slots.take(kept)), batch.take(over) if len(over) else None
        starts, gone = [slots] * len(batch) if isinstance(slots, int) else slots, set(closed)
        kept = [place for place, start in enumerate(starts) if start not in gone]
        over = [place for place, start in enumerate(starts) if start in gone and batch.timestamps[place] <= watermark]
        return _Rows(batch.take(kept), None, [starts[place] for place in kept]), batch.take(over) if over else None

    def _put_late(self, late: ColumnBatch) -> None:
        windows = self._windows
        if windows.late_stream is not None:
            windows.output.side(windows.late_stream, late, None)
        windows.late_elements += len(late)
        windows.late_dropped += len(late) if windows.late_stream is None else 0

    def _wait(self, arrow: ArrowColumns, starts: Any, slots: WindowsOfSlots) -> None:
        if not self._waiting.fits(arrow):
            self.flush()
        self._waiting.add(arrow, starts)
        self._awaited |= slots
        self._first_end = min(self._first_end, *[window.max_timestamp for found in slots.values() for window in found])

    def _fold(self, rows: _Rows, slots: WindowsOfSlots) -> dict[TimeWindow, dict[Any, Any]]:
        """Return the new accumulators of each window by key."""
        batch, _, starts = rows
        places: dict[TimeWindow, Sequence[int]] = {}
        if isinstance(starts, int):
            places = {window: range(len(batch)) for window in slots[starts]} if slots else {}
        else:
            by_window: dict[TimeWindow, list[int]] = {window: [] for found in slots.values() for window in found}
            for place, start in enumerate(starts):
                for window in slots[start]:
                    by_window[window].append(place)
            places.update(by_window)
        return {window: self._fold_window(window, batch, own) for window, own in places.items()}

    def _fold_window(self, window: TimeWindow, batch: ColumnBatch, places: Sequence[int]) -> dict[Any, Any]:
        part = batch if len(places) == len(batch) else batch.take(places)
        groups: dict[Any, int] = {}
        of_row = [groups.setdefault(key, len(groups)) for key in self._keys_of(part)]
        peek, create = self._windows.contents.handle.table.peek, self._aggregate.create
        kept = [create() if (cell := peek(window, key)) is None else cell for key in groups]
        return dict(zip(groups, self._aggregate.fold(kept, of_row, part), strict=True))

    def _keys_of(self, batch: ColumnBatch) -> Sequence[Any]:
        columns = [batch.columns[place] for place in self._keys]
        if len(columns) == 1:
            return columns[0]  # type: ignore[no-any-return]
        return list(zip(*columns, strict=True)) if columns else [self._no_key] * len(batch)

    def _put(self, folded: dict[TimeWindow, dict[Any, Any]]) -> None:
        table = self._windows.contents.handle.table
        for window, accumulators in folded.items():
            rows = table.rows(window)
            rows.update(accumulators)
            # None drops an accumulator, as it does when rows are added.
            for key in [key for key, accumulator in accumulators.items() if accumulator is None]:
                del rows[key]
            table.give_back(window)


def _distinct(slots: Any) -> Iterable[int]:
    return dict.fromkeys(slots) if isinstance(slots, list) else compute().unique(slots).to_pylist()
