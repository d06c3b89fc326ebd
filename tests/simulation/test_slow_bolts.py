"""Bolts of any speed with all defaults, in virtual time: nothing is replayed, no message is given up, checkpoints are in time."""

from __future__ import annotations

import pytest

from tests.simulation.slow_runs import MODES, SlowRun, Stage, constant


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("service_ms", [0.01, 1, 10, 100, 1000])
def test_any_service_time_with_all_defaults(service_ms: float, mode: str) -> None:
    total = 9_000 if service_ms <= 10 else int(90_000 / service_ms)
    run = SlowRun(mode, total, Stage(constant(service_ms / 1000))).go(200.0)
    run.assert_healthy()
    ideal_s = total * service_ms / 1000
    assert run.simulation.now <= ideal_s * 1.2 + 1.2
    if mode == "exactly_once":
        assert run.longest_without_checkpoint_s <= 20.0
    elif service_ms >= 1:
        assert run.most_pending <= max(10.0, 3 * 0.5 / (service_ms / 1000)), "the spout follows the service time"


@pytest.mark.parametrize("mode", MODES)
def test_slow_bolts_in_a_row(mode: str) -> None:
    slow = constant(0.1)
    run = SlowRun(mode, 400, Stage(slow), Stage(slow), Stage(constant(0.11)), Stage(slow), Stage(constant(0.12))).go(200.0)
    run.assert_healthy()
    assert run.simulation.now < 400 * 0.12 * 1.1 + 2.0
    if mode == "exactly_once":
        assert run.longest_without_checkpoint_s <= 20.0


@pytest.mark.parametrize("mode", MODES)
def test_a_message_that_becomes_a_thousand_tuples_of_a_slow_bolt(mode: str) -> None:
    run = SlowRun(mode, 10, Stage(constant(0.000_1), copies=1000), Stage(constant(0.01))).go(300.0)
    run.assert_healthy()
    if mode == "exactly_once":
        # A message is ten seconds of work; at each of the two bolts one is being worked on, and one waits before the first.
        assert run.longest_without_checkpoint_s <= 50.0


@pytest.mark.parametrize("mode", MODES)
def test_a_task_that_is_slower_than_its_siblings(mode: str) -> None:
    def skewed(seen: int, _now: float) -> float:
        return 0.05 if seen % 4 else 0.8

    run = SlowRun(mode, 600, Stage(constant(0.000_1)), Stage(skewed, parallelism=4)).go(300.0)
    assert run.simulation.violations == []
    assert run.counters.timed_out == run.counters.replayed == 0
    if mode == "exactly_once":
        assert run.longest_without_checkpoint_s <= 20.0


@pytest.mark.parametrize("mode", MODES)
def test_a_first_call_that_loads_a_model_for_a_minute(mode: str) -> None:
    settings = {"progress_timeout": "5m", "worker_timeout": "5m", "master_timeout": "5m"}
    run = SlowRun(mode, 9_000, Stage(lambda seen, _now: 0.0001 if seen else 60.0), **settings).go(200.0)
    run.assert_healthy()
    assert run.simulation.now < 64.0, "nothing is left of the first call in the bounds"


@pytest.mark.parametrize("mode", MODES)
def test_a_service_time_that_jumps_to_a_second_and_back(mode: str) -> None:
    def jumps(seen: int, now: float) -> float:
        return 1.0 if 20_000 <= seen < 20_300 else 0.000_05

    run = SlowRun(mode, 60_000, Stage(jumps)).go(900.0)
    run.assert_healthy()
    assert run.simulation.now < 330.0
