"""All tasks of a worker as one: hand-over in memory, what the master says, and how it ends."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import Any

import pytest

from tests.unit.task.harness import CODEC, INCARNATION, Clock, Manual, Plain, Replaying, Ring, Scripted, Sink, make_task, routes
from topo.api.topology import Topology
from topo.builder import TopologyBuilder
from topo.errors import FrameworkBug
from topo.ids import Epoch, Incarnation, TaskId, WorkerId
from topo.plan.physical import physical_plan
from topo.task.commands import SendFrame, TellMaster
from topo.task.events import Inbox
from topo.wire import control
from topo.wire.frames import FrameKind, SenderStatus, encode, open_frame, parse
from topo.worker.core import EXIT_CRASHED, EXIT_DONE, EXIT_REPLACED, InFlightTracker, Worker


class Notes:
    """Remembers the notes."""

    def __init__(self) -> None:
        self.written: list[tuple[TaskId, list[int], list[tuple[TaskId, Any]]]] = []
        self.is_clear = True

    def write(self, task: TaskId, roots: bytes, positions: list[tuple[TaskId, bytes]]) -> None:
        unpacked = [(spout, CODEC.unpack_value(position)) for spout, position in positions]
        self.written.append((task, memoryview(roots).cast("Q").tolist(), unpacked))
        self.is_clear = False

    def clear(self) -> None:
        self.is_clear = True


class Hosted:
    """A worker that hosts the tasks of one slot of a topology; by default all of them."""

    def __init__(self, topology: Topology, slot: int = 0, *, starts: bool = True) -> None:
        self.plan = physical_plan(topology)
        self.clock = Clock()
        self.notes = Notes()
        self.hand = InFlightTracker(self.notes)
        mine = self.plan.workers[slot]
        tasks = [make_task(topology, self.plan, task, self.clock, self.hand, wait=self.attend) for task in mine]
        self.worker = Worker(WorkerId(slot), INCARNATION, tasks, self.hand)
        self.out: list[Any] = []
        if starts:
            self.tell(routes(self.plan, 1))
            self.run()
            self.tell(control.Go(Epoch(1)))

    def tell(self, message: control.FromMaster) -> None:
        self.worker.on_messages([message], self.clock.now)
        self.take()

    def attend(self) -> None:
        """What the loop does while a call yields."""
        self.worker.run(self.clock.now)
        self.worker.idle(self.clock.now)
        self.out += self.worker.take_commands()
        if self.worker.has_failed():
            raise SystemExit("the worker ends")

    def take(self) -> None:
        self.out += self.worker.take_commands()
        if self.worker.exit is None:
            self.worker.validate()

    def run(self, seconds: float = 0.0) -> None:
        """Let the worker work and time pass, as its loop would."""
        end = self.clock.now + seconds
        while self.worker.exit is None:
            while self.worker.exit is None and self.worker.run(self.clock.now):
                self.take()
            self.worker.idle(self.clock.now)
            self.take()
            if self.worker.has_work:
                continue
            at = self.worker.next_deadline(self.clock.now)
            if at is None or at > end:
                break
            self.clock.now = max(at, self.clock.now)
        self.clock.now = end

    def messages(self, kind: type) -> list[Any]:
        return [c.message for c in self.out if isinstance(c, TellMaster) and isinstance(c.message, kind)]

    def sent(self) -> list[SendFrame]:
        return [command for command in self.out if isinstance(command, SendFrame)]


def word_count(spout: Any, workers: int | None = 1, *, counted: Any = None, **settings: Any) -> tuple[Topology, Counter[str]]:
    """Lines, split, count; what was counted."""
    counts: Counter[str] = Counter()

    def count(tup: Any, collector: Any) -> None:
        counts[tup.values[0]] += 1

    builder = TopologyBuilder("word-count").config(workers=workers, **settings)
    builder.set_spout("a", spout)
    split = Plain(lambda tup, collector: [collector.emit((word,)) for word in tup.values[0].split()])
    builder.set_bolt("b", split).shuffle_grouping("a")
    builder.set_bolt("c", counted or Plain(count, ())).fields_grouping("b", "value")
    return builder.build(), counts


LINES = ["", "jumps over", "the end", "the lazy dog", "the quick brown fox"]
EXPECTED = Counter(" ".join(LINES).split())


# -- hand-over


@pytest.mark.parametrize("window", [1, 16])
@pytest.mark.parametrize("batch", [1, 3, 512])
def test_what_is_handed_over_in_memory_comes_to_the_same_as_what_is_sent(window: int, batch: int) -> None:
    packed_spout, spread_spout = Scripted(LINES), Scripted(LINES)
    topology, packed_counts = word_count(packed_spout, edge_window=window, batch_size=batch)
    host = Hosted(topology)
    host.run(5.0)
    topology, spread_counts = word_count(spread_spout, workers=None, edge_window=window, batch_size=batch)
    ring = Ring(topology).start()
    ring.run()
    assert packed_counts == spread_counts == EXPECTED
    assert sorted(packed_spout.told("ack")) == sorted(spread_spout.told("ack")) == sorted(LINES)
    packed = {task.id: task.statistics().counters for task in host.worker.tasks.values()}
    spread = {task.id: task.statistics().counters for task in ring.tasks.values()}
    for task in packed:
        for name in ("emitted", "transferred", "executed", "acked", "failed"):
            assert getattr(packed[task], name) == getattr(spread[task], name)


def test_a_worker_with_all_tasks_sends_no_frame() -> None:
    topology, _ = word_count(Scripted(LINES))
    host = Hosted(topology)
    host.run(5.0)
    assert host.sent() == []


def test_values_are_handed_over_as_they_are() -> None:
    seen: list[Any] = []
    value = ("a tuple", 1)
    builder = TopologyBuilder("objects").config(workers=1)
    builder.set_spout("a", Scripted([lambda c: c.emit((value,), 1)]))
    builder.set_bolt("b", Plain(lambda tup, collector: seen.append(tup.values[0]), ())).shuffle_grouping("a")
    Hosted(builder.build()).run(1.0)
    assert len(seen) == 1 and seen[0] is value


def test_a_worker_with_some_tasks_sends_bytes_to_the_others_and_nothing_to_its_own() -> None:
    topology, _ = word_count(Scripted(LINES, ends=False), workers=2)
    host = Hosted(topology)
    mine = set(host.worker.tasks)
    assert 1 < len(mine) < len(host.plan.tasks)
    outside = set(host.plan.task_ids["a"] + host.plan.task_ids["b"] + host.plan.task_ids["c"]) - mine
    for target in mine:
        for sender in outside & set(host.plan.upstream_tasks(target)):
            frame = open_frame((1, sender, INCARNATION), target, SenderStatus.ACTIVE)
            host.worker.arrived(target, Inbox.DATA, encode(frame), host.clock.now)
    host.run(1.0)
    assert {type(command.frame) for command in host.sent()} == {bytes}
    assert {command.target for command in host.sent()}.isdisjoint(mine)


def test_a_whole_run_ends_by_itself_with_every_task_ended_and_quiet() -> None:
    topology, counts = word_count(Replaying(LINES))
    host = Hosted(topology)
    host.run(5.0)
    last = {quiet.task: quiet for quiet in host.messages(control.Quiet)}
    assert last.keys() == host.worker.tasks.keys()
    assert all(quiet.ended and quiet.quiet for quiet in last.values())
    assert sum(quiet.sent for quiet in last.values()) >= 0
    assert counts == EXPECTED


# -- what the master says


def test_tasks_are_ready_when_the_edges_between_them_are_open() -> None:
    topology, _ = word_count(Scripted(LINES))
    host = Hosted(topology, starts=False)
    host.tell(routes(host.plan, 1))
    host.run()
    assert {ready.task for ready in host.messages(control.TaskReady)} == set(host.worker.tasks)


def test_routes_of_a_lower_term_are_not_heard() -> None:
    topology, _ = word_count(Scripted(LINES))
    host = Hosted(topology, starts=False)
    host.tell(routes(host.plan, 3, term=2))
    host.tell(routes(host.plan, 9, term=1))
    assert (host.worker.epoch, host.worker.term) == (3, 2)


def test_routes_of_a_lower_term_do_not_end_a_worker_that_they_do_not_know() -> None:
    topology, _ = word_count(Scripted(LINES))
    host = Hosted(topology, starts=False)
    host.tell(routes(host.plan, 3, term=2))
    host.tell(routes(host.plan, 9, {task: Incarnation(5) for task in host.worker.tasks}, term=1))
    assert host.worker.exit is None


def test_a_higher_term_is_remembered_also_without_a_higher_epoch() -> None:
    topology, _ = word_count(Scripted(LINES))
    host = Hosted(topology, starts=False)
    host.tell(routes(host.plan, 3, term=1))
    host.tell(routes(host.plan, 3, term=5))
    host.tell(routes(host.plan, 4, term=4))
    assert (host.worker.epoch, host.worker.term) == (3, 5)


@pytest.mark.parametrize("epoch", [1, 2])
def test_a_worker_that_has_been_replaced_ends(epoch: int) -> None:
    topology, _ = word_count(Scripted(LINES))
    host = Hosted(topology)
    host.tell(routes(host.plan, epoch, {TaskId(2): Incarnation(5)}))
    assert host.worker.exit is not None and host.worker.exit.code == EXIT_REPLACED
    assert host.worker.epoch == 1


def test_a_worker_that_was_away_does_not_begin_an_epoch_of_before_its_replacement() -> None:
    topology, _ = word_count(Scripted(LINES))
    host = Hosted(topology)
    orders = [routes(host.plan, 2), routes(host.plan, 3, {TaskId(2): Incarnation(5)})]
    host.worker.on_messages(orders, 1.0)
    assert host.worker.exit is not None and host.worker.exit.code == EXIT_REPLACED
    assert host.worker.epoch == 1


def test_what_the_master_said_meanwhile_is_done_in_order() -> None:
    topology, _ = word_count(Scripted(LINES))
    host = Hosted(topology, starts=False)
    host.worker.on_messages([routes(host.plan, 1), routes(host.plan, 3)], 1.0)
    assert host.worker.exit is None and host.worker.epoch == 3


def test_a_worker_whose_task_the_routes_have_lost_ends() -> None:
    topology, _ = word_count(Scripted(LINES))
    host = Hosted(topology)
    found = routes(host.plan, 2)
    host.tell(control.Routes(1, Epoch(2), found.routes[1:]))
    assert host.worker.exit is not None and host.worker.exit.code == EXIT_REPLACED


def test_a_replaced_worker_does_nothing_more() -> None:
    topology, counts = word_count(Scripted(LINES))
    host = Hosted(topology)
    host.tell(routes(host.plan, 2, {TaskId(2): Incarnation(5)}))
    before = dict(counts)
    host.worker.run(host.clock.now)
    host.worker.idle(host.clock.now)
    assert host.worker.take_commands() == [] or counts == before


def test_a_recovery_in_one_worker_replays_everything() -> None:
    spout = Replaying(LINES, ends=False)
    builder = TopologyBuilder("held").config(workers=1)
    builder.set_spout("a", spout)
    bolt = Manual(lambda tup, collector: collector.ack(tup) if collector.released else None, ())
    builder.set_bolt("b", bolt).shuffle_grouping("a")
    host = Hosted(builder.build())
    bolt.collector.released = False
    host.run(1.0)
    assert spout.told("ack") == []
    bolt.collector.released = True
    host.tell(routes(host.plan, 2))
    host.run()
    host.tell(control.Go(Epoch(2)))
    host.run(1.0)
    assert bolt.calls == ["prepare", "on_reset"]
    assert sorted(spout.told("ack")) == sorted(LINES)
    assert bolt.seen == LINES + LINES


def test_positions_and_attempts_reach_the_spout_that_they_are_for() -> None:
    spout = Replaying(["x"])
    topology, _ = word_count(spout)
    host = Hosted(topology, starts=False)
    host.tell(routes(host.plan, 4, positions={TaskId(1): CODEC.pack_value(17)}))
    assert spout.calls == [("open", 17)]


def test_a_probe_of_another_epoch_is_not_answered() -> None:
    topology, _ = word_count(Scripted(LINES))
    host = Hosted(topology)
    host.tell(control.Probe(5, Epoch(7)))
    host.tell(control.Probe(6, Epoch(1)))
    assert {quiet.probe for quiet in host.messages(control.Quiet)} - {0} == {6}
    assert len(host.messages(control.Quiet)) >= len(host.worker.tasks)


@pytest.mark.parametrize("message", [control.Deactivate(), control.Drain()])
def test_deactivation_and_drain_pause_the_spouts(message: control.FromMaster) -> None:
    spout = Scripted(LINES, ends=False)
    topology, counts = word_count(spout)
    host = Hosted(topology)
    host.tell(message)
    host.run(1.0)
    assert ("deactivate",) in spout.calls
    assert counts == Counter()
    host.tell(control.Activate())
    host.run(1.0)
    assert counts == EXPECTED


def test_stored_dead_letters_are_told_to_their_spout_only() -> None:
    class Poison(Plain):
        def execute(self, tup: Any, collector: Any) -> None:
            raise ValueError

    spout = Replaying(["x"], ends=False)
    topology, _ = word_count(spout, counted=Poison(), attempts=1)
    host = Hosted(topology)
    host.run(1.0)
    (letter,) = host.messages(control.DeadLetter)
    host.tell(control.DeadLettersStored(TaskId(99), [letter.id]))
    host.tell(control.DeadLettersStored(TaskId(2), [letter.id]))
    assert spout.told("fail") == []
    host.tell(control.DeadLettersStored(letter.task, [letter.id]))
    assert spout.told("fail") == ["x"]


# -- the end


def test_a_closed_worker_ends_in_order() -> None:
    spout = Scripted(LINES)
    topology, _ = word_count(spout)
    host = Hosted(topology)
    host.run(5.0)
    host.tell(control.Close(Epoch(1)))
    assert host.worker.exit is not None and host.worker.exit.code == EXIT_DONE
    assert {closed.task for closed in host.messages(control.Closed)} == set(host.worker.tasks)
    assert spout.calls[-1] == ("close",)


def test_a_stop_ends_the_worker_and_says_why() -> None:
    topology, _ = word_count(Scripted(LINES))
    host = Hosted(topology)
    host.tell(control.Stop("killed by the user"))
    assert host.worker.exit is not None
    assert (host.worker.exit.code, host.worker.exit.why) == (EXIT_DONE, "stopped by the master: killed by the user")


def test_the_first_reason_to_end_stands() -> None:
    topology, _ = word_count(Scripted(LINES))
    host = Hosted(topology)
    host.tell(control.Stop("first"))
    host.tell(control.Close(Epoch(1)))
    assert host.worker.exit is not None and "first" in host.worker.exit.why


def test_an_exception_where_it_ends_the_process_is_reported_and_the_exit_code_says_so() -> None:
    class Broken(Plain):
        def prepare(self, context: Any) -> None:
            raise OSError("no database")

    topology, _ = word_count(Scripted(LINES), counted=Broken())
    host = Hosted(topology, starts=False)
    host.tell(routes(host.plan, 1))
    assert host.worker.exit is not None
    assert (host.worker.exit.code, host.worker.exit.why) == (EXIT_CRASHED, "component 'c' raised OSError: no database")
    (error,) = host.messages(control.ComponentError)
    assert (error.component, error.kind, error.message, error.file) == ("c", "OSError", "no database", __file__)


def test_a_crash_leaves_the_note_of_what_was_in_hand_with_its_positions() -> None:
    class Poison(Plain):
        def execute(self, tup: Any, collector: Any) -> None:
            raise ValueError("fatal")

    topology, _ = word_count(Replaying(["x y", "z"], ends=False), counted=Poison(), on_error="crash", queue_time="off")
    host = Hosted(topology)
    host.run(1.0)
    assert host.worker.exit is not None and host.worker.exit.code == EXIT_CRASHED
    task, roots, positions = host.notes.written[-1]
    assert (task, len(roots)) == (3, 3)
    assert positions == [(1, "x y"), (1, "z")]
    assert not host.notes.is_clear


def test_positions_of_plain_spouts_are_not_noted() -> None:
    topology, _ = word_count(Scripted(LINES))
    host = Hosted(topology)
    host.run(1.0)
    assert host.notes.written and all(not positions for _, _, positions in host.notes.written)
    assert host.notes.is_clear


def test_a_fault_of_the_engine_is_not_taken_for_the_users() -> None:
    topology, _ = word_count(Scripted(LINES))
    host = Hosted(topology)

    def broken(now: float) -> None:
        raise FrameworkBug("ours")

    host.worker.tasks[TaskId(2)]._turn = broken  # type: ignore[method-assign]
    with pytest.raises(FrameworkBug):
        host.run(1.0)
    assert host.worker.exit is None


# -- heartbeats


def test_a_heartbeat_carries_what_every_task_has_counted() -> None:
    topology, _ = word_count(Scripted(LINES))
    host = Hosted(topology)
    host.run(5.0)
    beat = host.worker.heartbeat("b")
    assert (beat.worker, beat.incarnation, beat.term, beat.epoch, beat.busy_in) == (0, INCARNATION, 1, 1, "b")
    assert beat.tasks[TaskId(1)]["counters"]["acked"] == len(LINES)
    decoded = control.decode_from_worker(control.encode(beat))
    assert isinstance(decoded, control.Heartbeat)
    assert {task: told["counters"] for task, told in decoded.tasks.items()} == {
        task: told["counters"] for task, told in beat.tasks.items()
    }


def test_a_worker_that_is_never_idle_lets_out_what_is_buffered_all_the_same() -> None:
    """Two ways through one worker: a trickle that must not wait for the busy one to rest."""
    trickle = Scripted(["drop"], ends=False)
    builder = TopologyBuilder("both").config(workers=1, flush_interval="5ms")
    builder.set_spout("a", trickle)
    builder.set_bolt("b", Sink()).shuffle_grouping("a")
    builder.set_spout("x", Scripted([lambda c: c.emit(("busy",))] * 100_000, ends=False), max_spout_pending=1)
    builder.set_bolt("y", Sink()).shuffle_grouping("x")
    host = Hosted(builder.build())
    for _ in range(400):
        host.clock.now += 0.0005
        host.worker.run(host.clock.now)
    assert trickle.told("ack") == ["drop"]


def test_frames_of_the_old_epoch_between_its_tasks_are_not_taken_into_the_new_one() -> None:
    spout = Replaying(LINES, ends=False)
    topology, counts = word_count(spout)
    host = Hosted(topology)
    host.worker.run(host.clock.now)
    host.tell(routes(host.plan, 2))
    host.run()
    host.tell(control.Go(Epoch(2)))
    host.run(5.0)
    assert sorted(spout.told("ack")) == sorted(LINES)
    assert all(counts[word] >= times for word, times in EXPECTED.items())
    kinds = [parse(command.frame).kind for command in host.sent() if isinstance(command.frame, bytes)]
    assert FrameKind.DATA not in kinds


# -- a call that yields has the other tasks run


def waiting(execute: Any, **settings: Any) -> tuple[Topology, Plain, list[Any]]:
    """Spout a; bolt b runs the function; bolt c, which reads from both, keeps what it sees."""
    seen: list[Any] = []
    bolt = Plain(execute)
    builder = TopologyBuilder("waiting").config(workers=1, **settings)
    builder.set_spout("a", Scripted([1, 2, 3, 4], ends=False))
    builder.set_bolt("b", bolt).shuffle_grouping("a")
    keep = Plain(lambda tup, collector: seen.append((tup.component, tup.values[0])), ())
    builder.set_bolt("c", keep).shuffle_grouping("a").shuffle_grouping("b")
    return builder.build(), bolt, seen


def test_a_call_that_yields_has_the_other_tasks_of_the_worker_run_and_is_not_entered_again() -> None:
    order: list[Any] = []

    def execute(tup: Any, collector: Any) -> None:
        order.append(("begins", tup.values[0]))
        if tup.values[0] == 1:
            while len(seen) < 4:
                host.attend()
            bolt.context.executor.execute(lambda: order.append("mail"))
            bolt.context.executor.yield_()
        collector.emit(tup.values)
        order.append(("ends", tup.values[0]))

    topology, bolt, seen = waiting(execute, batch_size=1, queue_time="off")
    host = Hosted(topology)
    host.run(5.0)
    assert order[:3] == [("begins", 1), "mail", ("ends", 1)]
    assert order[3:] == [(what, number) for number in (2, 3, 4) for what in ("begins", "ends")], "frames stay in order"
    assert seen[:4] == [("a", number) for number in (1, 2, 3, 4)]
    assert sorted(seen[4:]) == [("b", number) for number in (1, 2, 3, 4)]
    spout = host.plan.tasks_of("a")[0]
    assert host.worker.tasks[spout].statistics().counters.acked == 4


def test_yield_waits_for_a_mail_by_having_the_others_run() -> None:
    def execute(tup: Any, collector: Any) -> None:
        while tup.values[0] not in told:
            bolt.context.executor.yield_()

    topology, bolt, seen = waiting(execute, batch_size=1)
    host = Hosted(topology)
    keeper = host.worker.tasks[host.plan.tasks_of("c")[0]]
    told: list[Any] = []

    def keep(tup: Any, collector: Any) -> None:
        seen.append((tup.component, tup.values[0]))
        bolt.context.executor.execute(lambda: told.append(tup.values[0]))

    keeper._user.run = keep  # type: ignore[attr-defined]
    host.run(5.0)
    assert told == [1, 2, 3, 4], "each call waited until another task had told it"


def test_what_is_in_hand_is_that_of_the_innermost_call_and_afterwards_that_of_the_outer_one() -> None:
    noted: list[Any] = []

    def execute(tup: Any, collector: Any) -> None:
        if tup.values[0] == 1:
            before, named = host.notes.written[-1], host.hand.task
            host.attend()
            noted.extend([before, host.notes.written[-1]])
            assert before[0] == named == host.hand.task == host.plan.tasks_of("b")[0] and not host.notes.is_clear
            assert any(task == host.plan.tasks_of("c")[0] for task, _, _ in host.notes.written)

    topology, _, _ = waiting(execute, batch_size=1)
    host = Hosted(topology)
    host.run(5.0)
    assert len(noted) == 2 and noted[0] == noted[1]
    assert host.notes.is_clear


def test_a_task_that_crashes_while_another_yields_ends_the_worker_and_blames_nothing_of_the_other() -> None:
    def execute(tup: Any, collector: Any) -> None:
        bolt.context.executor.yield_()

    topology, bolt, _ = waiting(execute, batch_size=1, on_error="crash")
    host = Hosted(topology)
    keeper = host.worker.tasks[host.plan.tasks_of("c")[0]]
    keeper._user.run = lambda tup, collector: 1 // 0  # type: ignore[attr-defined]
    host.run(5.0)
    assert host.worker.exit is not None and host.worker.exit.code == EXIT_CRASHED
    assert "'c' raised ZeroDivisionError" in host.worker.exit.why
    assert [error.component for error in host.messages(control.ComponentError)] == ["c"]
    assert host.notes.written[-1][0] == keeper.id and not host.notes.is_clear, "the note says who had what in hand"


def test_a_bug_of_the_framework_goes_through_the_user_code_that_yields() -> None:
    def execute(tup: Any, collector: Any) -> None:
        with suppress(Exception):
            bolt.context.executor.yield_()

    topology, bolt, _ = waiting(execute, batch_size=1)
    host = Hosted(topology)
    keeper = host.worker.tasks[host.plan.tasks_of("c")[0]]

    def fail(tup: Any, collector: Any) -> None:
        raise FrameworkBug("a bug")

    keeper._run = lambda *_: fail(None, None)  # type: ignore[attr-defined]
    with pytest.raises(FrameworkBug, match="a bug"):
        host.run(5.0)
