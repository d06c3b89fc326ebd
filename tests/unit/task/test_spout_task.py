"""Spouts of every kind: asking for messages, sending them, their verdicts, and the life of the component."""

from __future__ import annotations

from typing import Any

import pytest

from tests.tasks.components import Replaying, Scripted, Sink, chain, several
from tests.tasks.solo import Solo
from tests.unit.task.spouts import replaying, spouting
from topo.api.streams import direct
from topo.api.topology import Topology
from topo.builder import TopologyBuilder
from topo.ids import Epoch
from topo.task.events import Turn
from topo.wire.control import ComponentError, Deactivate, Go, Probe, Quiet
from topo.wire.frames import FrameKind, SenderStatus

BOTH = pytest.mark.parametrize("kind", [Scripted, Replaying])


# -- emitting


def test_tracked_and_untracked_messages_keep_their_order_and_timestamps() -> None:
    def emit(collector: Any) -> None:
        collector.emit((0,), message_id=0, timestamp=10)
        collector.emit((1,), timestamp=11)
        collector.emit((2,))
        collector.emit((3,), message_id=3)
        collector.emit((4,), message_id=4, timestamp=14)

    _, task = spouting(emit)
    task.run()
    assert task.values() == [0, 1, 2, 3, 4]
    frames = task.frames(FrameKind.DATA)
    stamps = [stamp for frame in frames for stamp in (frame.timestamp_list() or [None] * frame.count)]
    assert stamps == [10, 11, None, None, 14]
    assert len(task.roots(FrameKind.INIT)) == 3


@BOTH
def test_direct_and_named_streams_reach_their_readers(kind: Any) -> None:
    class Streams(kind):  # type: ignore[misc]
        outputs = {"default": ("value",), "to": direct("value"), "side": ("value",)}

    def emit(collector: Any) -> None:
        first, second = spout.context.tasks_of("b")
        collector.emit_direct(second, ("to second",), 1, stream="to")
        collector.emit(("side",), 2, stream="side")
        collector.emit_direct(first, ("to first",), 3, stream="to")

    spout = Streams([emit], ends=False)
    builder = TopologyBuilder("streams")
    builder.set_spout("a", spout)
    builder.set_bolt("b", Sink, parallelism=2).direct_grouping("a", "to")
    builder.set_bolt("c", Sink).shuffle_grouping("a", "side")
    task = Solo(builder.build(), "a")
    task.run()
    first, second = task.plan.tasks_of("b")
    assert (task.values(to=first), task.values(to=second)) == (["to first"], ["to second"])
    assert task.values(to=task.plan.tasks_of("c")[0]) == ["side"]
    task.verdict(FrameKind.ACKED, "to first", "side", "to second")
    assert sorted(spout.acked) == [1, 2, 3]


def test_a_message_of_a_retrying_spout_without_an_id_is_refused() -> None:
    _, task = spouting(lambda c: c.emit(("free",)), kind=Replaying)
    task.run()
    assert task.values() == [] and task.task.counters.refused == 1
    assert task.errors() == ["EmitError: component 'a' emitted without a message id; a RetryingSpout gives every message one"]


# -- bursts


def test_a_single_call_may_overshoot_the_limit_and_is_counted() -> None:
    _, task = spouting(several(*range(25)), 99, max_spout_pending=10)
    task.run()
    assert task.values() == list(range(25))
    assert task.task.counters.overshoot == 15


def test_a_slow_source_is_asked_for_few_messages_at_a_time() -> None:
    def slow(number: int) -> Any:
        def emit(collector: Any) -> None:
            task.clock.now += 0.1
            collector.emit((number,), message_id=number)

        return emit

    _, task = spouting(*map(slow, range(30)))
    sizes = []
    while len(task.values()) < 30:
        before = task.task.counters.emitted
        task.turn()
        sizes.append(task.task.counters.emitted - before)
        task.handle(Turn())
        if len(sizes) > 40:
            break
    assert sizes[0] == 8
    assert sizes[-1] in (1, 0)


