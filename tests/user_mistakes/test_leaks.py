"""Processes that run out of something."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from tests.cli.drive import Result, piped
from topo.launch.local_cluster import LocalCluster
from topo.master.outcome import OutcomeKind
from topo.testing.fixtures import local_cluster

__all__ = ["local_cluster"]

LEAK = """
import resource
import time
from topo import IterableSpout, JsonLinesSink, StatefulBolt, TopologyBuilder

class Leaky(StatefulBolt):
    outputs = ("number", "seen")
    key = None
    def prepare(self, context):
        self.seen, self.held = 0, []
        resource.setrlimit(resource.RLIMIT_AS, (1200 << 20, 1200 << 20))
    def execute(self, tup, collector):
        self.held.append(bytearray(1 << 20))
        time.sleep(0.002)
        self.seen += 1
        collector.emit((tup["number"], self.seen))
    def snapshot(self):
        return self.seen
    def restore(self, state):
        self.seen = state or 0

def topology():
    builder = TopologyBuilder("leak").config(
        delivery="exactly_once", checkpoint_interval="30s", workers=4, restart_backoff="50ms", edge_window=2, batch_size=10
    )
    builder.set_spout("numbers", IterableSpout(list(range(1300)), fields=("number",)), max_spout_pending=50)
    builder.set_bolt("leaky", Leaky()).shuffle_grouping("numbers")
    builder.set_bolt("out", JsonLinesSink("{out}")).shuffle_grouping("leaky")
    return builder.build()
"""


@pytest.mark.integration
@pytest.mark.timeout(300)
def test_a_leak_of_memory_costs_processes_and_no_row(local_cluster: LocalCluster, tmp_path: Path) -> None:
    """A bolt leaks until MemoryError, sooner than the checkpoint interval passes: the run gets to its end, each row once."""
    file = tmp_path / "leak.py"
    file.write_text(LEAK.replace("{out}", str(tmp_path / "out.jsonl")))
    running = local_cluster.submit(str(file))
    outcome = running.wait(timeout_s=240)
    assert outcome.kind is OutcomeKind.DONE, running.errors()[-3:]
    lines = [line for part in tmp_path.glob("out*") if part.is_file() for line in part.read_text().splitlines()]
    assert len(lines) == len(set(lines)) == 1300
    assert running.summary()["restarts"] >= 1
    assert running.dead_letters() == []


WIDE = """
from topo import BasicBolt, IterableSpout, TopologyBuilder

class Look(BasicBolt):
    def execute(self, tup, collector):
        pass

def topology():
    builder = TopologyBuilder("wide")
    builder.set_spout("numbers", IterableSpout([1, 2, 3]))
    builder.set_bolt("look", Look(), parallelism=40).shuffle_grouping("numbers")
    return builder.build()
"""

OPENS_FILES = """
import os
import sys

if "topo.worker.process" in sys.orig_argv:
    kept = [os.open(os.devnull, os.O_RDONLY) for _ in range(40)]
"""


def limited(files: int, *arguments: object) -> Result:
    """Call `topo` where a process may have this number of open files."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))

    return piped(*arguments, preexec_fn=limit)


@pytest.mark.parametrize("files", [16, 32, 64])
def test_too_few_open_files_end_in_a_sentence(tmp_path: Path, files: int) -> None:
    """`ulimit -n 32`: libzmq would end the process with SIGABRT."""
    file = tmp_path / "wide.py"
    file.write_text(WIDE)
    done = limited(files, "run", file, "--home", tmp_path / "home")
    assert done.code == 1, done
    assert "needs up to" in done.err and f"the limit is {files}: raise it (ulimit -n 128)" in done.err


def test_too_few_open_files_for_one_worker_are_told_with_the_run(tmp_path: Path) -> None:
    """The master has files enough, a worker that imports a module with open files has not."""
    file = tmp_path / "wide.py"
    file.write_text(OPENS_FILES + WIDE)
    done = limited(70, "run", file, "--home", tmp_path / "home", "--workers", 2)
    assert done.code == 1, done
    assert "worker 0 of 'wide', with 21 tasks, needs up to" in done.out + done.err


def test_a_low_soft_limit_is_raised(tmp_path: Path) -> None:
    """`ulimit -S -n 64`, as on macOS with 256: the hard limit counts."""
    file = tmp_path / "wide.py"
    file.write_text(WIDE.replace("40", "10"))
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)

    def lower() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))

    done = piped("run", file, "--home", tmp_path / "home", "--workers", 2, preexec_fn=lower)
    assert done.code == 0, done
