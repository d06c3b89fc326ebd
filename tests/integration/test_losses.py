"""Processes that die under load: no message that was acked is missing at the sink, and the run still ends."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import time

import psutil
import pytest

from tests.integration.support import Scene, Status, acked, counter, eventually, kill, pid_of, processes_of, repeated, words_of
from topo.launch.worker_command import WORKER_MODULE

pytestmark = pytest.mark.integration

COUNT = 1500
FLOW = f"""
class Double(BasicBolt):
    outputs = ("value",)

    def execute(self, tup, collector):
        time.sleep(0.0003)
        collector.emit((tup["value"] * 2,))
        collector.emit((tup["value"] * 2 + 1,))

def topology():
    builder = TopologyBuilder("flow")
    builder.set_spout("numbers", IterableSpout(range({COUNT})), max_spout_pending=200)
    builder.set_bolt("double", Double()).shuffle_grouping("numbers")
    builder.set_bolt("sink", JsonLinesSink(HERE / "out.jsonl", flush_interval="20ms")).shuffle_grouping("double")
    return builder.build()
"""


def test_a_killed_worker_loses_no_message(scene: Scene) -> None:
    """A worker of each kind, one after the other; the spout last, since its counters die with it."""
    running = scene.submit(scene.file(FLOW.replace(f"range({COUNT})", f"range({4 * COUNT})")))
    kinds = ("__acker", "double", "sink", "numbers")
    resets = 0
    for killed, component in enumerate(kinds):
        status = running.wait_until(lambda status, killed=killed: is_on(status, killed) and acked(status) > killed * COUNT + 100)
        if killed:
            assert counter(status, "numbers", "reset") > resets, f"{kinds[killed - 1]}: messages in flight are replayed"
        resets = counter(status, "numbers", "reset")
        kill(pid_of(status, component))
    outcome = running.wait(timeout_s=60)
    status = running.summary()
    assert (outcome.exit_code, outcome.reason) == (0, "every message was processed")
    assert set(scene.lines()) == set(range(8 * COUNT))
    assert (status["restarts"], status["epoch"]) == (4, 5)
    assert {error["kind"] for error in running.errors()} == {"WorkerLost"}


def is_on(status: Status, kills: int) -> bool:
    """Whether the topology runs again after this number of kills."""
    return bool(status["epoch"] == kills + 1 and status["status"] == "RUNNING")


def test_kills_at_any_moment_lose_nothing_and_make_no_dead_letter(scene: Scene) -> None:
    """Promise of the README: at_least_once (the default otherwise), a source that can be read again: RetryingSpout."""
    chance = random.Random(os.environ.get("TOPO_TEST_SEED", "kills"))
    running = scene.submit(scene.file(FLOW.replace(f"range({COUNT})", "range(6000)")), restart_backoff_max="100ms")
    running.wait_until(lambda status: acked(status) > 0)
    for _ in range(8):
        workers = [process for process in processes_of(scene.home) if WORKER_MODULE in words_of(process)]
        with contextlib.suppress(psutil.NoSuchProcess):
            # For a moment there may be none.
            for victim in chance.sample(workers, min(1, len(workers))):
                victim.kill()
        time.sleep(chance.choice((0.0, 0.05, 0.2, 0.4)))
    assert running.wait(timeout_s=60).exit_code == 0
    assert set(scene.lines()) == set(range(12_000))
    assert running.dead_letters() == []
    assert running.summary()["restarts"] >= 3


GATED = """
class Gated(RetryingSpout):
    outputs = ("value",)

    def __init__(self, count):
        self.count = count

    def open(self, context, collector):
        self.collector = collector
        done = context.committed_position
        self.next = 0 if done is None else done + 1

    def next_tuple(self):
        if not (HERE / "go").exists():
            return
        if self.next == self.count:
            self.collector.end_of_input()
            return
        self.collector.emit((self.next,), self.next)
        self.next += 1
"""


def test_an_acker_that_dies_before_its_verdict_costs_a_duplicate_and_no_message(scene: Scene) -> None:
    flow = """
def topology():
    builder = TopologyBuilder("flow")
    builder.set_spout("numbers", Gated(200))
    builder.set_bolt("sink", JsonLinesSink(HERE / "out.jsonl", flush_interval="10ms")).shuffle_grouping("numbers")
    return builder.build()
