"""Child processes that are killed between any two steps that they do on files or in a database.

A step is a call that changes files, or an SQL statement. A write counts twice: before it, and when half of it is done; so does a
request to a server.
"""

from __future__ import annotations

import os
import sqlite3
import sys
from collections.abc import Callable
from typing import Any

import tests.children  # noqa: F401 - the server of child processes imports the tests
from tests.contract.power import PowerCut
from topo.testing.contracts import killing
from topo.testing.contracts.killing import KILLED, Steps
from topo.testing.contracts.killing import ChildReport as Report

__all__ = ["KILLED", "Count", "Report", "Steps", "count_file_calls", "run_child"]

_CALLS = ("open", "write", "pwrite", "ftruncate", "fsync", "rename", "unlink")

Step = Callable[[], None]
Count = Callable[[Step], None]
"""Has a call made before each further kind of step, such as a request to a server."""


def run_child(
    work: Callable[[Report], None], last: int, power: PowerCut | None = None, count: Count | None = None
) -> tuple[bool, list[Any]]:
    """Run `work` in a child process that ends before its step number `last`, or when it is done; `power` fails then.

    `count` counts further steps.

    Returns:
        Whether it came to its end, and its reports.
    """

    def count_all(steps: Steps) -> None:
        if power is not None:
            power.install()
            steps.at_end = power.cut
        count_file_calls(steps.step)
        if count is not None:
            count(steps.step)

    return killing.run_child(work, last, count_all)[:2]


def count_file_calls(step: Step) -> None:
    """Count what this process does on files and in databases from now on; it cannot be taken back."""
    for name in _CALLS:
        setattr(os, name, _counted(step, name, getattr(os, name)))
    connect = sqlite3.connect

    def counted_connect(*args: Any, **options: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*args, **options)
        connection.set_trace_callback(lambda _statement: step())
        return connection

    sqlite3.connect = counted_connect
    if (psycopg := sys.modules.get("psycopg")) is not None:
        psycopg.Connection.wait = _counted_answer(step, psycopg.Connection.wait)
    if (deltalake := sys.modules.get("deltalake")) is not None:
        for name in ("create", "create_write_transaction"):
            setattr(deltalake.DeltaTable, name, _counted_answer(step, getattr(deltalake.DeltaTable, name)))
    if (pyiceberg := sys.modules.get("pyiceberg.catalog.sql")) is not None:
        for name in ("create_table_transaction", "commit_table"):
            setattr(pyiceberg.SqlCatalog, name, _counted_answer(step, getattr(pyiceberg.SqlCatalog, name)))


def _counted_answer(step: Step, wait: Callable[..., Any]) -> Callable[..., Any]:
    """Count each request to a server twice: before it is sent, and when it was answered."""

    def counted(*args: Any, **options: Any) -> Any:
        step()
        answer = wait(*args, **options)
        step()
        return answer

    return counted


def _counted(step: Step, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
    def counted(*args: Any, **options: Any) -> Any:
        step()
        if name not in ("write", "pwrite"):
            return call(*args, **options)
        file, data, *offset = args
        done = call(file, data[: len(data) // 2], *offset)
        step()
        return done + call(file, data[done:], *[start + done for start in offset])

    return counted
