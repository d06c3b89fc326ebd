"""Child processes that tests end at will.

They are forked from a server of multiprocessing that has one thread: a fork of the process that runs the tests, in which other
threads run, may inherit a lock that is never released.
"""

from __future__ import annotations

import contextlib
import multiprocessing.process
from collections.abc import Callable
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

from topo.testing.contracts import killing

# Imported once in the server, not in each child; pyarrow imports pandas for its first array, which takes half a second.
killing.CONTEXT.set_forkserver_preload(
    [
        "__main__",
        "pandas",
        "tests.children",
        "tests.contract.test_killed_sinks",
        "tests.spark.crashing_sink",
        "tests.unit.storage.test_checkpoint_store",
    ]
)
_ROOT = Path(__file__).resolve().parents[1]


def run_child(work: Callable[..., None], *arguments: Any) -> int:
    """Call a function, which may be a closure, in a child process; return the child's exit code."""
    child = start_child(work, *arguments)
    child.join()
    assert child.exitcode is not None
    return child.exitcode


def start_child(work: Callable[..., None], *arguments: Any) -> multiprocessing.process.BaseProcess:
    """Start to call a function; `arguments` may be connections."""
    # The server finds the modules of the tests in its folder, which is that of the test that starts it.
    with contextlib.chdir(_ROOT):
        forkserver.ensure_running()
    return killing.start_child(work, *arguments)


def is_server(pid: int) -> bool:
    """Return whether a process is the server that forks children. Its command has all of `sys.path`, folders of tests too."""
    return pid == vars(forkserver._forkserver)["_forkserver_pid"]


def pipe() -> tuple[Any, Any]:
    """Return the reading and the writing connection of a pipe whose ends a child can be given."""
    return killing.CONTEXT.Pipe(duplex=False)