"""
    running = scene.submit(scene.file(GATED + flow))
    acker = pid_of(running.wait_until(lambda status: status["status"] == "RUNNING"), "__acker")
    # Stopped, it does not read what would complete the trees; everyone else has done their part.
    kill(acker, signal.SIGSTOP)
    scene.touch("go")
    eventually(lambda: set(scene.lines()) == set(range(200)))
    kill(acker)
    assert running.wait(timeout_s=30).exit_code == 0
    assert sorted(scene.lines()) == sorted([*range(200), *range(200)])
    assert running.summary()["totals"]["acked"] == 200


def test_a_bolt_that_dies_after_its_emits_and_before_its_ack_is_replayed(scene: Scene) -> None:
    flow = """
class Late(Bolt):
    outputs = ("value",)

    def prepare(self, context, collector):
        self.collector, self.held, self.ticks = collector, [], 0

    def execute(self, tup):
        if not tup.is_tick:
            self.collector.emit(tup.values, anchors=tup)
            self.held.append(tup)
            self.ticks = 0
            return
        self.ticks += 1
        if self.ticks >= 2 and self.held:
            if once("died"):
                die()
            for held in self.held:
                self.collector.ack(held)
            self.held = []

    def on_reset(self):
        self.held = []

def topology():
    builder = TopologyBuilder("flow")
    builder.set_spout("numbers", IterableSpout(range(100)))
    builder.set_bolt("late", Late(), tick_interval="30ms").shuffle_grouping("numbers")
    builder.set_bolt("sink", JsonLinesSink(HERE / "out.jsonl", flush_interval="10ms")).shuffle_grouping("late")
    return builder.build()
"""
    run = scene.run(scene.file(flow))
    assert run.outcome.exit_code == 0
    assert set(scene.lines()) == set(range(100))
    assert repeated(scene.lines()), "children of the first attempt had arrived"
    assert run.totals["acked"] == 100


def test_an_update_is_acked_only_when_it_is_durable_and_so_survives_its_process(scene: Scene) -> None:
    flow = """
import json

class Ledger(Bolt):
    def prepare(self, context, collector):
        self.collector, self.held = collector, []
        self.path = HERE / "ledger.json"
        self.seen = json.loads(self.path.read_text()) if self.path.exists() else []

    def execute(self, tup):
        if not tup.is_tick:
            self.seen.append(tup["value"])
            self.held.append(tup)
            return
        if len(self.seen) > 100 and once("died in memory"):
            die()
        self.path.with_suffix(".new").write_text(json.dumps(self.seen))
        os.replace(self.path.with_suffix(".new"), self.path)
        if len(self.seen) > 200 and once("died on disk"):
            die()
        for held in self.held:
            self.collector.ack(held)
        self.held = []

    def on_reset(self):
        self.held = []

def topology():
    builder = TopologyBuilder("flow")
    builder.set_spout("numbers", IterableSpout(range(300)), max_spout_pending=60)
    builder.set_bolt("ledger", Ledger(), tick_interval="10ms").shuffle_grouping("numbers")
    return builder.build()
"""
    run = scene.run(scene.file(flow))
    assert run.outcome.exit_code == 0
    assert scene.has("died in memory") and scene.has("died on disk")
    assert set(json.loads((scene.folder / "ledger.json").read_text())) == set(range(300))


def test_a_sink_that_dies_between_write_and_ack_writes_twice_unless_idempotent(scene: Scene) -> None:
    """Promise of the README: Effects outside topo may happen twice, unless the sink is idempotent (an upsert by id, for
    instance).
    """
    flow = """
class Files(Bolt):
    '''Writes each value to a separate file, which makes it idempotent, and appends to a log, which does not.'''

    def prepare(self, context, collector):
        self.collector = collector

    def execute(self, tup):
        (HERE / f"value-{tup['value']}").write_text(str(tup["value"]))
        with open(HERE / "out.jsonl", "a") as log:
            log.write('{"value": %d}\\n' % tup["value"])
        if tup["value"] == 50 and once("died"):
            die()
        self.collector.ack(tup)

