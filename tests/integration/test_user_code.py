"""What user code does to its messages: it raises, kills its process, forgets, repeats itself, or makes very many of one."""

from __future__ import annotations

import signal
from contextlib import suppress

import psutil
import pytest

from tests.integration.support import SINK, Scene, Status, component_of, counter, flow, pid_of, worker_of
from topo.errors import ConfigError
from topo.master.outcome import OutcomeKind

pytestmark = pytest.mark.integration

NUMBERS = 'builder.set_spout("numbers", IterableSpout(range({0})))'
QUICK = {"attempts": 3, "backoff": ("30ms", "60ms")}


def poison(how: str) -> str:
    """A bolt that does something odd to the value 13."""
    return f"""
import ctypes

class Odd(BasicBolt):
    outputs = ("value",)

    def execute(self, tup, collector):
        collector.emit(tup.values)
        if tup["value"] == 13:
            {how}
"""


ODD = 'builder.set_bolt("odd", Odd()).shuffle_grouping("numbers")'
SINK_OF_ODD = f'{SINK}.shuffle_grouping("odd")'


def test_a_message_that_fails_each_time_is_dead_lettered_durably_and_all_others_pass(scene: Scene) -> None:
    spout = """
class Notified(IterableSpout):
    def fail(self, message_id):
        stored = Path(os.environ["TOPO_HOME"], "topologies", "flow", "dead_letters.jsonl")
        (HERE / "reported").write_text(f"{message_id}: {stored.read_text()}")
"""
    file = scene.file(
        poison("raise ValueError('unlucky')")
        + spout
        + flow('builder.set_spout("numbers", Notified(range(200)))', ODD, SINK_OF_ODD)
    )
    run = scene.run(file, **QUICK)
    assert (run.outcome.kind, run.outcome.exit_code) == (OutcomeKind.DEAD_LETTERS, 1)
    (dead_letter,) = run.dead_letters
    assert [dead_letter[name] for name in ("component", "message", "values", "attempts")] == ["numbers", 13, [13], 3]
    assert {name: dead_letter["cause"][name] for name in ("kind", "message", "component", "file")} == {
        "kind": "ValueError",
        "message": "unlucky",
        "component": "odd",
        "file": file,
    }
    why = f"ValueError: unlucky (flow.py:{dead_letter['cause']['line']}, component 'odd')"
    assert dead_letter["errors"] == [f"attempt 1: {why}", f"attempt 2: {why}", why]
    assert sorted(scene.lines()) == [value for value in range(200) if value != 13], "what a failed call emitted is discarded"
    errors = [error for error in run.errors if error["kind"] == "ValueError"]
    assert sum(error["count"] for error in errors) == 3
    assert (errors[0]["component"], errors[0]["file"], errors[0]["message"]) == ("odd", file, "unlucky")
    reported = (scene.folder / "reported").read_text()
    assert reported.startswith("13: ") and '"message": 13' in reported, "stored before the spout is notified"


@pytest.mark.parametrize("workers", [None, 1], ids=["spread", "packed"])
@pytest.mark.parametrize("how", ["os._exit(7)", "ctypes.string_at(0)"], ids=["exit", "segfault"])
def test_of_many_messages_the_one_that_kills_its_process_is_the_only_dead_letter(
    scene: Scene, workers: int | None, how: str
) -> None:
    """Promise of the README: With at_least_once a message that kills its process again and again becomes the only dead letter;
    its neighbours are processed.
    """
    file = scene.file(poison(how) + flow(NUMBERS.format(10_000), ODD, SINK_OF_ODD))
    run = scene.run(file, workers=workers, attempts=2)
    assert run.outcome.kind is OutcomeKind.DEAD_LETTERS
    assert [dead_letter["message"] for dead_letter in run.dead_letters] == [13]
    assert set(scene.lines()) == {value for value in range(10_000) if value != 13}
    losses = [error["message"] for error in run.errors if error["kind"] == "WorkerLost"]
    assert len(losses) == 3, "once among others, then as often as attempts allow, alone"
    expected = "exit code 7" if "exit" in how else f"killed by signal 11 (SIGSEGV) in {file}, line "
    assert all(loss.startswith(expected) for loss in losses), losses


