"""The word count on a Spark cluster of three workers on this machine (TCP, CURVE), against local workers over ipc and over TCP.

    python -m benchmarks.spark_word_count [--rounds 3] [--repeat 20] [--json]

Runs alternate, each of the three once a round, and ratios are taken within a round: what else the machine does falls on all. The
rate is that of acked lines between the first tenth and the last, so that starting and ending are not in it. The cluster's
daemons and executors idle through the local runs, too.
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
from typing import Any

from tests.spark.standalone import LIGHT, StandaloneCluster
from topo.launch.cluster import submit_background
from topo.launch.spark.cluster import SparkCluster
from topo.runtime.client import AnswerTimeout, Unreachable

ROOT = Path(__file__).parents[1]
LOOK_S = 0.1


def lines_a_second(repeat: int, cluster: SparkCluster | None, **settings: Any) -> float:
    """Run the word count once."""
    with tempfile.TemporaryDirectory(prefix="topo-") as home:
        parameters = {"repeat": repeat, "top": 1, "path": str(ROOT / "topo")}
        running = submit_background(
            str(ROOT / "topologies" / "word_count.py"), None, parameters, settings, Path(home), attached=True, cluster=cluster
        )
        seen: list[tuple[float, int]] = []
        while (outcome := running.outcome()) is None:
            with suppress(Unreachable, AnswerTimeout):
                seen.append((time.monotonic(), running.status()["totals"]["acked"]))
            time.sleep(LOOK_S)
        assert outcome.exit_code == 0, outcome
        running.wait()
        total = running.summary()["totals"]["acked"]
    middle = [(at, acked) for at, acked in seen if total / 10 <= acked <= total * 9 / 10]
    (begin, first), (end, last) = middle[0], middle[-1]
    return (last - first) / (end - begin)


def main() -> None:
    """Print the rates and the ratios."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--repeat", type=int, default=20)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    rates: dict[str, list[float]] = {"ipc": [], "tcp": [], "spark": []}
    with tempfile.TemporaryDirectory(prefix="spark-cluster-") as folder:
        standalone = StandaloneCluster(Path(folder), "127.0.0.1", ["127.0.0.1"] * 3)
        spark = SparkCluster(master=standalone.url, conf=LIGHT)
        runs: dict[str, Callable[[], float]] = {
            "ipc": lambda: lines_a_second(asked.repeat, None),
            "tcp": lambda: lines_a_second(asked.repeat, None, transport="tcp"),
            "spark": lambda: lines_a_second(asked.repeat, spark),
        }
        try:
            for _ in range(asked.rounds):
                for name, run in runs.items():
                    rates[name].append(run())
        finally:
            standalone.close()
    ratios = {
        f"{name}/{base}": statistics.median(a / b for a, b in zip(rates[name], rates[base], strict=True))
        for name, base in (("tcp", "ipc"), ("spark", "ipc"), ("spark", "tcp"))
    }
    if asked.json:
        print(json.dumps({"lines_a_second": rates, "median_ratios": ratios}))
        return
    for name, found in rates.items():
        print(f"{name:6} {', '.join(f'{rate:,.0f}' for rate in found)} lines/s")
    print(", ".join(f"{name} {ratio:.2f}" for name, ratio in ratios.items()))


if __name__ == "__main__":
    main()