def topology():
    builder = TopologyBuilder("flow")
    builder.set_spout("numbers", IterableSpout(range(100)), max_spout_pending=20)
    builder.set_bolt("files", Files()).shuffle_grouping("numbers")
    return builder.build()
"""
    run = scene.run(scene.file(flow))
    assert run.outcome.exit_code == 0
    assert 50 in repeated(scene.lines())
    assert sorted(int(path.read_text()) for path in scene.folder.glob("value-*")) == list(range(100))


JOURNAL = """
class Journal(RetryingSpout):
    '''Writes down what happens to it, in each of its lives.'''
    outputs = ("value",)

    def __init__(self, count):
        self.count = count

    def note(self, *words):
        with open(HERE / "journal", "a") as journal:
            print(os.getpid(), *words, file=journal)

    def open(self, context, collector):
        self.collector = collector
        done = context.committed_position
        self.next = 0 if done is None else done + 1
        self.note("open", -1 if done is None else done)

    def next_tuple(self):
        if self.next == self.count:
            self.collector.end_of_input()
            return
        self.note("emit", self.next)
        self.collector.emit((self.next,), self.next)
        self.next += 1

    def ack(self, message_id):
        self.note("ack", message_id)
"""


def test_a_replaced_spout_continues_from_its_acked_prefix(scene: Scene) -> None:
    flow = """
class Odd(Bolt):
    '''Holds message 40 back until the spout has lived twice.'''

    def prepare(self, context, collector):
        self.collector, self.held = collector, []

    def execute(self, tup):
        if not tup.is_tick:
            self.held.append(tup)
            time.sleep(0.001)
        for held in self.held[:]:
            if held["value"] != 40 or (HERE / "go").exists():
                self.collector.ack(held)
                self.held.remove(held)

    def on_reset(self):
        self.held = []

def topology():
    builder = TopologyBuilder("flow")
    builder.set_spout("numbers", Journal(600))
    builder.set_bolt("odd", Odd(), tick_interval="20ms").shuffle_grouping("numbers")
    return builder.build()
"""
    running = scene.submit(scene.file(JOURNAL + flow))
    status = running.wait_until(lambda status: acked(status) > 200)
    kill(pid_of(status, "numbers"))
    running.wait_until(lambda status: status["epoch"] == 2 and status["status"] == "RUNNING")
    scene.touch("go")
    assert running.wait(timeout_s=30).exit_code == 0
    lives: dict[str, list[tuple[str, int]]] = {}
    for line in (scene.folder / "journal").read_text().splitlines():
        life, what, position = line.split()
        lives.setdefault(life, []).append((what, int(position)))
    first, second = lives.values()
    assert first[0] == ("open", -1)
    assert second[0][0] == "open" and second[0][1] <= 39, "the prefix ends before the message that was not acked"
    assert {position for what, position in second if what == "emit"} >= set(range(40, 600))
    for life in (first, second):
        emitted = [position for what, position in life if what == "emit"]
        reported = [position for what, position in life if what == "ack"]
        assert len(reported) == len(set(reported)) and set(reported) <= set(emitted)


def test_all_messages_of_a_worker_that_dies_with_its_sockets_full_are_replayed(scene: Scene) -> None:
    flow = """
class Slow(BasicBolt):
    outputs = ("value",)

    def execute(self, tup, collector):
        if not (HERE / "go").exists():
            time.sleep(0.02)
        collector.emit(tup.values)

def topology():
    builder = TopologyBuilder("flow")
    builder.set_spout("numbers", IterableSpout(range(2000)), batch_size=10)
    builder.set_bolt("slow", Slow()).shuffle_grouping("numbers")
    builder.set_bolt("sink", JsonLinesSink(HERE / "out.jsonl", flush_interval="10ms")).shuffle_grouping("slow")
    return builder.build()
"""
    # A window of 16 frames is out, and more is held back by the spout: no bound of time keeps the window from filling.
    running = scene.submit(scene.file(flow), queue_time="off")
    status = running.wait_until(lambda status: status["totals"]["pending"] > 500 and counter(status, "slow", "executed") > 5)
    scene.touch("go")
    kill(pid_of(status, "slow"))
    assert running.wait(timeout_s=30).exit_code == 0
    assert set(scene.lines()) == set(range(2000))
    assert running.summary()["totals"]["reset"] > 500
