"""A count whose results are not emitted at each record: rows are added up before they are sent, and the counts are the same."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from topo.streams import AT_END, StreamBuilder
from topo.testing import CRASH, END, TopologyTest


@pytest.mark.parametrize("delivery", ["exactly_once", "at_most_once", "at_least_once"])
@pytest.mark.parametrize("parallelism", [1, 2])
def test_counts_are_those_of_a_loop(delivery: str, parallelism: int) -> None:
    seen: dict[Any, int] = {}
    lines = [" ".join(f"w{(n * k) % 7}" for k in range(12)) for n in range(60)]

    def program() -> StreamBuilder:
        flow = StreamBuilder("counted").config(delivery=delivery)
        words = flow.from_iterable(lines).flat_map(str.split)
        words.key_by(lambda word: word, parallelism=parallelism).count(emit=AT_END).to(lambda entry: seen.update([entry]))
        return flow

    test = TopologyTest(program, {"items": [*lines, END]})
    test.run()
    assert seen == Counter(word for line in lines for word in line.split())


@pytest.mark.parametrize("seed", range(4))
def test_counts_are_right_behind_a_crash_and_without_a_line_that_fails(seed: int) -> None:
    seen: dict[Any, int] = {}
    lines = ["a b a b a b a b a b"] * 40
    lines[20] = "a a a fails a"

    def word(given: str) -> str:
        if given == "fails":
            raise ValueError(given)
        return given

    def program() -> StreamBuilder:
        flow = StreamBuilder("counted").config(delivery="exactly_once", checkpoint_interval="10ms")
        words = flow.from_iterable(lines).flat_map(str.split).map(word)
        words.key_by(lambda one: one).count(emit=AT_END).to(lambda entry: seen.update([entry]))
        return flow

    script = [*lines[:30], CRASH("count"), *lines[30:], END]
    test = TopologyTest(program, {"items": script}, seed=seed)
    test.run()
    assert seen == {"a": 39 * 5, "b": 39 * 5}


@pytest.mark.parametrize(("delivery", "adds_up"), [("exactly_once", True), ("at_least_once", False)])
def test_rows_are_added_up_where_results_wait_and_rows_are_not_tracked(delivery: str, adds_up: bool) -> None:
    flow = StreamBuilder("counted").config(delivery=delivery)
    words = flow.from_iterable(["x"], of=str).flat_map(str.split)
    words.key_by(lambda word: word).count(emit=AT_END).to(lambda entry: None)
    test = TopologyTest(flow, {"items": [" ".join(["a", "b"] * 100), END]})
    test.run()
    executed = test.status()["totals"]["executed"]  # of the acker, too
    assert (executed < 20) is adds_up, executed


def test_rows_stay_apart_where_only_the_run_tracks_them() -> None:
    seen: dict[Any, int] = {}
    flow = StreamBuilder("counted").config(delivery="exactly_once")
    words = flow.from_iterable(["x"], of=str).flat_map(str.split)
    words.key_by(lambda word: word).count(emit=AT_END).to(lambda entry: seen.update([entry]))
    test = TopologyTest(flow, {"items": [" ".join(["a", "b"] * 100), END]}, delivery="at_least_once")
    test.run()
    assert test.status()["totals"]["executed"] > 200
    assert seen == {"a": 100, "b": 100}
