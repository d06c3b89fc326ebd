"""Mistakes with timestamps and watermarks, and what topo answers."""

from __future__ import annotations

import re
from typing import Any

import pytest

from topo import (
    IterableSpout,
    PrintBolt,
    ProcessBolt,
    RetryingSpout,
    Spout,
    Topology,
    TopologyBuilder,
    WatermarkStrategy,
    WindowBolt,
    aggregates,
    windows,
)
from topo.api.time_units import suspicion
from topo.errors import TopologyError, UserError
from topo.testing import TopologyTest


def count_by_second(spout: Spout, watermarks: WatermarkStrategy | None = None, **settings: Any) -> Topology:
    builder = TopologyBuilder("counts").config(**settings)
    builder.set_spout("source", spout, watermarks=watermarks)
    bolt = WindowBolt(key=None, window=windows.TumblingEventTimeWindows.of("1s"), aggregate=aggregates.Count())
    builder.set_bolt("counts", bolt).global_grouping("source")
    return builder.build()


class PromisesBeforeItReads(RetryingSpout):
    """Emits the watermark of a row, or the end, and then fails to read the row, each time once."""

    outputs = ("at",)

    def open(self, context: Any, collector: Any) -> None:
        self.collector, self.at, self.has_failed = collector, 0, False

    def next_tuple(self) -> None:
        self.collector.emit((self.at,), message_id=self.at, timestamp=self.at)
        self.collector.emit_watermark(self.at)
        if self.at == 2500:
            self.collector.end_of_input()
        if not self.has_failed:
            self.has_failed = True
            raise ConnectionError("the source is away for a moment")
        self.has_failed = False
        self.at += 500


def test_a_spout_that_says_a_watermark_and_then_raises_loses_no_row() -> None:
    """`emit_watermark` or `end_of_input` precedes an exception: the rows are replayed and are not late."""
    test = TopologyTest(lambda: count_by_second(PromisesBeforeItReads()))
    test.run()
    assert test.emitted("counts") == [(0, 1000, 2), (1000, 2000, 2), (2000, 3000, 2)]
    test.assert_all_acked()


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_early_results_of_rows_without_timestamps_come_to_an_end(delivery: str) -> None:
    """A `ContinuousEventTimeTrigger` over rows without a timestamp fires a few times, not in each interval of all time."""
    builder = TopologyBuilder("early").config(delivery=delivery)
    builder.set_spout("source", IterableSpout([1, 2], fields=("n",)), watermarks=WatermarkStrategy.emitted())
    trigger = windows.ContinuousEventTimeTrigger.of("1s")
    bolt = WindowBolt(key=None, window=windows.GlobalWindows(), trigger=trigger, process=Total(), outputs=("total",))
    builder.set_bolt("total", bolt).global_grouping("source")
    test = TopologyTest(builder.build())
    test.run()
    assert 1 <= len(test.emitted("total")) <= 2
    assert set(test.emitted("total")) == {(3,)}


class Total(windows.ProcessWindowFunction):
    def process(self, key: Any, elements: Any, context: Any, collector: Any) -> None:
        collector.emit((sum(row[0] for row in elements),))


def test_a_timer_that_arms_itself_for_ever_does_not_keep_the_run_from_ending() -> None:
    """A process function that registers the next event-time timer in each timer: at the end of the input that is an error."""

    class EverySecond(ProcessBolt):
        outputs = ("at",)

        def process(self, tup: Any, context: Any, collector: Any) -> None:
            context.register_event_time_timer(1000)

        def on_timer(self, timestamp: int, context: Any, collector: Any) -> None:
            context.register_event_time_timer(timestamp + 1000)

    builder = TopologyBuilder("timers")
    builder.set_spout("source", IterableSpout(["a"], fields=("key",)), watermarks=WatermarkStrategy.emitted())
    builder.set_bolt("every", EverySecond(key="key")).fields_grouping("source", "key")
    test = TopologyTest(builder.build())
    test.run()
    (error,) = test.errors()
    assert "since the input ended" in error.message and "register none when current_watermark is" in error.message
    assert error.file.endswith("test_event_time.py")


