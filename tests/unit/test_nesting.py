"""The bound on the nesting of payloads, whatever the payload is held in."""

from __future__ import annotations

import inspect
import sys
from typing import Any

import msgpack
import pytest

from topo.nesting import MAX_DEPTH, TooDeep, check_depth


@pytest.mark.parametrize("held", [bytes, bytearray, memoryview])
def test_a_long_payload_may_be_held_in_any_kind_of_buffer(held: Any) -> None:
    check_depth(held(msgpack.packb([(number, "word") for number in range(100_000)])))


@pytest.mark.parametrize("held", [bytes, bytearray, memoryview])
def test_one_level_too_many_is_refused(held: Any) -> None:
    arrays = b"\x91" * MAX_DEPTH
    check_depth(held(arrays[1:] + b"\x90"))
    with pytest.raises(TooDeep):
        check_depth(held(arrays + b"\x90"))


def test_a_short_recursion_limit_bounds_nothing() -> None:
    payload = msgpack.packb(["word" * 100]).replace(b"\xda", b"\x91" * 200 + b"\xda", 1)
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack()) + 60)
    try:
        check_depth(payload)
    finally:
        sys.setrecursionlimit(before)


@pytest.mark.parametrize("block", [bytes(100_000), msgpack.ExtType(5, bytes(100_000))], ids=["bytes", "ext"])
@pytest.mark.parametrize("arrays", [0, 2, 5, MAX_DEPTH - 1])
def test_a_payload_that_is_one_long_block_is_whole_or_refused(block: Any, arrays: int) -> None:
    payload = b"\x91" * arrays + msgpack.packb(block)
    check_depth(payload)
    for damaged in (payload[:-1], payload + b"\x00"):
        with pytest.raises(Exception, match=r".*"):
            check_depth(damaged)
    with pytest.raises(TooDeep):
        check_depth(b"\x91" * (MAX_DEPTH + 1 - arrays) + payload)
