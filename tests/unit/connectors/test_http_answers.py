"""What an answer means for its row, and the order of those who wait by key."""

from __future__ import annotations

import asyncio

import pytest

from topo.connectors.http.answers import RetryRules, is_success, retry_after_s
from topo.connectors.http.key_locks import KeyLocks

NOW = "Tue, 29 Sep 2026 10:00:00 GMT"


@pytest.mark.parametrize(
    ("header", "date", "expected"),
    [
        ("7", None, 7.0),
        (" 0 ", None, 0.0),
        ("Tue, 29 Sep 2026 10:00:09 GMT", NOW, 9.0),
        ("Tue, 29 Sep 2026 09:00:00 GMT", NOW, 0.0),
        ("Tue, 29 Sep 2026 10:00:09 GMT", None, None),
        ("soon", NOW, None),
        ("-3", NOW, None),
        ("٣", NOW, None),
        (None, NOW, None),
        ("9" * 5000, None, 999999999.0),
    ],
)
def test_a_receiver_may_ask_for_a_pause(header: str | None, date: str | None, expected: float | None) -> None:
    assert retry_after_s(header, date) == expected


def test_pauses_double_until_the_time_is_up() -> None:
    rules = RetryRules((503,), 60.0)
    assert [rules.pause_s(attempt, 0.0, None, None) for attempt in (1, 2, 3, 7, 8, 5000)] == [0.5, 1.0, 2.0, 30.0, 30.0, 30.0]
    assert rules.pause_s(2, 59.0, 503, None) == 1.0 and rules.pause_s(2, 59.1, 503, None) is None


def test_the_receivers_pause_is_kept_as_far_as_there_is_time_for_it() -> None:
    rules = RetryRules((503,), 60.0)
    assert rules.pause_s(1, 0.0, 503, 0.0) == 0.5, "but no request follows at once"
    assert rules.pause_s(9, 0.0, 503, 60.0) == 60.0 and rules.pause_s(1, 20.0, 503, 61.0) == 40.0
    assert rules.pause_s(2, 59.6, 503, 61.0) is None


def test_other_answers_are_final() -> None:
    rules = RetryRules((503,), 60.0)
    assert [rules.pause_s(1, 0.0, status, 1.0) for status in (301, 400, 404, 429, 500)] == [None] * 5
    assert [is_success(status) for status in (199, 200, 204, 299, 300)] == [False, True, True, True, False]


def test_a_key_is_held_in_the_order_of_those_who_ask_and_forgotten_after_them() -> None:
    async def scenario() -> tuple[list[str], int]:
        locks, steps = KeyLocks(), list[str]()

        async def use(key: str, name: str) -> None:
            async with locks.of(key):
                steps.append(f"{name} begins")
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                steps.append(f"{name} ends")
                if name == "a1":
                    raise ValueError(name)

        await asyncio.gather(use("a", "a1"), use("a", "a2"), use("b", "b1"), use("a", "a3"), return_exceptions=True)
        return steps, len(locks)

    steps, left = asyncio.run(scenario())
    assert [step for step in steps if step[0] == "a"] == [f"a{n} {what}" for n in (1, 2, 3) for what in ("begins", "ends")]
    assert steps.index("b1 begins") < steps.index("a1 ends") and left == 0


def test_who_is_cancelled_while_waiting_does_not_keep_a_key() -> None:
    async def scenario() -> int:
        locks = KeyLocks()

        async def use() -> None:
            async with locks.of("a"):
                await asyncio.sleep(0)

        tasks = [asyncio.ensure_future(use()) for _ in range(3)]
        await asyncio.sleep(0)
        tasks[1].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return len(locks)

    assert asyncio.run(scenario()) == 0
