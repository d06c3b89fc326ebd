"""Values that a task cannot decode: the rest of the frame is processed, and each unreadable row fails alone, in every mode."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.task.harness import CODEC, Ids, Manual, Plain, Scripted, Sink, Solo, chain, with_store
from tests.unit.task.test_lost_rows import pass_barrier
from topo.wire.codec import Codec
from topo.wire.control import CheckpointComplete, ComponentError, DeadLetter, EdgeLost
from topo.wire.frames import FrameKind
from topo.wire.serializers import SerializerRegistry


class Money:
    """Decodes unless it is 0."""

    def __init__(self, cents: int) -> None:
        self.cents = cents


def decode(data: bytes) -> Money:
    if data == b"0":
        raise ValueError("no money")
    return Money(int(data))


def codec_with(decode: Any) -> Codec:
    registry = SerializerRegistry()
    registry.register(Money, 40, lambda money: str(money.cents).encode(), decode)
    return Codec(registry)


def pass_on_cents(tup: Any, collector: Any) -> None:
    if hasattr(collector, "ack"):
        collector.emit((tup[0].cents,), anchors=tup)
        collector.ack(tup)
    else:
        collector.emit((tup[0].cents,))


KINDS = pytest.mark.parametrize("kind", [Plain, Manual])


def relay(kind: Any, *, read: Any = decode, **settings: Any) -> Solo:
    solo = Solo(chain(Scripted(), kind(pass_on_cents), Sink(), **settings), "b")
    solo.task.ports.codec = codec_with(read)
    return solo


def feed(solo: Solo, *cents: int, **more: Any) -> Ids:
    """Deliver one frame with an amount in each row."""
    ids = solo.feed(*cents, **more)
    frame = solo.task.inbound.queue[-1][1]
    frame.payload = solo.task.ports.codec.pack_rows([(Money(one),) for one in cents])
    return ids


WHY = "ValueNotCarried: component 'b', field 'value' of a tuple from 'a': 1 byte cannot be decoded as Money: ValueError: no money"


@KINDS
def test_tracked_only_the_roots_of_the_unreadable_row_fail(kind: Any) -> None:
    solo = relay(kind)
    ids = feed(solo, 1, 0, 2)
    solo.run()
    assert solo.values() == [1, 2]
    assert solo.roots(FrameKind.FAIL) == [ids.roots[1]]
    assert set(solo.acks()) == {ids.roots[0], ids.roots[2]}
    assert (solo.task.counters.failed, solo.task.counters.acked) == (1, 2)
    (error,) = solo.errors()
    assert error == WHY


def test_the_error_of_an_unreadable_row_has_the_line_of_the_users_decode() -> None:
    solo = relay(Plain)
    feed(solo, 0)
    solo.run()
    (error,) = solo.messages(ComponentError)
    code = decode.__code__
    assert (error.file, error.line) == (code.co_filename, code.co_firstlineno + 2)


@KINDS
def test_tracked_rows_with_several_roots_keep_theirs(kind: Any) -> None:
    solo = relay(kind)
    feed(solo, 1, 0, 2, ids=Ids([(11, 12), (13,), (14,)], [(1, 2), (3,), (4,)]), stamps=[5, 6, 7])
    solo.run()
    assert (solo.values(), solo.roots(FrameKind.FAIL)) == ([1, 2], [13])
    assert set(solo.acks()) == {11, 12, 14}


@KINDS
def test_with_checkpoints_the_unreadable_row_alone_is_a_dead_letter(kind: Any) -> None:
    solo = with_store(relay(kind, delivery="exactly_once"))
    feed(solo, 1, 0, 2, tracked=False)
    pass_barrier(solo, 1)
    solo.handle(CheckpointComplete(1))
    assert solo.values() == [1, 2]
    (letter,) = solo.messages(DeadLetter)
    assert CODEC.unpack_value(letter.values) == ("(not decoded: 1 byte cannot be decoded as Money: ValueError: no money)",)
    assert letter.errors[0].startswith("ValueNotCarried: component 'b', field 'value' of a tuple from 'a'")
    assert solo.task.counters.failed == 1


@KINDS
def test_untracked_the_unreadable_row_is_counted_and_reported(kind: Any) -> None:
    solo = relay(kind, ackers=0)
    feed(solo, 1, 0, 2, tracked=False)
    solo.run()
    assert solo.values() == [1, 2]
    assert (solo.task.counters.failed, solo.errors()) == (1, [WHY])


@KINDS
def test_a_frame_without_a_readable_row_is_processed(kind: Any) -> None:
    solo = relay(kind)
    ids = feed(solo, 0, 0)
    solo.run()
    assert solo.roots(FrameKind.FAIL) == ids.roots
    assert not solo.task.inbound.queue
    feed(solo, 7)
    solo.run()
    assert solo.values() == [7]


def test_on_error_crash_ends_the_process() -> None:
    solo = relay(Plain, on_error="crash")
    feed(solo, 1, 0, 2)
    with pytest.raises(Exception, match="no money"):
        solo.run()


@KINDS
@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_a_shortage_of_memory_ends_the_process(kind: Any, delivery: str) -> None:
    def exhausted(data: bytes) -> Money:
        raise MemoryError

    solo = relay(kind, read=exhausted, delivery=delivery)
    feed(solo, 1, tracked=delivery == "at_least_once")
    with pytest.raises(MemoryError):
        solo.run()


def test_with_checkpoints_a_payload_of_no_rows_is_a_lost_frame() -> None:
    """Its rows are gone: the topology goes back to the checkpoint before them, rather than on without them."""
    solo = relay(Plain, delivery="exactly_once")
    for cents in (1, 2, 3):
        feed(solo, cents, tracked=False)
    solo.task.inbound.queue[1][1].payload = b"\xc1" * 8
    solo.run()
    (lost,) = solo.messages(EdgeLost)
    assert (lost.sender, "frame 2 cannot be read" in lost.why) == (1, True)
    assert (solo.values(), solo.task.counters.malformed_frames) == ([1], 1)
    assert "FrameError" in solo.errors()[0]