def test_a_spout_is_not_called_before_the_time_that_it_has_named() -> None:
    calls = []

    def silent(collector: Any) -> None:
        calls.append(task.clock.now)
        collector.nothing_before(1.5)

    _, task = spouting(silent, silent, 7)
    began = task.clock.now
    for _ in range(2):
        task.turn()
        assert task.task.runner.deadlines(task.clock.now)[0] == task.clock.now + 1.5  # type: ignore[index]
        assert not task.task.has_work
        task.clock.now += 1.5
    task.run()
    assert calls == [began, began + 1.5] and task.values() == [7]


def test_records_that_are_passed_over_are_no_reason_to_wait() -> None:
    def bad(number: int) -> Any:
        return lambda collector: collector.pass_over(number, "no row", ValueError(number))

    spout, task = replaying(*map(bad, range(100)), 100)
    task.run()
    assert task.values() == [100] and not spout.steps


def test_a_call_that_emits_and_names_a_time_ends_the_burst() -> None:
    def emit(collector: Any) -> None:
        collector.emit((1,), message_id=1)
        collector.nothing_before(60)

    _, task = spouting(emit, 2)
    task.turn()
    assert (task.task.counters.emitted, task.task.has_work) == (1, False)
    task.clock.now += 60
    task.run()
    assert task.values() == [1, 2]


def test_a_time_named_by_a_call_that_raises_does_not_count() -> None:
    def fail(collector: Any) -> None:
        collector.nothing_before(3600)
        raise OSError("no")

    _, task = spouting(fail, 2)
    task.turn()
    task.clock.now += 0.2
    task.run()
    assert task.values() == [2]


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf"), "5s", None])
def test_a_time_that_is_none_is_refused(seconds: Any) -> None:
    _, task = spouting(lambda collector: collector.nothing_before(seconds))
    task.turn()
    (error,) = task.messages(ComponentError)
    assert error.kind == "ValueError" and f"component 'a': nothing_before({seconds!r}) needs seconds from now" in error.message


# -- verdicts


@BOTH
def test_a_complete_tree_is_acked_and_a_failed_one_fails(kind: Any) -> None:
    spout, task = spouting("x", "y", "z", kind=kind)
    task.run()
    task.verdict(FrameKind.ACKED, "y")
    task.verdict(FrameKind.FAILED, "x")
    assert (spout.acked, spout.failed) == (["y"], ["x"] if kind is Scripted else [])
    assert (task.task.counters.acked, task.task.counters.failed) == (1, 1)
    assert task.task.statistics().levels["pending"] == (1 if kind is Scripted else 2)


def test_messages_of_a_slow_next_tuple_age_from_its_return() -> None:
    def slow(collector: Any) -> None:
        task.clock.now += 60.0
        collector.emit(("x",), message_id="x")

    spout, task = spouting(slow, message_timeout="10s")
    task.run()
    task.wait(10.0)
    assert spout.failed == []


def test_the_time_to_completion_is_recorded() -> None:
    _, task = spouting("x", "y")
    task.run()
    task.clock.now += 2.0
    task.verdict(FrameKind.ACKED, "x", "y")
    latency = task.task.statistics().latencies["complete"]
    assert (latency.count, latency.lowest, latency.highest) == (2, 2.0, 2.0)


def test_each_message_of_a_frame_has_the_time_since_its_own_emission() -> None:
    _, task = spouting("w", "x", "y", "z", max_spout_pending=3)
    task.run()
    task.clock.now += 2.0
    task.verdict(FrameKind.ACKED, "w")
    task.clock.now += 1.0
    task.verdict(FrameKind.ACKED, "x", "z", "y")
    latency = task.task.statistics().latencies["complete"]
    assert (latency.count, latency.total, latency.lowest, latency.highest) == (4, 2.0 + 3.0 + 1.0 + 3.0, 1.0, 3.0)


