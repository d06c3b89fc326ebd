"""Messages between workers."""

from __future__ import annotations

import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topo.errors import FrameError
from topo.ids import TaskId
from topo.wire.envelope import MESSAGE_BYTES, Addressed, longest_message, pack, unpack

FRAMES: list[Addressed] = [(TaskId(7), b"seven"), (TaskId(1), b""), (TaskId(7), b"again")]
MESSAGE = pack(FRAMES)[1]


def test_a_message_has_its_bytes() -> None:
    stored = bytes.fromhex("744d0100 02000000 02000000 02000000 02010000 01000000 616263")
    assert pack([(TaskId(2), b"ab"), (TaskId(258), b"c")]) == (2, stored)


@given(st.lists(st.tuples(st.integers(1, 2**32 - 1), st.binary(max_size=300)), min_size=1, max_size=40))
def test_frames_come_out_as_they_went_in(frames: list[Addressed]) -> None:
    count, message = pack(frames)
    assert count == len(frames)
    assert [(task, bytes(frame)) for task, frame in unpack(message)] == frames


def test_a_message_takes_no_frame_behind_the_one_that_fills_it() -> None:
    largest = bytes(3 * MESSAGE_BYTES)
    frames: list[Addressed] = [(TaskId(1), bytes(MESSAGE_BYTES - 9)), (TaskId(2), largest), (TaskId(3), b"later")]
    count, message = pack(frames)
    assert count == 2 and len(message) <= longest_message(len(largest))
    assert pack(frames[2:])[0] == 1


def test_a_frame_with_damaged_bytes_leaves_its_neighbours_whole() -> None:
    damaged = bytearray(MESSAGE)
    at = MESSAGE.index(b"seven")
    damaged[at : at + 5] = b"\xff" * 5
    assert [bytes(frame) for _, frame in unpack(bytes(damaged))] == [b"\xff" * 5, b"", b"again"]


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (b"", "shorter than its header"),
        (MESSAGE[:7], "shorter than its header"),
        (MESSAGE[:20], "cannot hold 3 frames"),
        (MESSAGE[:-1], "table demands"),
        (MESSAGE + b"\0", "table demands"),
        (b"pt" + MESSAGE[2:], "not a message between workers"),
        (MESSAGE[:2] + b"\2" + MESSAGE[3:], "version 2; this side speaks 1"),
        (MESSAGE[:4] + struct.pack("<I", 2**32 - 1) + MESSAGE[8:], "cannot hold 4294967295 frames"),
        (MESSAGE[:12] + struct.pack("<I", 2**32 - 1) + MESSAGE[16:], "table demands"),
    ],
)
def test_a_message_that_does_not_match_its_table_is_refused(message: bytes, why: str) -> None:
    with pytest.raises(FrameError, match=why):
        unpack(message)


@given(st.binary(max_size=400), st.integers(0, len(MESSAGE) - 1), st.integers(0, 7))
def test_noise_is_refused_or_split_and_raises_nothing_else(noise: bytes, at: int, bit: int) -> None:
    flipped = bytearray(MESSAGE)
    flipped[at] ^= 1 << bit
    for message in (noise, MESSAGE[:8] + noise, bytes(flipped)):
        with suppress(FrameError):
            assert sum(len(frame) for _, frame in unpack(message)) <= len(message)
