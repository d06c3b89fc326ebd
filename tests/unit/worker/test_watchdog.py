"""The watchdog: its report of a task that is stuck."""

from __future__ import annotations

import sys
from types import FrameType

from topo.worker.watchdog import described


def test_the_stack_of_an_endless_recursion_is_its_innermost_part() -> None:
    def deepest(depth: int) -> FrameType:
        return deepest(depth - 1) if depth else sys._getframe()

    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(limit + 5_000)
    try:
        text, place = described(deepest(4_000))
    finally:
        sys.setrecursionlimit(limit)

    assert text.count("return deepest(depth - 1)") == 3
    assert text.endswith("[Previous line repeated 197 more times]\n")
    assert "test_the_stack_of_an_endless" not in text
    assert place == (__file__, deepest.__code__.co_firstlineno + 1)