# -- strategies that are refused when the topology is built


class Clicks(IterableSpout):
    def __init__(self) -> None:
        super().__init__([("ann", 1000)], fields=("user", "at"))


def refusal(watermarks: Any, spout: Any = None) -> str:
    builder = TopologyBuilder("clicks")
    builder.set_spout("clicks", spout or Clicks(), watermarks=watermarks)
    builder.set_bolt("print", PrintBolt()).shuffle_grouping("clicks")
    with pytest.raises(TopologyError) as refused:
        builder.build()
    (problem,) = refused.value.problems
    return problem


def test_a_duration_is_no_strategy() -> None:
    """`watermarks="5s"` instead of a strategy."""
    assert refusal("5s").rpartition(" (")[0] == (
        "component 'clicks': watermarks='5s' (str) is no WatermarkStrategy; give one, such as "
        'WatermarkStrategy.bounded_out_of_orderness("5s", timestamp="at")'
    )


def test_a_generator_is_no_strategy() -> None:
    """`watermarks=MyGenerator()` instead of `WatermarkStrategy.from_generator(MyGenerator)`."""
    assert "(object) is no WatermarkStrategy; give one, such as" in refusal(object())


def test_a_field_that_is_not_there() -> None:
    """The timestamp's field is misspelt."""
    strategy = WatermarkStrategy.monotonic_timestamps(timestamp="users")
    assert refusal(strategy).rpartition(" (")[0] == (
        "component 'clicks': the watermark strategy reads the timestamp from the field 'users', which it does not emit; "
        "did you mean 'user'?"
    )
    problem = refusal(WatermarkStrategy.timestamps_only("timestamp")).rpartition(" (")[0]
    assert problem.endswith("its fields are 'user', 'at'")


@pytest.mark.parametrize("position", [2, -3])
def test_a_position_that_is_not_there(position: int) -> None:
    """The timestamp's position counts from 1, or is of another tuple."""
    strategy = WatermarkStrategy.bounded_out_of_orderness("5s", timestamp=position)
    assert f"at position {position}, but there are 2 fields: 'user', 'at'" in refusal(strategy)


def test_a_strategy_on_a_bolt_is_checked_too() -> None:
    """The strategy stands on the bolt that parses, with a field of its input."""
    builder = TopologyBuilder("clicks")
    builder.set_spout("clicks", Clicks())
    builder.set_bolt("print", PrintBolt(), watermarks=WatermarkStrategy.monotonic_timestamps("at")).shuffle_grouping("clicks")
    with pytest.raises(TopologyError, match="'print': a watermark strategy reads the stream 'default'"):
        builder.build()


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: WatermarkStrategy("5s"), "'5s' is no kind of watermark strategy"),
        (lambda: WatermarkStrategy.bounded_out_of_orderness("-5s", timestamp="at"), "0 s or more behind.*a bound of -5000 ms"),
        (lambda: WatermarkStrategy.punctuated("at"), "takes a function of values and timestamp; got 'at'"),  # type: ignore[arg-type]
        (lambda: WatermarkStrategy.from_generator(object()), "takes a class or function to call; got <object"),  # type: ignore[arg-type]
        (lambda: WatermarkStrategy.from_generator(dict), "generator dict does not define on_event, on_periodic_emit"),
        (lambda: WatermarkStrategy.monotonic_timestamps(timestamp=1.5), "a function of a tuple's values; got 1.5"),  # type: ignore[arg-type]
        (lambda: WatermarkStrategy.monotonic_timestamps("at").with_idleness("0s"), "idleness timeout is above zero"),
    ],
)
def test_what_no_strategy_can_have_is_refused_in_the_line_that_says_it(make: Any, text: str) -> None:
    """A strategy is made of parts of the wrong kind."""
    with pytest.raises(UserError, match=text):
        make()


