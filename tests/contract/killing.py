"""Child processes that are killed between any two steps that they do on files or in a database.

A step is a call that changes files, or an SQL statement. A write counts twice: before it, and when half of it is done; so does a
request to a server.
"""

from __future__ import annotations

import json
import os
import sqlite3
import sys
import traceback
from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn

from tests.children import pipe, start_child
from tests.contract.power import PowerCut

KILLED = 77
_CALLS = ("open", "write", "pwrite", "ftruncate", "fsync", "rename", "unlink")

Count = Callable[[Callable[[], None]], None]
"""Has a call made before each further kind of step, such as a request to a server."""
Report = Callable[[Any], None]
"""Report of the child to the process that outlives it; arrives before the child's next step."""


class Steps:
    """Counts the steps of this process, and ends it before the one with number `last`.

    Args:
        power: fails with the process.
    """

    def __init__(self, last: int, power: PowerCut | None) -> None:
        self._last = last
        self._done = 0
        self._power = power

    def step(self, _statement: str = "") -> None:
        """One step is about to be done."""
        if self._done == self._last:
            self.end(KILLED)
        self._done += 1

    def end(self, code: int) -> NoReturn:
        """End the process, and the power with it."""
        # From here on calls are not counted.
        self._last = -1
        if self._power is not None:
            self._power.cut()
        os._exit(code)

    def install(self) -> None:
        """Count what this process does from now on; it cannot be taken back."""
        if self._power is not None:
            self._power.install()
        for name in _CALLS:
            setattr(os, name, self._counted(name, getattr(os, name)))
        connect = sqlite3.connect

        def counted_connect(*args: Any, **options: Any) -> sqlite3.Connection:
            connection: sqlite3.Connection = connect(*args, **options)
            connection.set_trace_callback(self.step)
            return connection

        sqlite3.connect = counted_connect
        if (psycopg := sys.modules.get("psycopg")) is not None:
            psycopg.Connection.wait = self._counted_answer(psycopg.Connection.wait)
        if (deltalake := sys.modules.get("deltalake")) is not None:
            for name in ("create", "create_write_transaction"):
                setattr(deltalake.DeltaTable, name, self._counted_answer(getattr(deltalake.DeltaTable, name)))

    def _counted_answer(self, wait: Callable[..., Any]) -> Callable[..., Any]:
        """Count each request to a server twice: before it is sent, and when it was answered."""

        def counted(*args: Any, **options: Any) -> Any:
            self.step()
            answer = wait(*args, **options)
            self.step()
            return answer

        return counted

    def _counted(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **options: Any) -> Any:
            self.step()
            if name not in ("write", "pwrite"):
                return call(*args, **options)
            file, data, *offset = args
            done = call(file, data[: len(data) // 2], *offset)
            self.step()
            return done + call(file, data[done:], *[start + done for start in offset])

        return counted


def run_child(
    work: Callable[[Report], None], last: int, power: PowerCut | None = None, count: Count | None = None
) -> tuple[bool, list[Any]]:
    """Run `work` in a child process that ends before its step number `last`, or when it is done; `power` fails then.

    `count` counts further steps.

    Returns:
        Whether it came to its end, and its reports.
    """
    reader, writer = pipe()
    child = start_child(partial(_steps, work, last, power, count), writer)
    writer.close()
    with open(reader.fileno(), closefd=False) as stream:
        reports = [json.loads(line) for line in stream]
    child.join()
    assert child.exitcode in (0, KILLED), f"the child ended with {child.exitcode}"
    return child.exitcode == 0, reports


def _steps(work: Callable[[Report], None], last: int, power: PowerCut | None, count: Count | None, writer: Any) -> None:
    plain_write = os.write

    def report(news: Any) -> None:
        plain_write(writer.fileno(), json.dumps(news).encode() + b"\n")

    steps = Steps(last, power)
    steps.install()
    if count is not None:
        count(steps.step)
    code = 1
    try:
        work(report)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        # What an ordinary end does with files would be more steps.
        steps.end(code)
