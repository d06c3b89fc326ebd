"""What a process costs: processor time, memory, garbage collection, open files. Read once for each heartbeat."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable


class ProcessFigures:
    """The figures of this process.

    Garbage collections are timed from `start` until `stop`; without them `gc_s` is 0.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._gc_s = 0.0
        self._began_at: float | None = None

    def start(self) -> None:
        gc.callbacks.append(self._on_collection)

    def stop(self) -> None:
        """Time no further collection. Idempotent."""
        if self._on_collection in gc.callbacks:
            gc.callbacks.remove(self._on_collection)

    def read(self) -> dict[str, float]:
        """Return the figures by name, without those that cannot be read.

        `cpu_s`: processor time, user and system; `gc_s`: time in garbage collections; `rss_bytes`: resident memory;
        `open_files`: descriptors; `starved_s`: time in which the main thread, which runs the tasks, could have worked and no core
        was free; `cores`: those that the process may use.
        """
        found = {"cpu_s": time.process_time(), "gc_s": self._gc_s}
        for name, read in _READERS:
            try:
                found[name] = float(read())
            except (OSError, ValueError, IndexError):
                # Out of descriptors, /proc cannot be read; a heartbeat must leave nevertheless.
                continue
        return found

    def _on_collection(self, phase: str, _info: dict[str, int]) -> None:
        if phase == "start":
            self._began_at = self._clock()
        elif self._began_at is not None:
            self._gc_s += self._clock() - self._began_at
            self._began_at = None


def _starved_s() -> float:
    """Return how long the main thread has waited for a core. Raises OSError where the kernel does not count it."""
    with open("/proc/self/schedstat") as file:
        return int(file.read().split()[1]) / 1e9


def rss_bytes() -> int:
    """Return the resident memory of this process. Raises OSError where there is no /proc."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


# From /proc itself: hosts of a Spark cluster need not have psutil, and it would take memory in each worker.
_READERS: tuple[tuple[str, Callable[[], float]], ...] = (
    ("rss_bytes", rss_bytes),
    ("open_files", lambda: len(os.listdir("/proc/self/fd"))),
    ("starved_s", _starved_s),
    ("cores", lambda: len(os.sched_getaffinity(0))),
)
