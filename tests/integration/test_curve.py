"""Strangers at a TCP inbox, played by bare sockets: not a byte of theirs arrives, and none of them goes unnoticed."""

from __future__ import annotations

import logging
import socket as sockets
import time
from collections.abc import Callable, Iterator

import pytest
import zmq

from tests.tasks.components import Scripted, Sink, chain
from topo.ids import Epoch, Incarnation, WorkerId
from topo.plan.physical import physical_plan
from topo.task.commands import SendFrame
from topo.transport.base import Outlet
from topo.transport.security import AllowList, KeyPair
from topo.transport.zmq import TcpPlace, ZmqTransport, new_key_pair
from topo.wire.control import Routes, TaskRoute
from topo.wire.envelope import unpack
from topo.worker.connections import INBOX, Connections

pytestmark = pytest.mark.integration

PATIENCE_S = 30.0
FRIEND = new_key_pair()


@pytest.fixture
def receiver() -> Iterator[ZmqTransport]:
    transport = ZmqTransport(TcpPlace(), new_key_pair(), AllowList([FRIEND.public]))
    yield transport
    transport.close()


@pytest.fixture
def context() -> Iterator[zmq.Context[zmq.Socket[bytes]]]:
    made: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    yield made
    made.destroy(linger=0)


def stranger(
    context: zmq.Context[zmq.Socket[bytes]], endpoint: str, server_key: str = "", keys: KeyPair | None = None
) -> zmq.Socket[bytes]:
    socket = context.socket(zmq.PUSH)
    socket.linger = 0
    if keys is not None:
        socket.curve_serverkey = server_key.encode()
        socket.curve_publickey = keys.public.encode()
        socket.curve_secretkey = keys.secret.encode()
    socket.connect(endpoint)
    return socket


def until(done: Callable[[], bool], transport: ZmqTransport) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not done():
        assert time.monotonic() < deadline, "gave up waiting"
        transport.wait(0.01)


def deliver(sender: ZmqTransport, outlet: Outlet, receiver: ZmqTransport, frame: bytes) -> list[bytes]:
    """Have `frame` arrive at `receiver`, and return all that arrived there."""
    got: list[bytes] = []
    sent = False

    def has_arrived() -> bool:
        nonlocal sent
        sent = sent or sender.send(outlet, frame)
        got.extend(receiver.receive("data", 100))
        return frame in got

    until(has_arrived, receiver)
    return got


def friend_of(receiver: ZmqTransport) -> tuple[ZmqTransport, Callable[[str], Outlet]]:
    sender = ZmqTransport(TcpPlace(), FRIEND, AllowList())
    return sender, lambda endpoint: sender.connect(endpoint, receiver.public_key)


@pytest.mark.parametrize("has_key", [False, True])
def test_a_stranger_is_kept_out_counted_and_logged(
    receiver: ZmqTransport, context: zmq.Context[zmq.Socket[bytes]], caplog: pytest.LogCaptureFixture, has_key: bool
) -> None:
    endpoint = receiver.bind("data")
    caplog.set_level(logging.WARNING)
    intruder = stranger(context, endpoint, receiver.public_key or "", new_key_pair() if has_key else None)
    intruder.send(b"let me in")
    until(lambda: receiver.statistics().denied > 0, receiver)
    sender, connect = friend_of(receiver)
    assert deliver(sender, connect(endpoint), receiver, b"hello") == [b"hello"]
    sender.close()
    assert receiver.statistics().bytes_received == len(b"hello")
    assert [record.levelname for record in caplog.records][:1] == ["WARNING"]
    assert "refused from" in caplog.text


def test_a_friend_with_a_wrong_server_key_delivers_nothing(receiver: ZmqTransport) -> None:
    endpoint = receiver.bind("data")
    sender, connect = friend_of(receiver)
    wrong = sender.connect(endpoint, new_key_pair().public)
    right = connect(endpoint)
    assert deliver(sender, right, receiver, b"hello") == [b"hello"]
    assert not sender.send(wrong, b"lost")
    assert receiver.wait(0.05) == []
    sender.close()


