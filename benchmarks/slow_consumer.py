"""Whether memory stays flat while a bolt is slower than its spout, for as long as you like.

    python benchmarks/slow_consumer.py [--minutes 5] [--pause 0.001] [--json]

The spout emits as fast as it is let, the sink sleeps for every tuple.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from statistics import mean

import psutil

from topo import BasicBolt, BasicCollector, Topology, TopologyBuilder, Tuple
from topo.launch.local_cluster import LocalCluster
from topo_cli.measurement import MEGABYTE
from topo_cli.workloads import Identity, Numbers

LOOK_S = 5.0


class SlowSink(BasicBolt):
    def __init__(self, pause: float) -> None:
        self.pause = pause

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        time.sleep(self.pause)


def topology(pause: float = 0.001) -> Topology:
    builder = TopologyBuilder("slow-consumer")
    builder.set_spout("spout", Numbers(0.0))
    builder.set_bolt("identity", Identity("number")).shuffle_grouping("spout")
    builder.set_bolt("sink", SlowSink(pause)).shuffle_grouping("identity")
    return builder.build()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--pause", type=float, default=0.001, help="seconds that the sink sleeps for each tuple")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    samples: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as home, LocalCluster(Path(home)) as cluster:
        running = cluster.submit(str(Path(__file__).absolute()), parameters={"pause": arguments.pause})
        running.wait_until(lambda status: status["totals"]["acked"] > 0)
        until = time.monotonic() + 60 * arguments.minutes
        while time.monotonic() < until:
            time.sleep(LOOK_S)
            status = running.status()
            components = {task["task"]: task["component"] for task in status["tasks"]}
            for worker in status["workers"]:
                name = ", ".join(components[task] for task in worker["tasks"])
                samples.setdefault(name, []).append(psutil.Process(worker["pid"]).memory_info().rss / MEGABYTE)
            print({name: round(sizes[-1], 1) for name, sizes in samples.items()}, file=sys.stderr)
    fifth = max(1, min(len(sizes) for sizes in samples.values()) // 5)
    result = {
        "acked": status["totals"]["acked"],
        "pending": status["totals"]["pending"],
        "rss_mb": {
            name: {
                "first_fifth": round(mean(sizes[:fifth]), 1),
                "last_fifth": round(mean(sizes[-fifth:]), 1),
                "peak": round(max(sizes), 1),
            }
            for name, sizes in samples.items()
        },
    }
    if arguments.json:
        print(json.dumps(result))
        return
    print(f"{result['acked']:,} acked, {result['pending']:,.0f} pending")
    for name, sizes in result["rss_mb"].items():
        print(f"  {name:<12} {sizes['first_fifth']} MB in the first fifth, {sizes['last_fifth']} MB in the last")


if __name__ == "__main__":
    main()
