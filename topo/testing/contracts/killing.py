"""Child processes that end in front of any of their steps, as a killed process does: nothing of theirs is closed or flushed."""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import traceback
from collections.abc import Callable
from importlib.machinery import PathFinder
from types import FrameType
from typing import Any, NamedTuple, NoReturn

import cloudpickle

KILLED = 77

CONTEXT = multiprocessing.get_context("forkserver")
"""Forks come from a process with one thread: a fork of the tests' own process may inherit a lock that is never released."""
# Imported once in the server, not in each child.
CONTEXT.set_forkserver_preload(["__main__", "topo.testing.contracts"])

ChildReport = Callable[[Any], None]
"""Report of the child to the process that outlives it; arrives before the child's next step."""


class Steps:
    """Counts the steps of this process, and ends it before the one with number `last`.

    Attributes:
        done: how many there were.
        at_end: called when the process ends, killed or not.
    """

    def __init__(self, last: int | None) -> None:
        self.done = 0
        self.at_end: Callable[[], None] = lambda: None
        self._last = last

    def step(self) -> None:
        """One step is about to be done."""
        if self.done == self._last:
            self.end(KILLED)
        self.done += 1

    def end(self, code: int) -> NoReturn:
        """End the process."""
        # From here on calls end nothing.
        self._last = None
        self.at_end()
        os._exit(code)


StepCounter = Callable[[Steps], None]
"""Has `step` called before each step that the process does from now on."""


class ProcessLife(NamedTuple):
    """What a child has done.

    Attributes:
        is_done: whether it came to its end.
        reports: before it ended.
        steps: how many there were; 0 if it did not come to its end.
    """

    is_done: bool
    reports: list[Any]
    steps: int


def start_child(work: Callable[..., None], *arguments: Any) -> multiprocessing.process.BaseProcess:
    """Start to call a function, which may be a closure, in a child process; `arguments` may be connections."""
    child = CONTEXT.Process(target=_call, args=(cloudpickle.dumps(work), *arguments))
    child.start()
    return child


def carry(module: str) -> None:
    """Have a module's classes and functions carried to child processes by value, if pytest has imported it where they cannot."""
    if PathFinder.find_spec(module.partition(".")[0]) is None and module in sys.modules:
        cloudpickle.register_pickle_by_value(sys.modules[module])


def _call(work: bytes, *arguments: Any) -> None:
    cloudpickle.loads(work)(*arguments)


def run_child(work: Callable[[ChildReport], None], last: int | None, count: StepCounter) -> ProcessLife:
    """Run `work` in a child process that ends before its step number `last`, or when it is done.

    Raises:
        AssertionError: the work has raised; its traceback is on stderr.
    """
    reader, writer = CONTEXT.Pipe(duplex=False)

    def steps(connection: Any) -> None:
        _steps(work, last, count, connection)

    child = start_child(steps, writer)
    writer.close()
    with open(reader.fileno(), closefd=False) as stream:
        reports = [json.loads(line) for line in stream]
    child.join()
    assert child.exitcode in (0, KILLED), f"the child ended with {child.exitcode}"
    is_done = child.exitcode == 0
    return ProcessLife(is_done, reports, reports.pop() if is_done else 0)


def _steps(work: Callable[[ChildReport], None], last: int | None, count: StepCounter, writer: Any) -> None:
    plain_write = os.write

    def report(news: Any) -> None:
        plain_write(writer.fileno(), json.dumps(news).encode() + b"\n")

    steps = Steps(last)
    count(steps)
    code = 1
    try:
        work(report)
        report(steps.done)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        # What an ordinary end does with files would be more steps.
        steps.end(code)


def count_calls(package: str, steps: Steps) -> None:
    """Count each call of a function of a package, and each call that these make, of Python or not, in this thread."""

    def counted(frame: FrameType, event: str, _argument: Any) -> None:
        caller = frame if event == "c_call" else frame.f_back
        if event in ("call", "c_call") and package in (_package_of(frame), _package_of(caller)):
            steps.step()

    sys.setprofile(counted)


def _package_of(frame: FrameType | None) -> str:
    return "" if frame is None else frame.f_globals.get("__name__", "").partition(".")[0]
