"""What user code posts to its task's mailbox through `context.executor`."""

from __future__ import annotations

import sys
import threading
import time
from contextlib import suppress
from itertools import count
from typing import Any

import pytest

from tests.tasks.components import Manual, Plain, Replaying, Scripted, Sink, chain
from tests.tasks.solo import Solo
from topo.api.spout import BlockingSpout
from topo.ids import Epoch
from topo.operators.mailbox.executor import MailboxExecutor
from topo.operators.mailbox.mailbox import MailFailed, RejectedExecution
from topo.wire.control import Close
from topo.wire.frames import FrameKind
from topo.worker.blocking import BlockingSpoutRunner


def test_an_action_runs_on_the_tasks_thread_between_slices_and_may_emit() -> None:
    bolt = Plain()
    solo = Solo(chain(Replaying(), bolt, Sink()), "b")
    ran: list[int] = []

    def action() -> None:
        ran.append(threading.get_ident())
        bolt.collector.emit(("from a mail",))

    def keep(tup: Any, collector: Any) -> None:
        bolt.collector = collector

    bolt.run = keep
    solo.feed(1)
    solo.run()
    other = threading.Thread(target=lambda: bolt.context.executor.execute(action))
    other.start()
    other.join()
    assert ran == [] and solo.task.has_work
    solo.run()
    assert ran == [threading.get_ident()]
    assert solo.values() == ["from a mail"] and solo.frames(FrameKind.DATA)[-1].root_list() == []


