"""Tables that all tasks have, batches, windows by number and early results, against plain loops, with crashes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import msgspec
import pytest

from topo import TopologyError
from topo.streams import Rows, Session, StreamBuilder, Tumbling, Windowed
from topo.testing import StreamTest, TopologyTest

pytestmark = pytest.mark.long


class Rule(msgspec.Struct, frozen=True):
    word: str
    weight: int


def weighed(word: str, rules: Mapping[str, Rule]) -> tuple[str, int]:
    return (word, rules[word].weight if word in rules else 0)


@pytest.mark.parametrize("tasks", [1, 3])
def test_a_broadcast_table_is_the_same_in_each_task(tasks: int) -> None:
    @StreamTest.every_seed(range(2), parallelism={"weighed": tasks, "by-word": tasks})
    def run(test: StreamTest) -> None:
        chance = Random(test.seed)
        words, rules = test.source(str), test.source(Rule, "rules")
        table = rules.stream.broadcast(lambda rule: rule.word, deleted=lambda rule: rule.weight < 0)
        seen = test.collect(words.stream.enrich(table, weighed, name="weighed"))
        keyed = test.collect(words.stream.key_by(str.upper).enrich(table, weighed, name="by-word").map(lambda pair: pair[1]))
        kept: dict[str, int] = {}
        expected = []
        for step in range(6):
            rule = Rule(chance.choice("ab"), chance.choice((1, 2, -1)))
            kept[rule.word] = rule.weight
            rules.send(rule)
            given = [chance.choice("abc") for _ in range(4)]
            words.send(*given)
            expected += [(word, max(0, kept.get(word, 0))) for word in given]
            if step == 3:
                test.crash("weighed", tasks - 1)
                test.crash("by-word")
        assert sorted(seen.all) == sorted(expected)
        assert sorted(keyed.all) == sorted((word.upper(), weight) for word, weight in expected)

    run()


def test_a_batch_is_complete_by_its_size_or_its_time() -> None:
    @StreamTest.every_seed(range(2))
    def run(test: StreamTest) -> None:
        rules = test.source(Rule)
        seen = test.collect(rules.stream.batch(3, within="5s", name="batch"))
        given = [Rule("a", number) for number in range(8)]
        rules.send(*given[:4])
        test.crash("batch")
        rules.send(*given[4:7])
        assert seen.all == [given[:3], given[3:6]]
        test.advance("6s")
        assert seen.take()[2:] == [given[6:7]]
        rules.send(given[7])
        rules.end()
        assert seen.take() == [given[7:]]

    run()


def bounds(key: str, window: Windowed[Sequence[str]]) -> list[tuple[int, int, int]]:
    assert set(window.value) == {key}
    return [(window.start, window.end, len(window.value))]


@pytest.mark.parametrize("slide", [None, 2])
def test_windows_by_number_have_the_records_of_their_numbers(slide: int | None) -> None:
    @StreamTest.every_seed(range(2))
    def run(test: StreamTest) -> None:
        chance = Random(test.seed)
        words = test.source(str)
        keyed = words.stream.key_by(lambda word: word, parallelism=2).window(Rows(3, slide))
        counts, whole = test.collect(keyed.count(name="count")), test.collect(keyed.process(bounds, name="whole"))
        given = [chance.choice("ab") for _ in range(12)]
        for place, word in enumerate(given):
            words.send(word)
            if place == 5:
                test.crash("count")
                test.crash("whole")
        step = slide or 3
        expected = [
            (key, Windowed(max(0, end - 3), end, min(3, end))) for key in "ab" for end in range(step, given.count(key) + 1, step)
        ]
        assert sorted(counts.all) == expected
        assert sorted(whole.all) == [(key, tuple(window)) for key, window in expected]

    run()


@pytest.mark.parametrize("window", [Tumbling("10ms"), Session("5ms")], ids=["tumbling", "session"])
def test_early_results_come_by_the_clock_and_the_last_at_the_end(window: Any) -> None:
    with StreamTest() as test:
        words = test.source(str)
        seen = test.collect(words.stream.key_by(str.lower).window(window, early="2s").count(name="early").map(lambda w: w.value))
        words.send("a", at=1)
        words.send("A", "b", at=3)
        test.advance("1s")
        assert seen.take() == []
        test.crash("early")
        test.advance("2s")
        assert sorted(seen.take()) == [("a", 2), ("b", 1)]
        test.advance("3s")
        assert seen.take() == []
        words.send("a", at=4)
        words.watermark(20)
        assert sorted(seen.take()) == [("a", 3), ("b", 1)]
        test.advance("3s")
        assert seen.take() == []


def test_mistakes_in_batches_tables_and_windows_by_number_are_found_at_build() -> None:
    flow = StreamBuilder("wrong")
    words = flow.from_iterable(["a"])
    words.batch(0, within="0s").to(print)
    by_word = words.key_by(str.lower)
    by_word.window(Rows(2), early="1s").count(name="rows").to(print)
    by_word.window(Tumbling("1s", clock="processing"), lateness="1s").count(name="clock").to(print)
    by_word.window(Rows(2)).count(name="timeless").window(Tumbling("1s")).count(name="timed").to(print)
    words.enrich(words.broadcast(lambda: "a"), lambda word: word).to(print)  # type: ignore[arg-type,misc]
    with pytest.raises(TopologyError) as caught:
        flow.build()
    found = "\n".join(caught.value.problems)
    for wanted in (
        "batch(0) must have a whole number, 1 or more",
        "within='0s' must be above zero",
        "early= goes by time, and Rows by the number of records",
        "lateness= goes by event time, and no record is late for windows with clock='processing'",
        "goes by event time, but the records of window 'timeless'",
        "broadcast calls its function with 1 (record)",
        "enrich calls its function with 2 (record, table)",
    ):
        assert wanted in found, found


def test_the_result_at_the_end_of_a_window_takes_the_place_of_an_early_one() -> None:
    with StreamTest() as test:
        words = test.source(str)
        windows = words.stream.key_by(str.lower).window(Tumbling("10ms"), early="2s", lateness="1h")
        seen = test.collect(windows.count(name="early").map(lambda w: w.value))
        words.send("a", at=1)
        words.watermark(20)
        assert seen.take() == [("a", 1)]
        test.advance("5s")
        assert seen.take() == []
        words.send("a", at=2)
        test.advance("5s")
        assert seen.take() == [("a", 2)]


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_a_repeated_call_leaves_the_numbers_of_the_records_as_they_are(delivery: str) -> None:
    calls: list[int] = []
    seen: list[Any] = []

    def pairs(_key: int, window: Windowed[Sequence[int]]) -> list[tuple[int, int, int]]:
        calls.append(1)
        if len(calls) == 1:
            raise ValueError("the first call")
        return [(window.start, window.end, sum(window.value))]

    flow = StreamBuilder("program").config(delivery=delivery)
    numbers = flow.from_iterable([1, 2, 3, 4]).key_by(lambda _number: 0)
    numbers.window(Rows(2)).process(pairs).values().to(seen.append)
    TopologyTest(flow).run()
    assert seen == [(0, 2, 3), (2, 4, 7)]
