"""What topologies can be made of, end to end: spouts and groupings of every kind, packed and spread, tracked and not."""

from __future__ import annotations

import json

import pytest

from tests.integration.support import ENDLESS, SINK, Scene, acked, component_of, counter, flow, let_pass
from topo.master.outcome import OutcomeKind

pytestmark = pytest.mark.integration

WORDS = """
class Split(BasicBolt):
    outputs = ("word",)

    def execute(self, tup, collector):
        for word in tup["line"].split():
            collector.emit((word,))

class Count(BasicBolt):
    outputs = ("word", "count")

    def prepare(self, context):
        self.counts, self.task = {}, context.task

    def execute(self, tup, collector):
        self.counts[tup["word"]] = self.counts.get(tup["word"], 0) + 1

    def end_of_input(self, collector):
        for entry in self.counts.items():
            collector.emit(entry)

LINES = ["the quick brown fox", "jumps over the lazy dog", "the end"] * 200
"""
EXPECTED = {"the": 600, **dict.fromkeys(("quick", "brown", "fox", "jumps", "over", "lazy", "dog", "end"), 200)}
WORD_COUNT = WORDS + flow(
    'builder.set_spout("lines", IterableSpout(LINES, fields=("line",)), 2)',
    'builder.set_bolt("split", Split, 2).shuffle_grouping("lines")',
    'builder.set_bolt("count", Count, 3).fields_grouping("split", "word")',
    f'{SINK}.shuffle_grouping("count")',
)


def test_packed_and_spread_give_the_same_results(scene: Scene) -> None:
    totals = []
    for workers in (None, 2, 1):
        run = scene.run(scene.file(WORD_COUNT), workers=workers, ackers=2)
        assert run.outcome.kind is OutcomeKind.DONE
        assert dict(scene.lines()) == EXPECTED
        assert len(run.summary["workers"]) == (workers or 10)
        totals.append({name: run.totals[name] for name in ("emitted", "acked", "failed", "executed")})
        (scene.folder / "out.jsonl").unlink()
    assert totals[0]["acked"] == 600
    assert {total["acked"] for total in totals} == {600}
    assert {total["emitted"] for total in totals} == {600}


def test_a_topology_over_tcp_gives_the_same_results(scene: Scene) -> None:
    run = scene.run(scene.file(WORD_COUNT), workers=3, transport="tcp")
    assert run.outcome.kind is OutcomeKind.DONE
    assert dict(scene.lines()) == EXPECTED


def test_without_ackers_the_spout_is_acked_when_its_emit_has_returned(scene: Scene) -> None:
    """Promise of the README: at_most_once (ackers=0)."""
    spout = """
class Notified(IterableSpout):
    def open(self, context, collector):
        super().open(context, collector)
        self.is_emitting = False

    def next_tuple(self):
        self.is_emitting = True
        super().next_tuple()
        self.is_emitting = False

    def ack(self, message_id):
        assert not self.is_emitting
        with open(HERE / "acks", "a") as acks:
            print(message_id, file=acks)
"""
    declared = flow('builder.set_spout("numbers", Notified(range(500)))', f'{SINK}.shuffle_grouping("numbers")')
    run = scene.run(scene.file(spout + declared), ackers=0)
    assert run.outcome.kind is OutcomeKind.DONE
    assert len(run.summary["workers"]) == 2
    assert sorted(scene.lines()) == list(range(500)), "the end waits until everything sent is processed"
    assert sorted(map(int, (scene.folder / "acks").read_text().split())) == list(range(500))


