"""`dedupe` keeps the first record of a key, across a crash, and again the first after its time."""

from __future__ import annotations

from typing import Any

import pytest

from topo import TopologyError
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