def test_the_message_that_kills_is_found_among_those_that_a_bolt_holds(scene: Scene) -> None:
    """Tried one at a time, each would wait for its timeout: the bolt would never have twenty to ack."""
    gathering = """
class Odd(Bolt):
    outputs = ("value",)

    def prepare(self, context, collector):
        self.collector, self.held = collector, []

    def on_reset(self):
        self.held = []

    def execute(self, tup):
        if tup["value"] == 37:
            os._exit(7)
        self.held.append(tup)
        if len(self.held) == 20:
            self.end_of_input()

    def end_of_input(self):
        for tup in self.held:
            self.collector.emit(tup.values, tup)
            self.collector.ack(tup)
        self.held = []
"""
    run = scene.run(scene.file(gathering + flow(NUMBERS.format(61), ODD, SINK_OF_ODD)), attempts=2)
    assert run.outcome.kind is OutcomeKind.DEAD_LETTERS
    assert [dead_letter["message"] for dead_letter in run.dead_letters] == [37]
    assert set(scene.lines()) == {value for value in range(61) if value != 37}
    assert counter(run.summary, "numbers", "timed_out") == 0


def test_a_dead_letter_may_be_large(scene: Scene) -> None:
    odd = """
class Odd(BasicBolt):
    def execute(self, tup, collector):
        raise ValueError("too much")
"""
    spout = 'builder.set_spout("numbers", IterableSpout(["x" * 3_000_000, "y" * 15_000_000]))'
    run = scene.run(scene.file(odd + flow(spout, ODD)), attempts=1)
    assert run.outcome.dead_letters == 2
    values = [dead_letter["values"][0] for dead_letter in run.dead_letters]
    assert sorted(map(len, values)) == [3_000_000, 15_000_000]


def test_a_dead_letter_with_values_that_json_does_not_know_is_stored_all_the_same(scene: Scene) -> None:
    odd = """
class Point:
    def __repr__(self):
        return "a point"

class Odd(BasicBolt):
    def execute(self, tup, collector):
        raise ValueError("no")
"""
    spout = 'builder.set_spout("numbers", IterableSpout(lambda: [{(1, 2): 3}, Point(), [1] * 1_100_000]))'
    types = 'builder.register_type(Point, code=40, encode=lambda point: b"", decode=lambda data: Point())'
    run = scene.run(scene.file(odd + flow(types, spout, ODD)), attempts=1)
    assert (run.outcome.kind, run.outcome.dead_letters) == (OutcomeKind.DEAD_LETTERS, 3)
    values = {dead_letter["message"]: dead_letter["values"] for dead_letter in run.dead_letters}
    assert values[0] == [{"(1, 2)": 3}] and values[1] == ["a point"]


def test_user_code_that_exits_is_named_and_its_message_given_up(scene: Scene) -> None:
    file = scene.file(poison("sys.exit('enough')") + flow(NUMBERS.format(100), ODD, SINK_OF_ODD))
    run = scene.run(file, workers=2, attempts=1)
    assert [dead_letter["message"] for dead_letter in run.dead_letters] == [13]
    assert set(scene.lines()) == {value for value in range(100) if value != 13}
    reported = next(error for error in run.errors if error["kind"] == "SystemExit")
    assert (reported["component"], reported["file"], reported["message"]) == ("odd", file, "enough")
    assert any("component 'odd' raised SystemExit: enough" in error["message"] for error in run.errors)


FORGETFUL = """
class Odd(Bolt):
    outputs = ("value",)

    def prepare(self, context, collector):
        self.collector = collector

    def execute(self, tup):
        self.collector.emit(tup.values, anchors=tup)
        if tup["value"] != 13:
            self.collector.ack(tup)
"""


FORKING = """
class Odd(BasicBolt):
    outputs = ("value",)

    def execute(self, tup, collector):
        process = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,))
        process.start()
        process.terminate()
        process.join(10)
        collector.emit([process.exitcode])
"""