@pytest.mark.parametrize("kind", [Scripted, Replaying])
def test_a_spout_that_wants_its_values_gets_them_with_every_verdict(kind: Any) -> None:
    class Wants(kind):  # type: ignore[misc]
        wants_values = True

        def ack(self, message_id: Any, values: Any = ()) -> None:
            self.calls.append(("ack", (message_id, values)))

        def fail(self, message_id: Any, values: Any = ()) -> None:
            self.calls.append(("fail", (message_id, values)))

    spout = Wants(["x", "y"], ends=False)
    task = Solo(chain(spout, Sink(), attempts=1), "a")
    task.run()
    task.verdict(FrameKind.ACKED, "x")
    task.verdict(FrameKind.FAILED, "y")
    if kind is Replaying:
        from topo.wire.control import DeadLettersStored

        task.handle(DeadLettersStored(task.id, [1]))
    assert spout.called("ack", "fail") == [("x", ("x",)), ("y", ("y",))]


@pytest.mark.parametrize("kind", [FrameKind.ACKED, FrameKind.FAILED])
def test_with_on_error_crash_an_exception_in_a_callback_ends_the_task(kind: FrameKind) -> None:
    class Broken(Scripted):
        def ack(self, message_id: Any) -> None:
            raise ValueError("fatal")

        fail = ack

    task = Solo(chain(Broken(["x"], ends=False), Sink(), on_error="crash"), "a")
    task.run()
    with pytest.raises(ValueError, match="fatal"):
        task.verdict(kind, "x")


# -- final failures of a plain spout


def test_a_failed_message_is_finally_failed_until_it_is_emitted_again() -> None:
    spout, task = spouting("x", "y")
    task.run()
    task.verdict(FrameKind.FAILED, "x", "y")
    assert task.task.statistics().counters.finally_failed == 2
    spout.steps.append("x")
    task.wait(0.1)
    assert task.task.statistics().counters.finally_failed == 1
    task.verdict(FrameKind.ACKED, "x")
    assert spout.acked == ["x"]
    assert task.task.statistics().counters.finally_failed == 1


class Resending(Scripted):
    """Emits what failed again at once, as spouts of Storm do."""

    def fail(self, message_id: Any) -> None:
        super().fail(message_id)
        self.collector.emit((message_id,), message_id=message_id)


@pytest.mark.parametrize("state", ["running", "paused", "ended"])
def test_rows_emitted_in_fail_are_sent_also_while_paused_and_after_the_end(state: str) -> None:
    task = Solo(chain(Resending(["x"], ends=state == "ended"), Sink()), "a")
    task.run()
    task.wait(0.1)
    if state == "paused":
        task.handle(Deactivate())
    task.verdict(FrameKind.FAILED, "x")
    assert task.values() == ["x", "x"]
    assert task.task.statistics().counters.finally_failed == 0


def test_rows_emitted_in_fail_at_a_reset_are_sent_after_go() -> None:
    task = Solo(chain(Resending(["x", "y"]), Sink()), "a")
    task.run()
    task.adopt(2)
    task.open_inputs()
    task.run()
    assert task.values() == ["x", "y"]
    assert not task.task.is_quiet
    task.handle(Go(Epoch(2)))
    task.run()
    assert task.values() == ["x", "y", "x", "y"]


def test_rows_emitted_in_fail_outlive_an_exception_in_the_next_call() -> None:
    spout = Resending(["x"], ends=False)
    task = Solo(chain(spout, Sink()), "a")
    task.run()
    spout.steps.append(ValueError("next_tuple"))
    task.feed_ids(FrameKind.FAILED, [task.root_of("x")])
    task.wait(0.01)
    assert task.values() == ["x", "x"]
    assert task.errors() == ["ValueError: next_tuple"]


# -- without an acker


