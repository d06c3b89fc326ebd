"""What leaves a worker: one message for each worker that frames are for."""

from __future__ import annotations

from tests.tasks.bolts import Plain
from tests.tasks.components import Scripted
from tests.tasks.environment import INCARNATION
from topo.api.topology import Topology
from topo.builder import TopologyBuilder
from topo.ids import Epoch, TaskId
from topo.plan.physical import PhysicalPlan, physical_plan
from topo.task.commands import SendFrame
from topo.transport.memory import MemoryNetwork, MemoryTransport
from topo.wire.control import Routes, TaskRoute
from topo.wire.envelope import MESSAGE_BYTES, unpack
from topo.worker.connections import INBOX, Connections, bind_inbox


def topology(workers: int) -> Topology:
    builder = TopologyBuilder("t").config(workers=workers)
    builder.set_spout("a", Scripted())
    builder.set_bolt("b", Plain(lambda tup, collector: None, ()), 4).shuffle_grouping("a")
    return builder.build()


class Sender:
    """The connections of worker 0, and the inboxes of the others."""

    def __init__(self, workers: int = 3, high_water_mark: int = 16) -> None:
        self.plan: PhysicalPlan = physical_plan(topology(workers))
        network = MemoryNetwork()
        self.transport = MemoryTransport(network)
        self.others = [MemoryTransport(network, high_water_mark=high_water_mark) for _ in range(1, workers)]
        self.endpoints = ["memory://0", *(bind_inbox(other, self.plan.config) for other in self.others)]
        self.connections = Connections(self.transport, self.plan, frozenset(self.plan.workers[0]))

    def adopt(self, epoch: int = 1) -> None:
        routes = [
            TaskRoute(task.id, slot, INCARNATION, self.endpoints[slot])
            for task in self.plan.tasks
            for slot in [self.plan.worker_of(task.id)]
        ]
        self.connections.adopt(Routes(1, Epoch(epoch), routes))

    def add(self, *frames: tuple[TaskId, bytes]) -> None:
        for target, frame in frames:
            self.connections.add(SendFrame(target, frame))

    def arrived(self, worker: int) -> list[list[tuple[TaskId, bytes]]]:
        messages = self.others[worker - 1].receive(INBOX, 100)
        return [[(task, bytes(frame)) for task, frame in unpack(message)] for message in messages]


def test_frames_of_a_turn_for_several_tasks_of_a_worker_leave_in_one_message() -> None:
    sender = Sender()
    sender.adopt()
    (first, second), (third, *_) = sender.plan.workers[1][:2], sender.plan.workers[2]
    sender.add((first, b"1"), (third, b"2"), (second, b"3"), (first, b"4"))
    assert sender.arrived(1) == [], "nothing leaves within a turn"
    sender.connections.send()
    sender.connections.send()
    assert sender.arrived(1) == [[(first, b"1"), (second, b"3"), (first, b"4")]]
    assert sender.arrived(2) == [[(third, b"2")]]
    assert sender.transport.statistics().frames_sent == 2


def test_many_bytes_leave_in_several_messages_in_order() -> None:
    sender = Sender()
    sender.adopt()
    (target, *_) = sender.plan.workers[1]
    frames = [(target, bytes([number]) * (MESSAGE_BYTES // 2)) for number in range(5)]
    sender.add(*frames)
    sender.connections.send()
    messages = sender.arrived(1)
    assert [len(message) for message in messages] == [2, 2, 1]
    assert [frame for message in messages for frame in message] == frames


def test_refused_frames_wait_and_leave_ahead_of_later_ones_together() -> None:
    sender = Sender(high_water_mark=1)
    sender.adopt()
    (target, *_) = sender.plan.workers[1]
    for frame in (b"1", b"2", b"3"):
        sender.add((target, frame))
        sender.connections.send()
    assert sender.arrived(1) == [[(target, b"1")]]
    sender.transport.wait(0.0)
    sender.connections.send()
    assert sender.arrived(1) == [[(target, b"2"), (target, b"3")]]


def test_a_worker_that_refuses_holds_up_no_other() -> None:
    sender = Sender(high_water_mark=1)
    sender.adopt()
    (full, *_), (free, *_) = sender.plan.workers[1:]
    sender.add((full, b"1"))
    sender.connections.send()
    sender.add((full, b"2"), (free, b"3"))
    sender.connections.send()
    assert sender.arrived(2) == [[(free, b"3")]]


def test_new_routes_drop_what_waits_and_lead_to_the_new_life() -> None:
    sender = Sender(high_water_mark=1)
    sender.adopt()
    (target, *_) = sender.plan.workers[1]
    for frame in (b"arrives", b"waits"):
        sender.add((target, frame))
        sender.connections.send()
    old = sender.others[0]
    sender.others[0] = MemoryTransport(old._network)
    sender.endpoints[1] = bind_inbox(sender.others[0], sender.plan.config)
    sender.adopt(2)
    sender.add((target, b"new"))
    sender.connections.send()
    assert sender.arrived(1) == [[(target, b"new")]]
    assert len(old.receive(INBOX, 100)) == 1


def test_a_worker_connects_to_each_worker_of_its_peers_once() -> None:
    sender = Sender(workers=3)
    sender.adopt()
    sender.adopt(2)
    assert len(sender.transport._outlets) == 2
