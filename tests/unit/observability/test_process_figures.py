"""What a process costs, as its heartbeats report it."""

from __future__ import annotations

import gc
import mmap
import os
from itertools import count

from topo.ids import Incarnation, WorkerId
from topo.master.process_costs import ProcessCosts
from topo.observability.process_figures import ProcessFigures


def test_figures_of_a_process_are_its_own() -> None:
    figures = ProcessFigures()
    first = figures.read()
    # Pages of the system: the heap of a long run may have as much to give out again.
    kept = mmap.mmap(-1, 40 << 20)
    kept.write(os.urandom(1 << 20) * 40)
    files = [os.open(os.devnull, os.O_RDONLY) for _ in range(10)]
    second = figures.read()
    for file in files:
        os.close(file)
    assert second["rss_bytes"] - first["rss_bytes"] > 30 << 20
    kept.close()
    assert second["open_files"] - first["open_files"] == 10
    assert second["cpu_s"] > first["cpu_s"]


def test_collections_are_timed_until_stop() -> None:
    ticks = count()
    figures = ProcessFigures(clock=lambda: float(next(ticks)))
    figures.start()
    gc.collect()
    timed = figures.read()["gc_s"]
    figures.stop()
    figures.stop()
    gc.collect()
    assert timed >= 1.0
    assert figures.read()["gc_s"] == timed


def test_processor_time_is_kept_over_the_lives_of_a_worker_and_memory_is_not() -> None:
    costs, worker = ProcessCosts(), WorkerId(3)
    first, second = Incarnation(1), Incarnation(2)
    for moment in range(5):
        costs.add(worker, first, {"cpu_s": 0.5 * moment, "rss_bytes": 100.0}, float(moment))
    unknown = dict.fromkeys(("gc_s", "open_files", "starved", "cores"))
    assert costs.of(worker, first) == {"cpu_s": 2.0, "cpu": 0.5, "rss_bytes": 100.0, **unknown}
    assert costs.of(worker, second) == {"cpu_s": 2.0, "cpu": None, "rss_bytes": None, **unknown}
    costs.add(worker, second, {"cpu_s": 0.25, "rss_bytes": 50.0}, 6.0)
    costs.add(worker, second, {}, 7.0)
    assert costs.of(worker, second)["cpu_s"] == 2.25
    assert costs.of(worker, second)["rss_bytes"] == 50.0
