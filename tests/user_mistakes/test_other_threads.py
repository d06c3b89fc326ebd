"""Mistakes with threads of the user's own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from topo.launch.local_cluster import LocalCluster
from topo.master.outcome import OutcomeKind
from topo.testing.fixtures import local_cluster

__all__ = ["local_cluster"]

POOL = """
from concurrent.futures import ThreadPoolExecutor
from topo import Bolt, IterableSpout, JsonLinesSink, TopologyBuilder

class Pooled(Bolt):
    outputs = ("n",)
    def prepare(self, context, collector):
        self.collector, self.pool = collector, ThreadPoolExecutor(4)
    def execute(self, tup):
        self.pool.submit(self.work, tup)
    def work(self, tup):
        self.collector.emit((tup[0] * 2,), anchors=tup)
        self.collector.ack(tup)
    def cleanup(self):
        self.pool.shutdown()

def topology():
    builder = TopologyBuilder("pool").config(delivery="at_least_once")
    builder.set_spout("numbers", IterableSpout(list(range(1000))))
    builder.set_bolt("pooled", Pooled()).shuffle_grouping("numbers")
    builder.set_bolt("out", JsonLinesSink("{out}")).shuffle_grouping("pooled")
    return builder.build()
"""


@pytest.mark.integration
@pytest.mark.parametrize("workers", [1, 4])
def test_a_bolt_that_emits_and_acks_in_a_pool_of_threads_loses_nothing(
    local_cluster: LocalCluster, tmp_path: Path, workers: int
) -> None:
    """The user acks in the threads of a pool, as with Storm's synchronized collector."""
    file, out = tmp_path / "pool.py", tmp_path / "out.jsonl"
    file.write_text(POOL.replace("{out}", str(out)))
    outcome = local_cluster.submit(str(file), settings={"workers": workers}).wait(timeout_s=60)
    rows = "".join(part.read_text() for part in tmp_path.glob("out*") if part.is_file()).splitlines()
    assert (outcome.kind, outcome.reason) == (OutcomeKind.DONE, "every message was processed")
    assert sorted(rows) == sorted(f'{{"n":{2 * n}}}' for n in range(1000))


THREADED_SPOUT = """
import threading
from topo import JsonLinesSink, Spout, TopologyBuilder

class Threaded(Spout):
    outputs = ("n",)
    def open(self, context, collector):
        self.collector = collector
        self.answer = None
        threading.Thread(target=self.read, daemon=True).start()
    def read(self):
        try:
            self.collector.emit((1,), message_id=1)
        except Exception as error:
            self.answer = error
    def next_tuple(self):
        if self.answer is not None:
            self.collector.report_error(self.answer)
            self.collector.end_of_input()

def topology():
    builder = TopologyBuilder("threaded").config(delivery="at_least_once")
    builder.set_spout("numbers", Threaded())
    builder.set_bolt("out", JsonLinesSink("{out}")).shuffle_grouping("numbers")
    return builder.build()
"""


@pytest.mark.integration
def test_a_spout_that_emits_in_a_thread_is_told_in_that_thread(local_cluster: LocalCluster, tmp_path: Path) -> None:
    """The user reads the source in a thread and emits there."""
    file = tmp_path / "threaded.py"
    file.write_text(THREADED_SPOUT.replace("{out}", str(tmp_path / "out.jsonl")))
    running = local_cluster.submit(str(file))
    running.wait(timeout_s=60)
    shown = " ".join(str(row) for row in running.errors())
    assert "used its collector on another thread" in shown and "take a BlockingSpout" in shown


WINDOWED = """
import time
from concurrent.futures import ThreadPoolExecutor
from topo import Bolt, JsonLinesSink, RetryingSpout, TopologyBuilder, WatermarkStrategy, WindowBolt, aggregates, windows

class Moments(RetryingSpout):
    outputs = ("key", "n")
    def open(self, context, collector):
        self.collector, self.n = collector, 0
    def next_tuple(self):
        if self.n == 500:
            return self.collector.end_of_input()
        self.collector.emit(("a", self.n), self.n, timestamp=self.n * 10)
        self.n += 1

class Pooled(Bolt):
    outputs = ("key", "n")
    def prepare(self, context, collector):
        self.collector, self.pool = collector, ThreadPoolExecutor(4)
    def execute(self, tup):
        self.pool.submit(self.work, tup)
    def work(self, tup):
        time.sleep(0.001)
        self.collector.emit(tup.values, anchors=tup)
        self.collector.ack(tup)

def topology():
    builder = TopologyBuilder("pool").config(workers=1)
    builder.set_spout("moments", Moments(), watermarks=WatermarkStrategy.monotonic_timestamps())
    builder.set_bolt("pooled", Pooled()).shuffle_grouping("moments")
    counts = WindowBolt(key="key", window=windows.TumblingEventTimeWindows.of("1s"), aggregate=aggregates.Count())
    builder.set_bolt("counts", counts).fields_grouping("pooled", "key")
    builder.set_bolt("out", JsonLinesSink("{out}")).shuffle_grouping("counts")
    return builder.build()
"""


@pytest.mark.integration
@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once", "at_most_once"])
def test_a_window_behind_a_pool_of_threads_counts_every_tuple(local_cluster: LocalCluster, tmp_path: Path, delivery: str) -> None:
    """The user emits in threads, in front of a window: the watermark must not overtake the tuples that the threads have."""
    file, out = tmp_path / "pool.py", tmp_path / "out.jsonl"
    file.write_text(WINDOWED.replace("{out}", str(out)))
    local_cluster.submit(str(file), settings={"delivery": delivery}).wait(timeout_s=60)
    rows = "".join(part.read_text() for part in tmp_path.glob("out*") if part.is_file()).splitlines()
    assert sorted(json.loads(row)["count"] for row in rows) == [100] * 5


@pytest.mark.integration
def test_a_spout_that_emits_in_a_thread_fails_the_run(local_cluster: LocalCluster, tmp_path: Path) -> None:
    """The user's thread dies of the refused emit, and the spout ends as if all had been emitted."""
    file = tmp_path / "threaded.py"
    text = THREADED_SPOUT.replace("{out}", str(tmp_path / "out.jsonl"))
    file.write_text(
        text.replace(
            "except Exception as error:\n            self.answer = error",
            "finally:\n            self.answer = ValueError('over')",
        )
    )
    outcome = local_cluster.submit(str(file)).wait(timeout_s=60)
    assert outcome.kind is OutcomeKind.RESULTS_LOST