def test_a_frame_over_the_limit_from_a_hand_made_sender_is_dropped(
    receiver: ZmqTransport, context: zmq.Context[zmq.Socket[bytes]]
) -> None:
    endpoint = receiver.bind("control", max_frame=10_000)
    peer = stranger(context, endpoint, receiver.public_key or "", FRIEND)
    peer.send(b"first")
    until(lambda: receiver.receive("control", 1) == [b"first"], receiver)
    peer.send(bytes(20_000))
    got: list[bytes] = []

    def is_back() -> bool:
        peer.send(b"next")
        got.extend(receiver.receive("control", 100))
        return bool(got)

    until(is_back, receiver)
    assert set(got) == {b"next"}


def test_noise_on_the_port_does_no_harm(receiver: ZmqTransport) -> None:
    endpoint = receiver.bind("data")
    port = int(endpoint.rsplit(":", 1)[1])
    noise = [sockets.create_connection(("127.0.0.1", port)) for _ in range(50)]
    for number, connection in enumerate(noise):
        connection.sendall(bytes([number]) * 500)
    sender, connect = friend_of(receiver)
    assert deliver(sender, connect(endpoint), receiver, b"hello") == [b"hello"]
    sender.close()
    for connection in noise:
        connection.close()


def test_one_who_is_taken_off_the_list_does_not_get_in_again(receiver: ZmqTransport) -> None:
    endpoint = receiver.bind("data")
    sender, connect = friend_of(receiver)
    assert deliver(sender, connect(endpoint), receiver, b"hello") == [b"hello"]
    receiver.allow([])
    again = connect(endpoint)
    until(lambda: receiver.statistics().denied > 0, receiver)
    assert not sender.send(again, b"once more")
    sender.close()


def test_a_receiver_that_restarts_at_its_address_is_found_again() -> None:
    keys = new_key_pair()
    first = ZmqTransport(TcpPlace(), keys, AllowList([FRIEND.public]))
    endpoint = first.bind("data")
    sender, connect = friend_of(first)
    outlet = connect(endpoint)
    assert deliver(sender, outlet, first, b"one") == [b"one"]
    first.close()
    second = ZmqTransport(TcpPlace(), keys, AllowList([FRIEND.public]))
    second.bind("data", endpoint=endpoint)
    got: list[bytes] = []

    def has_arrived() -> bool:
        # The edges repeat frames that a lost connection took with it.
        sender.send(outlet, b"two")
        got.extend(second.receive("data", 100))
        return bool(got)

    until(has_arrived, second)
    assert set(got) == {b"two"}
    sender.close()
    second.close()


def test_a_replacement_on_the_port_of_its_predecessor_is_reached_by_its_own_key() -> None:
    plan = physical_plan(chain(Scripted(), Sink(), workers=2))
    (target, *_) = plan.workers[1]
    sender = ZmqTransport(TcpPlace(), FRIEND, AllowList())
    connections = Connections(sender, plan, frozenset(plan.workers[0]))
    endpoint: str | None = None
    for epoch in (1, 2):
        worker = ZmqTransport(TcpPlace(), new_key_pair(), AllowList([FRIEND.public]))
        endpoint = worker.bind(INBOX, endpoint=endpoint)
        routes = [TaskRoute(task.id, WorkerId(1), Incarnation(epoch), endpoint, worker.public_key or "") for task in plan.tasks]
        connections.adopt(Routes(1, Epoch(epoch), routes))
        connections.add(SendFrame(target, b"frame"))
        got: list[bytes] = []

        def has_arrived(worker: ZmqTransport = worker, got: list[bytes] = got) -> bool:
            sender.wait(0.01)
            connections.send()
            got.extend(worker.receive(INBOX, 1))
            return bool(got)

        until(has_arrived, worker)
        assert [(task, bytes(frame)) for task, frame in unpack(got[0])] == [(target, b"frame")]
        worker.close()
    sender.close()
