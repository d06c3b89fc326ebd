"""What RabbitMQ's connector decides, without a broker."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from topo import ConfigError, RabbitSink, RabbitSpout
from topo.connectors.rabbitmq.deliveries import QueueDeliveries, Settlement
from topo.connectors.rabbitmq.publisher import Confirms, RoutedMessage

pytest.importorskip("pika")

A, B = ("a", 1), ("b", 2)


def deliveries(*tags: int, channel: int = 1, rejects_dead: bool = True) -> QueueDeliveries:
    """Messages without ids at positions 1, 2, ..."""
    made = QueueDeliveries(rejects_dead=rejects_dead, most_done=4)
    for position, tag in enumerate(tags, 1):
        arrive(made, tag, position, channel)
    return made


def arrive(to: QueueDeliveries, tag: int, position: int, channel: int = 1, known_as: Any = None, again: bool = False) -> bool:
    found = to.arrive(tag, channel, known_as, is_redelivered=again)
    if found is not None:
        found.position = position
    return found is not None


def test_done_messages_are_acknowledged_by_one_tag() -> None:
    made = deliveries(1, 2, 3)
    assert made.settle(2, 1) == Settlement(up_to=2)
    assert made.settle(2, 1) == Settlement()
    assert made.settle(9, 1) == Settlement(up_to=3) and len(made) == 0


def test_a_message_that_was_given_up_is_rejected_before_one_tag_acknowledges_its_neighbours() -> None:
    made = deliveries(1, 2, 3)
    made.dead(2)
    assert made.settle(3, 1) == Settlement(rejected=(2,), up_to=3)
    made = deliveries(1, 2, rejects_dead=False)
    made.dead(2)
    assert made.settle(2, 1) == Settlement(up_to=2)


def test_messages_of_a_lost_channel_are_not_settled() -> None:
    made = deliveries(1, 2)
    assert made.settle(1, 0) == Settlement()
    arrive(made, 1, 3, channel=2)
    assert made.settle(2, 2) == Settlement()
    assert made.settle(3, 2) == Settlement(up_to=1)


def test_a_redelivery_of_an_open_message_is_that_message() -> None:
    made = QueueDeliveries(rejects_dead=True, most_done=4)
    arrive(made, 1, 1, known_as=A)
    arrive(made, 2, 2, known_as=B)
    # On the next channel they come in another order.
    assert not arrive(made, 1, 0, channel=2, known_as=B, again=True)
    assert not arrive(made, 2, 0, channel=2, known_as=A, again=True)
    assert made.settle(1, 2) == Settlement(acknowledged=(2,)), "tag 1 is open: no tag stands for all up to 2"
    assert made.settle(2, 2) == Settlement(up_to=1)


@pytest.mark.parametrize("is_dead", [False, True])
def test_a_redelivery_of_a_done_message_is_settled_and_not_emitted(is_dead: bool) -> None:
    made = QueueDeliveries(rejects_dead=True, most_done=4)
    arrive(made, 5, 1, known_as=A)
    if is_dead:
        made.dead(1)
    assert made.settle(1, 0) == Settlement()
    assert not arrive(made, 1, 0, channel=2, known_as=A, again=True)
    assert made.settle(1, 2) == (Settlement(rejected=(1,)) if is_dead else Settlement(up_to=1))


def test_a_message_whose_acknowledgement_was_lost_is_settled_again_until_it_is_forgotten() -> None:
    made = QueueDeliveries(rejects_dead=True, most_done=4)
    arrive(made, 1, 1, known_as=A)
    for channel in (1, 2, 3):
        assert made.settle(1, channel) == Settlement(up_to=1)
        assert not arrive(made, 1, 0, channel + 1, known_as=A, again=True)
    for number in range(2, 6):
        arrive(made, number, number, channel=4, known_as=("later", number))
    made.settle(5, 4)
    assert arrive(made, 6, 6, channel=5, known_as=A, again=True)


def test_a_new_message_with_a_known_id_is_emitted() -> None:
    made = QueueDeliveries(rejects_dead=True, most_done=4)
    assert arrive(made, 1, 1, known_as=A)
    assert arrive(made, 2, 2, known_as=A)
    assert made.settle(2, 1) == Settlement(up_to=2)


def test_confirms_end_a_batch_in_any_order() -> None:
    async def run() -> None:
        messages = [RoutedMessage("k", b"%d" % n, str(n)) for n in range(5)]
        batch = Confirms(messages, asyncio.get_running_loop().create_future())
        batch.confirmed(3, is_multiple=False, is_taken=True)
        batch.returned("k", "1", b"1", "no queue")
        batch.confirmed(2, is_multiple=True, is_taken=True)
        assert list(batch.waiting) == [4] and not batch.end.done()
        batch.confirmed(4, is_multiple=False, is_taken=False)
        assert batch.end.done() and batch.refused == {1: "no queue", 4: "the broker has not taken it"}

    asyncio.run(run())


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: RabbitSpout("http://x", "q"), "must be amqp://"),
        (lambda: RabbitSpout("amqp://u:planted-pw@x/?unknown=1&heartbeat=x", "q"), "heartbeat"),
        (lambda: RabbitSpout("amqp://x", ""), "name of a queue"),
        (lambda: RabbitSpout("amqp://x", "q", prefetch=0), "from 1 to 65535"),
        (lambda: RabbitSpout("amqp://x", "q", on_dead="drop"), "'dead_letter' or 'reject'"),  # type: ignore[arg-type]
        (lambda: RabbitSpout("amqp://x", "q", max_deliveries=0), "at least 1"),
        (lambda: RabbitSpout("amqp://x", "q", heartbeat="1s"), "at least 2s"),
        (lambda: RabbitSink("amqp://x", "", ""), "routing_key"),
        (lambda: RabbitSink("amqp://x", "e", "{a.b}"), "names of fields"),
        (lambda: RabbitSink("amqp://u:planted-pw@x:99999", "e", "k"), "url="),
    ],
)
def test_arguments_that_cannot_be_used_are_refused(make: Any, error: str) -> None:
    with pytest.raises(ConfigError, match=error) as refused:
        make()
    assert "planted" not in str(refused.value)
