"""Rows whose event time cannot be read: each fails by itself, and the process lives."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.task.harness import Manual, Plain, Replaying, Scripted, Sink, Solo
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


@pytest.mark.parametrize("strategy", [AT, WatermarkStrategy.timestamps_only(read)])
@pytest.mark.parametrize("bad", ["yesterday", 1.5])
@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
@pytest.mark.parametrize("where", ["spout", "bolt"])
def test_a_row_without_a_readable_timestamp_is_one_dead_letter_and_the_others_arrive(
    where: str, delivery: str, bad: Any, strategy: WatermarkStrategy
) -> None:
    if bad == 1.5 and strategy is not AT:
        bad = "1.5"
    sink = Sink()

    def topology() -> Topology:
        builder = TopologyBuilder("stamps").config(delivery=delivery)
        rows = [(key, bad if key == "bad" else at) for key, at in ROWS]
        here = {where: strategy}
        builder.set_spout("source", IterableSpout(rows, ("key", "at")), watermarks=here.get("spout"))
        builder.set_bolt("parse", Plain(relay, ("key", "at")), watermarks=here.get("bolt")).global_grouping("source")
        builder.set_bolt("sink", sink).global_grouping("parse")
        return builder.build()

    run = TopologyTest(topology)
    run.run()
    assert sink.seen == ["a", "c"]
    assert run.outcome is not None and run.outcome.dead_letters == 1


def test_a_row_whose_timestamp_can_be_read_at_a_later_attempt_arrives_then() -> None:
    failures = [1, 2]
    sink = Sink()

    def flaky(row: Any) -> int:
        if row[0] == "bad" and failures:
            raise OSError(failures.pop())
        return 7

    def topology() -> Topology:
        builder = TopologyBuilder("stamps").config(delivery="at_least_once", attempts=4)
        builder.set_spout("source", IterableSpout(ROWS, ("key", "at")), watermarks=WatermarkStrategy.timestamps_only(flaky))
        builder.set_bolt("sink", sink).global_grouping("source")
        return builder.build()

    run = TopologyTest(topology)
    run.run()
    assert sorted(sink.seen) == ["a", "bad", "c"] and failures == []
    assert run.outcome is not None and run.outcome.dead_letters == 0


def solo(component: str, spout: Any, bolt: Any, outputs: Any = ("key", "at"), **settings: Any) -> Solo:
    builder = TopologyBuilder("stamps").config(**settings)
    builder.set_spout("a", spout, watermarks=AT if component == "a" else None)
    builder.set_bolt("b", bolt, watermarks=AT if component == "b" else None).shuffle_grouping("a")
    declarer = builder.set_bolt("c", Sink()).shuffle_grouping("b")
    if isinstance(outputs, dict):
        declarer.shuffle_grouping("b", "side")
    return Solo(builder.build(), component)


def test_an_input_one_of_whose_rows_cannot_be_stamped_fails_with_all_that_it_emitted() -> None:
    def run(tup: Any, collector: Any) -> None:
        collector.emit((tup.values[0], 1), stream="side")
        collector.emit((tup.values[0], 1))
        collector.emit(tup.values)

    outputs = {"side": ("key", "at"), "default": ("key", "at")}
    task = solo("b", Scripted(), Plain(run, outputs), outputs)
    ids = task.feed(("x", 5), ("y", "bad"), ("z", 7))
    task.run()
    assert [key for key, _ in task.rows()] == ["x", "z", "x", "x", "z", "z"]
    assert task.roots(FrameKind.FAIL) == [ids.roots[1]]
    (error,) = task.errors()
    assert "component 'b': timestamp field 'at' is 'bad' (str)" in error


def test_a_row_of_a_bolt_that_anchors_by_itself_fails_its_anchors() -> None:
    task = solo("b", Scripted(), Manual(outputs=("key", "at")))
    ids = task.feed(("x", 5), ("y", "bad"), ("z", 7))
    task.run()
    assert [key for key, _ in task.rows()] == ["x", "z"]
    assert task.roots(FrameKind.FAIL) == [ids.roots[1]]


def test_a_row_that_no_input_has_caused_is_lost_by_itself() -> None:
    def tick(tup: Any, collector: Any) -> None:
        if tup.is_tick:
            collector.emit(("t", 1))
            collector.emit(("u", "bad"))
            collector.emit(("v", 2))

    task = solo("b", Scripted(), Plain(tick, ("key", "at")), tick_interval="1s")
    task.clock.now += 1.5
    task.run()
    assert [key for key, _ in task.rows()] == ["t", "v"]
    assert len(task.errors()) == 1


def emitting(*rows: tuple[Any, Any], stream: str = "default") -> list[Any]:
    return [lambda collector, row=row: collector.emit(row, message_id=row[0], stream=stream) for row in rows]


def test_a_message_of_a_spout_without_a_timestamp_is_failed_at_its_acker_and_not_sent() -> None:
    spout = Replaying(emitting(("x", 5), ("y", "bad"), ("z", 7)), ends=False)
    spout.outputs = ("key", "at")
    task = solo("a", spout, Plain())
    task.run()
    assert [key for key, _ in task.rows()] == ["x", "z"]
    assert len(task.roots(FrameKind.FAIL)) == 1
    assert set(task.roots(FrameKind.FAIL)) < set(task.roots(FrameKind.INIT)) and len(task.roots(FrameKind.INIT)) == 3


@pytest.mark.parametrize("component", ["a", "b"])
def test_where_errors_are_to_end_the_process_they_do(component: str) -> None:
    spout = Replaying(emitting(("y", "bad")) if component == "a" else [], ends=False)
    spout.outputs = ("key", "at")
    task: Any = None
    with pytest.raises(EmitError, match="timestamp field 'at'"):
        task = solo(component, spout, Plain(relay, ("key", "at")), on_error="crash")
        task.feed(("y", "bad"))
        task.run()


@pytest.mark.parametrize("bad", [1.5, "x", 1 << 70, None, True])
def test_what_is_no_watermark_is_refused_where_it_is_emitted(bad: Any) -> None:
    spout = Scripted([lambda collector: collector.emit_watermark(bad), 1, 2], ends=False)
    builder = TopologyBuilder("stamps")
    builder.set_spout("a", spout)
    builder.set_bolt("b", Sink()).shuffle_grouping("a")
    task = Solo(builder.build(), "a")
    for _ in range(3):
        task.clock.now += 1.0
        task.run()
    assert task.values() == [1, 2]
    (error,) = task.errors()
    assert f"component 'a' emitted watermark {bad!r}" in error
