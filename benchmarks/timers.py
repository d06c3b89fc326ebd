"""A million event-time timers: the timer service beside `heapq` with a dict, which is what it could be at best.

    python benchmarks/timers.py [--timers 1000000] [--json]

Registers, deletes half and fires the other half, each timer of a key of its own; once with random moments, and once with a
hundred moments for all, as windows have them.
"""

from __future__ import annotations

import argparse
import gc
import heapq
import json
import random
import time
from typing import Any

from topo.operators.state.keyed_state import KeyContext
from topo.operators.time.clock import ManualProcessingTime
from topo.operators.time.timers import TimerServices

FAR = 1 << 60


class Fired:
    count = 0

    def on_event_time(self, key: Any, namespace: Any, timestamp: int) -> None:
        self.count += 1

    def on_processing_time(self, key: Any, namespace: Any, timestamp: int) -> None:
        raise AssertionError


def service(moments: list[int]) -> dict[str, float]:
    keys, fired = KeyContext(), Fired()
    timers = TimerServices(keys, ManualProcessingTime()).get("timers", fired)
    began = time.perf_counter()
    for keys.key, moment in enumerate(moments):
        timers.register_event_timer(None, moment)
    registered = time.perf_counter()
    for keys.key in range(0, len(moments), 2):
        timers.delete_event_timer(None, moments[keys.key])
    deleted = time.perf_counter()
    timers.advance_watermark(FAR)
    return rates(len(moments), fired.count, began, registered, deleted, time.perf_counter())


def bare(moments: list[int]) -> dict[str, float]:
    heap: list[tuple[int, int]] = []
    known: dict[tuple[int, int], bool] = {}
    fired = Fired()
    began = time.perf_counter()
    for key, moment in enumerate(moments):
        entry = (moment, key)
        if entry not in known:
            known[entry] = True
            heapq.heappush(heap, entry)
    registered = time.perf_counter()
    for key in range(0, len(moments), 2):
        known.pop((moments[key], key), None)
    deleted = time.perf_counter()
    while heap and heap[0][0] <= FAR:
        entry = heapq.heappop(heap)
        if known.pop(entry, None):
            fired.on_event_time(entry[1], None, entry[0])
    return rates(len(moments), fired.count, began, registered, deleted, time.perf_counter())


def rates(timers: int, fired: int, began: float, registered: float, deleted: float, ended: float) -> dict[str, float]:
    assert fired == timers // 2
    return {
        "register": timers / (registered - began),
        "delete": timers / 2 / (deleted - registered),
        "fire": fired / (ended - deleted),
    }


def main() -> None:
    """Measure both ways, alternately, and print timers a second and the ratio of the best of three."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--timers", type=int, default=1_000_000)
    options.add_argument("--json", action="store_true")
    given = options.parse_args()
    draw = random.Random(1)
    moments = {
        "random": [draw.randrange(10**12) for _ in range(given.timers)],
        "100 moments": [draw.randrange(100) * 10_000 for _ in range(given.timers)],
    }
    result: dict[str, Any] = {}
    for name, given_moments in moments.items():
        best: dict[str, dict[str, float]] = {"service": {}, "bare": {}}
        for _ in range(3):
            for way, measure in (("service", service), ("bare", bare)):
                gc.collect()
                for step, rate in measure(given_moments).items():
                    best[way][step] = max(best[way].get(step, 0.0), rate)
        result[name] = {
            step: {**{way: round(best[way][step]) for way in best}, "ratio": round(best["service"][step] / best["bare"][step], 2)}
            for step in best["bare"]
        }
    if given.json:
        print(json.dumps(result))
        return
    for name, steps in result.items():
        for step, found in steps.items():
            print(f"{name:<12} {step:<9} {found['service']:>10,}/s   bare {found['bare']:>10,}/s   ratio {found['ratio']}")


if __name__ == "__main__":
    main()
