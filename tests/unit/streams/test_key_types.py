"""Two streams meet by key: keys of different types never match, which is refused at build, or warned of at run time."""

from __future__ import annotations

import logging
from collections.abc import Callable
from decimal import Decimal
from typing import Any, NewType

import msgspec
import pytest

from topo import TopologyError
from topo.streams import CoProcess, StreamBuilder, Tumbling
from topo.testing import StreamTest

UserId = NewType("UserId", str)


class Order(msgspec.Struct):
    id: int
    user: UserId | None = None
    price: Decimal = Decimal(0)
    at: int = 0


class Payment(msgspec.Struct):
    order: str
    cents: int = 0
    at: int = 0


class Both(CoProcess[Any, Order, Payment, int]):
    def process_left(self, record: Order, context: Any, out: Any) -> None: ...

    def process_right(self, record: Payment, context: Any, out: Any) -> None: ...


def number(payment: Payment) -> int:
    return int(payment.order)


JOINS: dict[str, Callable[[Any, Any], Any]] = {
    "join": lambda left, right: left.join(right, max, window=Tumbling("1s")),
    "interval_join": lambda left, right: left.interval_join(right, max, after="1s"),
    "join_table": lambda left, right: left.join_table(right.latest(), max),
    "join_table as of": lambda left, right: left.join_table(right.latest(), max, as_of=True),
    "connect": lambda left, right: left.connect(right).process(Both()),
}


def build(join: str, left: Callable[[Order], Any], right: Callable[[Payment], Any]) -> None:
    flow = StreamBuilder("program")
    orders = flow.from_iterable([Order(1)], name="orders").with_event_time(lambda order: order.at)
    payments = flow.from_iterable([Payment("1")], name="payments").with_event_time(lambda payment: payment.at)
    JOINS[join](orders.key_by(left), payments.key_by(right)).values().to(print)
    flow.build()


@pytest.mark.parametrize("join", JOINS)
def test_keys_that_can_never_match_are_refused_at_build(join: str) -> None:
    """The join gave no pair, in silence."""
    with pytest.raises(
        TopologyError,
        match=r"its keys are int, of key_by at test_key_types\.py:\d+, but those of key_by at test_key_types\.py:\d+ are str; "
        "they never match: make them one type",
    ):
        build(join, lambda order: order.id, lambda payment: payment.order)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (lambda order: order.id, number),
        (lambda order: order.id, lambda payment: payment.order + ""),
        (lambda order: order.user, lambda payment: payment.order),
        (lambda order: order.price, lambda payment: payment.cents),
        (lambda order: (order.id,), lambda payment: payment.order),
    ],
)
def test_keys_that_may_match_are_not_refused(left: Any, right: Any) -> None:
    build("interval_join", left, right)


@pytest.mark.parametrize("tasks", [1, 2])
@pytest.mark.parametrize("join", [name for name in JOINS if name != "connect"])
def test_keys_of_different_types_are_warned_of_once(join: str, tasks: int, caplog: pytest.LogCaptureFixture) -> None:
    with StreamTest() as test, caplog.at_level(logging.WARNING, "topo.streams"):
        orders, payments = test.source(Order), test.source(Payment, "payments")
        left = orders.stream.key_by(lambda order: order.id + 0, parallelism=tasks)
        right = payments.stream.key_by(lambda payment: payment.order + "", parallelism=tasks)
        seen = test.collect(JOINS[join](left, right).values())
        for key in range(8):
            orders.send(Order(key), at=10)
            payments.send(Payment(str(key)), at=10)
        orders.end()
        payments.end()
        assert seen.all == []
    assert len(caplog.messages) == tasks
    assert "was given the key 0 (int) on the left" in caplog.messages[0] or tasks > 1
    assert all("such keys never match; make them one type in key_by" in text for text in caplog.messages)


def test_keys_of_one_type_are_not_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    with StreamTest() as test, caplog.at_level(logging.WARNING, "topo.streams"):
        orders, payments = test.source(Order), test.source(Payment, "payments")
        left, right = orders.stream.key_by(lambda order: order.id), payments.stream.key_by(number)
        seen = test.collect(left.interval_join(right, lambda order, payment: order.id, after="1s").values())
        orders.send(Order(1), at=10)
        payments.send(Payment("1"), at=10)
        assert seen.all == [1]
    assert caplog.messages == []
