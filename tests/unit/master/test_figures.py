"""What tasks have counted, over all their lives, and what status shows of it."""

from __future__ import annotations

import json

import pytest

from tests.unit.master.playbook import LINES, SINK, running
from topo.api.metrics import Histogram, Metrics
from topo.ids import TaskId, WorkerId
from topo.master.statistics import TopologyStatistics
from topo.observability.status import describe
from topo.wire import control
from topo.wire.control import Heartbeat
from topo.wire.statistics import Counters, TaskStatistics

TASK, OTHER = TaskId(1), TaskId(2)


def sent(statistics: TaskStatistics) -> dict[str, object]:
    """Return the statistics of a task as the master gets them: through the wire."""
    beat = Heartbeat(WorkerId(0), 1, 1, 1, "", {TASK: statistics.as_dict()})  # type: ignore[arg-type]
    decoded = control.decode_from_worker(control.encode(beat))
    assert isinstance(decoded, Heartbeat)
    return decoded.tasks[TASK]


def counted(acked: int, latency_s: float = 0.1) -> TaskStatistics:
    histogram = Histogram()
    histogram.record(latency_s, acked)
    metrics = Metrics()
    metrics.counter("skipped").add(acked)
    metrics.gauge("open files").set(float(acked))
    metrics.histogram("size").record(3.0)
    user = {"metrics": metrics.snapshot()}
    return TaskStatistics(Counters(acked=acked), {"queue": 1.0}, {"complete": histogram.snapshot()}, user)


def test_counts_go_on_over_the_lives_of_a_task_and_levels_do_not() -> None:
    statistics = TopologyStatistics({TASK: "c"})
    statistics.add({TASK: sent(counted(5, 0.1))}, 0.0)
    statistics.add({TASK: sent(counted(8, 0.1))}, 1.0)
    statistics.lost([TASK])
    assert statistics.of(TASK).counters["acked"] == 8
    assert statistics.of(TASK).levels == {}
    assert statistics.of(TASK).user.metrics.gauges == {"open files": 8.0}
    statistics.add({TASK: sent(counted(2, 0.4))}, 5.0)
    figures = statistics.of(TASK)
    assert figures.counters["acked"] == 10
    assert figures.levels == {"queue": 1.0}
    assert figures.latencies["complete"].count == 10
    assert figures.user.metrics.counters == {"skipped": 10}
    assert figures.user.metrics.gauges == {"open files": 2.0}
    assert figures.user.metrics.histograms["size"].count == 2


def test_a_gauge_that_is_not_known_is_that_of_no_earlier_life_and_makes_the_sum_unknown() -> None:
    def lagging(lag: float) -> TaskStatistics:
        metrics = Metrics()
        metrics.gauge("lag").set(lag)
        metrics.gauge("open").set(1.0)
        return TaskStatistics(Counters(), {}, {}, {"metrics": metrics.snapshot()})

    statistics = TopologyStatistics({TASK: "c", OTHER: "c"})
    statistics.add({TASK: sent(lagging(7.0)), OTHER: lagging(2.0).as_dict()}, 0.0)
    assert statistics.gauges("c") == {"lag": 9.0, "open": 2.0}
    statistics.lost([TASK])
    statistics.add({TASK: sent(lagging(float("nan")))}, 1.0)
    assert statistics.gauges("c") == {"open": 2.0}
    statistics.add({TASK: sent(lagging(1.0))}, 2.0)
    assert statistics.gauges("c") == {"lag": 3.0, "open": 2.0}


def test_what_the_wire_carries_and_what_a_simulation_hands_over_count_the_same() -> None:
    through, direct = TopologyStatistics({TASK: "c"}), TopologyStatistics({TASK: "c"})
    through.add({TASK: sent(counted(5))}, 0.0)
    direct.add({TASK: counted(5).as_dict()}, 0.0)
    assert through.of(TASK) == direct.of(TASK)


def test_a_rate_is_that_of_the_last_ten_seconds_of_the_present_life() -> None:
    statistics = TopologyStatistics({TASK: "c"})
    for second in range(31):
        acked = second if second <= 20 else 20 + (second - 20) * 100
        statistics.add({TASK: {"counters": {"acked": acked}}}, float(second))
    assert statistics.rate(TASK, "acked") == pytest.approx(100.0)
    statistics.lost([TASK])
    assert statistics.rate(TASK, "acked") == 0.0


