"""Processes and their parents: those that end with the process that started them, and orphans that a process adopts."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_PR_GET_CHILD_SUBREAPER = 37


def die_with(parent: int) -> None:
    """End when the process that started this one does; if it has ended already, at once, with exit code 0.

    Args:
        parent: its id. A process that adopts an orphan looks like its parent otherwise: either may be process 1.
    """
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        raise SystemExit(0)


_ADOPTING = threading.Lock()
"""Adoption is a property of the process: of two threads the first would end it for the second, too."""


@contextmanager
def adopting() -> Iterator[None]:
    """Adopt, in the block, descendants whose parent ends, as process 1 would. On Linux alone (`prctl(2)`).

    All of them: an orphan of another child that falls into the block stays a zombie until this process ends. The block takes
    milliseconds, and seconds where a spare does not answer.
    """
    import ctypes

    prctl = ctypes.CDLL(None).prctl
    before = ctypes.c_int()
    with _ADOPTING:
        prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(before))
        prctl(_PR_SET_CHILD_SUBREAPER, 1)
        try:
            yield
        finally:
            prctl(_PR_SET_CHILD_SUBREAPER, before.value)
