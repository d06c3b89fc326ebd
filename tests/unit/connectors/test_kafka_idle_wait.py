"""The thread that waits for records while the task has none."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from queue import Empty, SimpleQueue
from typing import Any

import pytest

from topo.connectors.kafka.idle_wait import IdleWait


class Client:
    """Records, or errors, that come one by one."""

    def __init__(self) -> None:
        self.records = SimpleQueue[Any]()

    def consume(self, _count: int, seconds: float) -> Sequence[Any]:
        try:
            found = self.records.get(timeout=seconds)
        except Empty:
            return ()
        if isinstance(found, Exception):
            raise found
        return [found]


@pytest.fixture
def client() -> Client:
    return Client()


@pytest.fixture
def woken() -> threading.Event:
    return threading.Event()


@pytest.fixture
def wait(client: Client, woken: threading.Event) -> Iterator[IdleWait]:
    made = IdleWait(client.consume, woken.set)
    yield made
    made.close()


def test_a_record_wakes_the_task_and_is_taken_once(client: Client, wait: IdleWait, woken: threading.Event) -> None:
    wait.begin()
    assert wait.is_waiting and wait.take() == ()
    client.records.put("a")
    assert woken.wait(10)
    assert not wait.is_waiting and wait.take() == ["a"] and wait.take() == ()


def test_the_next_wait_begins_after_the_record_was_taken(client: Client, wait: IdleWait, woken: threading.Event) -> None:
    client.records.put("a")
    client.records.put("b")
    wait.begin()
    assert woken.wait(10)
    wait.begin()
    assert not wait.is_waiting, "the first record would come behind the second"
    assert wait.take() == ["a"]
    woken.clear()
    wait.begin()
    assert woken.wait(10) and wait.take() == ["b"]


def test_an_error_is_raised_in_the_task(client: Client, wait: IdleWait, woken: threading.Event) -> None:
    client.records.put(RuntimeError("gone"))
    wait.begin()
    assert woken.wait(10)
    with pytest.raises(RuntimeError, match="gone"):
        wait.take()
    assert wait.take() == ()


def test_a_wait_that_is_interrupted_is_over_and_stale(wait: IdleWait, client: Client, woken: threading.Event) -> None:
    """The client changes no assignment while the thread is in `consume`, which lasts as long as no record comes."""
    wait.begin()
    wait.interrupt()
    assert not wait.is_waiting and woken.wait(10) and wait.is_stale and wait.take() == ()
    wait.interrupt()
    assert wait.is_stale
    woken.clear()
    wait.begin()
    assert not wait.is_stale
    client.records.put("a")
    assert woken.wait(10) and wait.take() == ["a"]


def test_closing_ends_the_thread_with_and_without_a_wait(client: Client) -> None:
    before = set(threading.enumerate())
    for begins in (False, True):
        wait = IdleWait(client.consume, lambda: None)
        if begins:
            wait.begin()
        wait.close()
    # Others may end meanwhile.
    assert set(threading.enumerate()) <= before
