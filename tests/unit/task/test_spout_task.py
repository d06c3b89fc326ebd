"""Spouts of every kind: asking for messages, sending them, their verdicts, and the life of the component."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from tests.unit.task.harness import CODEC, Replaying, Scripted, Sink, Solo, chain, root_of, several, verdict, xor_by_root
from topo.api.groupings import CustomGrouping
from topo.api.streams import direct
from topo.api.topology import Topology
from topo.builder import TopologyBuilder
from topo.ids import Epoch
from topo.task.events import Turn
from topo.wire.control import Activate, Close, Closed, ComponentError, Deactivate, Go, Probe, Quiet
from topo.wire.frames import Anchoring, FrameKind, SenderStatus

BOTH = pytest.mark.parametrize("kind", [Scripted, Replaying])
ACKER = 3


def spouting(*steps: Any, kind: Any = Scripted, ends: bool = False, **settings: Any) -> tuple[Any, Solo]:
    """A spout a with a sink b and the acker as task 3."""
    spout = kind(steps, ends=ends)
    return spout, Solo(chain(spout, Sink(), **settings), "a")


# -- emitting


@BOTH
def test_messages_are_sent_with_an_init_of_their_edges(kind: Any) -> None:
    _, task = spouting(*range(5), kind=kind)
    task.run()
    assert task.values() == [0, 1, 2, 3, 4]
    assert xor_by_root(task.frames(FrameKind.INIT)) == xor_by_root(task.frames(FrameKind.DATA))
    assert len(set(task.roots(FrameKind.INIT))) == 5
    counters = task.task.counters
    assert (counters.emitted, counters.transferred, counters.acked) == (5, 5, 0)


@BOTH
def test_a_spout_emits_nothing_before_go(kind: Any) -> None:
    spout = kind([1])
    task = Solo(chain(spout, Sink()), "a", is_open=False)
    task.adopt(1)
    task.open_inputs()
    task.run()
    assert spout.calls == [("open", None)]
    task.handle(Go(Epoch(1)))
    task.run()
    assert task.values() == [1]
    assert spout.calls == [("open", None), ("activate",)]


def test_go_of_another_epoch_starts_nothing() -> None:
    spout = Scripted([1])
    task = Solo(chain(spout, Sink()), "a", is_open=False)
    task.adopt(2)
    task.open_inputs()
    task.handle(Go(Epoch(1)))
    task.run()
    assert task.values() == []


def test_a_message_without_an_id_is_not_tracked() -> None:
    _, task = spouting(lambda collector: collector.emit(("free",)))
    task.run()
    assert task.values() == ["free"]
    assert [frame.anchoring for frame in task.frames(FrameKind.DATA)] == [Anchoring.NONE]
    assert task.frames(FrameKind.INIT) == []
    assert task.task.statistics().levels["pending"] == 0


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
def test_direct_streams_and_named_streams_reach_whom_they_should(kind: Any) -> None:
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
    verdict(task, FrameKind.ACKED, "to first", "side", "to second")
    assert sorted(spout.told("ack")) == [1, 2, 3]


def test_each_root_is_inited_at_its_own_acker() -> None:
    _, task = spouting(*range(40), ackers=3)
    task.run()
    frames = task.frames(FrameKind.INIT)
    assert sum(frame.count for frame in frames) == 40
    for frame in frames:
        assert {task.plan.ackers[root % 3] for root in frame.root_list()} == {frame.target}


@BOTH
def test_a_value_that_cannot_be_carried_fails_its_own_message_and_the_rest_goes(kind: Any) -> None:
    spout, task = spouting(lambda c: [c.emit((value,), number) for number, value in enumerate(["x", object(), "y"])], kind=kind)
    task.run()
    assert task.values() == ["x", "y"]
    (failed,) = task.roots(FrameKind.FAIL)
    assert failed in task.roots(FrameKind.INIT)
    assert task.errors()[0].startswith("ValueNotCarried: component 'a', stream 'default': field 'value': a value of type object:")
    task.feed_ids(FrameKind.FAILED, [failed])
    task.run()
    assert spout.told("fail") == ([1] if kind is Scripted else [])


def test_an_acker_hears_that_a_message_has_failed_before_the_init_that_would_complete_its_tree() -> None:
    class OutOfRange(CustomGrouping):
        def choose(self, values: tuple[Any, ...]) -> list[int]:
            return [9 if values[0] == "bad" else 0]

    builder = TopologyBuilder("keys")
    builder.set_spout("a", Scripted([several("x"), lambda c: c.emit(("bad",), "bad")], ends=False))
    builder.set_bolt("b", Sink, parallelism=3).custom_grouping("a", OutOfRange())
    task = Solo(builder.build(), "a")
    task.run()
    (failed,) = task.roots(FrameKind.FAIL)
    assert xor_by_root(task.frames(FrameKind.INIT))[failed] == 0
    assert [frame.kind for frame in task.frames(FrameKind.FAIL, FrameKind.INIT)] == [FrameKind.FAIL, FrameKind.INIT]


@BOTH
def test_an_unusable_key_fails_its_own_message(kind: Any) -> None:
    spout = kind([several("x"), lambda c: c.emit((float("nan"),), "xbad"), several("y")], ends=False)
    builder = TopologyBuilder("keys")
    builder.set_spout("a", spout)
    builder.set_bolt("b", Sink, parallelism=3).fields_grouping("a", "value")
    task = Solo(builder.build(), "a")
    task.run()
    assert sorted(task.values()) == ["x", "y"]
    assert len(task.roots(FrameKind.FAIL)) == 1
    assert len(task.roots(FrameKind.INIT)) == 3


@BOTH
def test_a_message_id_that_cannot_be_remembered_is_refused_and_the_others_go(kind: Any) -> None:
    spout, task = spouting(several("x"), lambda c: c.emit(("bad",), message_id=["a", "list"]), several("y"), kind=kind)
    task.run()
    assert task.values() == ["x", "y"]
    assert task.errors() == [
        "EmitError: component 'a' emitted with message id ['a', 'list'] (list), which is not hashable; "
        "use an int, a string or a tuple of these"
    ]
    verdict(task, FrameKind.FAILED, "x", "y")
    assert spout.told("fail") == (["x", "y"] if kind is Scripted else [])


def test_a_message_of_a_retrying_spout_without_an_id_is_refused() -> None:
    _, task = spouting(lambda c: c.emit(("free",)), kind=Replaying)
    task.run()
    assert task.values() == [] and task.task.counters.refused == 1
    assert task.errors() == ["EmitError: component 'a' emitted without a message id; a RetryingSpout gives every message one"]


# -- bursts


@BOTH
def test_no_more_is_asked_for_than_may_be_pending(kind: Any) -> None:
    spout, task = spouting(*range(100), kind=kind, max_spout_pending=10)
    task.run()
    assert task.values() == list(range(10))
    assert not task.task.has_work
    verdict(task, FrameKind.ACKED, 0, 1, 2)
    assert task.values() == list(range(13))
    assert spout.told("ack") == [0, 1, 2]


def test_a_single_call_may_overshoot_the_limit_and_is_counted() -> None:
    _, task = spouting(several(*range(25)), 99, max_spout_pending=10)
    task.run()
    assert task.values() == list(range(25))
    assert task.task.counters.overshoot == 15


def test_untracked_messages_are_not_pending() -> None:
    _, task = spouting(*[lambda c: c.emit(("free",))] * 50, max_spout_pending=10)
    task.wait(1.0)
    assert len(task.values()) == 50


def test_a_call_that_emits_more_than_it_may_is_an_error_and_emits_nothing() -> None:
    _, task = spouting(several(1, 2, 3, 4), 5, max_task_emit=3)
    task.wait(1.0)
    assert task.values() == [5]
    assert task.errors()[0].startswith("EmitError: component 'a' emitted 4 tuples in one call; at most 3 are allowed")


def test_an_idle_spout_is_asked_often_at_first_and_then_less_and_less() -> None:
    asked: list[float] = []
    spout, task = spouting(*[lambda c: asked.append(task.clock.now)] * 1000)
    task.wait(0.1)
    gaps = [round(later - earlier, 6) for earlier, later in pairwise(asked)]
    assert gaps[:10] == [0.000_25] * 10
    assert gaps[10:18] == [0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.02, 0.02]
    del spout.steps[:]
    spout.steps += ["news", *[lambda c: asked.append(task.clock.now)] * 10]
    before = len(asked)
    task.wait(0.02)
    assert asked[before + 1] - asked[before] < 0.001


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


def test_a_full_outbox_stops_the_spout_and_room_lets_it_go_on() -> None:
    _, task = spouting(*range(100), edge_window=1, batch_size=1, outbox_limit=4)
    task.run()
    held = task.task.counters.emitted
    assert held < 30
    while task.task.counters.emitted < 100:
        task.confirm_all()
        task.run()
    task.confirm_all()
    assert sorted(task.values()) == list(range(100))


def test_the_time_in_which_a_spout_has_no_room_is_counted() -> None:
    _, task = spouting(*range(100), edge_window=1, batch_size=1, outbox_limit=4)
    task.run()
    assert task.task.outbox.is_full
    task.wait(2.0)
    assert task.task.statistics().counters.blocked_s == 2.0
    task.handle(Deactivate())
    task.wait(2.0)
    assert task.task.statistics().counters.blocked_s == 2.0


# -- verdicts


@BOTH
def test_a_complete_tree_is_acked(kind: Any) -> None:
    spout, task = spouting("x", "y", kind=kind)
    task.run()
    verdict(task, FrameKind.ACKED, "y")
    assert spout.told("ack") == ["y"]
    assert task.task.counters.acked == 1
    assert task.task.statistics().levels["pending"] == 1


def test_a_failed_tree_is_failed() -> None:
    spout, task = spouting("x", "y")
    task.run()
    verdict(task, FrameKind.FAILED, "x")
    assert (spout.told("fail"), spout.told("ack")) == (["x"], [])
    assert task.task.counters.failed == 1


def test_a_message_without_a_verdict_fails_between_its_timeout_and_a_tenth_more() -> None:
    for offset in (0.0, 0.3, 0.6, 0.99):
        spout, task = spouting(message_timeout="10s")
        task.wait(3.0 + offset)
        spout.steps.append("x")
        task.run()
        emitted = task.clock.now
        task.wait(0.02)
        task.confirm_all()
        task.wait(9.98)
        assert spout.told("fail") == []
        task.wait(1.0)
        assert spout.told("fail") == ["x"]
        assert task.task.counters.timed_out == 1
        assert task.clock.now == emitted + 11.0


def test_a_verdict_that_is_here_counts_before_a_timeout_of_the_same_moment() -> None:
    spout, task = spouting("x", message_timeout="10s")
    task.run()
    task.clock.now += 60.0
    task.feed_ids(FrameKind.ACKED, [root_of(task, "x")])
    task.run()
    assert (spout.told("ack"), spout.told("fail")) == (["x"], [])


def test_a_late_verdict_is_counted_and_changes_nothing() -> None:
    spout, task = spouting("x", message_timeout="10s")
    task.run()
    task.confirm_all()
    task.wait(11.0)
    verdict(task, FrameKind.ACKED, "x")
    assert (spout.told("ack"), spout.told("fail")) == ([], ["x"])
    assert task.task.statistics().counters.late_acks == 1


def test_a_reset_of_the_timeout_starts_it_anew() -> None:
    spout, task = spouting("x", message_timeout="10s")
    task.run()
    task.confirm_all()
    task.wait(9.0)
    verdict(task, FrameKind.TOUCHED, "x")
    task.wait(10.0)
    assert spout.told("fail") == []
    task.wait(1.0)
    assert spout.told("fail") == ["x"]


def test_what_a_slow_next_tuple_emits_does_not_age_while_it_is_being_made() -> None:
    def slow(collector: Any) -> None:
        task.clock.now += 60.0
        collector.emit(("x",), message_id="x")

    spout, task = spouting(slow, message_timeout="10s")
    task.run()
    task.wait(10.0)
    assert spout.told("fail") == []


def test_the_time_to_completion_is_recorded() -> None:
    _, task = spouting("x", "y")
    task.run()
    task.clock.now += 2.0
    verdict(task, FrameKind.ACKED, "x", "y")
    latency = task.task.statistics().latencies["complete"]
    assert (latency.count, latency.lowest, latency.highest) == (2, 2.0, 2.0)


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
    verdict(task, FrameKind.ACKED, "x")
    verdict(task, FrameKind.FAILED, "y")
    if kind is Replaying:
        from topo.wire.control import DeadLettersStored

        task.handle(DeadLettersStored(task.id, [1]))
    assert spout.told("ack", "fail") == [("x", ("x",)), ("y", ("y",))]


@pytest.mark.parametrize("verb", ["ack", "fail"])
def test_an_exception_in_a_callback_is_reported_and_the_other_messages_get_theirs(verb: str) -> None:
    class Broken(Scripted):
        def ack(self, message_id: Any) -> None:
            super().ack(message_id)
            raise ValueError("in a callback")

        fail = ack

    spout = Broken(["x", "y"], ends=False)
    task = Solo(chain(spout, Sink()), "a")
    task.run()
    verdict(task, FrameKind.ACKED if verb == "ack" else FrameKind.FAILED, "x", "y")
    assert spout.told("ack") == ["x", "y"]
    (error,) = task.messages(ComponentError)
    assert (error.kind, error.file) == ("ValueError", __file__)


@pytest.mark.parametrize("kind", [FrameKind.ACKED, FrameKind.FAILED])
def test_with_on_error_crash_an_exception_in_a_callback_ends_the_task(kind: FrameKind) -> None:
    class Broken(Scripted):
        def ack(self, message_id: Any) -> None:
            raise ValueError("fatal")

        fail = ack

    task = Solo(chain(Broken(["x"], ends=False), Sink(), on_error="crash"), "a")
    task.run()
    with pytest.raises(ValueError, match="fatal"):
        verdict(task, kind, "x")


# -- final failures of a plain spout


def test_a_message_that_failed_and_is_not_emitted_again_is_finally_failed() -> None:
    _, task = spouting("x", "y")
    task.run()
    verdict(task, FrameKind.FAILED, "x", "y")
    assert task.task.statistics().counters.finally_failed == 2


def test_a_message_that_is_emitted_again_is_not() -> None:
    spout, task = spouting("x", "y")
    task.run()
    verdict(task, FrameKind.FAILED, "x", "y")
    spout.steps.append("x")
    task.wait(0.1)
    assert task.task.statistics().counters.finally_failed == 1
    verdict(task, FrameKind.ACKED, "x")
    assert spout.told("ack") == ["x"]
    assert task.task.statistics().counters.finally_failed == 1


class Resending(Scripted):
    """Emits what failed again at once, as spouts of Storm do."""

    def fail(self, message_id: Any) -> None:
        super().fail(message_id)
        self.collector.emit((message_id,), message_id=message_id)


def test_what_fail_emits_is_sent() -> None:
    task = Solo(chain(Resending(["x"], ends=False), Sink()), "a")
    task.run()
    verdict(task, FrameKind.FAILED, "x")
    assert task.values() == ["x", "x"]
    assert task.task.statistics().counters.finally_failed == 0


def test_what_fail_emits_is_sent_also_after_the_end_and_while_paused() -> None:
    for pause in (False, True):
        task = Solo(chain(Resending(["x"], ends=not pause), Sink()), "a")
        task.run()
        task.wait(0.1)
        if pause:
            task.handle(Deactivate())
        verdict(task, FrameKind.FAILED, "x")
        assert task.values() == ["x", "x"]


def test_what_fail_emits_at_a_reset_is_sent_after_go() -> None:
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


def test_what_fail_emits_outlives_an_exception_in_the_next_call() -> None:
    spout = Resending(["x"], ends=False)
    task = Solo(chain(spout, Sink()), "a")
    task.run()
    spout.steps.append(ValueError("next_tuple"))
    task.feed_ids(FrameKind.FAILED, [root_of(task, "x")])
    task.wait(0.01)
    assert task.values() == ["x", "x"]
    assert task.errors() == ["ValueError: next_tuple"]


# -- without an acker


@BOTH
def test_without_ackers_a_message_is_acked_after_emit_has_returned(kind: Any) -> None:
    within: list[Any] = []

    def emit(collector: Any) -> None:
        collector.emit(("x",), message_id="x")
        within.extend(spout.told("ack"))

    spout, task = spouting(emit, kind=kind, ackers=0)
    task.run()
    assert within == []
    assert spout.told("ack") == ["x"]
    assert task.values() == ["x"]
    assert task.task.counters.acked == 1
    assert task.task.statistics().levels["pending"] == 0


@BOTH
def test_without_ackers_the_pending_limit_has_no_effect_in_the_end(kind: Any) -> None:
    _, task = spouting(*range(50), kind=kind, ackers=0, max_spout_pending=5)
    task.wait(1.0)
    assert task.values() == list(range(50))


@BOTH
def test_a_message_that_nobody_reads_is_acked_after_emit_has_returned(kind: Any) -> None:
    within: list[Any] = []

    def emit(collector: Any) -> None:
        collector.emit(("x",), message_id="x")
        within.extend(spout.told("ack"))

    spout = kind([emit], ends=False)
    builder = TopologyBuilder("nobody")
    builder.set_spout("a", spout)
    task = Solo(builder.build(), "a")
    task.run()
    assert within == []
    assert spout.told("ack") == ["x"]
    assert task.frames() == task.frames(FrameKind.OPEN)


def test_a_message_that_waits_for_its_local_ack_is_pending() -> None:
    _, task = spouting("x", ackers=0)
    task.turn()
    assert task.task.has_work
    assert not task.task.is_quiet
    assert task.task.statistics().levels["pending"] == 1


# -- exceptions in next_tuple


@BOTH
def test_what_a_call_that_raises_has_emitted_is_discarded(kind: Any) -> None:
    def half(collector: Any) -> None:
        collector.emit(("gone",), message_id="gone")
        raise ValueError("half way")

    _, task = spouting("x", half, "y", kind=kind)
    task.wait(1.0)
    assert task.values() == ["x", "y"]
    assert task.errors() == ["ValueError: half way"]


def test_a_source_that_raises_is_asked_again_after_waits_that_double_up_to_half_a_minute() -> None:
    asked: list[float] = []

    def broken(collector: Any) -> None:
        asked.append(task.clock.now)
        raise OSError("down")

    _, task = spouting(*[broken] * 20)
    task.wait(300.0)
    gaps = [round(later - earlier, 6) for earlier, later in pairwise(asked)]
    assert gaps[:9] == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0]
    assert set(gaps[9:]) == {30.0}


def test_a_call_that_works_ends_the_waits() -> None:
    asked: list[float] = []

    def broken(collector: Any) -> None:
        asked.append(task.clock.now)
        raise OSError("down")

    _, task = spouting(broken, broken, "x", broken, broken)
    task.wait(5.0)
    assert [round(later - earlier, 6) for earlier, later in pairwise(asked)] == [0.2, 0.4, 0.2]


def test_a_source_that_is_down_for_days_does_not_overflow() -> None:
    def broken(collector: Any) -> None:
        raise OSError("down")

    _, task = spouting(*[broken] * 1200)
    task.wait(1190 * 30.0)
    assert task.task.counters.errors > 1100


def test_with_on_error_crash_an_exception_in_next_tuple_ends_the_task() -> None:
    _, task = spouting(ValueError("fatal"), on_error="crash")
    with pytest.raises(ValueError, match="fatal"):
        task.run()


# -- life


def test_a_paused_spout_emits_nothing_new_and_still_hears_verdicts() -> None:
    spout, task = spouting("x", "y", max_spout_pending=1)
    task.run()
    task.handle(Deactivate())
    verdict(task, FrameKind.ACKED, "x")
    task.wait(1.0)
    assert task.values() == ["x"]
    task.handle(Activate())
    task.run()
    assert task.values() == ["x", "y"]
    assert [call[0] for call in spout.calls] == ["open", "activate", "deactivate", "ack", "activate"]


def test_a_spout_that_is_paused_before_go_waits_for_its_activation() -> None:
    spout = Scripted([1])
    task = Solo(chain(spout, Sink()), "a", is_open=False)
    task.adopt(1)
    task.handle(Deactivate())
    task.open_inputs()
    task.handle(Go(Epoch(1)))
    task.run()
    assert spout.calls == [("open", None)]
    task.handle(Activate())
    task.run()
    assert task.values() == [1]


def test_activation_twice_is_told_once() -> None:
    spout, task = spouting()
    task.handle(Activate())
    task.handle(Activate())
    task.handle(Deactivate())
    task.handle(Deactivate())
    assert [call[0] for call in spout.calls] == ["open", "activate", "deactivate"]


def test_an_exception_in_activate_or_deactivate_is_reported() -> None:
    class Broken(Scripted):
        def activate(self) -> None:
            raise ValueError("activate")

        def deactivate(self) -> None:
            raise KeyError("deactivate")

    spout = Broken(["x"], ends=False)
    task = Solo(chain(spout, Sink()), "a", is_open=False)
    task.adopt(1)
    task.open_inputs()
    task.handle(Go(Epoch(1)))
    task.run()
    task.handle(Deactivate())
    assert task.errors() == ["ValueError: activate", "KeyError: 'deactivate'"]
    assert task.values() == ["x"]


def test_a_new_epoch_does_not_activate_again() -> None:
    spout, task = spouting()
    task.adopt(2)
    task.open_inputs()
    task.handle(Go(Epoch(2)))
    assert [call[0] for call in spout.calls] == ["open", "activate"]


def test_a_closed_spout_is_closed_once_and_asked_no_more() -> None:
    spout, task = spouting("x", "y", max_spout_pending=1)
    task.run()
    task.handle(Close(Epoch(1)))
    task.handle(Close(Epoch(1)))
    task.feed_ids(FrameKind.ACKED, [root_of(task, "x")])
    task.wait(60)
    assert not task.task.has_work
    assert [call[0] for call in spout.calls] == ["open", "activate", "close"]
    assert task.values() == ["x"]
    assert len(task.messages(Closed)) == 1


def test_an_exception_in_open_ends_the_task() -> None:
    class Broken(Scripted):
        def open(self, context: Any, collector: Any) -> None:
            raise OSError("no such file")

    task = Solo(chain(Broken(), Sink()), "a", is_open=False)
    with pytest.raises(OSError, match="no such file"):
        task.adopt(1)


def test_the_committed_position_is_given_to_open() -> None:
    spout = Scripted()
    Solo(chain(spout, Sink()), "a", committed=CODEC.pack_value(("file", 42)))
    assert spout.calls[0] == ("open", ("file", 42))


# -- recovery


def test_at_a_new_epoch_every_pending_message_fails_at_once_and_is_counted_as_reset() -> None:
    spout, task = spouting("x", "y", "z")
    task.run()
    verdict(task, FrameKind.ACKED, "y")
    task.adopt(2)
    assert spout.told("fail") == ["x", "z"]
    counters = task.task.statistics().counters
    assert (counters.reset, counters.failed, counters.finally_failed) == (2, 0, 2)


def test_after_a_reset_an_old_verdict_is_late() -> None:
    spout, task = spouting("x")
    task.run()
    root = root_of(task, "x")
    task.adopt(2)
    task.open_inputs()
    task.feed_ids(FrameKind.ACKED, [root])
    task.run()
    assert spout.told("ack") == []
    assert task.task.statistics().counters.late_acks == 1


def test_between_a_reset_and_go_the_spout_is_not_asked() -> None:
    _, task = spouting("x", "y", max_spout_pending=1)
    task.run()
    task.adopt(2)
    task.open_inputs()
    task.wait(1.0)
    assert task.values() == ["x"]
    task.handle(Go(Epoch(2)))
    task.run()
    assert task.values() == ["x", "y"]


def test_inits_of_the_old_epoch_are_dropped() -> None:
    _, task = spouting("x")
    task.turn()
    task.adopt(2)
    task.open_inputs()
    task.handle(Go(Epoch(2)))
    task.run()
    assert task.frames(FrameKind.INIT) == []
    assert task.values() == []


# -- the end


@BOTH
def test_the_end_goes_out_behind_the_rows(kind: Any) -> None:
    _, task = spouting("x", "y", kind=kind, ends=True)
    task.run()
    assert [(frame.kind, frame.number) for frame in task.frames(to=2)] == [(FrameKind.DATA, 1), (FrameKind.END, 2)]
    assert task.frames(FrameKind.END, to=ACKER) == []


def test_the_end_overtakes_no_rows_that_have_no_room() -> None:
    _, task = spouting(*range(20), ends=True, edge_window=1, batch_size=4)
    task.run()
    for _ in range(20):
        task.confirm_all()
        task.run()
    frames = task.frames(to=2)
    assert frames[-1].kind is FrameKind.END
    assert [frame.number for frame in frames] == list(range(1, len(frames) + 1))
    assert task.values() == list(range(20))


def test_an_ended_spout_is_asked_no_more() -> None:
    spout, task = spouting(ends=True)
    task.run()
    spout.steps.append("too late")
    task.wait(10)
    assert task.values() == []


def test_a_spout_with_nothing_to_say_ends_in_open() -> None:
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
        verdict(task, FrameKind.ACKED if verb == "ack" else FrameKind.FAILED, "x")
    task.run()
    assert len(task.frames(FrameKind.END)) == 1


def test_an_ended_spout_is_quiet_when_its_messages_are_done_and_says_so() -> None:
    _, task = spouting("x", ends=True)
    task.run()
    task.confirm_all()
    task.run()
    assert task.messages(Quiet) == []
    task.handle(Probe(1, Epoch(1)))
    (quiet,) = task.messages(Quiet)
    assert (quiet.ended, quiet.quiet, quiet.pending, quiet.why) == (True, False, 1, "1 messages pending")
    verdict(task, FrameKind.ACKED, "x")
    assert [(quiet.ended, quiet.quiet) for quiet in task.messages(Quiet)[1:]] == [(True, True)]


def test_a_spout_that_may_still_emit_is_not_quiet_and_a_paused_one_is() -> None:
    _, task = spouting()
    task.confirm_all()
    task.handle(Probe(1, Epoch(1)))
    task.handle(Deactivate())
    task.handle(Probe(2, Epoch(1)))
    assert [(quiet.ended, quiet.quiet) for quiet in task.messages(Quiet)] == [(False, False), (False, True)]


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


def test_a_spout_alone_in_the_world_ends() -> None:
    builder = TopologyBuilder("alone")
    builder.set_spout("a", Scripted(["x"]))
    topology: Topology = builder.build()
    task = Solo(topology, "a")
    task.run()
    task.confirm_all()
    task.run()
    assert [(quiet.ended, quiet.quiet) for quiet in task.messages(Quiet)] == [(True, True)]