def test_figures_that_are_none_are_counted_and_change_nothing() -> None:
    statistics = TopologyStatistics({TASK: "c"})
    statistics.add({TASK: sent(counted(5))}, 0.0)
    statistics.add({TASK: {"counters": {"acked": "many"}}}, 1.0)
    assert statistics.unreadable == 1
    assert statistics.of(TASK).counters["acked"] == 5


def test_status_is_plain_data_with_totals_shares_and_percentiles() -> None:
    play = running()
    execute = Histogram()
    execute.record(0.001, 1000)
    for second in range(3):
        play.until(1.0 + second)
        spout = {"counters": {"emitted": 500 * second, "acked": 400 * second}, "levels": {"pending": 100.0}}
        bolt = TaskStatistics(
            Counters(executed=500 * second, busy_s=0.5 * second, blocked_s=0.2 * second), {}, {"execute": execute.snapshot()}
        )
        play.receives(0, Heartbeat(WorkerId(0), play.life(0), 1, play.epoch, "", {LINES: spout}))
        play.receives(1, Heartbeat(WorkerId(1), play.life(1), 1, play.epoch, "sink", {SINK: bolt.as_dict()}))
    status = describe(play.master, play.now)
    assert json.loads(json.dumps(status)) == status
    assert (status["totals"]["emitted"], status["totals"]["acked"], status["totals"]["pending"]) == (1000, 800, 100)
    assert status["totals"]["acked_per_s"] == pytest.approx(400.0)
    sink = next(component for component in status["components"] if component["component"] == "sink")
    assert (sink["busy"], sink["backpressured"], sink["idle"]) == pytest.approx((0.5, 0.2, 0.3))
    assert sink["capacity"] == pytest.approx(0.5)
    assert sink["latencies_s"]["execute"]["p99"] == pytest.approx(0.001, rel=0.2)
    assert [worker["busy_in"] for worker in status["workers"]] == ["", "sink", ""]


def test_totals_stay_exact_when_a_worker_is_replaced() -> None:
    play = running()
    play.beat(0, acked=700)
    play.replace(0)
    play.all_ready()
    play.beat(0, acked=40)
    assert describe(play.master, play.now)["totals"]["acked"] == 740


def test_figures_of_tasks_that_the_worker_does_not_host_are_not_taken() -> None:
    play = running()
    forged = Heartbeat(WorkerId(1), play.life(1), 1, play.epoch, "", {LINES: {"counters": {"acked": 9}}})
    play.receives(1, forged)
    assert describe(play.master, play.now)["totals"]["acked"] == 0
    assert play.master.counts.misdirected == 1


def test_the_watermark_of_an_edge_is_the_least_that_a_task_has_of_its_input_in_its_present_life() -> None:
    figures = TopologyStatistics({TaskId(1): "c", TaskId(2): "c", TaskId(3): "d"})
    assert figures.watermarks("c") == {}
    figures.add({TaskId(1): {"watermarks": {"a": 20, "b": 5}}, TaskId(2): {"watermarks": {"a": 10}}, TaskId(3): {}}, 1.0)
    assert (figures.watermarks("c"), figures.watermarks("d")) == ({"a": 10, "b": 5}, {})
    figures.lost([TaskId(2)])
    assert figures.watermarks("c") == {"a": 20, "b": 5}


def test_event_time_of_a_component_is_that_of_its_last_task_and_names_its_input() -> None:
    play = running()
    ahead = {"watermark_ms": 2000.0, "watermark_lag_s": 1.0, "open_windows": 3.0}
    behind = {"watermark_ms": 1000.0, "watermark_lag_s": 2.0, "held_back_by": float(LINES), "open_windows": 4.0}
    figures = TopologyStatistics({TaskId(1): "c", TaskId(2): "c"})
    figures.add({TaskId(1): {"levels": ahead}, TaskId(2): {"levels": behind}}, 1.0)  # type: ignore[dict-item]
    assert figures.together([TaskId(1), TaskId(2)]).levels == {**behind, "open_windows": 7.0}
    play.receives(1, Heartbeat(WorkerId(1), play.life(1), 1, play.epoch, "", {SINK: {"levels": behind}}))
    status = describe(play.master, play.now)
    (shown,) = [task for task in status["tasks"] if task["task"] == SINK]
    assert shown["event_time"] == {"watermark_ms": 1000, "lag_s": 2.0, "held_back_by": "lines[0]"}
    assert shown["levels"] == {"open_windows": 4.0, "queue": 0.0, "outbox": 0.0, "allowance": 0.0, "queue_s": 0.0}
