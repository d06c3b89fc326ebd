"""Section 4, processing time."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from topo.errors import UserError
from topo.operators.mailbox.executor import MailboxExecutor
from topo.operators.mailbox.mailbox import TaskMailbox
from topo.operators.time.clock import ManualProcessingTime, PausableClock, ProcessingTimeService, TaskProcessingTime


class RealClock:
    """A task's clock with its mailbox, at a time that the test sets."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.mailbox = TaskMailbox()
        self.service = TaskProcessingTime(lambda: self.now_ms, MailboxExecutor(self.mailbox).execute)

    def fire_at(self, now_ms: int) -> int:
        self.now_ms = now_ms
        posted = self.service.fire(now_ms)
        self.mailbox.run_batch()
        return posted


def test_a_callback_gets_the_registered_timestamp_and_not_the_clock() -> None:
    clock = ManualProcessingTime()
    seen: list[int] = []
    clock.register(5, seen.append)
    clock.advance_to(100)
    assert seen == [5]


def test_the_manual_clock_fires_what_it_has_reached_in_the_order_of_the_timestamps() -> None:
    clock = ManualProcessingTime()
    seen: list[int] = []
    for timestamp in (30, 10, 20, 31):
        clock.register(timestamp, seen.append)
    clock.advance_to(31)
    assert seen == [10, 20, 30]
    clock.advance(1)
    assert seen == [10, 20, 30, 31]


def test_both_clocks_run_a_timer_when_its_millisecond_is_over() -> None:
    manual, real = ManualProcessingTime(), RealClock()
    seen: dict[str, list[int]] = {"manual": [], "real": []}
    manual.register(10, seen["manual"].append)
    real.service.register(10, seen["real"].append)
    for now_ms, expected in ((9, []), (10, []), (11, [10])):
        assert (manual.next_due_ms, real.service.next_due_ms) == (11, 11)
        manual.advance_to(now_ms)
        real.fire_at(now_ms)
        assert seen == {"manual": expected, "real": expected}


def test_the_manual_clock_fires_what_is_registered_meanwhile() -> None:
    clock = ManualProcessingTime()
    seen: list[int] = []

    def again(timestamp: int) -> None:
        seen.append(timestamp)
        clock.register(timestamp + 10, again)

    clock.register(10, again)
    clock.advance_to(35)
    assert seen == [10, 20, 30]
    assert clock.pending == 1


def test_a_timer_for_the_past_fires_at_the_next_opportunity_and_not_inside_register() -> None:
    clock = ManualProcessingTime(100)
    seen: list[int] = []
    clock.register(5, seen.append)
    assert seen == []
    clock.advance_to(100)
    assert seen == [5]


def test_on_the_real_clock_a_timer_runs_when_the_clock_has_passed_it() -> None:
    clock = RealClock()
    seen: list[int] = []
    clock.service.register(10, seen.append)
    assert clock.service.next_due_ms == 11
    assert clock.fire_at(10) == 0
    assert clock.fire_at(11) == 1
    assert seen == [10]
    assert clock.service.next_due_ms is None


def test_on_the_real_clock_callbacks_run_as_mails() -> None:
    clock = RealClock()
    seen: list[int] = []
    for timestamp in (3, 1, 2):
        clock.service.register(timestamp, seen.append)
    clock.service.fire(9)
    assert seen == []
    clock.mailbox.run_batch()
    assert seen == [1, 2, 3]


def test_an_error_in_a_callback_fails_the_task() -> None:
    clock = RealClock()

    def fail(timestamp: int) -> None:
        raise ValueError(f"timer {timestamp}")

    clock.service.register(1, fail)
    with pytest.raises(ValueError, match="timer 1"):
        clock.fire_at(2)


def test_a_timer_cancelled_before_it_is_due_never_runs_and_is_no_deadline() -> None:
    clock = RealClock()
    seen: list[int] = []
    timer = clock.service.register(1, seen.append)
    clock.service.register(5, seen.append)
    timer.cancel()
    timer.cancel()
    assert clock.service.next_due_ms == 6
    assert timer.is_done
    clock.fire_at(9)
    assert seen == [5]


def test_a_timer_cancelled_while_its_mail_waits_does_not_run() -> None:
    clock = RealClock()
    seen: list[int] = []
    timer = clock.service.register(1, seen.append)
    clock.service.fire(2)
    timer.cancel()
    clock.mailbox.run_batch()
    assert seen == []
    assert clock.service.pending == 0


def test_cancelled_timers_do_not_stay_in_memory() -> None:
    clock = ManualProcessingTime()
    timers = [clock.register(timestamp, lambda _: None) for timestamp in range(10_000)]
    for timer in timers[:-10]:
        timer.cancel()
    assert clock.pending == 10
    assert len(clock._heap) < 200


@pytest.mark.parametrize("make", [ManualProcessingTime, lambda: RealClock().service])
def test_after_quiesce_nothing_runs_and_registering_gives_a_timer_that_never_will(
    make: Callable[[], ProcessingTimeService],
) -> None:
    service = make()
    seen: list[int] = []
    before = service.register(1, seen.append)
    service.quiesce()
    after = service.register(2, seen.append)
    if isinstance(service, ManualProcessingTime):
        service.advance_to(10)
    else:
        assert isinstance(service, TaskProcessingTime)
        assert service.next_due_ms is None
        assert service.fire(10) == 0
    before.cancel()
    assert seen == []
    assert not after.is_done


def test_a_timer_whose_mail_waits_at_quiesce_still_runs() -> None:
    clock = RealClock()
    seen: list[int] = []
    clock.service.register(1, seen.append)
    clock.service.fire(2)
    clock.service.quiesce()
    clock.mailbox.run_batch()
    assert seen == [1]


def test_after_shutdown_registering_is_an_error() -> None:
    service = ManualProcessingTime()
    service.shutdown()
    with pytest.raises(UserError, match="shut down"):
        service.register(1, lambda _: None)


def test_a_pausable_clock_leaves_the_pauses_out() -> None:
    now = [100]
    clock = PausableClock(lambda: now[0])
    now[0] = 110
    assert clock.now_ms() == 110
    clock.pause()
    now[0] = 150
    clock.pause()
    assert clock.now_ms() == 110
    clock.resume()
    clock.resume()
    now[0] = 155
    assert clock.now_ms() == 115