# -- count windows that can never be full


def counted(window: Any, **pending: Any) -> TopologyBuilder:
    builder = TopologyBuilder("counts").config(delivery="at_least_once")
    builder.set_spout("source", Clicks(), **pending)
    bolt = WindowBolt(key=None, window=window, aggregate=aggregates.Count())
    builder.set_bolt("counts", bolt).global_grouping("source")
    return builder


@pytest.mark.parametrize("window", [windows.CountWindows.of(200), windows.CountWindows.of(100, slide=50)])
def test_a_count_window_that_is_larger_than_max_spout_pending(window: Any) -> None:
    """A count window holds its messages until it is full, and max_spout_pending lets fewer be in flight."""
    with pytest.raises(TopologyError, match=r"hold \d+ tuples before they fire, but max_spout_pending lets 'source' have 100"):
        counted(window, max_spout_pending=100).build()
    counted(window, max_spout_pending=200).build()


# -- other units of time


@pytest.mark.parametrize(
    ("at", "text"),
    [
        (1_700_000_000, r"1700000000 looks like seconds \(2023-11-14 22:13\).*in milliseconds since the epoch: multiply by 1000"),
        (1_700_000_000_000_000, "looks like microseconds.*divide by 1000"),
        (1_700_000_000_000_000_000, "looks like nanoseconds.*divide by 1,000,000"),
    ],
)
def test_event_time_in_another_unit_is_said_with_the_first_such_value(at: int, text: str) -> None:
    """`timestamp=int(time.time())`: windows of ten seconds hold three hours."""
    builder = TopologyBuilder("seconds")
    strategy = WatermarkStrategy.monotonic_timestamps(timestamp="at")
    builder.set_spout("source", IterableSpout([("a", at), ("b", at + 1)], fields=("user", "at")), watermarks=strategy)
    bolt = WindowBolt(key="user", window=windows.TumblingEventTimeWindows.of("10s"), aggregate=aggregates.Count())
    builder.set_bolt("counts", bolt).fields_grouping("source", "user")
    test = TopologyTest(builder.build())
    test.run()
    (error,) = test.errors()
    assert error.kind == "SuspiciousTimestamps" and error.count == 1
    assert re.search(f"component 'counts': a tuple of 'source' has a timestamp in another unit: .*{text}", error.message)
    assert len(test.emitted("counts")) == 2, "it is a warning: the rows count all the same"


@pytest.mark.parametrize("at", [0, 1000, 1_700_000_000_000, 86_400_000])
def test_milliseconds_and_small_numbers_are_taken_as_they_are(at: int) -> None:
    """Timestamps in milliseconds, and the small numbers of tests, give no warning."""
    assert suspicion(at) is None


# -- a source that falls silent


class FallsSilent(Spout):
    """Emits three rows and then waits for ever."""

    outputs = ("at",)

    def open(self, context: Any, collector: Any) -> None:
        self.collector, self.rows = collector, [100, 600, 1200]

    def next_tuple(self) -> None:
        if self.rows:
            at = self.rows.pop(0)
            self.collector.emit((at,), message_id=at)


AT = WatermarkStrategy.monotonic_timestamps(timestamp="at")


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_the_last_window_of_a_silent_source_closes_where_its_strategy_advances(delivery: str) -> None:
    """A source without new tuples: no watermark closes its last window, unless its strategy advances event time."""
    emitted = {}
    for name, strategy in {"plain": AT, "idle": AT.with_idleness("5s"), "on": AT.with_idleness("5s", advance=True)}.items():
        test = TopologyTest(count_by_second(FallsSilent(), strategy, delivery=delivery))
        test.advance("1s")
        assert test.emitted("counts") == [(0, 1000, 2)]
        test.advance("20s")
        emitted[name] = test.emitted("counts")
    first, last = (0, 1000, 2), (1000, 2000, 1)
    assert emitted == {"plain": [first], "idle": [first], "on": [first, last]}
