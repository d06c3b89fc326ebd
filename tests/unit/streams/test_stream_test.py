"""The test kit of streams: sources fed step by step, and results as they are committed."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from topo import BasicBolt, NotFoundError, UserError
from topo.streams import KeyedStream, Session, SideOutput, Stream, Tumbling, Windowed
from topo.testing import StreamTest


class Click(msgspec.Struct):
    user: str
    key: int = 0


class Visit(msgspec.Struct):
    user: str
    start: int
    clicks: int


def visits(clicks: Stream[Click]) -> Stream[Visit]:
    sessions = clicks.key_by(lambda click: click.user).window(Session("30s")).count(name="visits")
    return sessions.map_keyed(lambda user, w: Visit(user, w.start, w.value), of=Visit)


@pytest.mark.parametrize("seed", range(3))
def test_a_session_ends_after_its_gap_also_behind_a_crash(seed: int) -> None:
    with StreamTest(seed=seed) as test:
        clicks = test.source(Click)
        seen = test.collect(visits(clicks.stream))
        clicks.send(Click("ann"), at=0)
        clicks.watermark(29_998)
        assert seen.take() == []
        test.crash("visits")
        clicks.watermark(29_999)
        assert seen.take() == [Visit("ann", 0, 1)]
        test.crash("seen-1")
        clicks.send(Click("ann"), Click("bob", 7), at=100_000)
        clicks.end()
        assert sorted(seen.take(), key=lambda visit: visit.user) == [Visit("ann", 100_000, 1), Visit("bob", 100_000, 1)]
        assert len(seen.all) == 3


@StreamTest.every_seed(range(10))
def test_a_step_ends_when_its_effects_are_there(test: StreamTest) -> None:
    clicks = test.source(int)
    taken: list[int] = []
    windows: list[Windowed[int]] = []
    clicks.stream.tap(taken.append).gather().window(Tumbling("1s")).count().to(windows.append)
    for number in range(6):
        clicks.send(number, at=number * 500)
        assert taken == list(range(number + 1))
        clicks.watermark(number * 500)
        assert len(windows) == (number * 500 + 1) // 1000


def counted(a: Stream[int], b: Stream[int]) -> KeyedStream[None, Windowed[int]]:
    return a.merge(b).gather().window(Tumbling("10ms")).count()


def test_a_crashed_source_keeps_the_watermark_of_its_checkpoint() -> None:
    with StreamTest() as test:
        first, second = test.source(int), test.source(int, "other")
        seen = test.collect(counted(first.stream, second.stream))
        first.send(1, at=0)
        first.watermark(20)
        first.send(2, at=30)
        test.advance("1s")
        test.crash("source")
        second.watermark(25)
        assert seen.take() == [(None, Windowed(0, 10, 1))]


def test_an_idle_source_holds_no_window_open() -> None:
    with StreamTest() as test:
        first, second = test.source(int), test.source(int, "other")
        seen = test.collect(counted(first.stream, second.stream))
        second.send(1, at=0)
        first.send(1, at=1)
        first.watermark(100)
        assert seen.take() == []
        second.idle()
        assert seen.take() == [(None, Windowed(0, 10, 2))]


def test_an_error_of_the_program_fails_the_test_unless_it_is_looked_at() -> None:
    def draw(test: StreamTest) -> None:
        numbers = test.source(int)
        test.collect(numbers.stream.map(lambda n: 1 // n))
        numbers.send(1, 0)

    with pytest.raises(AssertionError, match=r"ZeroDivisionError.*test_stream_test\.py"), StreamTest(attempts=1) as test:
        draw(test)
    with StreamTest(attempts=1) as test:
        draw(test)
        assert [error.kind for error in test.errors()] == ["ZeroDivisionError"]
        assert [len(one.values) for one in test.dead_letters()] == [1]


def test_an_error_without_a_place_in_the_program_fails_the_test_too() -> None:
    class Reports(BasicBolt):
        def execute(self, tup: Any, collector: Any) -> None:
            collector.report_error(RuntimeError("not raised"))

    with pytest.raises(AssertionError, match=r"RuntimeError: not raised$"), StreamTest() as test:
        numbers = test.source(int)
        numbers.stream.to(Reports())
        numbers.send(1)


def test_sources_come_before_the_first_record() -> None:
    with StreamTest() as test:
        numbers = test.source(int)
        test.collect(numbers.stream)
        numbers.send(1)
        with pytest.raises(UserError, match="source comes before the first send"):
            test.source(int)


LATE = SideOutput("late", Click)


@StreamTest.every_seed(range(3), parallelism={"visits": 3})
def test_each_seed_has_its_test_with_as_many_tasks_as_asked_for(test: StreamTest) -> None:
    clicks = test.source(Click)
    windows = clicks.stream.key_by(lambda click: click.user).window(Tumbling("10ms"), late=LATE).count(name="visits")
    seen, late = test.collect(windows), test.side(windows, LATE)
    clicks.send(*(Click(f"u{n}") for n in range(6)), at=0)
    clicks.watermark(10)
    test.crash("visits", 2)
    clicks.send(Click("late"), at=1)
    assert sorted(seen.take()) == [(f"u{n}", Windowed(0, 10, 1)) for n in range(6)]
    assert late.take() == [Click("late")]


def test_a_failure_names_its_seed() -> None:
    @StreamTest.every_seed([0, 4])
    def body(test: StreamTest) -> None:
        assert test.seed == 0, "another order"

    with pytest.raises(AssertionError, match="another order") as raised:
        body()
    assert raised.value.__notes__ == ["with seed=4"]


@StreamTest.every_seed(range(6))
def test_results_of_a_watermark_are_taken_however_long_ago_the_last_checkpoint_was(test: StreamTest) -> None:
    numbers = test.source(int)
    keyed = numbers.stream.key_by(lambda number: "all")
    seen = test.collect(keyed.window(Tumbling("1s")).count().values())
    for second in range(12):
        numbers.send(second, at=second * 1_000)
        test.advance(f"{second * 7}ms")
        numbers.watermark(second * 1_000 + 999)
        assert [(one.start, one.value) for one in seen.take()] == [(second * 1_000, 1)]


def test_a_source_that_has_ended_refuses_what_follows_and_ends_once() -> None:
    with StreamTest() as test:
        source, other = test.source(int, "numbers"), test.source(int, "others")
        seen = test.collect(source.stream.merge(other.stream))
        source.end()
        source.end()
        for call in (lambda: source.send(1), lambda: source.watermark(1), source.idle):
            with pytest.raises(UserError, match="comes after the end of source 'numbers'"):
                call()
        other.send(2)
        assert seen.all == [2]


def test_a_result_that_cannot_be_collected_has_the_line_of_the_test() -> None:
    with StreamTest() as test:
        source = test.source(int)
        test.collect(source.stream.map(lambda number: [number]))
        source.send(1)
        assert test.errors()[0].message.startswith("map at test_stream_test.py:")


def test_a_component_of_which_counters_are_wanted_is_looked_for_by_name() -> None:
    with StreamTest() as test:
        test.collect(test.source(int).stream)
        assert test.counters("source") == {}
        with pytest.raises(NotFoundError, match=r"the topology has no component 'sorce'; it has source[^_]*mean 'source'"):
            test.counters("sorce")


def test_a_mistake_around_a_source_of_the_test_names_the_line_of_the_test() -> None:
    test = StreamTest()
    lines = test.source(str)
    with pytest.raises(UserError, match=r"reads the results of from_spout 'source' at test_stream_test\.py:\d+; end them"):
        lines.send("a")


def test_a_window_counts_each_record_once_with_at_least_once_too() -> None:
    """Time passed until the messages that the window held had failed, and they came three times."""
    with StreamTest(delivery="at_least_once") as test:
        source = test.source(int)
        seen = test.collect(source.stream.gather().window(Tumbling("10s")).count().values())
        source.send(1, at=0)
        assert seen.take() == []
        source.send(2, at=1)
        source.watermark(20_000)
        assert [one.value for one in seen.take()] == [2]
        assert test.dead_letters() == []


def test_a_record_that_fails_is_tried_again_with_at_least_once() -> None:
    failures = [True, True]

    def flaky(number: int) -> int:
        if failures:
            failures.pop()
            raise ValueError("not yet")
        return number

    with StreamTest(delivery="at_least_once") as test:
        source = test.source(int)
        seen = test.collect(source.stream.map(flaky))
        source.send(1)
        assert (seen.take(), len(test.errors()), test.dead_letters()) == ([1], 2, [])
