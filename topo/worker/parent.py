"""Processes that end with the process that started them."""

from __future__ import annotations

import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


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
