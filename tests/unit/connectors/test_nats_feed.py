"""The requests of a JetStream partition, and its filters."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from topo import NatsSpout
from topo.connectors.nats.subject_feed import SubjectFeed, overlap


@pytest.mark.parametrize(
    ("one", "other", "do"),
    [
        ("o.>", "o.a", True),
        ("o.a.b", "o.>", True),
        (">", "x", True),
        ("o.*", "o.a", True),
        ("o.*.a", "o.b.*", True),
        ("o.>", "o", False),
        ("o.*", "o.a.b", False),
        ("o.a", "o.b", False),
        ("o.*.a", "o.*.b", False),
        ("oa", "o", False),
    ],
)
def test_filters_overlap_when_a_subject_can_match_both(one: str, other: str, do: bool) -> None:
    assert overlap(one, other) == overlap(other, one) == do


class Line:
    """A connection over which `count` messages come, and then nothing."""

    timeout_s, number = 0.05, 1

    def __init__(self, count: int) -> None:
        self.count = count

    def new_inbox(self) -> str:
        return "inbox"

    async def subscribe(self, _inbox: str, cb: Any) -> Any:
        self.take = cb

        async def unsubscribe() -> None:
            pass

        return SimpleNamespace(unsubscribe=unsubscribe)

    async def publish(self, _subject: str, _ask: bytes, reply: str) -> None:
        for number in range(1, self.count + 1):
            data = {"data": b"x", "subject": "s", "headers": None, "reply": f"$JS.ACK.S.C.1.{number}.{number}.0.5"}
            await self.take(SimpleNamespace(**data))

    def run(self, action: Any) -> Any:
        return asyncio.run(action(self, None))


def feed_on(line: Line) -> SubjectFeed:
    feed = SubjectFeed(line, "S", ">", (1, 0), 10)  # type: ignore[arg-type]
    feed._consumer, feed._number = "C", 1
    return feed


def test_messages_that_come_before_a_time_out_are_kept() -> None:
    feed = feed_on(Line(3))
    assert [message.sequence for message in feed.fetch().messages] == [1, 2, 3]
    assert feed._consumer == "", "the rest is asked for by another consumer, which begins behind these"
    assert feed._seen == 3


def test_a_time_out_without_messages_is_an_error() -> None:
    with pytest.raises(asyncio.TimeoutError):
        feed_on(Line(0)).fetch()


def test_a_stream_has_no_end_whatever_is_looked_for() -> None:
    pytest.importorskip("nats")
    assert NatsSpout("nats://localhost", "JOBS", durable="workers").is_endless
    assert NatsSpout("nats://localhost", "JOBS", discovery_interval=None).is_endless
