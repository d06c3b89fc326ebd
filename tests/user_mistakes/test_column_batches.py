"""What users expect of column batches, and the answer that they get."""

from __future__ import annotations

import re
import sys
from typing import Any

import pyarrow as pa
import pytest

from topo import (
    BasicBolt,
    ColumnBolt,
    ColumnSpout,
    CustomGrouping,
    TopologyBuilder,
    TopologyError,
    WatermarkStrategy,
    direct,
)
from topo.testing import TopologyTest


class Source(ColumnSpout):
    outputs: Any = ("word", "ms")

    def __init__(self, *batches: Any, **more: Any) -> None:
        self.batches, self.more = batches, more

    def open(self, context: Any, collector: Any) -> None:
        self.collector, self.next = collector, 0

    def next_batch(self) -> None:
        if self.next == len(self.batches):
            self.collector.end_of_input()
            return
        self.next += 1
        self.collector.emit_batch(self.batches[self.next - 1], self.next, **self.more)


class Relay(ColumnBolt):
    outputs: Any = ("word", "ms")

    def execute_batch(self, batch: Any, collector: Any) -> None:
        collector.emit_batch(batch)


class Rows(BasicBolt):
    def execute(self, tup: Any, collector: Any) -> None: ...


def built(
    spout: Any, bolt: Any = Relay, group: Any = lambda bolt: bolt.shuffle_grouping("a"), tasks: int = 2, **more: Any
) -> Any:
    builder = TopologyBuilder("mistakes").config(delivery="at_least_once", attempts=1)
    builder.set_spout("a", spout, **more)
    group(builder.set_bolt("b", bolt() if isinstance(bolt, type) else bolt, tasks))
    return builder.build()


class First(CustomGrouping):
    def choose(self, values: Any) -> Any:
        return [0]


@pytest.mark.parametrize(
    ("group", "kind"),
    [
        (lambda bolt: bolt.partial_key_grouping("a", "word"), "partial-key"),
        (lambda bolt: bolt.custom_grouping("a", First()), "custom"),
    ],
)
def test_a_grouping_that_cannot_split_batches_is_refused(group: Any, kind: str) -> None:
    """The user groups batches by a rule that looks at single rows."""
    with pytest.raises(TopologyError, match=f"bolt 'b': 'a' emits batches, which a {kind} grouping cannot split; use a fields"):
        built(Source(), group=group)


@pytest.mark.parametrize("bolt", [Relay, Rows])
@pytest.mark.parametrize("tasks", [1, 2])
@pytest.mark.parametrize("words", [[{"a": 1}, {"b": 1}], pa.array([["a"], ["b"]])], ids=["lists", "arrow"])
def test_keys_that_cannot_be_used_fail_their_batch_also_with_one_task(words: Any, tasks: int, bolt: Any) -> None:
    """The key is a dict, or a list. With one task it passed, until the user asked for two."""
    bad, good = {"word": words, "ms": [1, 2]}, {"word": ["a", "b"], "ms": [1, 2]}
    test = TopologyTest(built(Source(bad, good), bolt, lambda bolt: bolt.fields_grouping("a", "word"), tasks))
    test.run()
    assert [(dead.message_id, dead.component) for dead in test.dead_letters()] == [(1, "a")]
    (error,) = test.errors()
    assert error.kind == "EmitError" and re.search("cannot use the key|cannot be used as a key", error.message)
    assert 2 in test.acked()


def test_a_direct_stream_of_batches_is_refused() -> None:
    """The user wants to name the task that gets a batch."""

    class Direct(Source):
        outputs = direct("word")

    with pytest.raises(TopologyError, match="component 'a': outputs: stream 'default' of batches is a direct stream"):
        built(Direct())


def test_a_function_for_timestamps_is_refused() -> None:
    """The user reads timestamps of batches as of rows, by a function of the values."""
    strategy = WatermarkStrategy.monotonic_timestamps(lambda values: values[1])
    with pytest.raises(TopologyError, match="component 'a': it emits batches, whose timestamps are a column: name it with"):
        built(Source(), watermarks=strategy)


def test_a_form_of_columns_that_there_is_not_is_refused() -> None:
    """The user asks for data frames."""

    class Frames(Relay):
        columns = "pandas"

    with pytest.raises(TopologyError, match="columns = 'pandas' of Frames is not one of 'lists', 'arrow'"):
        built(Source(), Frames)


