"""Windows over batches of columns and the same windows over the rows: the same results, late rows, counts and snapshots."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import repeat
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.operators.rig import END, Rig, encoded
from topo.api import aggregates
from topo.api.column_batch import ColumnBatch, rows_with_stamps
from topo.api.operator_bolts import WindowBolt
from topo.api.tuples import Origin
from topo.api.windows import SlidingWindows, TumblingWindows, WindowStagger
from topo.keys import KeyGroupRange
from topo.operators.base import OperatorSnapshot
from topo.operators.bolt_operators import window_operator_of
from topo.operators.windows.arrow_rows import ArrowRows
from topo.operators.windows.column_windows import ColumnWindows
from topo.operators.windows.scope import NoWindowScope
from topo.wire.column_batches import build_batch, content_of

FIELDS = ("key", "shop", "n")
ORIGIN = Origin("a", 0, "default", FIELDS)
FORMS = ["lists", "arrow"]


class Spread(aggregates.AggregateFunction):
    """The least and the greatest, of rows and of columns."""

    fields = ("least", "greatest")

    def create_accumulator(self) -> Any:
        return []

    def add(self, value: Any, accumulator: Any) -> Any:
        kept = [*accumulator, value[2]]
        return [min(kept), max(kept)]

    def add_columns(self, batch: Any, accumulator: Any) -> Any:
        kept = accumulator if isinstance(accumulator, list) else list(accumulator)
        kept += batch["n"]
        kept[:] = [min(kept), max(kept)]
        return kept

    def get_result(self, accumulator: Any) -> Any:
        return tuple(accumulator)


class ArrowSpread(Spread):
    columns = "arrow"

    def add_columns(self, batch: Any, accumulator: Any) -> Any:
        return super().add_columns({"n": batch["n"].to_pylist()}, accumulator)


AGGREGATES = [
    aggregates.Sum("n"),
    aggregates.Count(),
    aggregates.Mean("n"),
    aggregates.Together(least=aggregates.Min("n"), most=aggregates.Max(2), mean=aggregates.Mean("n"), count=aggregates.Count()),
    aggregates.Together(count=aggregates.Count(), spread=aggregates.Max("n")),
    Spread(),
    ArrowSpread(),
]
numbers = st.one_of(
    st.lists(st.integers(-50, 50), min_size=1, max_size=12),
    st.lists(st.integers(-(2**58), 2**58), min_size=1, max_size=4),
    # Sums of these are exact in any order.
    st.lists(st.integers(-64, 64).map(lambda eighths: eighths / 8), min_size=1, max_size=12),
)
rows = numbers.flatmap(
    lambda column: st.lists(
        st.tuples(st.sampled_from("abc"), st.integers(1, 2), st.integers(-30, 60)), min_size=len(column), max_size=len(column)
    ).map(lambda rest: [((key, shop, n), stamp) for (key, shop, stamp), n in zip(rest, column, strict=True)])
)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("batch"), rows),
        st.tuples(st.just("watermark"), st.integers(1, 25)),
        st.tuples(st.just("restore"), st.just(0)),
    ),
    max_size=12,
)
shapes = st.tuples(st.integers(1, 20), st.none() | st.integers(1, 30), st.integers(0, 5))


class Rows:
    """Windows that are given rows."""

    def __init__(self, bolt: WindowBolt, groups: KeyGroupRange, snapshot: OperatorSnapshot | None = None) -> None:
        self.bolt = bolt
        self.groups = groups
        self.operator = window_operator_of(bolt, [ORIGIN])
        self.rig = Rig(self.operator, groups=groups, restore=snapshot)

    def batch(self, given: Sequence[Any], form: str) -> None:
        values = [row for row, _ in given]
        places = [FIELDS.index(name) for name in self.bolt.key]
        keys = [
            tuple(row[place] for place in places) if len(places) > 1 else row[places[0]] if places else None for row in values
        ]
        self.operator.process_batch(keys, values, [stamp for _, stamp in given])

    def watermark(self, watermark: int) -> None:
        self.rig.operator.process_watermark(watermark)

    def snapshot(self) -> OperatorSnapshot:
        return self.rig.snapshot()

    def taken(self) -> Counter[Any]:
        """Results and late rows since the last look."""
        found: Counter[Any] = Counter()
        for one in self.rig.taken():
            if len(one) == 3 and isinstance(one[1], ColumnBatch):
                found.update((one[0], *late) for late in rows_with_stamps(one[1]))
            elif one[0] != "watermark":
                found[one] += 1
        return found


class Together(NoWindowScope):
    """Puts out the results of a table, every other time."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.times = 0

    def fired_whole(self, keys: Any, window: Any, rows: Any, ends: Any, timestamp: int) -> bool:
        self.times += 1
        if self.times % 2 and isinstance(rows, ColumnBatch):
            for row, stamp in rows_with_stamps(rows):
                assert stamp == timestamp
                self.rig.recorder.emit(row, timestamp)
            return True
        return False