def test_a_process_that_user_code_forks_ends_by_a_signal(scene: Scene) -> None:
    """`multiprocessing.Pool` ends its processes so, and waits for them."""
    spout = 'builder.set_spout("numbers", IterableSpout([1]))'
    scene.run(scene.file("import multiprocessing\n" + FORKING + flow(spout, ODD, SINK_OF_ODD)))
    assert scene.lines() == [-signal.SIGTERM]


def test_an_input_that_is_never_acked_fails_by_timeout_and_the_bolt_is_named(scene: Scene) -> None:
    file = scene.file(FORGETFUL + flow(NUMBERS.format(100), ODD, SINK_OF_ODD))
    run = scene.run(file, message_timeout="2s", attempts=2, backoff="30ms", workers=1)
    assert run.outcome.kind is OutcomeKind.DEAD_LETTERS
    (dead_letter,) = run.dead_letters
    assert (dead_letter["message"], dead_letter["errors"]) == (13, ["attempt 1: no verdict within 2 s", "no verdict within 2 s"])
    assert run.totals["timed_out"] == 2
    hints = [error for error in run.errors if error["component"] == "odd"]
    assert "neither acked nor failed its input" in hints[0]["message"]


def test_a_plain_spout_whose_message_times_out_makes_the_run_say_so(scene: Scene) -> None:
    spout = """
class Plain(Spout):
    outputs = ("value",)

    def open(self, context, collector):
        self.collector, self.next = collector, 0

    def next_tuple(self):
        if self.next == 100:
            self.collector.end_of_input()
            return
        self.collector.emit((self.next,), self.next)
        self.next += 1
"""
    file = scene.file(FORGETFUL + spout + flow('builder.set_spout("numbers", Plain())', ODD, SINK_OF_ODD))
    run = scene.run(file, message_timeout="2s", workers=1)
    assert (run.outcome.kind, run.outcome.exit_code, run.outcome.finally_failed) == (OutcomeKind.FINALLY_FAILED, 1, 1)
    assert run.totals["acked"] == 99


def test_an_ack_too_many_or_a_late_emit_raises_and_leaves_the_tree_alone(scene: Scene) -> None:
    odd = """
class Odd(Bolt):
    outputs = ("value",)

    def prepare(self, context, collector):
        self.collector = collector
        self.refused = context.metrics.counter("refused")

    def execute(self, tup):
        self.collector.emit(tup.values, anchors=tup)
        self.collector.ack(tup)
        for late in (
            lambda: self.collector.ack(tup),
            lambda: self.collector.fail(tup),
            lambda: self.collector.emit(tup.values, anchors=tup),
        ):
            try:
                late()
            except TupleStateError:
                self.refused.add()

class Notified(IterableSpout):
    def ack(self, message_id):
        with open(HERE / "acks", "a") as acks:
            print(message_id, file=acks)
"""
    file = scene.file(odd + flow('builder.set_spout("numbers", Notified(range(100)))', ODD, SINK_OF_ODD))
    run = scene.run(file, workers=1)
    assert run.outcome.kind is OutcomeKind.DONE
    assert sorted(scene.lines()) == list(range(100))
    assert sorted(map(int, (scene.folder / "acks").read_text().split())) == list(range(100))
    assert component_of(run.summary, "odd")["user"]["counters"] == {"refused": 300}


def test_timeouts_off_with_a_pending_limit_is_refused_before_anything_starts(scene: Scene) -> None:
    file = scene.file(FORGETFUL + flow(NUMBERS.format(100), ODD, SINK_OF_ODD))
    with pytest.raises(ConfigError, match="message_timeout is off while max_spout_pending is set"):
        scene.submit(file, message_timeout="off")
    assert not (scene.home / "topologies").exists()


