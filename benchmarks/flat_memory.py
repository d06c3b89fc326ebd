"""Whether memory stays flat over ten million tuples: the tasks of `hot_path` in one process, resident memory after each tenth.

    python -m benchmarks.flat_memory [--lines 1000000] [--delivery at_least_once] [--json]

Every line is a message of ten words. It ends with status 1 if the last tenth has more than a MB over the end of the second.
"""

from __future__ import annotations

import argparse
import json
import sys

import psutil

from benchmarks.hot_path import WORDS_A_LINE, Round, word_count
from topo.ids import Epoch
from topo.wire.control import Go
from topo_cli.measurement import MEGABYTE

TENTHS = 10
MOST_GROWTH_MB = 1.0


def measure(turn: Round, words: int) -> list[float]:
    """Run the topology, and return the resident memory in MB at the end of each tenth of the words."""
    process = psutil.Process()
    tasks = [task for task in turn.tasks.values() if task.component_id == "count"]
    found: list[float] = []
    for task in turn.tasks:
        turn.give(task, Go(Epoch(1)))
    while not turn.is_over:
        turn.step()
        counted = sum(task.counters.acked for task in tasks)
        while len(found) < TENTHS and counted >= words * (len(found) + 1) // TENTHS:
            found.append(process.memory_info().rss / MEGABYTE)
    assert counted == words, counted
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=1_000_000, help="lines of ten words (%(default)s)")
    parser.add_argument("--delivery", choices=("at_least_once", "at_most_once"), default="at_least_once")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    options.counts, options.retrying = 1, False
    turn = Round(word_count(options).config(delivery=options.delivery).build())
    found = [round(each, 2) for each in measure(turn, options.lines * WORDS_A_LINE)]
    growth = round(found[-1] - found[1], 2)
    if options.json:
        print(json.dumps({"rss_mb": found, "growth_mb": growth}))
    else:
        print(" ".join(f"{each:.1f}" for each in found), f"MB; {growth:+.2f} MB from the second tenth to the last")
    sys.exit(growth > MOST_GROWTH_MB)


if __name__ == "__main__":
    main()
