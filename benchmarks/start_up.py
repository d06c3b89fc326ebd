"""How long `topo run` takes until its first message is acked, from the start of the command.

    python benchmarks/start_up.py [--runs 10] [--json]

The topology is as small as one can be: a spout that emits one message, a bolt, an acker. The spout writes down when it was told
of the ack; the clocks of processes agree, since all read the monotonic clock of the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

TOPOLOGY = """
import time
from pathlib import Path

from topo import BasicBolt, Spout, TopologyBuilder


class One(Spout):
    outputs = ("value",)

    def __init__(self, path):
        self.path = path

    def open(self, context, collector):
        self.collector = collector

    def next_tuple(self):
        self.collector.emit((1,), message_id=1)
        self.collector.end_of_input()

    def ack(self, message_id):
        Path(self.path).write_text(repr(time.monotonic()))


class Take(BasicBolt):
    def execute(self, tup, collector):
        pass


def topology(path: str):
    builder = TopologyBuilder("start-up")
    builder.set_spout("one", One(path))
    builder.set_bolt("take", Take()).shuffle_grouping("one")
    return builder.build()
"""


def run(folder: Path) -> tuple[float, float]:
    """Return the seconds from the start of the command to the ack, and to its end."""
    file, acked = folder / "start_up.py", folder / "acked"
    file.write_text(TOPOLOGY)
    acked.unlink(missing_ok=True)
    began = time.monotonic()
    subprocess.run(
        [sys.executable, "-m", "topo_cli", "run", str(file), "-p", f"path={acked}"],
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "TOPO_HOME": str(folder / "home")},
    )
    ended = time.monotonic()
    return float(acked.read_text()) - began, ended - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        times = [run(Path(folder)) for _ in range(arguments.runs)]
    to_ack, to_end = ([round(each, 3) for each in kind] for kind in zip(*times, strict=True))
    result = {"first_ack_s": round(median(to_ack), 3), "end_s": round(median(to_end), 3), "runs": to_ack}
    if arguments.json:
        print(json.dumps(result))
    else:
        print(f"first ack after {result['first_ack_s']} s, end after {result['end_s']} s (medians of {arguments.runs})")


if __name__ == "__main__":
    main()