def test_an_action_that_raises_is_an_error_of_the_component_and_ends_nothing() -> None:
    bolt = Manual()
    solo = Solo(chain(Replaying(), bolt, Sink()), "b")
    bolt.context.executor.execute(lambda: 1 // 0)
    solo.run()
    assert [error.split(":")[0] for error in solo.errors()] == ["ZeroDivisionError"]
    solo.feed(5)
    solo.run()
    assert solo.values() == [5]


def test_a_call_may_wait_for_another_thread_by_yielding() -> None:
    def ask(tup: Any, collector: Any) -> None:
        answers: list[str] = []
        answering = lambda: bolt.context.executor.execute(lambda: answers.append(f"answer to {tup['value']}"))  # noqa: E731
        threading.Timer(0.01, answering).start()
        while not answers:
            bolt.context.executor.yield_()
        collector.emit((answers[0],))

    bolt = Plain(ask)
    solo = Solo(chain(Replaying(), bolt, Sink()), "b")
    ids = solo.feed(1, 2)
    solo.run()
    assert solo.values() == ["answer to 1", "answer to 2"]
    (frame,) = solo.frames(FrameKind.DATA)
    assert frame.root_list() == ids.roots


def test_a_failing_action_reaches_the_spout_that_yields_to_it_in_next_tuple() -> None:
    caught: list[Any] = []

    def step(collector: Any) -> None:
        spout.context.executor.execute(lambda: 1 // 0)
        try:
            spout.context.executor.yield_()
        except MailFailed as failed:
            caught.append(failed.__cause__)

    spout = Scripted([step, 1])
    solo = Solo(chain(spout, Sink()), "a")
    solo.wait(0.1)
    assert [type(error) for error in caught] == [ZeroDivisionError]
    assert solo.values() == [1] and solo.errors() == []


def test_a_failing_action_reaches_the_tick_that_yields_and_leaves_its_rows() -> None:
    def on_tick(tup: Any, collector: Any) -> None:
        if tup.is_tick:
            collector.emit(("before",))
            bolt.context.executor.execute(lambda: 1 // 0)
            with suppress(MailFailed):
                bolt.context.executor.yield_()

    bolt = Plain(on_tick)
    solo = Solo(chain(Replaying(), bolt, Sink(), tick_interval="1s"), "b")
    solo.wait(1.5)
    assert solo.values() == ["before"] and solo.errors() == []


def test_rows_of_an_action_in_prepare_wait_for_the_edges() -> None:
    class Asking(Manual):
        def prepare(self, context: Any, collector: Any) -> None:
            super().prepare(context, collector)
            context.executor.execute(lambda: collector.emit(("early",)))
            context.executor.yield_()

    solo = Solo(chain(Replaying(), Asking(), Sink()), "b", is_open=False)
    solo.adopt(1)
    solo.run()
    assert [frame.kind for frame in solo.frames() if frame.target == solo.task.outbound.consumers[0]] == [
        FrameKind.OPEN,
        FrameKind.DATA,
    ]
    assert solo.values() == ["early"]


def test_try_yield_runs_waiting_actions_and_does_not_wait() -> None:
    seen: list[Any] = []

    def look(tup: Any, collector: Any) -> None:
        executor = bolt.context.executor
        seen.append(executor.try_yield())
        executor.execute(lambda: seen.append("ran"))
        seen.append(executor.try_yield())

    bolt = Plain(look)
    solo = Solo(chain(Replaying(), bolt, Sink()), "b")
    solo.feed(1)
    solo.run()
    assert seen == [False, "ran", True]


def test_a_call_that_yields_runs_no_actions_of_the_main_loop() -> None:
    seen: list[str] = []

    def ask(tup: Any, collector: Any) -> None:
        executor = bolt.context.executor
        executor.execute(lambda: seen.append("deferred"), deferrable=True)
        MailboxExecutor(solo.task.mailbox).execute(lambda: seen.append("the task's own"))
        executor.execute(lambda: seen.append("now"))
        executor.yield_()
        assert not executor.try_yield()

    bolt = Plain(ask)
    solo = Solo(chain(Replaying(), bolt, Sink()), "b")
    solo.feed(1)
    solo.run()
    assert seen == ["now", "deferred", "the task's own"] and solo.errors() == []


def test_a_failing_action_fails_the_input_that_yields_to_it() -> None:
    def fail(tup: Any, collector: Any) -> None:
        bolt.context.executor.execute(lambda: 1 // 0)
        bolt.context.executor.yield_()

    bolt = Plain(fail)
    solo = Solo(chain(Replaying(), bolt, Sink()), "b")
    ids = solo.feed(1)
    solo.run()
    assert solo.roots(FrameKind.FAIL) == ids.roots


def test_a_spout_may_emit_in_an_action() -> None:
    spout = Replaying([1], ends=False)
    solo = Solo(chain(spout, Sink()), "a")
    solo.run()
    spout.context.executor.execute(lambda: spout.collector.emit((2,), message_id=2))
    solo.run()
    assert solo.values() == [1, 2] and len(solo.roots(FrameKind.INIT)) == 2


def test_a_spout_that_waits_is_asked_again_after_an_action() -> None:
    spout = Scripted(ends=False)
    solo = Solo(chain(spout, Sink()), "a")
    solo.run()
    assert not solo.task.has_work, "nothing came, so it waits"
    spout.steps = [1]
    spout.context.executor.execute(lambda: None)
    solo.run()
    assert solo.values() == [1]


def test_a_spout_that_has_raised_is_not_asked_sooner_for_an_action() -> None:
    spout = Scripted([ValueError("no connection"), 1], ends=False)
    solo = Solo(chain(spout, Sink()), "a")
    solo.run()
    spout.context.executor.execute(lambda: None)
    solo.run()
    assert solo.values() == [] and len(solo.errors()) == 1


def test_actions_that_wait_run_before_the_close_and_later_ones_are_refused() -> None:
    bolt = Plain()
    solo = Solo(chain(Replaying(), bolt, Sink()), "b")
    executor = bolt.context.executor

    def again() -> None:
        bolt.calls.append("action")
        executor.execute(again)

    executor.execute(again)
    solo.handle(Close(Epoch(1)))
    assert bolt.calls == ["prepare", "action", "cleanup"] and solo.errors() == []
    with pytest.raises(RejectedExecution):
        executor.execute(again)
    assert not solo.task.has_work


class Emitting(BlockingSpout):
    outputs = ("value",)

    def open(self, context: Any, collector: Any) -> None:
        self.collector = collector

    def cancel(self) -> None:
        pass


def test_the_thread_of_a_blocking_spout_enters_through_the_mailbox_and_ends_with_it() -> None:
    ended = threading.Event()

    class Source(Emitting):
        def run(self) -> None:
            try:
                for number in count():
                    self.collector.emit((number,), message_id=number)
            finally:
                ended.set()

    runner = BlockingSpoutRunner(Source())
    solo = Solo(chain(runner, Sink(), max_spout_pending=5), "a")
    while not solo.task.has_work:
        threading.Event().wait(0.001)
    while len(solo.values()) < 5:
        solo.run()
    assert solo.values() == [0, 1, 2, 3, 4], "as many as may be pending"
    solo.task.mailbox.quiesce()
    runner.close()
    assert ended.wait(10)


def test_a_blocking_spout_may_change_what_it_has_emitted() -> None:
    class Source(Emitting):
        outputs = ("value", "more")

        def run(self) -> None:
            row: list[Any] = [0, {"n": 0}]
            for number in range(3):
                row[0] = row[1]["n"] = number
                self.collector.emit(row)
            emitted.set()

    emitted = threading.Event()
    runner = BlockingSpoutRunner(Source())
    solo = Solo(chain(runner, Sink()), "a")
    assert emitted.wait(10)
    solo.run()
    assert solo.rows() == [(number, {"n": number}) for number in range(3)]
    runner.close()


@pytest.mark.parametrize("bad", [None, 3])
def test_a_blocking_spout_has_no_pauses_after_watermarks_and_a_bad_one_takes_no_row_along(bad: int | None) -> None:
    class Source(Emitting):
        def run(self) -> None:
            for number in range(100):
                self.collector.emit((number,), timestamp=number)
                self.collector.emit_watermark("none" if number == bad else number)
            emitted.set()

    emitted = threading.Event()
    runner = BlockingSpoutRunner(Source())
    solo = Solo(chain(runner, Sink()), "a")
    assert emitted.wait(10)
    for _ in range(100):
        # No time passes.
        solo.run()
        solo.confirm_all()
    if bad is not None:
        assert solo.values() == list(range(bad + 1)) and len(solo.errors()) == 1
        while len(solo.values()) < 100:
            solo.wait(10.0)
            solo.confirm_all()
    assert solo.values() == list(range(100)) and len(solo.errors()) == (bad is not None)
    runner.close()


def test_a_blocking_spout_whose_run_exits_is_reported_and_run_again() -> None:
    class Source(Emitting):
        runs = 0

        def run(self) -> None:
            self.runs += 1
            if self.runs == 1:
                sys.exit("no source")
            self.collector.emit((self.runs,), message_id=1)

    runner = BlockingSpoutRunner(Source(), pause_s=0.0)
    solo = Solo(chain(runner, Sink()), "a")
    deadline = time.monotonic() + 10.0
    while not solo.values() and time.monotonic() < deadline:
        solo.wait(0.05)
    assert solo.values() == [2] and solo.errors() == ["SystemExit: no source"]
    runner.close()
