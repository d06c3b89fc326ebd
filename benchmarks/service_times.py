"""Whether a bolt of any speed runs with all defaults: no dead letter, no replay, checkpoints within twice their interval.

    python benchmarks/service_times.py [--seconds 60] [--service-ms 0.01 1 10 100 1000] [--json]

For each service time and both delivery modes a topology in real processes: a spout that emits as fast as it may, and a bolt that
takes so long for each tuple, for as many tuples as the bolt can do in `--seconds`. Ends with 1 if a run does not hold.

seconds, ideal_s    from the submission to the end; the work of the bolt alone.
no_checkpoint_s     the longest time without a checkpoint becoming complete, by a look four times a second.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from topo import BasicBolt, BasicCollector, IterableSpout, Topology, TopologyBuilder, Tuple
from topo.config import TopologyConfig
from topo.errors import TopoError
from topo.launch.local_cluster import LocalCluster
from topo.master.outcome import OutcomeKind

MODES = ("at_least_once", "exactly_once")
LOOK_S = 0.25
CHECKPOINT_INTERVAL_S = TopologyConfig().checkpoint_interval_s
MOST_WITHOUT_CHECKPOINT_S = 2 * CHECKPOINT_INTERVAL_S
SLEEPS_FROM_S = 0.001


class Takes(BasicBolt):
    """Takes so many seconds for each tuple: asleep, or busy where a sleep would take longer."""

    def __init__(self, service_s: float) -> None:
        self.service_s = service_s

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        if self.service_s >= SLEEPS_FROM_S:
            time.sleep(self.service_s)
            return
        until = time.perf_counter() + self.service_s
        while time.perf_counter() < until:
            pass


def topology(service_ms: float = 1.0, tuples: int = 1000, delivery: str = "at_least_once") -> Topology:
    builder = TopologyBuilder("service-times").config(delivery=delivery)
    builder.set_spout("numbers", IterableSpout(range(int(tuples))))
    builder.set_bolt("takes", Takes(float(service_ms) / 1000)).shuffle_grouping("numbers")
    return builder.build()


def measure(service_ms: float, delivery: str, seconds: float) -> dict[str, Any]:
    """Run one topology to its end; return its row."""
    tuples = max(1, round(1000 * seconds / service_ms))
    parameters = {"service_ms": service_ms, "tuples": tuples, "delivery": delivery}
    with tempfile.TemporaryDirectory() as home, LocalCluster(Path(home)) as cluster:
        began = time.monotonic()
        running = cluster.submit(str(Path(__file__).absolute()), parameters=parameters)
        complete, since, longest = 0, began, 0.0
        while running.outcome() is None:
            time.sleep(LOOK_S)
            now = time.monotonic()
            try:
                seen = (running.status()["checkpoints"] or {}).get("complete", 0)
            except TopoError:  # the master has just ended
                if running.outcome() is None:
                    raise
                break
            longest = max(longest, now - since)
            if seen != complete:
                complete, since = seen, now
        outcome, took_s = running.wait(), time.monotonic() - began
        summary = running.summary()
    totals = summary["totals"]
    row = {
        "service_ms": service_ms,
        "delivery": delivery,
        "tuples": tuples,
        "acked": totals["acked"],
        "dead_letters": summary["dead_letters"],
        "replayed": totals["replayed"],
        "timed_out": totals["timed_out"],
        "seconds": round(took_s, 1),
        "ideal_s": round(tuples * service_ms / 1000, 1),
        "checkpoints": (summary["checkpoints"] or {}).get("complete", 0),
        "no_checkpoint_s": round(longest, 1) if delivery == "exactly_once" else None,
        "outcome": outcome.kind.value,
    }
    row["holds"] = (
        outcome.kind is OutcomeKind.DONE
        and row["acked"] == tuples
        and not (row["dead_letters"] or row["replayed"] or row["timed_out"])
        and (row["no_checkpoint_s"] or 0.0) <= MOST_WITHOUT_CHECKPOINT_S
        and (row["checkpoints"] > 0 or delivery != "exactly_once" or row["ideal_s"] <= CHECKPOINT_INTERVAL_S)
    )
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="work of the bolt in each run")
    parser.add_argument("--service-ms", type=float, nargs="+", default=[0.01, 1.0, 10.0, 100.0, 1000.0])
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    rows = []
    for service_ms in arguments.service_ms:
        for delivery in MODES:
            rows.append(row := measure(service_ms, delivery, arguments.seconds))
            if not arguments.json:
                print("  ".join(f"{name} {value}" for name, value in row.items()), flush=True)
    if arguments.json:
        print(json.dumps(rows))
    sys.exit(0 if all(row["holds"] for row in rows) else 1)


if __name__ == "__main__":
    main()
