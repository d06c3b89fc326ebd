"""All tasks of a worker as one: hand-over in memory, the master's messages, and its end."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.tasks.components import Manual, Plain, Replaying, Scripted, Sink
from tests.tasks.environment import CODEC, INCARNATION, routes
from tests.tasks.ring import Ring
from tests.unit.worker.hosted import EXPECTED, LINES, Hosted, word_count
from topo.builder import TopologyBuilder
from topo.ids import Epoch, Incarnation, TaskId
from topo.operators.mailbox.mailbox import Mail
from topo.wire import control
from topo.wire.envelope import pack
from topo.wire.frames import FrameKind, SenderStatus, encode, open_frame, parse
from topo.worker.core import EXIT_DONE, EXIT_REPLACED

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
    assert sorted(packed_spout.called("ack")) == sorted(spread_spout.called("ack")) == sorted(LINES)
    packed = {task.id: task.statistics().counters for task in host.worker.tasks.values()}
    spread = {task.id: task.statistics().counters for task in ring.tasks.values()}
    for task in packed:
        # An acker counts ids, which each task adds up by frame; frames to another worker may have several full batches.
        executed = () if task in ring.plan.ackers else ("executed",)
        for name in ("emitted", "transferred", *executed, "acked", "failed"):
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
            host.worker.arrived(pack([(target, encode(frame))])[1], host.clock.now)
    host.run(1.0)
    assert {type(command.frame) for command in host.sent()} == {bytes}
    assert {command.target for command in host.sent()}.isdisjoint(mine)


def test_a_damaged_message_counts_once_and_a_damaged_frame_leaves_others_whole() -> None:
    host = Hosted(word_count(Scripted(LINES, ends=False))[0])
    first, second = list(host.worker.tasks.values())[:2]
    host.worker.arrived(b"noise", host.clock.now)
    host.worker.arrived(pack([(TaskId(99), b"for a task that is not here")])[1], host.clock.now)
    assert (first.counters.malformed_frames, second.counters.malformed_frames) == (2, 0)
    stale = encode(open_frame((0, first.id, INCARNATION), second.id, SenderStatus.ACTIVE))
    host.worker.arrived(pack([(second.id, stale), (second.id, b"noise"), (second.id, stale)])[1], host.clock.now)
    assert (second.counters.malformed_frames, second.counters.stale_frames) == (1, 2)


def test_a_whole_run_ends_by_itself_with_every_task_ended_and_quiet() -> None:
    topology, counts = word_count(Replaying(LINES))
    host = Hosted(topology)
    host.run(5.0)
    last = {quiet.task: quiet for quiet in host.messages(control.Quiet)}
    assert last.keys() == host.worker.tasks.keys()
    assert all(quiet.ended and quiet.quiet for quiet in last.values())
    assert sum(quiet.sent for quiet in last.values()) >= 0
    assert counts == EXPECTED


# -- messages of the master


def test_tasks_are_ready_when_the_edges_between_them_are_open() -> None:
    topology, _ = word_count(Scripted(LINES))
    host = Hosted(topology, starts=False)
    host.send(routes(host.plan, 1))
    host.run()
    assert {ready.task for ready in host.messages(control.TaskReady)} == set(host.worker.tasks)


def test_routes_of_a_lower_term_are_not_heard() -> None:
    topology, _ = word_count(Scripted(LINES))
    host = Hosted(topology, starts=False)
    host.send(routes(host.plan, 3, term=2))
    host.send(routes(host.plan, 9, term=1))
    assert (host.worker.epoch, host.worker.term) == (3, 2)


def test_routes_of_a_lower_term_do_not_end_a_worker_that_they_do_not_know() -> None:
    topology, _ = word_count(Scripted(LINES))
    host = Hosted(topology, starts=False)
    host.send(routes(host.plan, 3, term=2))
    host.send(routes(host.plan, 9, {task: Incarnation(5) for task in host.worker.tasks}, term=1))
    assert host.worker.exit is None


def test_a_higher_term_is_remembered_also_without_a_higher_epoch() -> None:
    topology, _ = word_count(Scripted(LINES))
    host = Hosted(topology, starts=False)
    host.send(routes(host.plan, 3, term=1))
    host.send(routes(host.plan, 3, term=5))
    host.send(routes(host.plan, 4, term=4))
    assert (host.worker.epoch, host.worker.term) == (3, 5)


@pytest.mark.parametrize("epoch", [1, 2])
def test_a_worker_that_has_been_replaced_ends(epoch: int) -> None:
    topology, _ = word_count(Scripted(LINES))
    host = Hosted(topology)
    host.send(routes(host.plan, epoch, {TaskId(2): Incarnation(5)}))
    assert host.worker.exit is not None and host.worker.exit.code == EXIT_REPLACED
    assert host.worker.epoch == 1


def test_a_worker_that_was_away_does_not_begin_an_epoch_of_before_its_replacement() -> None:
    topology, _ = word_count(Scripted(LINES))
    host = Hosted(topology)
    orders = [routes(host.plan, 2), routes(host.plan, 3, {TaskId(2): Incarnation(5)})]
    host.worker.on_messages(orders, 1.0)
    assert host.worker.exit is not None and host.worker.exit.code == EXIT_REPLACED
    assert host.worker.epoch == 1


def test_worker_does_not_begin_an_epoch_when_stop_has_arrived_behind_its_routes() -> None:
    topology, _ = word_count(Scripted(LINES))
    host = Hosted(topology)
    host.worker.on_messages([routes(host.plan, 2), control.Stop("another worker has taken this one's place")], 1.0)
    assert host.worker.exit is not None and host.worker.exit.code == EXIT_DONE
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
    host.send(control.Routes(1, Epoch(2), found.routes[1:]))
    assert host.worker.exit is not None and host.worker.exit.code == EXIT_REPLACED


def test_a_replaced_worker_does_nothing_more() -> None:
    topology, counts = word_count(Scripted(LINES))
    host = Hosted(topology)
    host.send(routes(host.plan, 2, {TaskId(2): Incarnation(5)}))
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
    assert spout.called("ack") == []
    bolt.collector.released = True
    host.send(routes(host.plan, 2))
    host.run()
    host.send(control.Go(Epoch(2)))
    host.run(1.0)
    assert bolt.calls == ["prepare", "on_reset"]
    assert sorted(spout.called("ack")) == sorted(LINES)
    assert bolt.seen == LINES + LINES


def test_positions_and_attempts_reach_the_spout_that_they_are_for() -> None:
    spout = Replaying(["x"])
    topology, _ = word_count(spout)
    host = Hosted(topology, starts=False)
    host.send(routes(host.plan, 4, positions={TaskId(1): CODEC.pack_value(17)}))
    assert spout.calls == [("open", 17)]


def test_a_probe_of_another_epoch_is_not_answered() -> None:
    topology, _ = word_count(Scripted(LINES))
    host = Hosted(topology)
    host.send(control.Probe(5, Epoch(7)))
    host.send(control.Probe(6, Epoch(1)))
    assert {quiet.probe for quiet in host.messages(control.Quiet)} - {0} == {6}
    assert len(host.messages(control.Quiet)) >= len(host.worker.tasks)


@pytest.mark.parametrize("message", [control.Deactivate(), control.Drain()])
def test_deactivation_and_drain_pause_the_spouts(message: control.FromMaster) -> None:
    spout = Scripted(LINES, ends=False)
    topology, counts = word_count(spout)
    host = Hosted(topology)
    host.send(message)
    host.run(1.0)
    assert ("deactivate",) in spout.calls
    assert counts == Counter()
    host.send(control.Activate())
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
    (dead_letter,) = host.messages(control.DeadLetter)
    host.send(control.DeadLettersStored(TaskId(99), [dead_letter.id]))
    host.send(control.DeadLettersStored(TaskId(2), [dead_letter.id]))
    assert spout.called("fail") == []
    host.send(control.DeadLettersStored(dead_letter.task, [dead_letter.id]))
    assert spout.called("fail") == ["x"]


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
    assert {task: reported["counters"] for task, reported in decoded.tasks.items()} == {
        task: reported["counters"] for task, reported in beat.tasks.items()
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
    assert trickle.called("ack") == ["drop"]


def test_frames_of_the_old_epoch_between_its_tasks_are_not_taken_into_the_new_one() -> None:
    spout = Replaying(LINES, ends=False)
    topology, counts = word_count(spout)
    host = Hosted(topology)
    host.worker.run(host.clock.now)
    host.send(routes(host.plan, 2))
    host.run()
    host.send(control.Go(Epoch(2)))
    host.run(5.0)
    assert sorted(spout.called("ack")) == sorted(LINES)
    assert all(counts[word] >= times for word, times in EXPECTED.items())
    kinds = [parse(command.frame).kind for command in host.sent() if isinstance(command.frame, bytes)]
    assert FrameKind.DATA not in kinds


def test_tasks_to_which_nothing_happens_are_asked_for_their_deadline_once() -> None:
    hosted = Hosted(word_count(Scripted(ends=False))[0])
    hosted.run()
    asked: Counter[int] = Counter()
    for task in hosted.worker.tasks.values():
        next_deadline = task.next_deadline

        def ask(now: float, task: Any = task, next_deadline: Any = next_deadline) -> Any:
            asked[task.id] += 1
            return next_deadline(now)

        task.next_deadline = ask
    hosted.worker.idle(hosted.clock.now, ids_may_wait=False)
    first = hosted.worker.next_deadline(hosted.clock.now)
    hosted.worker.run(hosted.clock.now)
    assert hosted.worker.next_deadline(hosted.clock.now) == first
    assert asked == dict.fromkeys(hosted.worker.tasks, 1)


def test_a_mail_is_work_for_a_task_that_had_none() -> None:
    hosted = Hosted(word_count(Scripted(ends=False))[0])
    hosted.run()
    assert not hosted.worker.has_work
    next(iter(hosted.worker.tasks.values())).mailbox.put(Mail(lambda: None))
    assert hosted.worker.has_work


def test_tasks_to_which_nothing_happens_are_idle_once() -> None:
    hosted = Hosted(word_count(Scripted(ends=False))[0])
    hosted.run()
    handled: list[int] = []
    for task in hosted.worker.tasks.values():
        handle = task.handle

        def note(event: Any, now: float, task: Any = task, handle: Any = handle) -> Any:
            handled.append(task.id)
            return handle(event, now)

        task.handle = note
    hosted.worker.idle(hosted.clock.now)
    assert handled == []
    hosted.send(control.DeadLettersStored(TaskId(1), []))
    hosted.worker.idle(hosted.clock.now)
    assert handled == [1, 1]