class Columns(Rows):
    """The same windows, given batches."""

    def __init__(self, bolt: WindowBolt, groups: KeyGroupRange, snapshot: OperatorSnapshot | None = None, *most: int) -> None:
        super().__init__(bolt, groups, snapshot)
        self.operator.scope = Together(self.rig)
        assert bolt.aggregate is not None
        keys = [FIELDS.index(name) for name in bolt.key]
        self.columns = ColumnWindows(self.operator, bolt.aggregate.bind(FIELDS), keys, None, *most)

    def batch(self, given: Sequence[Any], form: str) -> None:
        columns = dict(zip(FIELDS, map(list, zip(*[row for row, _ in given], strict=True)), strict=True))
        batch = ColumnBatch.of(columns, [stamp for _, stamp in given]).in_form(form)
        self.columns.process_batch((), [(batch,)], ())

    def watermark(self, watermark: int) -> None:
        self.columns.rise(watermark)
        super().watermark(watermark)

    def snapshot(self) -> OperatorSnapshot:
        self.columns.flush()
        return encoded(OperatorSnapshot(dict(self.columns.added_to(self.operator.freeze())()), self.operator.own()))


def bolt_of(shape: Any, aggregate: Any, key: Any, late: str | None) -> WindowBolt:
    size, slide, offset = shape
    window: Any = (
        TumblingWindows(size, offset % size, WindowStagger.ALIGNED, is_event_time=True)
        if slide is None
        else SlidingWindows(size, slide, offset % slide, is_event_time=True)
    )
    bolt = WindowBolt(key=key, window=window, aggregate=aggregate, late_stream=late)
    bolt.bind_input(FIELDS)
    assert bolt.takes_columns
    return bolt


@pytest.mark.parametrize("aggregate", AGGREGATES, ids=lambda one: type(one).__name__)
@given(
    shape=shapes,
    key=st.sampled_from([None, "key", "shop", ("shop", "key")]),
    late=st.sampled_from([None, "late"]),
    form=st.sampled_from(FORMS),
    most=st.tuples(st.sampled_from([1, 16, 65_536]), st.sampled_from([1, 2, 512])),
    script=steps,
)
def test_batches_and_rows_give_the_same(
    aggregate: Any, shape: Any, key: Any, late: str | None, form: str, most: tuple[int, int], script: list[Any]
) -> None:
    bolt = bolt_of(shape, aggregate, key, late)
    everything = KeyGroupRange(0, 127)
    by_rows, by_columns = Rows(bolt, everything), Columns(bolt, everything, None, *most)
    watermark = -40
    for what, given_ in [*script, ("watermark", END)]:
        if what == "batch":
            by_rows.batch(given_, form)
            by_columns.batch(given_, form)
        elif what == "restore":
            taken = by_rows.snapshot(), by_columns.snapshot()
            assert contents(taken[0]) == contents(taken[1])
            # Each continues from the snapshot of the other.
            by_rows, by_columns = Rows(bolt, everything, taken[1]), Columns(bolt, everything, taken[0], *most)
            by_rows.watermark(watermark)
            by_columns.watermark(watermark)
        else:
            watermark = min(watermark + given_, END)
            by_rows.watermark(watermark)
            by_columns.watermark(watermark)
        assert by_rows.taken() == by_columns.taken()
        assert by_rows.operator.late_elements == by_columns.operator.late_elements
        assert by_rows.operator.late_dropped == by_columns.operator.late_dropped
        assert set(by_rows.operator.ends) == set(by_columns.operator.ends)


def contents(snapshot: OperatorSnapshot) -> dict[int, Any]:
    """By key group and state, the cells of a snapshot in any order."""
    return {
        group: {name: sorted(map(repr, state["rows"])) for name, state in data["state"].items()}
        for group, data in snapshot.keyed.items()
    }


@given(script=st.lists(rows, min_size=1, max_size=4), form=st.sampled_from(FORMS), cut=st.integers(0, 126))
def test_a_snapshot_is_restored_at_another_parallelism(script: list[Any], form: str, cut: int) -> None:
    bolt = bolt_of((10, None, 0), aggregates.Sum("n"), "key", None)
    whole = Columns(bolt, KeyGroupRange(0, 127))
    for given_ in script:
        whole.batch(given_, form)
    snapshot = whole.snapshot()
    parts = [Columns(bolt, groups, snapshot) for groups in (KeyGroupRange(0, cut), KeyGroupRange(cut + 1, 127))]
    for windows in (whole, *parts):
        windows.watermark(END)
    assert whole.taken() == parts[0].taken() + parts[1].taken()
    naive: Counter[Any] = Counter()
    for row, stamp in (one for given_ in script for one in given_):
        naive[row[0], stamp - stamp % 10] += row[2]
    whole = Columns(bolt, KeyGroupRange(0, 127), snapshot)
    whole.watermark(END)
    assert {(key, start): total for ((key, start, _, total), _) in whole.taken()} == dict(naive)


