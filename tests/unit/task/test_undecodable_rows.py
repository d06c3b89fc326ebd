"""Values that a task cannot decode: the rest of the frame is processed, and each unreadable row fails alone, in every mode."""

from __future__ import annotations

from typing import Any

import pytest

from tests.money import Money, codec_with, refuse_zero
from tests.tasks import bolts
from tests.tasks.bolts import KINDS
from tests.tasks.components import Plain
from tests.tasks.solo import RowIds, Solo
from topo.wire.control import ComponentError, EdgeLost
from topo.wire.frames import FrameKind


def relay(kind: Any, *, read: Any = refuse_zero, **settings: Any) -> Solo:
    """A bolt b that passes amounts on, in a process that reads them with `read`."""
    _, solo = bolts.relay(kind, lambda tup, c: (bolts.emit(tup, c, tup[0].cents), bolts.done(tup, c)), **settings)
    solo.env.codec = codec_with(read)
    return solo


def feed(solo: Solo, *cents: int, **more: Any) -> RowIds:
    """Deliver one frame with an amount in each row."""
    ids = solo.feed(*cents, **more)
    frame = solo.task.inbound.queue[-1][1]
    frame.payload = solo.env.codec.pack_rows([(Money(one),) for one in cents])
    return ids


WHY = (
    "UnsupportedValueError: component 'b', field 'value' of a tuple from 'a': "
    "1 byte cannot be decoded as Money: ValueError: no money"
)


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
    code = refuse_zero.__code__
    assert (error.file, error.line) == (code.co_filename, code.co_firstlineno + 2)


@KINDS
def test_tracked_rows_with_several_roots_keep_theirs(kind: Any) -> None:
    solo = relay(kind)
    feed(solo, 1, 0, 2, ids=RowIds([(11, 12), (13,), (14,)], [(1, 2), (3,), (4,)]), stamps=[5, 6, 7])
    solo.run()
    assert (solo.values(), solo.roots(FrameKind.FAIL)) == ([1, 2], [13])
    assert set(solo.acks()) == {11, 12, 14}


@KINDS
def test_with_checkpoints_the_unreadable_row_alone_is_a_dead_letter(kind: Any) -> None:
    solo = relay(kind, delivery="exactly_once")
    feed(solo, 1, 0, 2, tracked=False)
    solo.barrier(1)
    solo.complete(1)
    assert solo.values() == [1, 2]
    ((values, _),) = solo.dead_letters()
    assert values == ("(not decoded: 1 byte cannot be decoded as Money: ValueError: no money)",)
    assert solo.dead_letter_errors()[0].startswith("UnsupportedValueError: component 'b', field 'value' of a tuple from 'a'")
    assert solo.task.counters.failed == 1


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