def test_arrow_columns_without_pyarrow_are_refused_with_the_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    """The user has not installed the extra."""

    class Arrow(Relay):
        columns = "arrow"

    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(TopologyError, match=r"columns = 'arrow' of Arrow: .*pip install 'pyarrow>=.*, or set columns = 'lists'"):
        built(Source(), Arrow)


def test_a_row_emitted_by_a_spout_of_batches_is_refused() -> None:
    """The user keeps the emit of a row spout: its collector has none."""

    class Old(Source):
        def next_batch(self) -> None:
            self.collector.emit(("a", 1), 1)

    test = TopologyTest(built(Old(), group=lambda bolt: bolt.shuffle_grouping("a")))
    test.advance("1s")
    assert "no attribute 'emit'" in test.errors()[0].message


@pytest.mark.parametrize(
    ("batch", "stated"),
    [
        ({"word": ["a"]}, "emitted a batch without 'ms'; its fields are 'word', 'ms'"),
        ({"word": ["a"], "ms": [object()]}, "column 'ms': a value of type object"),
        ({"word": [], "ms": []}, "emitted a batch without rows"),
    ],
)
def test_a_batch_that_cannot_be_sent_is_shown_with_the_line_that_emits_it(batch: Any, stated: str) -> None:
    """The user emits columns that are none of the stream, or values that cannot be carried."""
    test = TopologyTest(built(Source(batch)))
    test.advance("1s")
    error = test.errors()[0]
    assert stated in error.message and error.file.endswith("test_column_batches.py") and error.line


def test_a_batch_beyond_the_limit_of_a_frame_is_refused() -> None:
    """The user reads a whole file as one batch."""
    test = TopologyTest(built(Source(pa.table({"word": ["a" * 2_000_000] * 9, "ms": [1] * 9}))))
    test.advance("1s")
    assert "a batch of 9 rows takes 18" in test.errors()[0].message and "emit batches of fewer rows" in test.errors()[0].message


def test_a_list_that_is_too_long_for_a_frame_is_a_dead_letter_with_the_fix() -> None:
    """The same without Arrow: only packing shows how long the values are."""
    topology = built(Source({"word": ["a" * 2_000_000] * 9, "ms": [1] * 9}))
    test = TopologyTest(topology)
    test.run()
    messages = " ".join(error.message for error in test.errors()) + " ".join(given_up.why for given_up in test.dead_letters())
    assert "emit batches of fewer rows" in messages


def test_a_column_of_several_types_is_refused_where_arrow_is_wanted() -> None:
    """The user mixes numbers and texts, and reads Arrow arrays."""

    class Arrow(Relay):
        columns = "arrow"

    test = TopologyTest(built(Source({"word": ["a", 1], "ms": [1, 2]}), Arrow))
    test.run()
    (given_up,) = test.dead_letters()
    assert "a batch from 'a': column 'word' cannot be an Arrow array" in given_up.why


def test_a_batch_that_a_call_returns_is_refused() -> None:
    """The user returns the result instead of emitting it."""

    class Returns(Relay):
        def execute_batch(self, batch: Any, collector: Any) -> Any:
            return batch

    test = TopologyTest(built(Source({"word": ["a"], "ms": [1]}), Returns))
    test.run()
    assert "execute_batch" in test.errors()[0].message and "emit" in test.errors()[0].message


def test_a_row_without_a_timestamp_fails_its_batch_with_the_reason() -> None:
    """The column of timestamps has a gap."""
    strategy = WatermarkStrategy.monotonic_timestamps("ms")
    test = TopologyTest(built(Source({"word": ["a", "b"], "ms": [1, None]}), watermarks=strategy))
    test.run()
    assert "timestamp None (NoneType) of a row" in test.errors()[0].message


def test_rows_for_a_basic_bolt_come_one_by_one() -> None:
    """The user reads batches with a bolt of rows: it is given the rows, not the columns."""

    class Row(BasicBolt):
        def execute(self, tup: Any, collector: Any) -> None:
            seen.append(tup.as_dict())

    seen: list[Any] = []
    TopologyTest(built(Source({"word": ["a", "b"], "ms": [1, 2]}), Row)).run()
    assert seen == [{"word": "a", "ms": 1}, {"word": "b", "ms": 2}]