def test_a_message_that_nobody_reads_is_acked_at_once(scene: Scene) -> None:
    spout = """
class Two(IterableSpout):
    def __init__(self):
        super().__init__(range(100))
        self.outputs = {"default": ("value",), "unread": ("value",)}

    def open(self, context, collector):
        super().open(context, collector)
        collector.emit((-1,), -1, stream="unread")

    def ack(self, message_id):
        with open(HERE / "acks", "a") as acks:
            print(message_id, file=acks)
"""
    declared = flow('builder.set_spout("numbers", Two())', 'builder.set_bolt("sink", PrintBolt()).shuffle_grouping("numbers")')
    run = scene.run(scene.file(spout + declared), workers=1)
    assert run.outcome.kind is OutcomeKind.DONE
    assert sorted(map(int, (scene.folder / "acks").read_text().split())) == list(range(-1, 100))


def test_a_tuple_with_a_hundred_thousand_children_is_one_entry_of_the_acker(scene: Scene) -> None:
    fan = """
class Fan(BasicBolt):
    outputs = ("child",)

    def execute(self, tup, collector):
        for child in range(100_000):
            collector.emit((child,))

class Count(BasicBolt):
    def prepare(self, context):
        self.seen = context.metrics.counter("seen")

    def execute(self, tup, collector):
        self.seen.add()
"""
    declared = flow(
        'builder.set_spout("numbers", IterableSpout(range(10)))',
        'builder.set_bolt("fan", Fan()).shuffle_grouping("numbers")',
        'builder.set_bolt("count", Count()).shuffle_grouping("fan")',
    )
    memory: list[int] = []
    trees: list[float] = []

    def watch(status: Status) -> None:
        if worker_of(status, "__acker")["state"] == "live" and status["outcome"] is None:
            # The status is of a moment ago; the process may have ended since.
            with suppress(psutil.NoSuchProcess):
                memory.append(psutil.Process(pid_of(status, "__acker")).memory_info().rss)
            trees.append(component_of(status, "__acker")["levels"].get("trees", 0))

    run = scene.run(scene.file(fan + declared), on_status=watch)
    assert run.outcome.kind is OutcomeKind.DONE
    assert component_of(run.summary, "count")["user"]["counters"] == {"seen": 1_000_000}
    assert counter(run.summary, "fan", "transferred") == 1_000_000
    assert max(trees) <= 10
    assert max(memory) - memory[0] < 4 << 20


def test_a_message_that_fails_at_the_head_of_its_source_holds_nothing_up(scene: Scene) -> None:
    """Promise of the README: A replayed message arrives later than those that followed it."""
    head = """
class Odd(BasicBolt):
    outputs = ("value",)

    def execute(self, tup, collector):
        if tup["value"] == 0:
            with open(HERE / "tried", "a") as tried:
                print(len((HERE / "out.jsonl").read_bytes().splitlines()), file=tried)
            raise ValueError("not now")
        collector.emit(tup.values)
"""
    declared = flow('builder.set_spout("numbers", IterableSpout(range(400)), max_spout_pending=50)', ODD, SINK_OF_ODD)
    run = scene.run(scene.file(head + declared), attempts=3, backoff="400ms", workers=2)
    assert run.outcome.kind is OutcomeKind.DEAD_LETTERS
    assert [dead_letter["message"] for dead_letter in run.dead_letters] == [0]
    lines_at = list(map(int, (scene.folder / "tried").read_text().split()))
    assert len(lines_at) == 3
    assert lines_at[1] == 399, "everything behind it was through before it was tried again"


def test_with_exactly_once_a_message_kills_its_process_until_the_code_is_mended(scene: Scene) -> None:
    """Nothing is given up and nothing counts twice; here the mending is a file that the code looks for.

    Promise of the README: With exactly_once, a message that kills its process does so until the code is fixed.
    """
    deadly = poison("(HERE / 'mended').exists() or os._exit(7)")
    running = scene.submit(
        scene.file(deadly + flow(NUMBERS.format(200), ODD, SINK_OF_ODD)),
        delivery="exactly_once",
        checkpoint_interval="100ms",
        restart_backoff_max="100ms",
    )
    running.wait_until(lambda status: status["restarts"] >= 4)
    assert scene.lines().count(13) == 0
    scene.touch("mended")
    assert running.wait().exit_code == 0
    assert sorted(scene.lines()) == list(range(200))
    assert running.dead_letters() == []
