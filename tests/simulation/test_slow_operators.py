"""Slow calls in every kind of bolt, and slow bolts behind those that hold inputs, with all defaults and in virtual time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.simulation.slow_runs import MODES, SlowRun, Stage, constant
from tests.simulator.external_world import FIELDS, Sleep
from topo.api.batch_bolt import BatchBolt, BatchCollector
from topo.api.bolt import BasicBolt, Bolt, Collector
from topo.api.context import TaskContext
from topo.api.operator_bolts import AsyncBolt, ProcessBolt, WindowBolt
from topo.api.tuples import Tuple
from topo.api.windows import (
    AssignerLike,
    CountWindows,
    ProcessWindowFunction,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from topo.master.events import DrainAsked, SavepointAsked
from topo.master.outcome import OutcomeKind


class Calls(AsyncBolt):
    """Asynchronous calls; a call returns when `together` of them have begun, and some time after."""

    outputs = FIELDS

    def __init__(self, seconds: float, capacity: int, together: int = 1) -> None:
        super().__init__(capacity=capacity)
        self.seconds, self.together, self.begun = seconds, together, 0

    async def call(self, tup: Tuple) -> Any:
        self.begun += 1
        needed = -(-self.begun // self.together) * self.together
        while self.begun < needed:
            await Sleep(0.01)
        await Sleep(self.seconds)
        return tup.values


class Skewed(BasicBolt):
    """Emits tuples of which 90 % have the same key, which is their last field."""

    outputs = FIELDS

    def __init__(self) -> None:
        self.seen = 0

    def execute(self, tup: Any, collector: Any) -> None:
        self.seen += 1
        collector.emit((*tup.values[:2], "hot" if self.seen % 10 else f"cold {self.seen % 97}"))


class Together(Bolt):
    """Holds its inputs until it has `size` of them, then acks all."""

    def __init__(self, run: SlowRun, seconds: float, size: int) -> None:
        self.run, self.seconds, self.size = run, seconds, size

    def prepare(self, context: TaskContext, collector: Collector) -> None:
        self.collector = collector
        self.held: list[Tuple] = []

    def execute(self, tup: Tuple) -> None:
        self.run.outside.work(self.seconds)
        self.held.append(tup)
        if len(self.held) == self.size:
            self.end_of_input()

    def end_of_input(self) -> None:
        held, self.held = self.held, []
        for tup in held:
            self.done(tup)
            self.collector.ack(tup)

    def done(self, tup: Tuple) -> None:
        self.run.note(tup)


class TogetherOn(Together):
    """Emits for each of its inputs when it acks them."""

    outputs = FIELDS

    def done(self, tup: Tuple) -> None:
        self.collector.emit(tup.values, anchors=tup)


class Batches(BatchBolt):
    """Takes as long for each call, and emits its inputs."""

    outputs = FIELDS

    def __init__(self, run: SlowRun, seconds: float, key: str | None = None) -> None:
        super().__init__(size=256, wait="1s", key=key)
        self.run, self.seconds = run, seconds

    def execute_batch(self, tuples: Sequence[Tuple], collector: BatchCollector) -> None:
        self.run.outside.work(self.seconds)
        for tup in tuples:
            collector.emit(tup.values, tup)


class Rows(ProcessWindowFunction):
    """Emits the rows of a window."""

    def process(self, key: Any, elements: Sequence[Any], context: Any, collector: Any) -> None:
        for row in elements:
            collector.emit(tuple(row))


class Stamped(BasicBolt):
    """Emits tuples with a timestamp, and a key that `keys` tuples in a row do not share, as their last field."""

    outputs = FIELDS

    def __init__(self, keys: int) -> None:
        self.keys, self.seen = keys, 0

    def execute(self, tup: Any, collector: Any) -> None:
        collector.emit((*tup.values[:2], f"key {self.seen % self.keys}"), timestamp=self.seen)
        self.seen += 1


class SlowRows(Rows):
    """Takes as long for each window."""

    def __init__(self, run: SlowRun, seconds: float) -> None:
        self.run, self.seconds = run, seconds

    def process(self, key: Any, elements: Sequence[Any], context: Any, collector: Any) -> None:
        self.run.outside.work(self.seconds)
        super().process(key, elements, context, collector)


class SlowTimers(ProcessBolt):
    """Registers a timer for each tuple, which takes as long and emits it."""

    outputs = FIELDS

    def __init__(self, run: SlowRun, seconds: float) -> None:
        super().__init__(key="extra")
        self.run, self.seconds, self.rows = run, seconds, {}

    def process(self, tup: Tuple, context: Any, collector: Any) -> None:
        self.rows[tup["extra"]] = tup.values
        context.register_event_time_timer(tup.timestamp)

    def on_timer(self, timestamp: int, context: Any, collector: Any) -> None:
        self.run.outside.work(self.seconds)
        collector.emit(self.rows.pop(context.key))


def window(assigner: AssignerLike) -> Stage:
    return Stage(make=lambda _run, _stage: WindowBolt(key=None, window=assigner, process=Rows(), outputs=FIELDS))


def timed(seconds: float, **settings: Any) -> Stage:
    return Stage(constant(seconds), **settings)


@pytest.mark.parametrize("mode", MODES)
def test_asynchronous_calls_of_a_second_ten_at_once(mode: str) -> None:
    run = SlowRun(mode, 1_000, Stage(make=lambda _run, _stage: Calls(1.0, 10)), timed(0.0)).go(200.0)
    run.assert_healthy()
    assert run.simulation.now < 100 * 1.2 + 2.0, "ten calls are under way all the time"
    assert mode == "at_least_once" or run.longest_without_checkpoint_s <= 20.0


@pytest.mark.parametrize("mode", MODES)
def test_asynchronous_calls_that_return_when_fifty_of_them_have_begun(mode: str) -> None:
    """Calls that a library gathers into one request need more input before any of them returns: twenty groups of a second."""
    run = SlowRun(mode, 1_000, Stage(make=lambda _run, _stage: Calls(1.0, 100, together=50)), timed(0.0)).go(100.0)
    run.assert_healthy()
    # With checkpoints a group that a barrier has cut waits for the next one.
    assert run.simulation.now < 20.0 + (3.0 if mode == "exactly_once" else 2.0)


@pytest.mark.parametrize("mode", MODES)
def test_a_key_that_nine_of_ten_tuples_have(mode: str) -> None:
    run = SlowRun(mode, 2_000, Stage(make=lambda _run, _stage: Skewed()), timed(0.05, parallelism=4, key="extra")).go(200.0)
    assert run.simulation.violations == []
    assert len(run.done) == 2_000 and set(run.done.values()) == {1}
    assert (run.counters.timed_out, run.counters.replayed, run.counters.dead_lettered) == (0, 0, 0)
    assert run.simulation.now < 1_900 * 0.05 * 1.2 + 2.0
    assert mode == "at_least_once" or run.longest_without_checkpoint_s <= 20.0


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("service_ms", [10, 25])
def test_a_count_window_before_a_slow_sink(service_ms: int, mode: str) -> None:
    """A firing is 10 or 25 s of work, in which the window takes no input and no verdict: its held inputs wait, too."""
    run = SlowRun(mode, 4_000, window(CountWindows.of(1_000)), timed(service_ms / 1000)).go(300.0)
    run.assert_healthy()
    assert run.simulation.now < 4 * service_ms * 1.2 + 5.0


@pytest.mark.parametrize("mode", MODES)
def test_a_count_window_behind_a_slow_bolt_and_before_another(mode: str) -> None:
    run = SlowRun(mode, 4_000, timed(0.008), window(CountWindows.of(1_000)), timed(0.01)).go(200.0)
    run.assert_healthy()
    assert run.simulation.now < 4_000 * 0.01 * 1.2 + 10.0


@pytest.mark.parametrize("mode", MODES)
def test_a_time_window_between_slow_bolts(mode: str) -> None:
    window_ = window(TumblingProcessingTimeWindows.of("5s"))
    run = SlowRun(mode, 3_000, timed(0.008), window_, timed(0.01)).go(200.0)
    assert run.simulation.violations == []
    assert (run.counters.timed_out, run.counters.replayed, run.counters.dead_lettered) == (0, 0, 0)
    # The last window is open at the end of the input, and no time comes that would fire it.
    assert len(run.done) > 1_000 and set(run.done.values()) == {1}


@pytest.mark.parametrize(
    ("assigner", "mode"),
    [
        *[(CountWindows.of(10), mode) for mode in MODES],
        (TumblingProcessingTimeWindows.of("5s"), "at_least_once"),
        (TumblingEventTimeWindows.of("10s"), "exactly_once"),
    ],
)
def test_a_thousand_slow_windows_that_fire_at_once(assigner: AssignerLike, mode: str) -> None:
    """The tenth tuple of each key, the clock or a watermark makes 100 s of calls due at once: the task turns in between."""
    slow = Stage(
        make=lambda run, _stage: WindowBolt(key="extra", window=assigner, process=SlowRows(run, 0.1), outputs=FIELDS), key="extra"
    )
    run = SlowRun(mode, 10_000, Stage(make=lambda _run, _stage: Stamped(1_000)), slow, timed(0.0)).go(300.0)
    run.assert_healthy()
    assert run.simulation.now < 1_000 * 0.1 * 1.1 + 10.0


@pytest.mark.parametrize("mode", MODES)
def test_a_thousand_slow_timers_that_a_watermark_makes_due(mode: str) -> None:
    stamped = Stage(make=lambda _run, _stage: Stamped(1_000))
    run = SlowRun(mode, 1_000, stamped, Stage(make=lambda run, _stage: SlowTimers(run, 0.1), key="extra"), timed(0.0)).go(300.0)
    assert run.simulation.violations == []
    assert len(run.done) == 1_000 and len(run.simulation.all_processes) == 5, "no worker was replaced"
    assert run.simulation.now < 1_000 * 0.1 * 1.2 + 5.0


@pytest.mark.parametrize("mode", MODES)
def test_a_bolt_that_holds_five_hundred_inputs_until_it_acks_them_together(mode: str) -> None:
    run = SlowRun(mode, 10_250, timed(0.0), Stage(make=lambda run, _stage: Together(run, 0.005, 500))).go(200.0)
    run.assert_healthy()
    assert run.simulation.now < 10_250 * 0.005 * 1.2 + 2.0


@pytest.mark.parametrize("mode", MODES)
def test_a_bolt_holds_inputs_while_its_output_is_a_minute_of_work_downstream(mode: str) -> None:
    """It is given no input meanwhile, so that it cannot fill up and ack: its held inputs wait, too."""
    run = SlowRun(mode, 2_050, Stage(make=lambda run, _stage: TogetherOn(run, 0.0, 500)), timed(0.12)).go(400.0)
    run.assert_healthy()
    assert run.simulation.now < 2_050 * 0.12 * 1.1 + 5.0


@pytest.mark.parametrize("mode", MODES)
def test_batches_of_256_that_take_a_tenth_of_a_second_each(mode: str) -> None:
    run = SlowRun(mode, 51_200, Stage(make=lambda run, _stage: Batches(run, 0.1)), timed(0.0)).go(200.0)
    run.assert_healthy()
    assert run.simulation.now < 200 * 0.1 * 1.2 + 5.0, "batches are full"


@pytest.mark.parametrize("mode", MODES)
def test_batches_of_other_keys_while_one_is_a_minute_of_work_for_the_bolt_behind(mode: str) -> None:
    skewed = Stage(make=lambda _run, _stage: Skewed())
    batches = Stage(make=lambda run, _stage: Batches(run, 0.1, "extra"), key="extra")
    run = SlowRun(mode, 1_000, skewed, batches, timed(0.2)).go(400.0)
    run.assert_healthy()
    assert run.simulation.now < 1_000 * 0.2 * 1.2 + 5.0


@pytest.mark.parametrize("mode", MODES)
def test_a_slow_topology_drains_in_the_time_of_what_its_queues_hold(mode: str) -> None:
    run = SlowRun(mode, 100_000, timed(0.0), timed(0.1))
    run.simulation.at(30.0, lambda: run.simulation.master.ask(DrainAsked(20.0)))
    run.go(200.0)
    assert run.simulation.violations == []
    outcome = run.simulation.master.outcome
    assert outcome is not None and outcome.kind is OutcomeKind.DRAINED and "not to the end" not in outcome.reason
    assert run.simulation.now < 36.0


def test_a_savepoint_of_a_slow_topology_takes_the_time_of_what_its_queues_hold() -> None:
    run = SlowRun("exactly_once", 400, timed(0.0), timed(0.1))
    written: list[float] = []
    folder = "savepoints/1"

    def look() -> None:
        assert run.simulation.master.master is not None and run.simulation.master.master.checkpoints is not None
        if run.simulation.master.master.checkpoints.savepoints[folder].state == "written":
            written.append(run.simulation.now)
        else:
            run.simulation.at(run.simulation.now + 0.1, look)

    run.simulation.at(15.0, lambda: run.simulation.master.ask(SavepointAsked(folder)))
    run.simulation.at(15.1, look)
    run.go(200.0)
    run.assert_healthy()
    assert written and written[0] < 20.0


@pytest.mark.parametrize("mode", MODES)
def test_a_bolt_that_becomes_ten_thousand_times_slower(mode: str) -> None:
    """The tuples granted while it was fast are minutes of work: failed checkpoints end nothing, and nothing is lost."""
    run = SlowRun(mode, 60_000, Stage(lambda seen, _now: 0.1 if 20_000 <= seen < 22_000 else 0.000_01)).go(900.0)
    run.assert_healthy()
    assert run.simulation.now < 220.0
