"""The promises of every transport, over memory, ipc, and tcp with CURVE."""

from __future__ import annotations

import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.contract.transports import PATIENCE_S, WATER_MARK, World, collect, post, until
from topo.errors import ConfigError, FrameError, TopoEnvironmentError
from topo.transport.base import Outlet


@pytest.fixture(params=["memory", "memory with keys", "ipc", "tcp"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    folder = Path(tempfile.mkdtemp(prefix="tt-"))
    made = World(request.param, folder)
    yield made
    for transport in made.opened:
        transport.close()
    shutil.rmtree(folder)


def test_frames_arrive_whole_and_in_order(world: World) -> None:
    sender, receiver = world.transport(), world.transport()
    outlet = sender.connect(receiver.bind("data"), receiver.public_key)
    sent = [bytes([number % 251]) * (number * 37 % 5000) for number in range(WATER_MARK)]
    for frame in sent:
        post(sender, outlet, frame)
    assert collect(receiver, "data", len(sent)) == sent
    assert receiver.receive("data", 1) == []


def test_statistics_count_frames_and_bytes_on_both_sides(world: World) -> None:
    sender, receiver = world.transport(), world.transport()
    outlet = sender.connect(receiver.bind("data"), receiver.public_key)
    for frame in (b"a", b"bc"):
        post(sender, outlet, frame)
    collect(receiver, "data", 2)
    assert (sender.statistics().frames_sent, sender.statistics().bytes_sent) == (2, 3)
    assert (receiver.statistics().frames_received, receiver.statistics().bytes_received) == (2, 3)


def test_an_outlet_may_be_opened_before_its_inbox(world: World) -> None:
    sender, receiver = world.transport(), world.transport()
    if world.kind == "tcp":
        # Not of an inbox that was closed: that may still take the connection, and the frame with it.
        with socket.create_server(("127.0.0.1", 0)) as reserved:
            endpoint = f"tcp://127.0.0.1:{reserved.getsockname()[1]}"
    else:
        endpoint = f"ipc://{world.folder}/later" if world.kind == "ipc" else "memory://later"
    outlet = sender.connect(endpoint, receiver.public_key)
    assert not sender.send(outlet, b"too early")

    def is_bound() -> bool:
        # libzmq releases a port some time after the socket is closed.
        with suppress(TopoEnvironmentError):
            return receiver.bind("data", endpoint=endpoint) == endpoint
        return False

    until(is_bound, sender)
    post(sender, outlet, b"in time")
    assert collect(receiver, "data", 1) == [b"in time"]


def test_a_frame_without_a_receiver_is_refused_and_counted(world: World) -> None:
    sender, receiver = world.transport(), world.transport()
    endpoint = receiver.bind("data")
    receiver.unbind("data")
    outlet = sender.connect(endpoint, receiver.public_key)
    assert not sender.send(outlet, b"x")
    assert sender.statistics().refused == 1
    assert sender.statistics().frames_sent == 0


def test_a_full_outlet_refuses_and_recovers_without_loss(world: World) -> None:
    sender, receiver = world.transport(), world.transport()
    outlet = sender.connect(receiver.bind("data"), receiver.public_key)
    big = bytes(200_000)
    post(sender, outlet, big)
    taken = 1
    while sender.send(outlet, big):
        taken += 1
        assert taken < 10_000, "never full"
    refused = sender.statistics().refused
    assert refused >= 1
    assert sender.recovered() == []
    reader = threading.Thread(target=collect, args=(receiver, "data", taken))
    reader.start()
    recovered: list[Outlet] = []

    def has_recovered() -> bool:
        recovered.extend(sender.recovered())
        return outlet in recovered

    until(has_recovered, sender)
    reader.join()
    assert sender.recovered() == []
    post(sender, outlet, b"last")
    assert collect(receiver, "data", 1) == [b"last"]


def test_a_frame_over_the_outlets_limit_is_the_callers_fault(world: World) -> None:
    sender, receiver = world.transport(), world.transport()
    outlet = sender.connect(receiver.bind("data", max_frame=10_000), receiver.public_key, max_frame=10_000)
    post(sender, outlet, bytes(10_000))
    with pytest.raises(FrameError, match="10001 bytes"):
        sender.send(outlet, bytes(10_001))
    assert collect(receiver, "data", 1) == [bytes(10_000)]


def test_an_inbox_drops_frames_over_its_limit_and_stays_open(world: World) -> None:
    sender, receiver = world.transport(), world.transport()
    endpoint = receiver.bind("data", max_frame=10_000)
    outlet = sender.connect(endpoint, receiver.public_key)
    post(sender, outlet, b"before")
    assert collect(receiver, "data", 1) == [b"before"]
    post(sender, outlet, bytes(11_000))

    received: list[bytes] = []

    def is_back() -> bool:
        sender.send(outlet, b"after")
        received.extend(receiver.receive("data", 10))
        return bool(received)

    until(is_back, sender, receiver)
    assert set(received) == {b"after"}


def test_a_receive_takes_no_more_than_its_limit_and_leaves_the_inbox_readable(world: World) -> None:
    sender, receiver = world.transport(), world.transport()
    outlet = sender.connect(receiver.bind("data"), receiver.public_key)
    for number in range(5):
        post(sender, outlet, bytes([number]))
    got = []
    while len(got) < 5:
        assert receiver.wait(PATIENCE_S) == ["data"]
        frames = receiver.receive("data", 1)
        assert len(frames) == 1
        got += frames
    assert got == [bytes([number]) for number in range(5)]
    assert receiver.wait(0) == []


def test_a_busy_inbox_does_not_hide_a_quiet_one(world: World) -> None:
    sender, receiver = world.transport(), world.transport()
    data = sender.connect(receiver.bind("data"), receiver.public_key)
    control = sender.connect(receiver.bind("control"), receiver.public_key)
    for _ in range(20):
        post(sender, data, b"d")
    post(sender, control, b"c")
    deadline = time.monotonic() + PATIENCE_S
    while set(ready := receiver.wait(1.0)) != {"data", "control"}:
        assert ready and time.monotonic() < deadline
    assert receiver.receive("control", 10) == [b"c"]
    assert receiver.wait(0) == ["data"]


def test_a_wait_without_arrivals_ends_in_time_even_below_a_millisecond(world: World) -> None:
    transport = world.transport()
    transport.bind("data")
    transport.wait(0)
    begin = time.monotonic()
    for _ in range(20):
        assert transport.wait(0.0002) == []
    took = time.monotonic() - begin
    assert took >= 20 * 0.0002


def test_a_wake_from_another_thread_ends_a_wait(world: World) -> None:
    transport = world.transport()
    waiting = threading.Event()
    results: list[list[str]] = []

    def turn() -> None:
        waiting.set()
        results.append(transport.wait(PATIENCE_S * 5))

    thread = threading.Thread(target=turn)
    thread.start()
    waiting.wait()
    transport.wake()
    thread.join(PATIENCE_S)
    assert results == [[]]


def test_a_wake_before_the_wait_is_not_lost_and_counts_once(world: World) -> None:
    transport = world.transport()
    for _ in range(100):
        transport.wake()
    begin = time.monotonic()
    assert transport.wait(PATIENCE_S) == []
    assert time.monotonic() - begin < PATIENCE_S
    begin = time.monotonic()
    assert transport.wait(0.02) == []
    assert time.monotonic() - begin >= 0.02


def test_a_sender_is_pointed_at_a_restarted_receiver(world: World) -> None:
    sender, first = world.transport(), world.transport()
    old = sender.connect(first.bind("data"), first.public_key)
    post(sender, old, b"one")
    assert collect(first, "data", 1) == [b"one"]
    first.close()
    second = world.transport()
    new = sender.connect(second.bind("data"), second.public_key)
    sender.disconnect(old)
    post(sender, new, b"two")
    assert collect(second, "data", 1) == [b"two"]


def test_a_refused_outlet_can_be_disconnected(world: World) -> None:
    sender, receiver = world.transport(), world.transport()
    endpoint = receiver.bind("data")
    receiver.close()
    outlet = sender.connect(endpoint, receiver.public_key)
    assert not sender.send(outlet, b"x")
    sender.disconnect(outlet)
    assert sender.wait(0) == []
    assert sender.recovered() == []


def test_a_second_bind_on_one_address_fails_loudly(world: World) -> None:
    sender, first, second = world.transport(), world.transport(), world.transport()
    endpoint = first.bind("data")
    with pytest.raises(TopoEnvironmentError):
        second.bind("data", endpoint=endpoint)
    outlet = sender.connect(endpoint, first.public_key)
    post(sender, outlet, b"mine")
    assert collect(first, "data", 1) == [b"mine"]


def test_an_ipc_or_memory_name_is_never_used_twice(world: World) -> None:
    if world.kind == "tcp":
        pytest.skip("the system gives ports out again; keys identify their owners")
    first, second = world.transport(), world.transport()
    endpoint = first.bind("data")
    first.close()
    with pytest.raises(TopoEnvironmentError, match="never used twice"):
        second.bind("data", endpoint=endpoint)


def test_an_outlet_to_an_inbox_of_the_same_transport_works_beside_others(world: World) -> None:
    own, other = world.transport(), world.transport()
    endpoint = own.bind("data")
    inner, outer = own.connect(endpoint, own.public_key), other.connect(endpoint, own.public_key)
    frames = [bytes([number]) for number in range(20)]
    for frame in frames:
        post(own, inner, b"inner" + frame)
        post(other, outer, b"outer" + frame)
    got = collect(own, "data", 40)
    assert [frame[5:] for frame in got if frame.startswith(b"inner")] == frames
    assert [frame[5:] for frame in got if frame.startswith(b"outer")] == frames
    own.unbind("data")
    assert not own.send(inner, b"late")


def test_a_full_inner_outlet_refuses_and_recovers(world: World) -> None:
    own = world.transport()
    outlet = own.connect(own.bind("data"), own.public_key)
    post(own, outlet, b"0")
    taken = 1
    while own.send(outlet, bytes([taken])):
        taken += 1
    assert taken == WATER_MARK
    collect(own, "data", 1)
    own.wait(0)
    assert own.recovered() == [outlet]
    assert own.send(outlet, b"x")


def test_a_stranger_delivers_not_a_byte_and_is_counted(world: World) -> None:
    if not world.is_keyed:
        pytest.skip("a folder's rights keep strangers out")
    receiver, stranger, friend = world.transport(), world.stranger(), world.transport()
    endpoint = receiver.bind("data")
    outlet = stranger.connect(endpoint, receiver.public_key)

    def is_denied() -> bool:
        assert not stranger.send(outlet, b"stranger")
        return receiver.statistics().denied > 0

    until(is_denied, receiver, stranger)
    post(friend, friend.connect(endpoint, receiver.public_key), b"friend")
    assert collect(receiver, "data", 1) == [b"friend"]
    assert receiver.receive("data", 1) == []


def test_a_peer_that_was_denied_gets_in_once_it_is_allowed(world: World) -> None:
    if not world.is_keyed:
        pytest.skip("there is no list")
    receiver, late = world.transport(), world.stranger()
    outlet = late.connect(receiver.bind("data"), receiver.public_key)

    def is_denied() -> bool:
        assert not late.send(outlet, b"too early")
        return receiver.statistics().denied > 0

    until(is_denied, receiver, late)
    assert late.public_key is not None
    receiver.allow([late.public_key])
    post(late, outlet, b"now")
    assert collect(receiver, "data", 1) == [b"now"]


def test_tcp_without_a_key_is_refused(world: World) -> None:
    if world.kind != "tcp":
        pytest.skip("tcp only")
    sender, receiver = world.transport(), world.transport()
    with pytest.raises(ConfigError, match="public key"):
        sender.connect(receiver.bind("data"))


def test_closing_twice_is_harmless(world: World) -> None:
    transport = world.transport()
    transport.connect(transport.bind("data"), transport.public_key)
    transport.close(linger_s=0.1)
    transport.close()
    transport.wake()
