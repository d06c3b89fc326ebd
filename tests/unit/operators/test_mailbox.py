"""Section 1, the task mailbox: many writers, one reader; priorities hide and never reorder."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from topo.operators.mailbox.mailbox import (
    MIN_PRIORITY,
    IllegalCall,
    Mail,
    MailboxClosed,
    MailboxState,
    TaskMailbox,
)


def mail(name: str, priority: int = 0) -> Mail:
    return Mail(lambda: None, name, priority)


def names(mails: list[Mail]) -> list[str]:
    return [each.description for each in mails]


def elsewhere(action: Callable[[], Any]) -> Any:
    """Run `action` on another thread; return its result or raise its error."""
    result: list[Any] = []

    def run() -> None:
        try:
            result.append((action(), None))
        except Exception as error:
            result.append((None, error))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(10)
    value, error = result[0]
    if error is not None:
        raise error
    return value


def filled(*descriptions: str) -> TaskMailbox:
    box = TaskMailbox()
    for description in descriptions:
        box.put(mail(description))
    return box


def taken(box: TaskMailbox, priority: int = MIN_PRIORITY) -> list[str]:
    found = []
    while (each := box.try_take(priority)) is not None:
        found.append(each.description)
    return found


def test_mails_come_out_in_the_order_in_which_they_went_in() -> None:
    assert taken(filled("a", "b", "c")) == ["a", "b", "c"]


def test_a_higher_priority_is_never_served_first() -> None:
    box = TaskMailbox()
    for name, priority in [("low", 0), ("high", 9), ("middle", 5)]:
        box.put(mail(name, priority))
    assert taken(box) == ["low", "high", "middle"]


def test_a_read_with_priority_takes_the_first_mail_that_has_it() -> None:
    box = TaskMailbox()
    for name, priority in [("a0", 0), ("b2", 2), ("c1", 1), ("d2", 2)]:
        box.put(mail(name, priority))
    assert box.take(2).description == "b2"
    assert box.take(1).description == "c1"
    assert box.try_take(3) is None
    assert taken(box) == ["a0", "d2"]


def test_priorities_hide_within_the_batch_as_well() -> None:
    box = TaskMailbox()
    for name, priority in [("a0", 0), ("b1", 1), ("c0", 0)]:
        box.put(mail(name, priority))
    assert box.create_batch()
    box.put(mail("d1", 1))
    assert taken(box, 1) == ["b1", "d1"]
    assert taken(box) == ["a0", "c0"]


def test_the_batch_is_searched_before_the_queue() -> None:
    box = filled("a", "b")
    box.create_batch()
    box.put(mail("c"))
    assert taken(box) == ["a", "b", "c"]


def test_a_batch_does_not_grow_by_what_is_put_while_it_runs() -> None:
    box = filled("a")
    box.create_batch()
    box.put(mail("b"))
    assert box.try_take_from_batch() is not None
    assert box.try_take_from_batch() is None
    assert box.has_mail
    assert taken(box) == ["b"]


def test_a_new_batch_carries_over_what_is_left_of_the_old_one() -> None:
    box = filled("a", "b", "c")
    box.create_batch()
    box.try_take_from_batch()
    box.put(mail("d"))
    assert box.create_batch()
    assert [each.description for _ in range(3) if (each := box.try_take_from_batch())] == ["b", "c", "d"]


def test_run_batch_runs_the_mails_that_are_there_and_leaves_those_posted_meanwhile() -> None:
    box, ran = TaskMailbox(), []

    def again() -> None:
        ran.append("again")
        box.put(Mail(again))

    box.put(Mail(again))
    box.put(Mail(lambda: ran.append("b"), priority=9))
    box.run_batch()
    assert ran == ["again", "b"] and len(box) == 1


def test_an_error_of_a_mail_leaves_the_rest_of_the_batch_for_the_next() -> None:
    box, ran = TaskMailbox(), []
    box.put(Mail(lambda: 1 // 0))
    box.put(Mail(lambda: ran.append("b")))
    with pytest.raises(ZeroDivisionError):
        box.run_batch()
    assert ran == []
    box.run_batch()
    assert ran == ["b"]


def test_creating_a_batch_says_whether_there_is_anything_in_it() -> None:
    box = TaskMailbox()
    assert not box.create_batch()
    box.put(mail("a"))
    assert box.create_batch()


def test_size_and_has_mail_count_batch_and_queue() -> None:
    box = filled("a")
    assert len(box) == 1 and box.has_mail
    box.create_batch()
    box.put(mail("b"))
    assert len(box) == 2
    taken(box)
    assert len(box) == 0 and not box.has_mail


def test_drain_returns_the_batch_and_then_the_queue_and_leaves_the_state() -> None:
    box = filled("a", "b")
    box.create_batch()
    box.put(mail("c"))
    assert names(box.drain()) == ["a", "b", "c"]
    assert len(box) == 0 and box.state is MailboxState.OPEN


def test_a_quiesced_mailbox_refuses_puts_and_still_gives() -> None:
    box = filled("a")
    box.quiesce()
    with pytest.raises(MailboxClosed):
        box.put(mail("b"))
    assert taken(box) == ["a"]


def test_a_closed_mailbox_refuses_everything_and_close_returns_what_is_dropped_once() -> None:
    box = filled("a", "b")
    box.create_batch()
    box.put(mail("c"))
    assert names(box.close()) == ["a", "b", "c"]
    assert box.close() == []
    assert box.state is MailboxState.CLOSED
    with pytest.raises(MailboxClosed):
        box.put(mail("d"))
    for read in (lambda: box.take(0), lambda: box.try_take(0), box.try_take_from_batch):
        with pytest.raises(MailboxClosed):
            read()


def test_quiescing_a_closed_mailbox_does_not_open_it_a_little() -> None:
    box = TaskMailbox()
    box.close()
    box.quiesce()
    assert box.state is MailboxState.CLOSED


def test_a_thread_that_keeps_putting_gets_the_closed_error_when_the_owner_quiesces() -> None:
    box = TaskMailbox()
    refused = threading.Event()

    def keep_putting() -> None:
        try:
            while True:
                box.put(mail("again"))
        except MailboxClosed:
            refused.set()

    thread = threading.Thread(target=keep_putting)
    thread.start()
    box.take(0)
    box.quiesce()
    thread.join(10)
    assert refused.is_set()


def test_take_waits_until_another_thread_puts_a_mail_that_it_may_see() -> None:
    box = TaskMailbox()

    def put() -> None:
        box.put(mail("hidden", 0))
        box.put(mail("seen", 1))

    thread = threading.Thread(target=put)
    thread.start()
    assert box.take(1).description == "seen"
    thread.join(10)
    assert taken(box) == ["hidden"]


def test_take_waits_by_the_waiter_that_was_injected() -> None:
    box = TaskMailbox(wait=lambda: box.put(mail("arrived")))
    assert box.take(0).description == "arrived"


def test_a_put_from_another_thread_wakes_the_owner_and_one_of_its_own_does_not() -> None:
    woken: list[str] = []
    box = TaskMailbox(wake=lambda: woken.append("woken"))
    box.put(mail("a"))
    assert woken == []
    elsewhere(lambda: box.put(mail("b")))
    assert woken == ["woken"]


@pytest.mark.parametrize(
    "call",
    [
        lambda box: box.take(0),
        lambda box: box.try_take(0),
        lambda box: box.create_batch(),
        lambda box: box.try_take_from_batch(),
        lambda box: box.has_mail,
        lambda box: box.drain(),
        lambda box: box.quiesce(),
        lambda box: box.close(),
    ],
)
def test_what_belongs_to_the_owner_is_refused_from_another_thread(call: Callable[[TaskMailbox], Any]) -> None:
    box = filled("a")
    with pytest.raises(IllegalCall):
        elsewhere(lambda: call(box))


def test_what_any_thread_may_do_works_from_another_thread() -> None:
    box = TaskMailbox()
    elsewhere(lambda: box.put(mail("a")))
    assert elsewhere(lambda: len(box)) == 1
    assert elsewhere(lambda: box.state) is MailboxState.OPEN
    assert elsewhere(lambda: box.is_owner) is False
    assert box.is_owner


def test_mails_of_each_of_many_threads_keep_their_order() -> None:
    box = TaskMailbox()

    def put_all(writer: int) -> None:
        for number in range(200):
            box.put(mail(f"{writer}/{number}"))

    threads = [threading.Thread(target=put_all, args=(writer,)) for writer in range(4)]
    for thread in threads:
        thread.start()
    found = [box.take(0).description for _ in range(800)]
    for thread in threads:
        thread.join(10)
    for writer in range(4):
        assert [each for each in found if each.startswith(f"{writer}/")] == [f"{writer}/{number}" for number in range(200)]