@BOTH
@pytest.mark.parametrize("has_readers", [True, False])
def test_without_ackers_or_readers_a_message_is_acked_when_emit_has_returned(kind: Any, has_readers: bool) -> None:
    within: list[Any] = []

    def emit(collector: Any) -> None:
        collector.emit(("x",), message_id="x")
        within.extend(spout.acked)

    spout = kind([emit], ends=False)
    builder = TopologyBuilder("local").config(ackers=0 if has_readers else 1)
    builder.set_spout("a", spout)
    if has_readers:
        builder.set_bolt("b", Sink()).shuffle_grouping("a")
    task = Solo(builder.build(), "a")
    task.run()
    assert within == [] and spout.acked == ["x"]
    assert task.values() == (["x"] if has_readers else []) and task.frames(FrameKind.INIT) == []
    assert task.task.counters.acked == 1
    assert task.task.statistics().levels["pending"] == 0


def test_a_message_that_waits_for_its_local_ack_is_pending() -> None:
    _, task = spouting("x", ackers=0)
    task.turn()
    assert task.task.has_work
    assert not task.task.is_quiet
    assert task.task.statistics().levels["pending"] == 1


# -- recovery


def test_after_a_reset_an_old_verdict_is_late() -> None:
    spout, task = spouting("x")
    task.run()
    root = task.root_of("x")
    task.adopt(2)
    task.open_inputs()
    task.feed_ids(FrameKind.ACKED, [root])
    task.run()
    assert spout.acked == []
    assert task.task.statistics().counters.late_acks == 1


# -- the end


def test_a_spout_may_end_in_open() -> None:
    class Empty(Scripted):
        def open(self, context: Any, collector: Any) -> None:
            super().open(context, collector)
            collector.end_of_input()

    task = Solo(chain(Empty(["never"]), Sink()), "a", is_open=False)
    task.adopt(1)
    assert [frame.status for frame in task.frames(FrameKind.OPEN, to=2)] == [SenderStatus.FINISHED]
    task.open_inputs()
    task.handle(Go(Epoch(1)))
    task.confirm_all()
    task.run()
    assert task.frames(FrameKind.END) == []
    assert [(quiet.ended, quiet.quiet) for quiet in task.messages(Quiet)] == [(True, True)]


@pytest.mark.parametrize("verb", ["ack", "fail", "activate"])
def test_a_spout_may_end_in_any_callback(verb: str) -> None:
    class Ending(Scripted):
        def activate(self) -> None:
            if verb == "activate":
                self.collector.end_of_input()

        def ack(self, message_id: Any) -> None:
            self.collector.end_of_input()

        fail = ack

    task = Solo(chain(Ending(["x"], ends=False), Sink()), "a")
    task.run()
    if verb != "activate":
        task.verdict(FrameKind.ACKED if verb == "ack" else FrameKind.FAILED, "x")
    task.run()
    assert len(task.frames(FrameKind.END)) == 1


def test_an_ended_spout_reports_that_it_is_quiet_when_its_messages_are_done() -> None:
    _, task = spouting("x", ends=True)
    task.run()
    task.confirm_all()
    task.run()
    assert task.messages(Quiet) == []
    task.handle(Probe(1, Epoch(1)))
    (quiet,) = task.messages(Quiet)
    assert (quiet.ended, quiet.quiet, quiet.pending, quiet.why) == (True, False, 1, "1 messages pending")
    task.verdict(FrameKind.ACKED, "x")
    assert [(quiet.ended, quiet.quiet) for quiet in task.messages(Quiet)[1:]] == [(True, True)]


def test_an_ended_spout_opens_the_next_epoch_as_finished() -> None:
    _, task = spouting("x", ends=True)
    task.run()
    task.out.clear()
    task.adopt(2)
    assert [frame.status for frame in task.frames(FrameKind.OPEN, to=2)] == [SenderStatus.FINISHED]
    task.open_inputs()
    task.handle(Go(Epoch(2)))
    task.run()
    assert task.frames(FrameKind.END) == []


def test_a_spout_without_readers_ends() -> None:
    builder = TopologyBuilder("alone")
    builder.set_spout("a", Scripted(["x"]))
    topology: Topology = builder.build()
    task = Solo(topology, "a")
    task.run()
    task.confirm_all()
    task.run()
    assert [(quiet.ended, quiet.quiet) for quiet in task.messages(Quiet)] == [(True, True)]
