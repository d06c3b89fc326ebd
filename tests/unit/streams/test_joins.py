"""Joins equal a scan of both inputs, also with a task killed half way and with another parallelism."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest

from topo import TopologyError
from topo.streams import CoProcess, KeyedStream, KeyedValue, StreamBuilder, StreamContext, StreamOutput, Tumbling
from topo.testing import END, PAUSE, StreamTest, TopologyTest

pytestmark = pytest.mark.long


class Order(msgspec.Struct):
    id: str
    tags: list[str]
    at: int


class Payment(msgspec.Struct):
    order: str
    cents: int
    at: int


def pair(order: Order | None, payment: Payment | None) -> tuple[int, int]:
    assert order is None or type(order.tags) is list
    return (order.at if order else -1, payment.at if payment else -1)


class Both(CoProcess[str, Order, Payment, str]):
    paid = KeyedValue(Payment)

    def process_left(self, record: Order, context: StreamContext[str], out: StreamOutput[str]) -> None:
        kept = self.paid.get()
        out.emit(f"{context.key} {kept.cents if kept else '-'}")

    def process_right(self, record: Payment, context: StreamContext[str], out: StreamOutput[str]) -> None:
        self.paid.set(record)


def given(seed: int) -> tuple[list[Order], list[Payment]]:
    chance = Random(seed)
    orders = [Order(chance.choice("ab"), ["x"], at) for at in sorted(chance.sample(range(60), 12))]
    return orders, [Payment(chance.choice("ab"), 1, at) for at in sorted(chance.sample(range(60), 12))]


def joined(kind: str, seed: int, tasks: int, crash: bool) -> list[Any]:
    """Run a join over both inputs, in any order of their records with watermarks behind."""
    orders, payments = given(seed)
    with StreamTest(seed=seed) as test:
        a, b = test.source(Order), test.source(Payment, "payments")
        left = a.stream.key_by(lambda order: order.id, parallelism=tasks)
        right = b.stream.key_by(lambda payment: payment.order, parallelism=tasks)
        results: KeyedStream[str, tuple[int, int]]
        if kind.endswith("interval"):
            method = left.left_interval_join if kind.startswith("left") else left.interval_join
            results = method(right, pair, before="5ms", after="10ms", name="joined")
        else:
            method = {"inner": left.join, "left": left.left_join, "outer": left.outer_join}[kind]
            results = method(right, pair, window=Tumbling("10ms"), name="joined")
        seen = test.collect(results.values())
        for index, (order, payment) in enumerate(zip(orders, payments, strict=True)):
            a.send(order, at=order.at)
            b.send(payment, at=payment.at)
            if crash and index == 5:
                test.crash("joined")
            a.watermark(order.at)
            b.watermark(payment.at)
        a.end()
        b.end()
        return sorted(seen.all)


def expected(kind: str, seed: int) -> list[tuple[int, int]]:
    orders, payments = given(seed)

    def fits(order: Order, payment: Payment) -> bool:
        near = -5 <= payment.at - order.at <= 10 if kind.endswith("interval") else order.at // 10 == payment.at // 10
        return order.id == payment.order and near

    pairs = [(o.at, p.at) for o in orders for p in payments if fits(o, p)]
    if kind.startswith(("left", "outer")):
        pairs += [(o.at, -1) for o in orders if not any(fits(o, p) for p in payments)]
    if kind == "outer":
        pairs += [(-1, p.at) for p in payments if not any(fits(o, p) for o in orders)]
    return sorted(pairs)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("tasks", "crash"), [(1, False), (2, True)])
@pytest.mark.parametrize("kind", ["inner", "left", "outer", "interval", "left_interval"])
def test_a_join_equals_a_scan_of_both_inputs(kind: str, tasks: int, crash: bool, seed: int) -> None:
    assert joined(kind, seed, tasks, crash) == expected(kind, seed)


def changing(order: Order, payment: Payment) -> tuple[tuple[str, ...], int]:
    """Changes both records, one of them in a list of it."""
    order.tags.append(payment.order)
    payment.cents += 1
    return tuple(order.tags), payment.cents


@pytest.mark.parametrize("kind", ["window", "interval", "table", "as_of"])
def test_a_function_that_changes_the_records_of_a_pair_changes_no_other_pair(kind: str) -> None:
    with StreamTest() as test:
        a, b = test.source(Order), test.source(Payment, "payments")
        left, right = a.stream.key_by(lambda order: order.id), b.stream.key_by(lambda payment: payment.order)
        pairs: KeyedStream[str, Any]
        if kind == "window":
            pairs = left.join(right, changing, window=Tumbling("10ms"), name="joined")
        elif kind == "interval":
            pairs = left.interval_join(right, changing, before="10ms", after="10ms", name="joined")
        else:
            pairs = left.join_table(right.latest(), changing, as_of=kind == "as_of", name="joined")
        seen = test.collect(pairs.values())
        b.send(Payment("a", 1, 1), at=1)
        if kind in ("window", "interval"):
            b.send(Payment("a", 1, 1), at=2)
        a.send(Order("a", ["x"], 2), Order("a", ["x"], 3), at=3)
        a.end()
        b.end()
        assert seen.all == [(("x", "a"), 2)] * (4 if kind in ("window", "interval") else 2)


def test_a_table_has_the_latest_row_and_a_co_process_shares_state() -> None:
    with StreamTest() as test:
        a, b = test.source(Order), test.source(Payment, "payments")
        left, right = a.stream.key_by(lambda order: order.id), b.stream.key_by(lambda payment: payment.order)
        table = right.latest(deleted=lambda payment: payment.cents < 0)
        named = test.collect(left.left_join_table(table, lambda o, p: p.cents if p else None, name="named").values())
        inner = test.collect(left.join_table(table, lambda o, p: p.cents, name="inner").values())
        both = test.collect(left.connect(right).process(Both(), name="both").values())
        a.send(Order("a", [], 0))
        b.send(Payment("a", 3, 0), Payment("a", 4, 0))
        a.send(Order("a", [], 0))
        for name in ("named", "inner", "both"):
            test.crash(name)
        a.send(Order("a", [], 0))
        b.send(Payment("a", -1, 0))
        a.send(Order("a", [], 0))
        assert named.all == [None, 4, 4, None]
        assert inner.all == [4, 4]
        assert both.all == ["a -", "a 4", "a 4", "a -1"]


def test_mistakes_in_a_join_are_found_at_build() -> None:
    flow = StreamBuilder("wrong")
    left = flow.from_iterable([1], name="l").key_by(lambda n: n)
    right = flow.from_iterable([1], name="r").key_by(lambda n: n, parallelism=2)
    left.interval_join(right, lambda a: a, after="1s", name="near").to(print)  # type: ignore[arg-type,misc]
    left.connect(left).process(Both, name="class").to(print)  # type: ignore[arg-type]
    with pytest.raises(TopologyError) as caught:
        flow.build()
    found = "\n".join(caught.value.problems)
    for wanted in (
        r"interval_join calls its function with 2 (left, right)",
        "is 2; give both the same",
        "interval_join 'near' at test_joins.py",
        "goes by event time, but the records of from_iterable 'l'",
        "takes an instance of a CoProcess",
    ):
        assert wanted in found, found


@pytest.mark.parametrize("bound", ["soon", "-1s", 5, None])
def test_an_interval_that_is_none_is_refused_at_build(bound: Any) -> None:
    flow = StreamBuilder("wrong")
    stream = flow.from_iterable([1]).with_event_time(lambda n: n).key_by(lambda n: n)
    stream.interval_join(stream, lambda a, b: a + b, before=bound, after=bound, name="near").to(print)
    with pytest.raises(TopologyError) as caught:
        flow.build()
    before, after = caught.value.problems
    assert before.startswith(after.split("after=")[0])
    assert "interval_join 'near' at test_joins.py:" in before
    assert f"before={bound!r}" in before
    assert f"after={bound!r}" in after


@pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])
def test_a_left_record_whose_only_pair_is_given_up_comes_without_a_partner(delivery: str) -> None:
    found: list[int] = []

    def pair(left: int, right: int | None) -> int:
        if right is not None:
            raise ValueError("no such pair")
        return left

    def build() -> Any:
        flow = StreamBuilder("pairs").config(delivery=delivery, attempts=2)
        left, right = (
            flow.from_iterable([0], of=int, name=side).with_event_time(lambda at: at).key_by(lambda at: 1)
            for side in ("left", "right")
        )
        left.left_interval_join(right, pair, before="5ms", after="5ms", name="joined").values().to(found.append)
        return flow.build()

    test = TopologyTest(build, sources={"left": [100, 1_000, PAUSE("1s"), END], "right": [PAUSE("500ms"), 101, 2_000, END]})
    test.run()
    assert found == [100, 1_000] and len(test.dead_letters()) == 1


@pytest.mark.parametrize("first", ["order", "payment"])
def test_a_pair_of_an_interval_join_has_the_later_time_of_its_two_records(first: str) -> None:
    # It was the time of the record that arrived last, so windows behind the join went by the order of arrival.
    with StreamTest() as test:
        orders, payments = test.source(Order), test.source(Payment, "payments")
        by_order = payments.stream.key_by(lambda payment: payment.order)
        pairs = orders.stream.key_by(lambda order: order.id).interval_join(by_order, pair, after="10ms", name="pairs")
        seen = test.collect(pairs.window(Tumbling("10ms")).count(name="counts").values())
        if first == "order":
            orders.send(Order("a", [], 8), at=8)
        payments.send(Payment("a", 1, 9), at=9)
        payments.send(Payment("a", 1, 12), at=12)
        if first == "payment":
            orders.send(Order("a", [], 8), at=8)
        orders.end()
        payments.end()
        assert [(window.start, window.value) for window in seen.all] == [(0, 1), (10, 1)]
