"""Operators behind a source run in its tasks: results, replays, acks, dead letters and event time are those of a naive model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count
from random import Random
from typing import Any

import pytest

from topo import PartitionedSpout, SourceRows
from topo.streams import Stream, StreamBuilder, Tumbling
from topo.task.task import Task
from topo.testing import CRASH, END, StreamTest, TopologyTest, topology_test
from topo.testing.script import message

MODES = ["exactly_once", "at_least_once", "at_most_once"]


class Bad(Exception):
    """Raised by the operators of these tests."""


def refuse(number: int) -> int:
    if number % 13 == 5:
        raise Bad(f"no {number}")
    return number


Step = Callable[[Any], list[Any]]
STEPS: dict[str, tuple[Callable[[Stream[int]], Stream[int]], Step]] = {
    "map": (lambda s: s.map(lambda n: n + 1), lambda n: [n + 1]),
    "filter": (lambda s: s.filter(lambda n: n % 3 > 0), lambda n: [n] if n % 3 else []),
    "flat_map": (lambda s: s.flat_map(lambda n: [n] * (n % 4)), lambda n: [n] * (n % 4)),
    "none": (lambda s: s.filter(lambda n: False), lambda n: []),
    "raises": (lambda s: s.map(refuse), lambda n: [refuse(n)]),
}


def drawn(seed: int) -> tuple[list[int], list[str]]:
    chance = Random(seed)
    numbers = [chance.randrange(60) for _ in range(chance.choice([1, 7, 80]))]
    return numbers, chance.choices(list(STEPS), weights=[3, 3, 3, 1, 3], k=chance.randint(1, 4))


def expected(numbers: list[int], names: list[str]) -> tuple[Counter[int], list[int]]:
    """Return the results, and the numbers whose call raises: nothing that is made of these leaves."""
    results: Counter[int] = Counter()
    raising = []
    for number in numbers:
        made = [number]
        try:
            for name in names:
                made = [new for one in made for new in STEPS[name][1](one)]
        except Bad:
            raising.append(number)
        else:
            results.update(made)
    return results, raising


def program(names: list[str], seen: list[int], delivery: str, parallelism: int = 1) -> StreamBuilder:
    flow = StreamBuilder("chained").config(delivery=delivery, attempts=3, backoff="10ms")
    stream = flow.from_iterable([0], of=int, name="numbers", parallelism=parallelism)
    for name in names:
        stream = STEPS[name][0](stream)
    stream.rebalance(parallelism=1, name="end").to(seen.append)
    return flow


@pytest.mark.parametrize("delivery", MODES)
@pytest.mark.parametrize("seed", range(8))
def test_the_results_are_those_of_the_operators_in_plain_python(seed: int, delivery: str) -> None:
    numbers, names = drawn(seed)
    seen: list[int] = []
    flow = program(names, seen, delivery)
    assert [spec.id for spec in flow.build().components] == ["numbers", "end"]
    script = [message(number, message_id=place) for place, number in enumerate(numbers)]
    test = TopologyTest(lambda: flow.build(), {"numbers": [*script, END]}, seed, checkpoint_interval="10ms")
    test.run()

    results, raising = expected(numbers, names)
    assert Counter(seen) == results
    if delivery == "at_most_once":
        return
    assert sorted(dead.values[0] for dead in test.dead_letters()) == sorted(raising)
    assert {dead.attempts for dead in test.dead_letters()} <= {3}
    assert {error.kind for error in test.errors()} == ({"Bad"} if raising else set())
    if delivery == "at_least_once":
        assert sorted(test.acked()) == [place for place, number in enumerate(numbers) if number not in raising]


@pytest.mark.parametrize("victim", ["numbers", "end"])
@pytest.mark.parametrize("delivery", MODES[:2])
@pytest.mark.parametrize("seed", range(8, 14))
def test_killed_workers_lose_nothing(seed: int, delivery: str, victim: str) -> None:
    numbers, names = drawn(seed)
    seen: list[int] = []
    flow = program(names, seen, delivery)
    script: list[Any] = [message(number, message_id=place) for place, number in enumerate(numbers)]
    script.insert(len(script) // 2, CRASH(victim))
    test = TopologyTest(lambda: flow.build(), {"numbers": [*script, END]}, seed, checkpoint_interval="5ms")
    test.run()

    results, raising = expected(numbers, names)
    # The list is no sink with transactions: the rows before the kill may come twice.
    assert set(seen) == set(results) and not results - Counter(seen)
    assert sorted(dead.values[0] for dead in test.dead_letters()) == sorted(raising)


@pytest.mark.parametrize("delivery", MODES[:2])
@pytest.mark.parametrize("seed", range(6))
def test_a_slice_that_is_cut_short_goes_on_where_it_was(seed: int, delivery: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks: list[Task] = []

    def noted(*arguments: Any) -> Any:
        tasks.append(made := make_task(*arguments))
        return made

    make_task = topology_test.make_task
    monkeypatch.setattr(topology_test, "make_task", noted)
    chance, calls = Random(seed), count()

    def cut(number: int) -> None:
        if next(calls) % 5 == chance.randrange(5):
            for task in tasks:
                task.cut_short()

    with StreamTest(seed=seed, delivery=delivery) as test:
        source = test.source(int)
        windows = source.stream.tap(cut).flat_map(lambda n: [n] * (n % 3)).key_by(lambda n: n % 2).window(Tumbling("10ms"))
        seen = test.collect(windows.count().map_keyed(lambda key, window: (window.start, key, window.value)).map(tuple))
        numbers = [chance.randrange(1_000) for _ in range(200)]
        for start in range(0, 200, 50):
            for place in range(start, start + 50):
                test._feed("source", (numbers[place],), place)
            source.watermark(start + 49)
            if delivery == "exactly_once" and start == 50:
                test.crash("source")
        source.end()
        found = Counter(map(tuple, seen.all)) if delivery == "exactly_once" else None
    made = Counter((place // 10 * 10, n % 2) for place, n in enumerate(numbers) for _ in range(n % 3))
    if found is not None:
        assert found == Counter({(start, key, times): 1 for (start, key), times in made.items()})


@pytest.mark.parametrize("delivery", MODES[:2])
def test_a_call_that_is_repeated_gets_the_record_as_it_was(delivery: str) -> None:
    calls: Counter[int] = Counter()
    seen: list[dict[str, int]] = []

    def grown(record: dict[str, int]) -> dict[str, int]:
        record[f"call {len(record)}"] = 0
        calls[record["n"]] += 1
        if calls[record["n"]] < 3:
            raise Bad("not yet")
        return record

    flow = StreamBuilder("changed").config(delivery=delivery, attempts=3, backoff="10ms")
    flow.from_iterable([{}], of=dict[str, int], name="records").map(grown).rebalance(parallelism=1).to(seen.append)
    test = TopologyTest(lambda: flow.build(), {"records": [({"n": 5},), ({"n": 6},), END]})
    test.run()
    assert sorted(seen, key=str) == [{"n": 5, "call 1": 0}, {"n": 6, "call 1": 0}] and calls == {5: 3, 6: 3}
    assert test.dead_letters() == []


def test_an_error_names_operator_file_and_line() -> None:
    seen: list[int] = []
    test = TopologyTest(lambda: program(["raises"], seen, "exactly_once").build(), {"numbers": [5, END]})
    test.run()
    (error,) = {(error.component, error.kind, error.file.rpartition("/")[2]) for error in test.errors()}
    assert error == ("numbers", "Bad", "test_source_chains.py")


def apart(flow: StreamBuilder) -> list[str]:
    return [spec.id for spec in flow.build().components]


def test_operators_that_give_event_time_stay_a_component() -> None:
    flow = StreamBuilder("timed")
    timed = flow.from_iterable([1], of=int).filter(bool).with_event_time(lambda n: 1_700_000_000_000 + n)
    timed.gather().window(Tumbling("1s")).count().to(print)
    assert apart(flow) == ["items", "items-steps", "window"]


class Numbers(PartitionedSpout):
    """Reads partitions of numbers, in blocks."""

    outputs = ("number",)
    discovery_interval = None

    def partitions(self) -> list[str]:
        return ["a", "b"]

    def read(self, partition: Any, position: int | None) -> Iterator[Any]:
        begin = 0 if position is None else position + 1
        for first in range(begin, 40, 7):
            places = range(first, min(40, first + 7))
            yield SourceRows([(place,) for place in places], list(places))


@pytest.mark.parametrize("delivery", MODES)
def test_a_spout_of_partitions_has_a_chain_with_several_streams(delivery: str) -> None:
    seen: dict[str, list[int]] = {"even": [], "odd": []}
    flow = StreamBuilder("partitions").config(delivery=delivery)
    even, odd = flow.from_spout(Numbers(), of=int, name="numbers").flat_map(lambda n: [n] * (n % 3)).branch(lambda n: n % 2 == 0)
    even.rebalance(parallelism=1).to(seen["even"].append)
    odd.rebalance(parallelism=2).to(seen["odd"].append)
    assert apart(flow) == ["numbers", "rebalance", "rebalance-2"]
    test = TopologyTest(lambda: flow.build())
    test.run()
    made = [n for n in range(40) for _ in range(2 * (n % 3))]
    assert sorted(seen["even"]) == [n for n in made if n % 2 == 0]
    assert sorted(seen["odd"]) == [n for n in made if n % 2]
    assert len(set(test.acked())) == 80


def test_operators_without_output_stay_a_component() -> None:
    flow = StreamBuilder("silent")
    flow.from_iterable([1], of=int).map(str).to(print)
    assert apart(flow) == ["items", "items-steps"]


def test_a_source_that_a_bolt_reads_by_its_name_keeps_its_rows() -> None:
    from tests.unit.streams.test_topology_builder import Both

    flow = StreamBuilder("read")
    flow.from_iterable([1], of=int).map(str).rebalance(parallelism=1).to(print)
    flow.topology_builder.set_bolt("both", Both()).shuffle_grouping("items")
    assert apart(flow) == ["both", "items", "items-steps", "rebalance"]


def test_a_bad_key_is_refused_with_its_message() -> None:
    flow = StreamBuilder("keys").config(attempts=1)
    flow.from_iterable([1], of=int, name="numbers").key_by(lambda n: [n] if n == 2 else n).count().to(print)  # type: ignore[type-var]
    test = TopologyTest(lambda: flow.build(), {"numbers": [1, 2, 3, END]})
    test.run()
    assert [dead.values for dead in test.dead_letters()] == [(2,)]
