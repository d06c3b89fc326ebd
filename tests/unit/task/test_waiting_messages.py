"""A message that waits on an edge is not lost; without an edge and a verdict it is."""

from __future__ import annotations

from tests.tasks.components import Manual, Plain, Scripted, Sink, chain
from tests.tasks.solo import Solo
from topo.wire.frames import FrameKind


def spouting(**settings: object) -> tuple[Scripted, Solo]:
    spout = Scripted(["x"], ends=False)
    task = Solo(chain(spout, Sink(), message_timeout="10s", progress_timeout="10m", **settings), "a")
    task.run()
    return spout, task


def test_a_message_in_a_frame_that_is_not_confirmed_does_not_time_out() -> None:
    spout, task = spouting()
    task.confirm(3)
    task.wait(300.0)
    assert spout.called("fail") == []
    assert task.task.counters.timed_out == 0


def test_the_acker_is_asked_four_times_in_a_timeout_to_remember_it() -> None:
    _, task = spouting()
    task.wait(40.0)
    assert 14 <= len(task.frames(FrameKind.RESET)) <= 16


def test_a_message_whose_frame_is_confirmed_and_that_nobody_acks_times_out() -> None:
    spout, task = spouting()
    task.confirm(3)
    task.wait(60.0)
    task.confirm_all()
    task.wait(8.0)
    assert spout.called("fail") == []
    task.wait(6.0)
    assert spout.called("fail") == ["x"], "a forgotten ack is noticed"


def test_a_bolt_asks_for_more_time_for_rows_that_wait_behind_it() -> None:
    task = Solo(chain(Scripted(), Plain(), Sink(), message_timeout="10s", progress_timeout="10m"), "b")
    ids = task.feed("x", "y")
    task.run()
    task.confirm(4)
    task.wait(6.0)
    reset = task.frames(FrameKind.RESET)[0]
    assert sorted(reset.root_list()) == sorted(ids.roots)
    task.confirm_all()
    task.out.clear()
    task.wait(60.0)
    assert task.frames(FrameKind.RESET) == []


def test_inputs_that_a_bolt_holds_do_not_wait() -> None:
    task = Solo(chain(Scripted(), Manual(lambda _tup, _collector: None), Sink(), message_timeout="10s"), "b")
    task.feed("x")
    task.run()
    task.confirm_all()
    task.wait(60.0)
    assert task.frames(FrameKind.RESET) == []


def test_nothing_is_asked_for_where_nothing_times_out() -> None:
    for settings in ({"delivery": "exactly_once"}, {"delivery": "at_most_once"}):
        task = Solo(chain(Scripted(), Plain(), Sink(), progress_timeout="10m", **settings), "b")
        assert task.task.guarantee.timed is None


def test_confirmations_grant_more_tuples_to_a_fast_bolt() -> None:
    task = Solo(chain(Scripted(), Plain(), Sink()), "b")
    assert task.task.inbound.edges[1].confirmed == 0, "the frame that opens the edge is confirmed at once"
    granted = []
    for _ in range(15):
        size = task.task.inbound.allowance.size
        task.feed(*range(size))
        task.run()
        task.confirm_all()
        granted.append(task.frames(FrameKind.CONFIRM)[-1].mark)
    assert granted[:4] == [4, 16, 64, 256] and granted[-1] == 64 * 4 * 1024


def test_a_bolt_that_takes_a_second_grants_one_tuple() -> None:
    def slow(tup: object, collector: object) -> None:
        task.clock.now += 1.0

    task = Solo(chain(Scripted(), Plain(slow), Sink()), "b")
    for _ in range(5):
        task.feed("x")
        task.run()
    assert [frame.mark for frame in task.frames(FrameKind.CONFIRM)] == [1] * 5