def test_groupings_of_the_users_own_direct_streams_and_all_reach_the_tasks_they_name(scene: Scene) -> None:
    parts = """
class Modulo(CustomGrouping):
    def prepare(self, context, stream, target_tasks):
        self.count = len(target_tasks)

    def choose(self, values):
        return [values[0] % self.count]

class Addressed(BasicBolt):
    outputs = {"to": direct("value", "task")}

    def prepare(self, context):
        self.targets = context.tasks_of("addressee")

    def execute(self, tup, collector):
        target = self.targets[tup["value"] % 3]
        collector.emit_direct(target, (tup["value"], target), stream="to")

class Place(BasicBolt):
    outputs = ("component", "index", "value")

    def prepare(self, context):
        self.context = context

    def execute(self, tup, collector):
        if "task" in tup.fields:
            assert tup["task"] == self.context.task
        collector.emit((self.context.component, self.context.task_index, tup["value"]))
"""
    readers = ("modulo", "addressee", "all", "global", "partial", "fields", "local", "none")
    declared = flow(
        'builder.set_spout("numbers", IterableSpout(range(60)))',
        'builder.set_bolt("modulo", Place, 3).custom_grouping("numbers", Modulo())',
        'builder.set_bolt("addressed", Addressed()).shuffle_grouping("numbers")',
        'builder.set_bolt("addressee", Place, 3).direct_grouping("addressed", "to")',
        'builder.set_bolt("all", Place, 3).all_grouping("numbers")',
        'builder.set_bolt("global", Place, 3).global_grouping("numbers")',
        'builder.set_bolt("partial", Place, 3).partial_key_grouping("numbers", "value")',
        'builder.set_bolt("fields", Place, 3).fields_grouping("numbers", "value")',
        'builder.set_bolt("local", Place, 3).local_or_shuffle_grouping("numbers")',
        'builder.set_bolt("none", Place, 3).none_grouping("numbers")',
        f"sink = {SINK}",
        *(f'sink.shuffle_grouping("{reader}")' for reader in readers),
    )
    run = scene.run(scene.file(parts + declared), workers=3)
    assert run.outcome.kind is OutcomeKind.DONE, run.errors
    got: dict[str, list[tuple[int, int]]] = {reader: [] for reader in readers}
    for component, index, value in scene.lines():
        got[component].append((index, value))
    once = list(range(60))
    for reader in readers:
        if reader != "all":
            assert sorted(value for _, value in got[reader]) == once, reader
    for reader in ("modulo", "addressee"):
        assert all(index == value % 3 for index, value in got[reader])
    assert sorted(got["all"]) == [(index, value) for index in range(3) for value in once]
    assert {index for index, _ in got["global"]} == {0}


def test_a_blocking_spout_emits_from_its_own_thread_pauses_and_ends(scene: Scene) -> None:
    spout = """
import threading

class Socketlike(BlockingSpout):
    outputs = ("value",)

    def open(self, context, collector):
        self.collector, self.cancelled, self.acked = collector, threading.Event(), 0

    def run(self):
        if once("ran"):
            raise ConnectionError("try again")
        for number in range(1000):
            if number == 500:
                self.cancelled.wait(0.05)
            self.collector.emit((number,), number)
        while not (HERE / "stop").exists() and not self.cancelled.is_set():
            self.cancelled.wait(0.01)

    def cancel(self):
        self.cancelled.set()

    def ack(self, message_id):
        self.acked += 1

    def close(self):
        (HERE / "closed").write_text(f"{self.acked} {threading.active_count()}")
"""
    declared = flow('builder.set_spout("numbers", Socketlike(), max_spout_pending=100)', f'{SINK}.shuffle_grouping("numbers")')
    running = scene.submit(scene.file(spout + declared), workers=2)
    running.wait_until(lambda status: acked(status) == 1000)
    (error,) = running.errors()
    assert (error["kind"], error["message"], error["component"]) == ("ConnectionError", "try again", "numbers")
    running.deactivate()
    running.wait_until(lambda status: status["status"] == "INACTIVE")
    running.activate()
    scene.touch("stop")
    assert running.wait(timeout_s=30).kind is OutcomeKind.DONE
    assert sorted(scene.lines()) == list(range(1000))
    assert (scene.folder / "closed").read_text().split()[0] == "1000"


def test_a_blocking_spout_that_is_drained_is_cancelled(scene: Scene) -> None:
    spout = """
import threading

class Endless(BlockingSpout):
    outputs = ("value",)

    def open(self, context, collector):
        self.collector, self.is_cancelled, self.next = collector, False, 0

    def run(self):
        while not self.is_cancelled:
            self.collector.emit((self.next,), self.next)
            self.next += 1

    def cancel(self):
        self.is_cancelled = True
        (HERE / "cancelled").touch()
"""
    declared = flow('builder.set_spout("numbers", Endless(), max_spout_pending=100)', f'{SINK}.shuffle_grouping("numbers")')
    running = scene.submit(scene.file(spout + declared), workers=1)
    running.wait_until(lambda status: acked(status) > 100)
    running.drain(20.0)
    assert running.wait(timeout_s=30).kind is OutcomeKind.DRAINED
    assert scene.has("cancelled")
    lines = scene.lines()
    assert sorted(lines) == list(range(len(lines)))


