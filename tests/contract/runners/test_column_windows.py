"""Windows that take batches of columns, under each guarantee: their results, acks, failures, counters and checkpoints."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import pytest

from tests.contract.runners.test_column_bolts import GUARANTEES, owed
from tests.tasks.components import CHECKPOINTED, TRACKED, UNTRACKED, Sink
from tests.tasks.solo import RowIds, Solo
from topo import ColumnBatch, ColumnBolt, ColumnSpout, WatermarkStrategy, WindowBolt, aggregates, windows
from topo.builder import TopologyBuilder
from topo.ids import REPLAYED_BIT
from topo.wire.frames import FrameKind

FORMS = pytest.mark.parametrize("form", ["lists", "arrow"])
END = 2**63 - 1


class Batches(ColumnSpout):
    outputs = ("key", "n")

    def next_batch(self) -> None:
        raise AssertionError("the test plays the spout")


class BatchSink(ColumnBolt):
    def execute_batch(self, batch: Any, collector: Any) -> None:
        raise AssertionError("the test plays the sink")


def sums(**options: Any) -> WindowBolt:
    given: dict[str, Any] = {
        "key": "key", "window": windows.TumblingEventTimeWindows.of("10ms"), "aggregate": aggregates.Sum("n")
    }  # fmt: skip
    return WindowBolt(**(given | options))


class Added(aggregates.AggregateFunction):
    """Adds numbers up; tests define the result of a sum."""

    def create_accumulator(self) -> int:
        return 0

    def add(self, value: Any, accumulator: int) -> int:
        return int(accumulator + value[1])

    def add_columns(self, batch: ColumnBatch, accumulator: int) -> int:
        return accumulator + sum(batch["n"])


def task(guarantee: str, bolt: WindowBolt, sink: Any = Sink, **settings: Any) -> Solo:
    builder = TopologyBuilder("contract").config(delivery=guarantee, **settings)
    builder.set_spout("a", Batches(), watermarks=WatermarkStrategy.emitted())
    builder.set_bolt("b", bolt).fields_grouping("a", "key")
    readers = builder.set_bolt("sink", sink()).global_grouping("b")
    if bolt.late_stream is not None:
        readers.global_grouping("b", "late")
    solo = Solo(builder.build(), "b")
    assert solo.plan.component("b").takes_columns
    solo.run()
    return solo


def batch(rows: list[tuple[Any, Any, int]], form: str = "lists") -> tuple[ColumnBatch]:
    keys, numbers, stamps = map(list, zip(*rows, strict=True))
    return (ColumnBatch.of({"key": keys, "n": numbers}, stamps).in_form(form),)


def put(solo: Solo, guarantee: str, *batches: tuple[ColumnBatch], ids: RowIds | None = None) -> RowIds:
    stamps = [one.earliest for (one,) in batches]
    found = solo.feed(*batches, stamps=stamps, tracked=guarantee == TRACKED, ids=ids)
    solo.run()
    return found


def results(solo: Solo) -> set[tuple[Any, ...]]:
    """The rows sent, of batches and as they are."""
    found = [row[0].rows() if isinstance(row[0], ColumnBatch) else [row] for row in solo.rows()]
    return {row for rows in found for row in rows}


def decide(solo: Solo, kind: FrameKind, roots: list[int]) -> None:
    solo.feed_ids(kind, roots, sender=solo.plan.ackers[0])
    solo.run()


def level(solo: Solo, name: str) -> Any:
    levels: Mapping[str, Any] = solo.task.statistics().levels
    return levels[name]


@GUARANTEES
@FORMS
@pytest.mark.parametrize("sink", [Sink, BatchSink])
def test_a_batch_is_acked_with_the_results_of_its_last_window(guarantee: str, form: str, sink: Any) -> None:
    solo = task(guarantee, sums(), sink)
    ids = put(solo, guarantee, batch([("x", 1, 1), ("y", 2, 2), ("x", 3, 11)], form), batch([("x", 10, 3)], form))
    solo.feed_time(9)
    first = {("x", 0, 10, 11), ("y", 0, 10, 2)}
    assert results(solo) == first
    is_batch = [isinstance(row[0], ColumnBatch) for row in solo.rows()]
    assert is_batch == ([True] if sink is BatchSink else [False, False])
    firings = solo.roots(FrameKind.INIT)
    solo.feed_time(19)
    assert results(solo) == first | {("x", 10, 20, 3)}
    counters = solo.task.counters
    assert (counters.executed, counters.batch_rows_in) == (2, 4)
    if guarantee == TRACKED:
        assert len(firings) == 1, "a window has one root, however many keys it has"
        last = [root for root in solo.roots(FrameKind.INIT) if root not in firings]
        decide(solo, FrameKind.ACKED, firings)
        assert counters.acked == 1
        decide(solo, FrameKind.ACKED, last)
        assert {root: word for root, word in owed(solo).items() if root in ids.roots} == dict(
            zip(ids.roots, ids.edges, strict=True)
        )
        assert solo.task.runner.pending == 0
    assert counters.acked == (0 if guarantee == UNTRACKED else 2) and counters.failed == 0


@GUARANTEES
@pytest.mark.parametrize("sink", [Sink, BatchSink])
def test_a_window_in_which_no_key_has_a_result_ends_without_rows(guarantee: str, sink: Any) -> None:
    class Many(Added):
        """A sum, where it is above one."""

        def get_result(self, accumulator: int) -> int | None:
            return accumulator if accumulator > 1 else None

    solo = task(guarantee, sums(aggregate=Many()), sink)
    put(solo, guarantee, batch([("x", 1, 1), ("y", 1, 2)]), batch([("x", 3, 12), ("y", 1, 12)]))
    solo.feed_time(END)
    assert solo.errors() == []
    assert results(solo) == {("x", 10, 20, 3)}
    assert level(solo, "open_windows") == 0.0 and solo.task.counters.failed == 0


def test_a_result_that_fails_fails_all_batches_of_its_window_and_no_other() -> None:
    solo = task(TRACKED, sums())
    ids = put(solo, TRACKED, batch([("x", 1, 1)]), batch([("y", 1, 2)]), batch([("x", 1, 12)]))
    solo.feed_time(9)
    decide(solo, FrameKind.FAILED, solo.roots(FrameKind.INIT))
    assert sorted(solo.roots(FrameKind.FAIL)) == ids.roots[:2]


@GUARANTEES
@FORMS
def test_a_batch_with_a_row_that_cannot_be_added_fails_and_no_row_of_it_is(guarantee: str, form: str) -> None:
    solo = task(guarantee, sums(), attempts=2)
    ids = put(
        solo, guarantee, batch([("x", 1, 1)], form), batch([("x", 100, 1), ("y", None, 2)], form), batch([("y", 5, 1)], form)
    )
    solo.feed_time(END)
    assert results(solo) == {("x", 0, 10, 1), ("y", 0, 10, 5)}
    assert solo.task.counters.failed == 1
    assert solo.roots(FrameKind.FAIL) == (ids.roots[1:2] if guarantee == TRACKED else [])
    if guarantee == CHECKPOINTED:
        assert [values[0].rows() for values in solo.given_up()] == [[("x", 100), ("y", None)]]


@GUARANTEES
@FORMS
@pytest.mark.parametrize("late", [None, "late"])
@pytest.mark.parametrize("sink", [Sink, BatchSink])
def test_late_rows_of_a_batch_are_dropped_or_sent_and_the_others_are_added(
    guarantee: str, form: str, late: str | None, sink: Any
) -> None:
    solo = task(guarantee, sums(late_stream=late), sink)
    solo.feed_time(9)
    ids = put(solo, guarantee, batch([("x", 1, 1), ("x", 2, 11), ("y", 3, 2)], form), batch([("z", 4, 5)], form))
    counters = solo.task.counters
    assert (counters.late, counters.late_dropped) == (3, 3 if late is None else 0)
    assert results(solo) == (set() if late is None else {("x", 1), ("y", 3), ("z", 4)})
    assert counters.acked == (2 if guarantee == CHECKPOINTED else 1), "the batch that no window holds, at least"
    solo.feed_time(END)
    assert ("x", 10, 20, 2) in results(solo)
    if guarantee == TRACKED:
        decide(solo, FrameKind.ACKED, solo.roots(FrameKind.INIT))
        found = owed(solo)
        assert {root: found[root] for root in ids.roots} == dict(zip(ids.roots, ids.edges, strict=True))
        assert solo.roots(FrameKind.FAIL) == []


@pytest.mark.parametrize("late", [None, "late"])
@pytest.mark.parametrize("sliding", [False, True])
def test_a_replay_that_is_late_for_a_window_fails_again(late: str | None, sliding: bool) -> None:
    window: Any = windows.SlidingEventTimeWindows.of("20ms", "10ms") if sliding else windows.TumblingEventTimeWindows.of("10ms")
    solo = task(TRACKED, sums(window=window, late_stream=late))
    # One row is late for all its windows; in sliding windows the other is late for one, and in another.
    solo.feed_time(19 if sliding else 9)
    ids = RowIds([REPLAYED_BIT | 7], [77])
    put(solo, TRACKED, batch([("x", 1, 1), ("x", 2, 11)]), ids=ids)
    # In tumbling windows the row that is late for one is late for all, and has gone to the late stream.
    goes_on = late is not None and not sliding
    assert solo.roots(FrameKind.FAIL) == ([] if goes_on else ids.roots)


def test_a_key_whose_result_raises_fails_its_window_and_the_other_keys_have_results() -> None:
    class Unlucky(Added):
        def get_result(self, accumulator: int) -> int:
            if accumulator == 2:
                raise ValueError("unlucky")
            return accumulator

    solo = task(TRACKED, sums(aggregate=Unlucky()), attempts=2)
    ids = put(solo, TRACKED, batch([("x", 1, 1), ("y", 2, 2)]), batch([("z", 3, 12)]))
    solo.feed_time(END)
    assert results(solo) == {("x", 0, 10, 1), ("z", 10, 20, 3)}
    assert solo.roots(FrameKind.FAIL) == ids.roots[:1]
    assert (level(solo, "open_windows"), level(solo, "timers")) == (0.0, 0.0)


@FORMS
def test_a_checkpoint_has_the_rows_that_wait(form: str) -> None:
    solo = task(CHECKPOINTED, sums())
    put(solo, CHECKPOINTED, batch([("x", 1, 1), ("y", 2, 2)], form))
    solo.barrier(1)
    put(solo, CHECKPOINTED, batch([("x", 100, 1)], form))
    solo.adopt(2, checkpoint=1)
    solo.open_inputs()
    solo.out.clear()
    solo.feed_time(END)
    assert results(solo) == {("x", 0, 10, 1), ("y", 0, 10, 2)}


def test_a_key_that_is_none_is_one_of_the_keys_of_a_window() -> None:
    class Once(aggregates.Sum):
        raises = True

        def add_columns(self, batch: Any, accumulator: Any) -> Any:
            return accumulator + sum(batch["n"])

        def get_result(self, accumulator: Any) -> Any:
            if accumulator == 1 and self.raises:
                self.raises = False
                raise ValueError("once")
            return accumulator

    solo = task(TRACKED, sums(aggregate=Once(1)), attempts=2)
    ids = put(solo, TRACKED, batch([(None, 1, 1), ("x", 2, 2)]))
    solo.feed_time(9)
    assert results(solo) == {(None, 0, 10, 1), ("x", 0, 10, 2)}
    firings = solo.roots(FrameKind.INIT)
    assert len(firings) == 2, "the results of the other key are followed, too"
    decide(solo, FrameKind.FAILED, firings[1:])
    assert solo.roots(FrameKind.FAIL) == ids.roots


MANY = [(f"k{number}", number, 1 + number % 2) for number in range(2_000)]


@GUARANTEES
@pytest.mark.parametrize("sink", [Sink, BatchSink])
def test_many_keys_are_kept_as_tables_and_leave_as_arrays(guarantee: str, sink: Any) -> None:
    solo = task(guarantee, sums(), sink)
    more = [(key, 1, stamp) for key, _, stamp in MANY]
    ids = put(solo, guarantee, batch(MANY, "arrow"), batch(more, "arrow"))
    solo.feed_time(9)
    assert results(solo) == {(key, 0, 10, number + 1) for key, number, _ in MANY}
    assert len(solo.rows()) == (1 if sink is BatchSink else len(MANY))
    assert sink is Sink or solo.rows()[0][0].is_arrow
    assert (level(solo, "open_windows"), level(solo, "timers")) == (0.0, 0.0)
    if guarantee == TRACKED:
        assert len(solo.roots(FrameKind.INIT)) == 1
        decide(solo, FrameKind.ACKED, solo.roots(FrameKind.INIT))
        found = owed(solo)
        assert {root: found[root] for root in ids.roots} == dict(zip(ids.roots, ids.edges, strict=True))


def test_a_checkpoint_has_the_tables() -> None:
    solo = task(CHECKPOINTED, sums())
    put(solo, CHECKPOINTED, batch(MANY, "arrow"))
    solo.barrier(1)
    assert level(solo, "open_windows") == len(MANY)
    put(solo, CHECKPOINTED, batch(MANY, "arrow"))
    solo.adopt(2, checkpoint=1)
    solo.open_inputs()
    solo.out.clear()
    # A restored window is in cells, and takes tables as well.
    put(solo, CHECKPOINTED, batch([(key, 1, stamp) for key, _, stamp in MANY], "arrow"))
    solo.feed_time(END)
    assert results(solo) == {(key, 0, 10, number + 1) for key, number, _ in MANY}


@GUARANTEES
def test_a_batch_without_timestamps_is_refused_as_a_row_is(guarantee: str) -> None:
    solo = task(guarantee, sums(), attempts=1)
    solo.feed((ColumnBatch.of({"key": ["x"], "n": [1]}),), tracked=guarantee == TRACKED)
    solo.run()
    assert solo.task.counters.failed == 1
    (error,) = solo.errors()
    assert "an element without timestamp reached an event-time window" in str(error)


def test_an_untracked_window_forgets_its_batches() -> None:
    solo = task(UNTRACKED, sums())
    put(solo, UNTRACKED, batch([("x", 1, 1)]))
    solo.feed_time(END)
    assert solo.frames(FrameKind.INIT) == [] and solo.task.runner.pending == 0


class Searches:
    """Notes the modules that are searched for, and finds none."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def find_spec(self, name: str, path: Any, target: Any = None) -> None:
        self.names.append(name)


@GUARANTEES
def test_no_module_is_searched_for_with_each_batch(guarantee: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Arrow searches for dateutil where it has to infer the type of a number.
    solo = task(guarantee, sums())
    first, second = (batch([("a", 1, 3), ("b", 2, stamp)], "arrow") for stamp in (14, 15))
    put(solo, guarantee, first)
    searches = Searches()
    monkeypatch.delitem(sys.modules, "dateutil", raising=False)
    monkeypatch.setattr(sys, "meta_path", [searches, *sys.meta_path])
    put(solo, guarantee, second)
    assert not searches.names
