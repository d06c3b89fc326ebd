"""Spouts and bolts of column batches in the test kit: alone, and in whole topologies in all modes of delivery, with crashes."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from topo import (
    BasicBolt,
    ColumnBatch,
    ColumnBolt,
    ColumnSpout,
    IterableSpout,
    StatefulColumnBolt,
    Topology,
    TopologyBuilder,
    WatermarkStrategy,
    WindowBolt,
    aggregates,
    windows,
)
from topo.testing import CRASH, END, TICK, TopologyTest, message, run_bolt, tuple_of

FORMS = ["lists", "arrow"]
MODES = ["at_most_once", "at_least_once", "exactly_once"]
TEXT = [["a b", "b c c"], ["a"], ["c d", "d", "a b c"], ["e"]]
WORDS = Counter(" ".join(line for block in TEXT for line in block).split())


class Blocks(ColumnSpout):
    """Emits blocks of lines; the position is the number of the block."""

    outputs = ("line", "ms")

    def __init__(self, blocks: Any = TEXT) -> None:
        self.blocks = blocks

    def open(self, context: Any, collector: Any) -> None:
        self.collector = collector
        self.next = 0 if context.committed_position is None else context.committed_position + 1

    def next_batch(self) -> None:
        if self.next == len(self.blocks):
            self.collector.end_of_input()
            return
        block = self.blocks[self.next]
        self.collector.emit_batch({"line": block, "ms": [1000 * (self.next + 1)] * len(block)}, self.next)
        self.next += 1


class Split(ColumnBolt):
    outputs = ("word",)

    def __init__(self, form: str = "lists") -> None:
        super().__init__()
        self.columns = form  # type: ignore[misc]

    def execute_batch(self, batch: Any, collector: Any) -> None:
        lines = batch["line"]
        if self.columns == "arrow":
            import pyarrow.compute as pc

            collector.emit_batch({"word": pc.split_pattern(lines, " ").flatten()})
        else:
            collector.emit_batch({"word": [word for line in lines for word in line.split()]})


class Count(StatefulColumnBolt):
    outputs = ("word", "n")

    def __init__(self, form: str = "lists", fails: int = 0) -> None:
        super().__init__(key="word")
        self.columns = form  # type: ignore[misc]
        self.fails = fails

    def prepare(self, context: Any) -> None:
        self.counts: Counter[str] = Counter()

    def execute_batch(self, batch: Any, collector: Any) -> None:
        if self.fails:
            self.fails -= 1
            raise ValueError("not now")
        words = batch["word"]
        self.counts.update(words.to_pylist() if self.columns == "arrow" else words)

    def end_of_input(self, collector: Any) -> None:
        collector.emit_batch({"word": list(self.counts), "n": list(self.counts.values())})

    def snapshot(self) -> Any:
        return dict(self.counts)

    def restore(self, state: Any) -> None:
        self.counts = Counter(state or {})


class Rows(BasicBolt):
    """Passes rows on; refuses some."""

    outputs = ("word", "n")

    def __init__(self, bad: Any = None) -> None:
        self.bad = bad

    def execute(self, tup: Any, collector: Any) -> None:
        if tup[0] == self.bad:
            raise ValueError("a bad row")
        collector.emit(tup.values)


def word_count(form: str = "lists", fails: int = 0, **settings: Any) -> Topology:
    builder = TopologyBuilder("words").config(**settings)
    builder.set_spout("blocks", Blocks())
    builder.set_bolt("split", Split(form), 2).shuffle_grouping("blocks")
    builder.set_bolt("count", Count(form, fails), 3).fields_grouping("split", "word")
    builder.set_bolt("rows", Rows(), 2).shuffle_grouping("count")
    return builder.build()


def run(topology: Topology, **more: Any) -> TopologyTest:
    test = TopologyTest(topology, **more)
    test.run()
    return test


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("delivery", MODES)
def test_words_are_counted_in_batches(delivery: str, form: str) -> None:
    test = run(word_count(form, delivery=delivery))
    assert dict(test.emitted("rows")) == dict(test.emitted("count")) == WORDS
    assert sorted(test.acked()) == [0, 1, 2, 3]
    test.assert_all_acked()
    test.assert_emitted("split", [word for block in TEXT for line in block for word in line.split()])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("crashed", ["blocks", "split", "count"])
def test_with_exactly_once_counts_survive_a_crash(crashed: str, form: str) -> None:
    items = [{"line": TEXT[0], "ms": [1, 1]}, {"line": TEXT[1], "ms": [1]}, CRASH(crashed), {"line": TEXT[2], "ms": [1] * 3}]
    test = run(word_count(form, delivery="exactly_once"), sources={"blocks": [*items, {"line": TEXT[3], "ms": [1]}, END]})
    assert dict(test.emitted("rows")) == WORDS


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_a_batch_that_fails_is_tried_again_as_a_whole(delivery: str) -> None:
    test = run(word_count(fails=1, delivery=delivery, attempts=9, backoff=("100ms", "100ms")))
    test.assert_all_acked()
    assert {word for word, _ in test.emitted("rows")} == set(WORDS)
    if delivery == "exactly_once":
        assert dict(test.emitted("rows")) == WORDS
    assert {(error.kind, error.message) for error in test.errors()} <= {("ValueError", "not now")}


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_a_batch_that_always_fails_is_one_dead_letter(delivery: str) -> None:
    class Refuse(Split):
        def execute_batch(self, batch: Any, collector: Any) -> None:
            if "e" in batch["line"]:
                raise ValueError("no e")
            super().execute_batch(batch, collector)

    builder = TopologyBuilder("refuse").config(delivery=delivery, attempts=2, backoff=("100ms", "100ms"))
    builder.set_spout("blocks", Blocks())
    builder.set_bolt("split", Refuse()).shuffle_grouping("blocks")
    test = run(builder.build())
    (given_up,) = test.dead_letters()
    assert given_up.values == (ColumnBatch.of({"line": ["e"], "ms": [4000]}),) and "no e" in given_up.why
    if delivery == "at_least_once":
        assert given_up.message_id == 3 and sorted(test.acked()) == [0, 1, 2]


def test_a_row_that_fails_fails_its_batch() -> None:
    builder = TopologyBuilder("rows").config(delivery="at_least_once", attempts=2, backoff=("100ms", "100ms"))
    builder.set_spout("blocks", Blocks())
    builder.set_bolt("rows", Rows(bad="d"), 2).shuffle_grouping("blocks")
    test = run(builder.build())
    assert [given_up.message_id for given_up in test.dead_letters()] == [2]
    assert sorted(test.acked()) == [0, 1, 3]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_rows_become_batches_and_rows_again(delivery: str, form: str) -> None:
    class Double(ColumnBolt):
        outputs = ("word", "n")
        columns = form

        def execute_batch(self, batch: Any, collector: Any) -> None:
            sizes.append(len(batch))
            numbers = batch.in_form("lists")["n"]
            collector.emit_batch({"word": batch["word"], "n": [2 * n for n in numbers]})

    sizes: list[int] = []
    rows = [(f"w{n}", n) for n in range(100)]
    builder = TopologyBuilder("back").config(delivery=delivery)
    builder.set_spout("rows", IterableSpout(rows, fields=("word", "n")))
    builder.set_bolt("double", Double()).shuffle_grouping("rows")
    builder.set_bolt("out", Rows(), 2).shuffle_grouping("double")
    test = run(builder.build())
    test.assert_all_acked()
    assert sorted(test.emitted("out"), key=lambda row: row[1]) == [(word, 2 * n) for word, n in rows]
    assert sum(sizes) == 100 and len(sizes) < 20


def test_tuples_of_several_streams_are_in_separate_batches_and_a_bad_one_fails_alone() -> None:
    class Join(ColumnBolt):
        def execute_batch(self, batch: Any, collector: Any) -> None:
            if -1 in batch.in_form("lists").columns[0]:
                raise ValueError("a bad row")
            seen.append((batch.origin.component, batch.fields))

    seen: list[Any] = []
    builder = TopologyBuilder("join").config(delivery="at_least_once", attempts=1)
    builder.set_spout("a", IterableSpout([1, -1, 3], fields=("x",)))
    builder.set_spout("b", IterableSpout([(1, 2)], fields=("x", "y")))
    builder.set_bolt("join", Join()).shuffle_grouping("a").shuffle_grouping("b")
    test = run(builder.build())
    assert set(seen) == {("a", ("x",)), ("b", ("x", "y"))}
    assert [given_up.values for given_up in test.dead_letters()] == [(-1,)]
    assert len(test.acked()) == 3


def windowed(delivery: str, form: str, strategy_on: str) -> Topology:
    class Pass(ColumnBolt):
        outputs = ("line", "ms")
        columns = form

        def execute_batch(self, batch: Any, collector: Any) -> None:
            collector.emit_batch(batch, timestamps=batch.timestamps)

    strategy = WatermarkStrategy.bounded_out_of_orderness("1s", timestamp="ms")
    builder = TopologyBuilder("windows").config(delivery=delivery)
    builder.set_spout("blocks", Blocks(), watermarks=strategy if strategy_on == "spout" else None)
    builder.set_bolt("pass", Pass(), watermarks=strategy if strategy_on == "bolt" else None).shuffle_grouping("blocks")
    window = WindowBolt(key=None, window=windows.TumblingEventTimeWindows.of("2s"), aggregate=aggregates.Count())
    builder.set_bolt("window", window).global_grouping("pass")
    return builder.build()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("strategy_on", ["spout", "bolt"])
@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_rows_of_batches_fall_into_windows_by_their_column_of_timestamps(delivery: str, strategy_on: str, form: str) -> None:
    test = run(windowed(delivery, form, strategy_on))
    test.assert_all_acked()
    assert sorted(test.emitted("window")) == [(0, 2000, 2), (2000, 4000, 4), (4000, 6000, 1)]


class Complete(ColumnBolt):
    """Emits the number of rows up to each watermark, and raises at the first few."""

    outputs = ("watermark", "rows")

    def __init__(self, fails: int = 0) -> None:
        super().__init__()
        self.fails = fails

    def prepare(self, context: Any) -> None:
        self.stamps: list[int] = []

    def execute_batch(self, batch: Any, collector: Any) -> None:
        self.stamps += batch.timestamps

    def on_watermark(self, watermark: int, collector: Any) -> None:
        count = sum(stamp <= watermark for stamp in self.stamps)
        collector.emit_batch({"watermark": [watermark], "rows": [count]}, timestamps=[min(watermark, 9_000)])
        if self.fails:
            self.fails -= 1
            raise ValueError("not yet")


def completed(fails: int, **settings: Any) -> TopologyTest:
    builder = TopologyBuilder("complete").config(**settings)
    strategy = WatermarkStrategy.bounded_out_of_orderness("1s", timestamp="ms")
    builder.set_spout("blocks", Blocks(), watermarks=strategy)
    builder.set_bolt("complete", Complete(fails)).global_grouping("blocks")
    window = WindowBolt(key=None, window=windows.TumblingEventTimeWindows.of("10s"), aggregate=aggregates.Max("rows"))
    builder.set_bolt("most", window).global_grouping("complete")
    return run(builder.build())


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_a_watermark_comes_behind_the_batches_before_it_and_its_results_ahead_of_it(delivery: str) -> None:
    test = completed(0, delivery=delivery)
    test.assert_all_acked()
    found = dict(test.emitted("complete"))
    assert found[2**63 - 1] == 7 and list(found) == sorted(found)
    expected = {stamp: sum(len(block) for at, block in enumerate(TEXT, 1) if 1000 * at <= stamp) for stamp in found}
    assert found == expected
    assert test.emitted("most") == [(0, 10_000, 7)]


def test_a_call_for_a_watermark_that_raises_is_repeated_with_exactly_once() -> None:
    test = completed(1, delivery="exactly_once", attempts=2)
    assert dict(test.emitted("complete"))[2**63 - 1] == 7 and test.dead_letters() == []


def test_a_call_for_a_watermark_that_raises_is_reported_in_other_modes() -> None:
    test = completed(99, delivery="at_least_once")
    assert test.emitted("complete") == [] and len(test.acked()) == 4
    assert "not yet" in test.errors()[0].message
    assert test.outcome is not None and test.outcome.exit_code == 1


def test_the_status_counts_batches_and_their_rows() -> None:
    test = run(word_count(delivery="at_least_once"))
    counters = {found["component"]: found["counters"] for found in test.status()["components"]}
    assert (counters["blocks"]["emitted"], counters["blocks"]["batch_rows_out"]) == (4, 7)
    assert (counters["split"]["executed"], counters["split"]["batch_rows_in"]) == (4, 7)
    assert (counters["rows"]["executed"], counters["rows"]["batch_rows_in"]) == (5, 5)


def test_a_script_gives_columns_to_a_spout_of_batches() -> None:
    items = [{"line": ["a a"], "ms": [1]}, message({"line": ["b"], "ms": [2]}, message_id=7), END]
    test = run(word_count(delivery="at_least_once"), sources={"blocks": items})
    assert dict(test.emitted("rows")) == {"a": 2, "b": 1}
    assert sorted(test.acked()) == [0, 7]


@pytest.mark.parametrize("form", FORMS)
def test_run_bolt_gives_batches_to_a_column_bolt_and_makes_batches_of_tuples(form: str) -> None:
    batch = ColumnBatch.of({"line": ["a b"], "ms": [1]})
    result = run_bolt(Split(form), [batch, tuple_of(line="c", ms=1), {"line": "d", "ms": 1}, TICK, {"line": "e", "ms": 1}])
    result.assert_all_acked()
    assert [emitted.values[0].rows() for emitted in result.emitted["default"]] == [[("a",), ("b",)], [("c",), ("d",)], [("e",)]]
    assert [emitted.inputs for emitted in result.emitted["default"]] == [(0,), (1, 2), (3,)]


def test_run_bolt_shows_what_a_column_bolt_raises() -> None:
    result = run_bolt(Count(fails=1), [ColumnBatch.of({"word": ["a"]}), ColumnBatch.of({"word": ["b"]})])
    assert result.failed == [0] and result.acked == [1]
    assert result.values()[0][0].rows() == [("b", 1)]
