"""A window slice that the watchdog cuts short ends with the call at hand, also when that call raises."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from tests.contract.runners.kinds import Neighbours
from tests.tasks.components import MODES


@pytest.mark.parametrize("guarantee", MODES)
@pytest.mark.parametrize("cut_at_attempt", [1, 2])
def test_a_window_slice_ends_when_a_call_raises_after_a_cut(guarantee: str, cut_at_attempt: int) -> None:
    attempts: list[Any] = []

    def slow(value: Any) -> Iterable[Any]:
        attempts.append(value)
        if value == "slow":
            if attempts.count("slow") == cut_at_attempt:
                task.task.cut_short()
            raise ValueError("too slow")
        return [value]

    task = Neighbours("window", guarantee, slow, attempts=2)
    task.feed("x", "slow", "y", "z")
    task.solo.turn()
    assert attempts == ["x", "slow", "slow"]
    assert task.task.counters.executed == 2
    task.finish()
    assert attempts == ["x", "slow", "slow", "y", "z"]
    assert task.values == ["x", "y", "z"]
    assert task.task.counters.failed == 1
