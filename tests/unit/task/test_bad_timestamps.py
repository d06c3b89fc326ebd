"""Rows whose event time cannot be read: each fails alone, and the process lives."""

from __future__ import annotations

from typing import Any

import pytest

from tests.tasks.components import Manual, Plain, Scripted, Sink, chain
from tests.tasks.solo import Solo
from topo.api.topology import Topology
from topo.api.watermarks import WatermarkStrategy
from topo.builder import TopologyBuilder
from topo.connectors.iterable_spout import IterableSpout
from topo.errors import EmitError
from topo.testing import TopologyTest
from topo.wire.frames import FrameKind

ROWS: list[tuple[Any, Any]] = [("a", 1), ("bad", None), ("c", 3)]
AT = WatermarkStrategy.bounded_out_of_orderness("1s", timestamp="at")


def relay(tup: Any, collector: Any) -> None:
    collector.emit(tup.values)


def read(row: Any) -> int:
    return int(row[1])


STRATEGIES = [(AT, "yesterday"), (AT, 1.5), (AT, -(1 << 63)), (WatermarkStrategy.timestamps_only(read), "yesterday")]


@pytest.mark.parametrize(("strategy", "bad"), STRATEGIES)
@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
@pytest.mark.parametrize("where", ["spout", "bolt"])
def test_a_row_without_a_readable_timestamp_is_one_dead_letter(
    where: str, delivery: str, strategy: WatermarkStrategy, bad: Any
) -> None:
    run, sink = arriving([(key, bad if key == "bad" else at) for key, at in ROWS], where, strategy, delivery=delivery)
    assert sink.seen == ["a", "c"]
    assert run.outcome is not None and run.outcome.dead_letters == 1


def arriving(rows: Any, where: str, strategy: WatermarkStrategy, **settings: Any) -> tuple[TopologyTest, Sink]:
    """Run a topology whose spout or bolt has a strategy."""
    sink = Sink()

    def topology() -> Topology:
        builder = TopologyBuilder("stamps").config(**settings)
        here = {where: strategy}
        builder.set_spout("source", IterableSpout(rows, ("key", "at")), watermarks=here.get("spout"))
        builder.set_bolt("parse", Plain(relay, ("key", "at")), watermarks=here.get("bolt")).global_grouping("source")
        builder.set_bolt("sink", sink).global_grouping("parse")
        return builder.build()

    run = TopologyTest(topology)
    run.run()
    return run, sink


def test_a_row_whose_timestamp_can_be_read_at_a_later_attempt_arrives_then() -> None:
    failures = [1, 2]

    def flaky(row: Any) -> int:
        if row[0] == "bad" and failures:
            raise OSError(failures.pop())
        return 7

    strategy = WatermarkStrategy.timestamps_only(flaky)
    run, sink = arriving(ROWS, "spout", strategy, delivery="at_least_once", attempts=4)
    assert sorted(sink.seen) == ["a", "bad", "c"] and failures == []
    assert run.outcome is not None and run.outcome.dead_letters == 0


def bolt_with_strategy(bolt: Any, outputs: Any = ("key", "at"), **settings: Any) -> Solo:
    builder = TopologyBuilder("stamps").config(**settings)
    builder.set_spout("a", Scripted())
    builder.set_bolt("b", bolt, watermarks=AT).shuffle_grouping("a")
    declarer = builder.set_bolt("c", Sink()).shuffle_grouping("b")
    if isinstance(outputs, dict):
        declarer.shuffle_grouping("b", "side")
    return Solo(builder.build(), "b")


def test_an_input_one_of_whose_rows_cannot_be_stamped_fails_with_all_that_it_emitted() -> None:
    def run(tup: Any, collector: Any) -> None:
        collector.emit((tup.values[0], 1), stream="side")
        collector.emit((tup.values[0], 1))
        collector.emit(tup.values)

    outputs = {"side": ("key", "at"), "default": ("key", "at")}
    task = bolt_with_strategy(Plain(run, outputs), outputs)
    ids = task.feed(("x", 5), ("y", "bad"), ("z", 7))
    task.run()
    assert [key for key, _ in task.rows()] == ["x", "z", "x", "x", "z", "z"]
    assert task.roots(FrameKind.FAIL) == [ids.roots[1]]
    (error,) = task.errors()
    assert "component 'b': timestamp field 'at' is 'bad' (str)" in error


def test_a_row_of_a_bolt_fails_its_anchors() -> None:
    task = bolt_with_strategy(Manual(outputs=("key", "at")))
    ids = task.feed(("x", 5), ("y", "bad"), ("z", 7))
    task.run()
    assert [key for key, _ in task.rows()] == ["x", "z"]
    assert task.roots(FrameKind.FAIL) == [ids.roots[1]]


def test_a_row_of_a_tick_is_lost_alone() -> None:
    def tick(tup: Any, collector: Any) -> None:
        if tup.is_tick:
            collector.emit(("t", 1))
            collector.emit(("u", "bad"))
            collector.emit(("v", 2))

    task = bolt_with_strategy(Plain(tick, ("key", "at")), tick_interval="1s")
    task.clock.now += 1.5
    task.run()
    assert [key for key, _ in task.rows()] == ["t", "v"]
    assert len(task.errors()) == 1


def test_with_on_error_crash_an_unreadable_timestamp_ends_the_process() -> None:
    """That of a spout's row: tests/contract/runners/test_spouts.py."""
    task = bolt_with_strategy(Plain(relay, ("key", "at")), on_error="crash")
    task.feed(("y", "bad"))
    with pytest.raises(EmitError, match="timestamp field 'at'"):
        task.run()


@pytest.mark.parametrize("bad", [1.5, "x", 1 << 70, None, True])
def test_a_value_that_is_no_watermark_is_refused_where_it_is_emitted(bad: Any) -> None:
    task = Solo(chain(Scripted([lambda collector: collector.emit_watermark(bad), 1, 2], ends=False), Sink()), "a")
    for _ in range(3):
        task.clock.now += 1.0
        task.run()
    assert task.values() == [1, 2]
    (error,) = task.errors()
    assert f"component 'a' emitted watermark {bad!r}" in error