@pytest.mark.parametrize(
    ("column", "error"),
    [([1, "two"], TypeError), ([1, None], TypeError), ([1.0, float("nan")], None), ([2**63 - 1, 2**63 - 1], None)],
    ids=["text", "none", "nan", "beyond 64 bits"],
)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", [aggregates.Sum, aggregates.Min, aggregates.Max, aggregates.Mean])
def test_values_that_arrow_would_sum_otherwise(column: list[Any], error: Any, form: str, kind: Any) -> None:
    if form == "arrow" and "two" in column:
        pytest.skip("no Arrow array has these values")
    bolt = bolt_of((10, None, 0), kind("n"), None, None)
    given_ = [((key, 1, n), 5) for key, n in zip(repeat("a"), column, strict=False)]
    by_rows, by_columns = Rows(bolt, KeyGroupRange(0, 127)), Columns(bolt, KeyGroupRange(0, 127))
    for windows in (by_rows, by_columns):
        windows.batch([(("a", 1, 1), 5)], form)
        if error is None:
            windows.batch(given_, form)
        else:
            with pytest.raises(error):
                windows.batch(given_, form)
    by_columns.columns.flush()
    if error is not None:
        # The batch is in its windows whole or not at all.
        assert repr(by_columns.snapshot().keyed) == repr(_alone(bolt, form).keyed)
        return
    for windows in (by_rows, by_columns):
        windows.watermark(END)
    assert repr(by_rows.taken()) == repr(by_columns.taken())


def _alone(bolt: WindowBolt, form: str) -> OperatorSnapshot:
    windows = Columns(bolt, KeyGroupRange(0, 127))
    windows.batch([(("a", 1, 1), 5)], form)
    return windows.snapshot()


@contextmanager
def calls_of(function: Callable[..., Any], calls: list[str]) -> Iterator[None]:
    """Note each call of a function."""

    def note(frame: Any, event: str, _argument: Any) -> None:
        if event == "call" and frame.f_code is function.__code__:
            calls.append(frame.f_code.co_name)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(before)


@pytest.mark.parametrize("slide", [None, 5])
def test_rows_of_many_slots_are_merged_in_one_pass_for_each_window_of_a_slot(slide: int | None) -> None:
    bolt = bolt_of((10, slide, 0), aggregates.Together(sum=aggregates.Sum("n"), mean=aggregates.Mean("n")), "key", None)
    by_rows, by_columns = Rows(bolt, KeyGroupRange(0, 127)), Columns(bolt, KeyGroupRange(0, 127), None, 65_536, 1)
    passes = []
    few = [((key, 1, n), stamp) for n, (key, stamp) in enumerate([("a", 1), ("b", 4), ("a", 12)])]
    many = [((key, 1, n), (slide or 10) * (n * 37 % 200)) for n in range(400) for key in "ab"]
    in_tables = 0
    for given_ in (few, many, many):
        for windows in (by_rows, by_columns):
            windows.batch(given_, "arrow")
        with calls_of(ArrowRows.accumulators, passes):
            by_columns.columns.flush()
        in_tables = in_tables or len(passes) or by_columns.columns.open_panes
    assert in_tables == (3 if slide is None else 6), "the few were in tables"
    of_tables = 2 if slide is None else 4
    assert len(passes) == of_tables + 2 * (1 if slide is None else 2)
    for windows in (by_rows, by_columns):
        windows.watermark(END)
    assert by_rows.taken() == by_columns.taken()


def test_rows_that_wait_do_not_keep_columns_that_no_window_needs() -> None:
    columns = Columns(bolt_of((10, None, 0), aggregates.Sum("n"), "key", None), KeyGroupRange(0, 127))
    batch = ColumnBatch.of({"key": ["a", "b"], "shop": ["long" * 1_000] * 2, "n": [1, 2]}, [3, 4]).in_form("arrow")
    frame = bytearray(content_of(batch)[0])
    columns.columns.process_batch((), [(build_batch((frame,)),)], ())
    # Raises BufferError while anything reads it.
    frame.clear()
    columns.watermark(END)
    assert sorted(row[:1] + row[3:] for row, _ in columns.taken()) == [("a", 1), ("b", 2)]
