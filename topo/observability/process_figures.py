"""What a process costs: processor time, memory, garbage collection, open files. Read once for each heartbeat."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable

import psutil


class ProcessFigures:
    """The figures of this process.

    Garbage collections are timed from `start` until `stop`; without them `gc_s` is 0.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._process = psutil.Process()
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
                found[name] = float(read(self._process))
            except (psutil.Error, OSError, ValueError, IndexError):
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


_READERS: tuple[tuple[str, Callable[[psutil.Process], float]], ...] = (
    ("rss_bytes", lambda process: process.memory_info().rss),
    ("open_files", lambda process: process.num_fds()),
    ("starved_s", lambda _process: _starved_s()),
    ("cores", lambda _process: len(os.sched_getaffinity(0))),
)
