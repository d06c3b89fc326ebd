"""The word count on a Spark cluster of three workers on this machine (TCP, CURVE), against local workers over ipc and over TCP.

    python -m benchmarks.spark_word_count [--rounds 3] [--repeat 20] [--json]

Runs alternate, each of the three once a round, and ratios are taken within a round: what else the machine does falls on all. Rate
and CPU time of the workers' processes are those between the first tenth of the lines and the last, so that starting and ending
are not in them. The cluster's daemons idle through the local runs, too. On a busy machine believe the CPU time.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from tests.spark.standalone import LIGHT, StandaloneCluster
from topo.launch.cluster import submit_background
from topo.launch.request import RunRequest
from topo.master_process.client import AnswerTimeout, Unreachable
from topo.storage.submitted import SparkCluster

ROOT = Path(__file__).parents[1]
LOOK_S = 0.1


class Figures(NamedTuple):
    """Of one run: acked lines a second, and microseconds of CPU time that a line takes in all workers together."""

    rate: float
    cpu_us: float


def run_once(repeat: int, cluster: SparkCluster | None, **settings: Any) -> Figures:
    """Run the word count once."""
    with tempfile.TemporaryDirectory(prefix="topo-") as home:
        parameters = {"repeat": repeat, "top": 1, "path": str(ROOT / "topo")}
        running = submit_background(
            RunRequest(
                str(ROOT / "topologies" / "word_count.py"),
                None,
                parameters,
                # With checkpoints the count of acked lines would go by leaps.
                {"delivery": "at_least_once", **settings},
                Path(home),
                cluster=cluster,
                foreground=True,
            )
        )
        seen: list[tuple[float, int, float]] = []
        while (outcome := running.outcome()) is None:
            with suppress(Unreachable, AnswerTimeout, psutil.Error):
                status = running.status()
                cpu_s = sum(sum(psutil.Process(worker["pid"]).cpu_times()[:2]) for worker in status["workers"])
                seen.append((time.monotonic(), status["totals"]["acked"], cpu_s))
            time.sleep(LOOK_S)
        assert outcome.exit_code == 0, outcome
        running.wait()
        total = running.summary()["totals"]["acked"]
    middle = [look for look in seen if total / 10 <= look[1] <= total * 9 / 10]
    (begin, first, cpu_begin), (end, last, cpu_end) = middle[0], middle[-1]
    return Figures((last - first) / (end - begin), 1e6 * (cpu_end - cpu_begin) / (last - first))


def main() -> None:
    """Print the rates and the ratios."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--repeat", type=int, default=20)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    found: dict[str, list[Figures]] = {"ipc": [], "tcp": [], "spark": []}
    with tempfile.TemporaryDirectory(prefix="spark-cluster-") as folder:
        standalone = StandaloneCluster(Path(folder), "127.0.0.1", ["127.0.0.1"] * 3)
        spark = SparkCluster(master=standalone.url, conf=LIGHT)
        runs: dict[str, Callable[[], Figures]] = {
            "ipc": lambda: run_once(asked.repeat, None),
            "tcp": lambda: run_once(asked.repeat, None, transport="tcp"),
            "spark": lambda: run_once(asked.repeat, spark),
        }
        try:
            for _ in range(asked.rounds):
                for name, run in runs.items():
                    found[name].append(run())
        finally:
            standalone.close()
    ratios = {
        f"{name}/{base}": [
            statistics.median(a[figure] / b[figure] for a, b in zip(found[name], found[base], strict=True))
            for figure in range(len(Figures._fields))
        ]
        for name, base in (("tcp", "ipc"), ("spark", "ipc"), ("spark", "tcp"))
    }
    if asked.json:
        print(json.dumps({"runs": {name: [run._asdict() for run in runs] for name, runs in found.items()}, "ratios": ratios}))
        return
    for name, each in found.items():
        print(f"{name:6}", ", ".join(f"{run.rate:,.0f} lines/s at {run.cpu_us:.1f} us" for run in each))
    for name, (rate, cpu) in ratios.items():
        print(f"{name:10} rate {rate:.2f}, CPU time {cpu:.2f}")


if __name__ == "__main__":
    main()
