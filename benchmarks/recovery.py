"""How long a topology under load is held up when a bolt's worker is killed, and until everything lost has come again.

    python benchmarks/recovery.py [--kills 10] [--rate 2000] [--load 6] [-s delivery=exactly_once] [--json]

Spout, bolt and sink run with the open-loop spout of `topo bench pipe`, and the bolt's worker gets SIGKILL. Each kill is one of a
topology that has just been started, since the wait before a restart doubles when losses follow each other. For each kill:

gap_s       from the kill to the first tuple that the sink gets through the replacement: to the end of the longest silence.
replayed_s  from the kill to the last ack of a message that was due before it.
new_s       from the kill to the first message at the sink that was due after it.

--load N keeps N processes busy meanwhile, as on a machine that others use too.

`message_timeout` stays at its default of 30 s, so no replay comes from a timeout.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from statistics import median

from topo.launch.local_cluster import LocalCluster
from topo.launch.running import RunningTopology
from topo_cli import workloads

BEFORE_S = 3.0
AFTER_S = 5.0


def kill_worker_of(running: RunningTopology, component: str) -> int:
    """Kill the worker that runs the component; return when, in nanoseconds of the monotonic clock."""
    status = running.status()
    task = next(task for task in status["tasks"] if task["component"] == component)
    pid = next(worker["pid"] for worker in status["workers"] if worker["worker"] == task["worker"])
    os.kill(pid, signal.SIGKILL)
    return time.monotonic_ns()


def pairs_of(file: Path) -> list[tuple[int, int]]:
    """Return when each message was due and when it was there."""
    column = array("q")
    column.frombytes(file.read_bytes())
    return list(zip(column[::2], column[1::2], strict=True))


def gap_s(killed: int, arrivals: list[int]) -> float:
    """Return the seconds from a kill to the end of the longest silence around it."""
    around = sorted(at for at in arrivals if at >= killed - int(1e8))
    _, resumed = max(((later - earlier, later) for earlier, later in pairwise(around)), default=(0, killed))
    return (resumed - killed) / 1e9


def one_kill(rate: float, settings: dict[str, str]) -> tuple[float, float, float, int, int]:
    """Return the gap, the times to the last replay and the first new message, and how many were replayed and never acked."""
    with tempfile.TemporaryDirectory() as scratch, LocalCluster(Path(scratch)) as cluster:
        parameters = {"rate": rate, "seconds": BEFORE_S + AFTER_S, "samples": scratch}
        running = cluster.submit(f"{Path(workloads.__file__).absolute()}:pipe", parameters=parameters, settings=settings)
        running.wait_until(lambda status: status["totals"]["acked"] > 0)
        time.sleep(BEFORE_S)
        killed = kill_worker_of(running, "identity")
        running.wait()
        acks, sunk = pairs_of(Path(scratch, "spout-0")), pairs_of(Path(scratch, "sink-0"))
        totals = running.summary()["totals"]
    replayed = max((there - killed) / 1e9 for due, there in acks if due <= killed)
    new_s = (min(there for due, there in sunk if due > killed) - killed) / 1e9
    lost = int(rate * (BEFORE_S + AFTER_S)) - len({due for due, _ in acks})
    return gap_s(killed, [there for _, there in sunk]), replayed, new_s, totals["reset"], lost


@contextmanager
def load(processes: int) -> Iterator[None]:
    """Keep so many processes busy."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--rate", type=float, default=2000.0)
    parser.add_argument("--load", type=int, default=0, metavar="N")
    parser.add_argument("-s", "--setting", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    settings = dict(setting.split("=", 1) for setting in arguments.setting)
    with load(arguments.load):
        kills = [one_kill(arguments.rate, settings) for _ in range(arguments.kills)]
    gaps, replays, news, again, lost = zip(*kills, strict=True)
    result = {
        "gap_s": {"median": round(median(gaps), 3), "max": round(max(gaps), 3)},
        "replayed_s": {"median": round(median(replays), 3), "max": round(max(replays), 3)},
        "new_s": {"median": round(median(news), 3), "max": round(max(news), 3)},
        "messages_replayed": sum(again),
        "never_acked": sum(lost),
        "runs": {"gap_s": [round(gap, 3) for gap in gaps], "replayed_s": [round(seconds, 3) for seconds in replays]},
    }
    if arguments.json:
        print(json.dumps(result))
        return
    print(f"{result['messages_replayed']:,} messages replayed, {result['never_acked']} lost")
    print(f"tuples flow again after {result['gap_s']['median']} s (median), {result['gap_s']['max']} s at most")
    print(f"messages from after the kill arrive after {result['new_s']['median']} s (median), {result['new_s']['max']} s at most")
    print(
        f"all that was lost is acked after {result['replayed_s']['median']} s (median), {result['replayed_s']['max']} s at most"
    )


if __name__ == "__main__":
    main()
