"""Memory of open windows: so many (key, window) pairs, each with some tracked inputs, as a window task holds them.

    python benchmarks/open_windows.py [--pairs 1000000] [--inputs 1] [--untracked] [--json]

Measures the process before and after, and once more at its greatest, when all windows fire at one watermark.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from typing import Any

import psutil

from topo import WindowBolt, aggregates, windows
from topo.api.tuples import Origin
from topo.hot import Ids
from topo.operators.base import OperatorContext
from topo.operators.bolt_operators import window_operator_of
from topo.operators.mailbox.executor import MailboxExecutor
from topo.operators.mailbox.mailbox import TaskMailbox
from topo.operators.time.clock import ManualProcessingTime
from topo.tracking.window_tracking import WindowTracker

BATCH = 512
KEYS = 100_000
WINDOW_MS = 10_000


class Counted:
    fired = 0

    def emit(self, value: Any, timestamp: int | None) -> None:
        self.fired += 1

    def watermark(self, timestamp: int) -> None:
        pass


def main() -> None:
    """Fill the windows, look at the memory, fire them."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--pairs", type=int, default=1_000_000)
    options.add_argument("--inputs", type=int, default=1)
    options.add_argument("--untracked", action="store_true")
    options.add_argument("--json", action="store_true")
    given = options.parse_args()
    ids, process, output = Ids(), psutil.Process(), Counted()
    ledger = None if given.untracked else WindowTracker(ids)
    bolt = WindowBolt(key="key", window=windows.TumblingEventTimeWindows.of("10s"), aggregate=aggregates.Sum("value"))
    operator = window_operator_of(bolt, [Origin("source", 0, "default", ("key", "value"))])
    if ledger is not None:
        operator.scope = ledger
    operator.setup(OperatorContext(output, ManualProcessingTime(), MailboxExecutor(TaskMailbox())))  # type: ignore[arg-type]
    operator.open()
    before = process.memory_info().rss
    began = time.perf_counter()
    for _ in range(given.inputs):
        for first in range(0, given.pairs, BATCH):
            numbers = range(first, min(first + BATCH, given.pairs))
            keys = [f"k{number % KEYS}" for number in numbers]
            if ledger is not None:
                ledger.begin(ids.roots(len(keys)), ids.roots(len(keys)), is_single=True)
            stamps = [number // KEYS * WINDOW_MS for number in numbers]
            operator.process_batch(keys, [(key, 1) for key in keys], stamps)
    filled = time.perf_counter()
    held = process.memory_info().rss - before
    assert operator.open_panes == given.pairs
    operator.process_watermark(given.pairs // KEYS * WINDOW_MS + WINDOW_MS)
    fired = time.perf_counter()
    assert output.fired == given.pairs and operator.open_panes == 0
    scale = 1 if sys.platform == "darwin" else 1024
    result = {
        "bytes_per_pair": round(held / given.pairs),
        "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale / 1e6),
        "inputs_per_second": round(given.pairs * given.inputs / (filled - began)),
        "firings_per_second": round(given.pairs / (fired - filled)),
    }
    print(json.dumps(result) if given.json else "\n".join(f"{name:<20} {value:>12,}" for name, value in result.items()))


if __name__ == "__main__":
    main()
