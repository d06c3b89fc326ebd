"""The number of cores that the processes of this machine may use."""

from __future__ import annotations

import contextlib
import math
import os
from pathlib import Path

_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def usable_cores() -> int:
    """Return the cores that this process may run on, or those that its container's share of CPU time is worth."""
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity is not None else os.cpu_count() or 1
    with contextlib.suppress(OSError):
        cores = within_quota(cores, _QUOTA.read_text())
    return cores


def within_quota(cores: int, quota: str) -> int:
    """Return how many cores a quota leaves, at least one.

    Args:
        cores: those that there are.
        quota: Linux's `cpu.max`: microseconds of CPU time in each period, or "max", and the period.
    """
    match quota.split():
        case [share, period] if share.isdigit() and period.isdigit() and int(period):
            return max(1, min(cores, math.ceil(int(share) / int(period))))
        case _:
            return cores
