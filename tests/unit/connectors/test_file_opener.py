"""Files of a store are opened beside the task, several at a time."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable

import pytest

from topo.connectors.file_opener import FileOpener, OpenedFile
from topo.errors import TopoError

PATIENCE_S = 20


def opened(name: str) -> OpenedFile:
    return OpenedFile(io.BytesIO(name.encode()), name)


def test_several_are_opened_at_a_time_and_each_wakes_the_task() -> None:
    together, woken = threading.Barrier(4), threading.Semaphore(0)

    def open_file(name: str) -> OpenedFile:
        together.wait(PATIENCE_S)
        return opened(name)

    opener = FileOpener(open_file, 4, woken.release)
    futures = [opener.open(name) for name in "abcdefgh"]
    assert [future.result(PATIENCE_S).identity for future in futures] == list("abcdefgh")
    assert all(woken.acquire(timeout=PATIENCE_S) for _ in futures)
    opener.close()


@pytest.mark.parametrize("threads", [0, 1])
@pytest.mark.parametrize("error", [FileNotFoundError("a"), SystemExit("of a client")])
def test_an_error_is_that_of_its_file_alone(threads: int, error: BaseException) -> None:
    def open_file(name: str) -> OpenedFile:
        if name == "a":
            raise error
        return opened(name)

    opener = FileOpener(open_file, threads, lambda: None)
    first, second = opener.open("a"), opener.open("b")
    with pytest.raises(type(error)):
        first.result(PATIENCE_S)
    assert second.result(PATIENCE_S).identity == "b"
    opener.close()


def test_a_file_that_is_no_longer_wanted_is_not_opened() -> None:
    begun, may_open, names = threading.Event(), threading.Event(), list[str]()

    def open_file(name: str) -> OpenedFile:
        names.append(name)
        begun.set()
        may_open.wait(PATIENCE_S)
        return opened(name)

    opener = FileOpener(open_file, 1, lambda: None)
    _, unwanted, last = (opener.open(name) for name in "abc")
    assert begun.wait(PATIENCE_S) and unwanted.cancel()
    may_open.set()
    last.result(PATIENCE_S)
    assert names == ["a", "c"]
    opener.close()


def has_ended(is_in: Callable[[threading.Thread], bool]) -> bool:
    for thread in filter(is_in, threading.enumerate()):
        thread.join(PATIENCE_S)
    return not any(map(is_in, threading.enumerate()))


def test_its_threads_end_with_it_and_with_the_task() -> None:
    before = set(threading.enumerate())

    def the_task_has_ended() -> None:
        raise TopoError("no more mails")

    for wake in (lambda: None, the_task_has_ended):
        opener = FileOpener(opened, 2, wake)
        for future in [opener.open(name) for name in "ab"]:
            future.result(PATIENCE_S)
        opener.close()
        assert has_ended(lambda thread: thread not in before)
