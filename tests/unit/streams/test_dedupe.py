"""`dedupe` keeps the first record of a key, across a crash, and again the first after its time."""

from __future__ import annotations

from typing import Any

import pytest

from topo import RetryingSpout, Spout, TopologyError
from topo.plan.parallelism import with_overrides
from topo.plan.validation import validate
from topo.streams import StreamBuilder
from topo.testing import END, StreamTest, TopologyTest

pytestmark = pytest.mark.long


@pytest.mark.parametrize(("within", "expected"), [(None, [1, 2]), ("10s", [1, 2, 11])])
def test_the_first_record_of_a_key_is_kept(within: str | None, expected: list[int]) -> None:
    with StreamTest() as test:
        source = test.source(int)
        seen = test.collect(source.stream.key_by(lambda n: n % 10).dedupe(within=within, name="first").values())
        source.send(1, 2, 1)
        test.advance("6s")
        source.send(11)  # within the time; that it came does not prolong it
        test.crash("first")
        test.advance("6s")
        source.send(11, 21)
        assert seen.all == expected


@pytest.mark.parametrize("within", ["soon", "-1s", "0s", 5])
def test_a_time_that_is_none_is_refused_at_build(within: Any) -> None:
    flow = StreamBuilder("wrong")
    flow.from_iterable([1]).key_by(lambda n: n).dedupe(within=within).to(print)
    with pytest.raises(TopologyError) as caught:
        flow.build()
    [problem] = caught.value.problems
    assert problem.startswith("dedupe at test_dedupe.py:")
    assert f"within={within!r}" in problem


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_a_record_is_seen_once_the_operators_behind_have_taken_it(delivery: str) -> None:
    seen: list[int] = []
    calls: list[int] = []

    def flaky(number: int) -> int:
        calls.append(number)
        if len(calls) == 1:
            raise ValueError(number)
        return number

    def program() -> StreamBuilder:
        flow = StreamBuilder("program").config(delivery=delivery)
        flow.from_iterable([7, 7]).key_by(lambda number: number).dedupe(name="first").map(flaky).values().to(seen.append)
        return flow

    TopologyTest(program, {"items": [7, END]}).run()
    assert seen == [7] and calls == [7, 7]


def test_a_record_that_fails_in_another_component_passes_again() -> None:
    """Its replay was taken for a second record, and acked: the key never had a result."""
    failures = [True]

    def flaky(number: int) -> int:
        if failures:
            failures.pop()
            raise ValueError("not yet")
        return number

    with StreamTest(delivery="at_least_once") as test:
        source = test.source(int)
        first = source.stream.key_by(lambda n: n % 10).dedupe(name="first").values()
        seen = test.collect(first.rebalance(parallelism=2).map(flaky))
        source.send(1)
        source.send(11)
        assert (seen.all, len(test.errors()), test.dead_letters()) == ([1], 1, [])


def test_a_record_that_is_lost_behind_it_passes_again() -> None:
    """The task of `dedupe` lived on, knew the key, and dropped the replay."""
    with StreamTest(delivery="at_least_once") as test:
        source = test.source(int)
        first = source.stream.key_by(lambda n: n % 10).dedupe(name="first").values()
        seen = test.collect(first.batch(2, within="1h", name="held"))
        source.send(1)
        test.crash("held")
        source.send(11)
        source.send(2)
        assert seen.all == [[1, 2]]


class Plain(Spout):
    """Delivers again itself."""

    outputs = ("number",)

    def next_tuple(self) -> None:
        self.collector.end_of_input()


class Replayed(RetryingSpout, Plain):
    """The engine emits its messages again."""


@pytest.mark.parametrize(
    ("spout", "delivery"), [(Plain(), "exactly_once"), (Replayed(), "at_least_once"), (Plain(), "at_most_once")]
)
def test_a_spout_whose_messages_are_known_again_is_taken(spout: Spout, delivery: str) -> None:
    assert deduped(spout, delivery).build().components


def test_a_spout_that_delivers_again_itself_is_refused_with_at_least_once() -> None:
    with pytest.raises(TopologyError, match=r"bolt 'dedupe': .* Plain .*exactly_once.* \(dedupe at test_dedupe\.py:\d+\)"):
        deduped(Plain(), "at_least_once").build()


def deduped(spout: Spout, delivery: str) -> StreamBuilder:
    flow = StreamBuilder("program").config(delivery=delivery)
    flow.from_spout(spout, of=int).key_by(lambda number: number).dedupe().to(print)
    return flow


def test_it_is_refused_where_the_mode_is_set_at_the_start() -> None:
    """`topo run -s delivery=at_least_once`."""
    built = deduped(Plain(), "exactly_once").build()
    with pytest.raises(TopologyError, match=r"Plain .*exactly_once"):
        validate(with_overrides(built, {"delivery": "at_least_once"}, {}))
