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