def test_what_user_code_prints_logs_and_measures_is_kept_with_its_component_and_task(scene: Scene) -> None:
    parts = """
class Talking(BasicBolt):
    def prepare(self, context):
        self.context = context
        self.seen = context.metrics.counter("seen")
        self.latest = context.metrics.gauge("latest")
        self.sizes = context.metrics.histogram("sizes")

    def execute(self, tup, collector):
        self.seen.add()
        self.latest.set(tup["value"])
        self.sizes.record(0.001)
        if tup["value"] == 3:
            print("printed three")
            print("to stderr", file=sys.stderr)
            self.context.logger.warning("logged %d", tup["value"])
            os.write(1, b"past Python\\n")
"""
    declared = flow(
        'builder.set_spout("numbers", IterableSpout(range(20)))',
        'builder.set_bolt("talking", Talking(), 2).fields_grouping("numbers", "value")',
    )
    run = scene.run(scene.file(parts + declared), workers=1)
    user = component_of(run.summary, "talking")["user"]
    assert user["counters"] == {"seen": 20}
    assert user["histograms"]["sizes"]["count"] == 20
    assert 0 < user["gauges"]["latest"] < 40
    folder = scene.home / "topologies" / "flow" / "logs"
    rows = [json.loads(line) for line in (folder / "worker-0.log").read_text().splitlines()]
    reported = {row["message"]: row for row in rows}
    for message in ("printed three", "to stderr", "logged 3"):
        assert reported[message]["component"] == "talking", reported[message]
        assert reported[message]["task"] in (2, 3)
    assert reported["logged 3"]["level"] == "WARNING"
    assert (folder / "worker-0.out").read_text() == "past Python\n"


def test_messages_of_an_untracked_emit_are_neither_acked_nor_failed(scene: Scene) -> None:
    """Promise of the README: Tuples emitted without an anchor (at a tick, at the end of the input) are not tracked with
    at_least_once.
    """
    spout = """
class Mixed(Spout):
    outputs = ("value",)

    def open(self, context, collector):
        self.collector, self.next = collector, 0

    def next_tuple(self):
        if self.next == 100:
            self.collector.end_of_input()
            return
        self.collector.emit((self.next,), self.next if self.next % 2 else None)
        self.next += 1

    def ack(self, message_id):
        assert message_id % 2
"""
    declared = flow('builder.set_spout("numbers", Mixed())', f'{SINK}.shuffle_grouping("numbers")')
    run = scene.run(scene.file(spout + declared), workers=2)
    assert run.outcome.kind is OutcomeKind.DONE
    assert run.totals["acked"] == 50
    assert sorted(scene.lines()) == list(range(100))
    assert counter(run.summary, "numbers", "errors") == 0


def test_a_paused_topology_emits_nothing_new_and_finishes_what_is_in_flight(scene: Scene) -> None:
    file = scene.file(ENDLESS + flow('builder.set_spout("numbers", Endless())', f'{SINK}.shuffle_grouping("numbers")'))
    running = scene.submit(file, workers=1)
    running.wait_until(lambda status: acked(status) > 100)
    running.deactivate()
    still = running.wait_until(lambda status: status["status"] == "INACTIVE" and status["totals"]["pending"] == 0)
    lines = len(scene.lines())
    let_pass(running, 0.5)
    assert running.status()["totals"]["emitted"] == still["totals"]["emitted"] == lines
    running.activate()
    running.wait_until(lambda status: acked(status) > lines)


def test_senders_in_one_worker_have_groupings_of_their_own(scene: Scene) -> None:
    parts = """
import threading

class Once(CustomGrouping):
    def __init__(self):
        self.task, self.lock = None, threading.Lock()

    def prepare(self, context, stream, target_tasks):
        assert self.task is None, "prepared for another sender already"
        self.task = context.task

    def choose(self, values):
        return [0]

class Relay(BasicBolt):
    outputs = ("value",)

    def execute(self, tup, collector):
        collector.emit(tup.values)
"""
    declared = flow(
        'builder.set_spout("numbers", IterableSpout(range(60)))',
        'builder.set_bolt("relay", Relay, 3).shuffle_grouping("numbers")',
        f'{SINK}.custom_grouping("relay", Once())',
    )
    run = scene.run(scene.file(parts + declared), workers=1)
    assert run.outcome.kind is OutcomeKind.DONE, run.errors
    assert sorted(scene.lines()) == list(range(60))
