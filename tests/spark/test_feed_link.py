"""Chunks between a program and a task: done when the task has reported that; chunks of a dead task are sent again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec
import pytest

from tests.integration.support import eventually
from topo.errors import ConfigError
from topo.transport import feed
from topo.transport.feed import (
    MAX_CHUNK_BYTES,
    Chunk,
    FeedAddress,
    FeedListener,
    FeedLost,
    FeedRefused,
    FeedSender,
    new_feed_address,
)

PATIENCE_S = 20.0


@contextmanager
def listening(address: FeedAddress | None = None) -> Iterator[FeedListener]:
    listener = FeedListener(address or new_feed_address("127.0.0.1", 1))
    try:
        yield listener
    finally:
        listener.close()


@contextmanager
def sending(*addresses: FeedAddress, window: int = 4, patience_s: float = PATIENCE_S) -> Iterator[FeedSender]:
    sender = FeedSender(addresses, window, patience_s)
    try:
        yield sender
    finally:
        sender.close()


@contextmanager
def at_the_same_time(action: Callable[[], object]) -> Iterator[list[BaseException]]:
    """Do something in another thread while the block runs; its errors are in the list."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            action()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    yield raised
    thread.join(PATIENCE_S)
    assert not thread.is_alive()


def taken(listener: FeedListener) -> Chunk:
    until = time.monotonic() + PATIENCE_S
    while (chunk := listener.take()) is None:
        assert time.monotonic() < until, "no chunk has come"
        time.sleep(0.005)
    return chunk


def test_a_sender_waits_until_every_chunk_is_done() -> None:
    with listening() as listener, sending(listener.address.for_clients()) as sender:
        sender.send(b"1", b"one")
        sender.send(b"2", b"two")
        is_done = threading.Event()
        with at_the_same_time(lambda: (sender.wait_done(), is_done.set())):
            chunks = [taken(listener), taken(listener)]
            assert chunks == [Chunk(b"1", b"one"), Chunk(b"2", b"two")]
            listener.done(b"2")
            assert not is_done.wait(0.2)
            listener.done(b"1")
        assert is_done.is_set()


def test_no_more_than_a_window_is_on_its_way() -> None:
    with listening() as listener, sending(listener.address, window=2) as sender:
        sent: list[int] = []

        def send_all() -> None:
            for number in range(4):
                sender.send(str(number).encode(), b"x")
                sent.append(number)
            sender.wait_done()

        with at_the_same_time(send_all):
            first, second = taken(listener), taken(listener)
            assert len(sent) <= 2 and listener.take() is None
            for chunk in (first, second):
                listener.done(chunk.id)
            listener.done(taken(listener).id)
            listener.done(taken(listener).id)
        assert sent == [0, 1, 2, 3]


def test_a_listener_holds_as_many_bytes_as_it_may_and_has_the_rest_sent_when_it_has_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "_MOST_BYTES", 8 * 1000)
    with listening() as listener, sending(listener.address.for_clients(), window=20) as sender:
        pushed, push = [], sender._push

        def noted(chunk: bytes) -> None:
            push(chunk)
            if sender._pending[chunk].is_on_its_way:
                pushed.append(chunk)

        monkeypatch.setattr(sender, "_push", noted)

        def send() -> None:
            for number in range(20):
                sender.send(b"%d" % number, bytes(1000))
            sender.wait_done()

        with at_the_same_time(send) as raised:
            eventually(lambda: len(listener._known) == 20)
            assert listener._waiting.qsize() == 8
            asked = sender._asked
            eventually(lambda: sender._asked > asked)
            assert len(pushed) == 20
            for _ in range(20):
                listener.done(taken(listener).id)
    assert not raised


def test_a_successor_at_the_same_address_is_sent_what_was_not_done() -> None:
    first = FeedListener(new_feed_address("127.0.0.1", 1))
    with sending(first.address) as sender:
        sender.send(b"1", b"one")
        sender.send(b"2", b"two")
        is_through = threading.Event()
        with at_the_same_time(lambda: (sender.wait_done(), is_through.set())) as raised:
            taken(first), taken(first)
            first.done(b"1")
            first.close()
            with listening(first.address) as second:
                assert second.address == first.address
                chunk = taken(second)
                if chunk.id == b"1":
                    # The word that it was done has died with its sender.
                    second.done(chunk.id)
                    chunk = taken(second)
                assert chunk == Chunk(b"2", b"two")
                second.done(chunk.id)
                eventually(is_through.is_set)
        assert raised == []


def test_a_chunk_that_is_done_is_not_taken_twice() -> None:
    with listening() as listener:
        with sending(listener.address) as sender:
            sender.send(b"1", b"one")
            with at_the_same_time(sender.wait_done) as raised:
                listener.done(taken(listener).id)
            assert raised == []
        with sending(listener.address) as again:
            again.send(b"1", b"one")
            again.wait_done()
        assert listener.take() is None


@pytest.mark.parametrize("patience_s", [0.8, 1.2])
def test_a_task_that_is_busy_for_long_is_waited_for(patience_s: float) -> None:
    with listening() as listener, sending(listener.address, patience_s=patience_s) as sender:
        sender.send(b"1", b"one")
        with at_the_same_time(sender.wait_done) as raised:
            chunk = taken(listener)
            time.sleep(3)
            assert raised == []
            listener.done(chunk.id)
        assert raised == []


def test_a_task_that_is_gone_is_given_up() -> None:
    listener = FeedListener(new_feed_address("127.0.0.1", 1))
    with sending(listener.address, patience_s=1.5) as sender:
        sender.send(b"1", b"one")
        listener.close()
        with pytest.raises(FeedLost, match="was silent for"):
            sender.wait_done()


def test_a_refusal_comes_with_its_reason() -> None:
    with listening() as listener, sending(listener.address) as sender:
        sender.send(b"1", b"one")
        with at_the_same_time(sender.wait_done) as raised:
            listener.refuse(taken(listener).id, "no column 'x'")
        assert isinstance(raised[0], FeedRefused) and str(raised[0]) == "no column 'x'"


def test_a_chunk_that_is_too_long_for_the_link_is_refused_and_not_sent_for_ever() -> None:
    with listening() as listener, sending(listener.address) as sender:
        with pytest.raises(FeedRefused, match="a row of 67,107,841 bytes is too long: at most 67,107,840"):
            sender.send(b"1", bytes(MAX_CHUNK_BYTES + 1))
        sender.send(b"2", bytes(MAX_CHUNK_BYTES))
        with at_the_same_time(sender.wait_done) as raised:
            listener.done(taken(listener).id)
        assert not raised


def test_whoever_has_not_the_key_is_not_heard() -> None:
    with listening() as listener:
        other = new_feed_address("127.0.0.1", 1)
        stranger = msgspec.structs.replace(listener.address, client_public=other.client_public, client_secret=other.client_secret)
        with sending(stranger, patience_s=1.5) as sender:
            sender.send(b"1", b"one")
            with pytest.raises(FeedLost, match=r"has no connection to it: can it reach that address, .* is the key still that"):
                sender.wait_done()
        assert listener.take() is None


def test_a_listener_on_every_interface_is_refused() -> None:
    with pytest.raises(ConfigError, match="name one interface"):
        FeedListener(new_feed_address("0.0.0.0", 1))


def test_a_port_that_is_taken_is_replaced() -> None:
    with listening() as first, listening(first.address) as second:
        assert second.address.endpoint != first.address.endpoint
        assert second.address.server_public == first.address.server_public
