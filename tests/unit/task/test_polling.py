"""The waits between the polls of a spout, and how a stall before windows is noticed."""

from __future__ import annotations

from topo.task.runners.polling import FIRST_WAIT_S, LONGEST_ERROR_WAIT_S, Polling
from topo.task.runners.stall_watch import STALL_S, StallWatch


def waits_of(polling: Polling, times: int) -> list[float]:
    """Have it raise so often; return the waits."""
    found = []
    for _ in range(times):
        before = polling.at
        polling.raised(before)
        found.append(round(polling.at - before, 6))
    return found


def test_waits_after_errors_double_up_to_half_a_minute() -> None:
    waits = waits_of(Polling(), 2_000)
    assert waits[:9] == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0]
    assert set(waits[9:]) == {LONGEST_ERROR_WAIT_S}


def test_a_message_ends_the_waits() -> None:
    polling = Polling()
    assert waits_of(polling, 2) == [0.2, 0.4]
    polling.emitted()
    assert waits_of(polling, 1) == [0.2]
    assert polling.idle_polls == 0


def test_a_mail_ends_the_wait_of_an_idle_source_and_not_of_one_that_backs_off() -> None:
    polling = Polling()
    polling.idle(10.0)
    polling.wake(5.0)
    assert polling.at == 5.0
    polling.raised(10.0)
    polling.wake(10.1)
    assert polling.at == 10.2


def test_a_wait_that_the_spout_has_named_counts_as_the_polls_that_it_replaces() -> None:
    polling = Polling()
    polling.silent(10.0, 1.0)
    assert (polling.at, polling.idle_polls) == (11.0, 1)
    polling.silent(11.0, 0.0)
    assert (polling.at, polling.idle_polls) == (11.0, 52)
    polling.silent(11.0, 5.0)
    assert polling.idle_polls == 53
    polling.emitted()
    polling.silent(16.0, 5.0)
    assert polling.idle_polls == 1


def test_a_short_wait_is_prolonged_and_none_is_not() -> None:
    """Messages due one after the other would each be sent alone; a spout that is late names 0, and catches up."""
    polling = Polling()
    polling.silent(10.0, 0.000_01)
    assert polling.at == 10.0 + FIRST_WAIT_S
    polling.silent(11.0, 0.0)
    assert polling.at == 11.0


def test_a_mail_ends_the_wait_that_the_spout_has_named() -> None:
    polling = Polling()
    polling.silent(10.0, 60.0)
    polling.wake(12.0)
    assert polling.at == 12.0


def test_a_stall_is_reported_once_until_a_verdict_comes() -> None:
    watch = StallWatch()
    assert not watch.is_full(heard_at=1.0, now=10.0)
    assert watch.deadline == 10.0 + STALL_S
    assert not watch.is_full(heard_at=1.0, now=14.9)
    assert watch.is_full(heard_at=1.0, now=15.0)
    assert not watch.is_full(heard_at=1.0, now=60.0) and watch.deadline is None
    assert not watch.is_full(heard_at=61.0, now=61.0)
    assert watch.is_full(heard_at=61.0, now=66.0)


def test_room_ends_the_watch() -> None:
    watch = StallWatch()
    watch.is_full(heard_at=1.0, now=10.0)
    watch.has_room()
    assert watch.deadline is None
    assert not watch.is_full(heard_at=1.0, now=20.0)
