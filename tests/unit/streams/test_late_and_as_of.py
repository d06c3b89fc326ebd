"""Late records of joins, records without a partner, versions of tables and their changes, against a model that looks at all."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest

from topo.streams import Aggregate, Change, KeyedStream, SideOutput, Tumbling, agg
from topo.testing import StreamInput, StreamTest

pytestmark = pytest.mark.long


class Order(msgspec.Struct, frozen=True):
    id: str
    tags: list[str]
    at: int


class Price(msgspec.Struct, frozen=True):
    of: str
    cents: int
    at: int


LATE_ORDERS = SideOutput("late-orders", Order)
LATE_PRICES = SideOutput("late-prices", Price)


def times(order: Order | None, price: Price | None) -> tuple[int, int]:
    assert order is None or type(order.tags) is list
    return (order.at if order else -1, price.at if price else -1)


def sources(
    test: StreamTest, tasks: int
) -> tuple[StreamInput[Order], StreamInput[Price], KeyedStream[str, Order], KeyedStream[str, Price]]:
    orders, prices = test.source(Order), test.source(Price, "prices")
    left = orders.stream.key_by(lambda order: order.id, parallelism=tasks)
    return orders, prices, left, prices.stream.key_by(lambda price: price.of, parallelism=tasks)


@pytest.mark.parametrize(("tasks", "crash"), [(1, False), (2, True)])
@pytest.mark.parametrize("kind", ["window", "interval"])
def test_late_records_of_a_join_leave_by_their_side_and_lone_ones_are_counted(kind: str, tasks: int, crash: bool) -> None:
    @StreamTest.every_seed(range(2))
    def run(test: StreamTest) -> None:
        chance = Random(test.seed)
        a, b, left, right = sources(test, tasks)
        late = (LATE_ORDERS, LATE_PRICES)
        joined = (
            left.join(right, times, window=Tumbling("10ms"), late=late, name="joined")
            if kind == "window"
            else left.interval_join(right, times, before="5ms", after="5ms", late=late, name="joined")
        )
        seen, orders, prices = test.collect(joined.values()), test.side(joined, LATE_ORDERS), test.side(joined, LATE_PRICES)
        kept: tuple[list[Any], list[Any]] = ([], [])
        gone: tuple[list[Any], list[Any]] = ([], [])
        for step in range(12):
            now = step * 5
            for side, record in enumerate(
                (Order(chance.choice("ab"), ["x"], now + chance.randrange(-15, 9)), Price(chance.choice("ab"), 1, now))
            ):
                last = record.at // 10 * 10 + 9 if kind == "window" else record.at
                (gone if last <= now - 5 else kept)[side].append(record)
                (a.send if side == 0 else b.send)(record, at=record.at)  # type: ignore[operator]
            if crash and step == 6:
                test.crash("joined")
            a.watermark(now)
            b.watermark(now)
        a.end()
        b.end()

        def fits(order: Order, price: Price) -> bool:
            near = order.at // 10 == price.at // 10 if kind == "window" else abs(price.at - order.at) <= 5
            return order.id == price.of and near

        assert sorted(seen.all) == sorted(times(o, p) for o in kept[0] for p in kept[1] if fits(o, p))
        assert sorted(orders.all, key=repr) == sorted(gone[0], key=repr)
        assert sorted(prices.all, key=repr) == sorted(gone[1], key=repr)
        if not crash:
            counters = test.counters("joined")
            assert counters["unmatched_left"] == sum(not any(fits(o, p) for p in kept[1]) for o in kept[0])
            assert counters["unmatched_right"] == sum(not any(fits(o, p) for o in kept[0]) for p in kept[1])
            assert kind == "window" or counters["late_left"] == len(gone[0])

    run()


@pytest.mark.parametrize(("tasks", "crash"), [(1, False), (2, True)])
@pytest.mark.parametrize("outer", [False, True])
def test_a_table_as_of_a_time_has_the_version_of_that_time(outer: bool, tasks: int, crash: bool) -> None:
    @StreamTest.every_seed(range(2))
    def run(test: StreamTest) -> None:
        chance = Random(test.seed)
        a, b, left, right = sources(test, tasks)
        table = right.latest(deleted=lambda price: price.cents < 0)
        join = left.left_join_table if outer else left.join_table
        joined = join(table, times, as_of=True, late=LATE_ORDERS, name="joined")  # type: ignore[arg-type]
        seen, late = test.collect(joined.values()), test.side(joined, LATE_ORDERS)
        orders = [Order(chance.choice("ab"), ["x"], at) for at in chance.sample(range(60), 20)]
        prices = [Price(chance.choice("ab"), chance.choice((1, 2, -1)), at) for at in chance.sample(range(60), 20)]
        for half in (0, 1):
            # Each half in any order: the records wait for the versions that come behind them.
            for order, price in zip(orders, prices, strict=True):
                if order.at // 30 == half:
                    a.send(order, at=order.at)
                if price.at // 30 == half:
                    b.send(price, at=price.at)
            if crash:
                test.crash("joined")
            assert all(found[0] // 30 < half for found in seen.all)
            a.watermark(half * 30 + 29)
            b.watermark(half * 30 + 29)
        a.send(Order("a", [], 7), at=7)
        a.end()
        b.end()

        expected = []
        for order in orders:
            versions = sorted((price.at, price) for price in prices if price.of == order.id and price.at <= order.at)
            row = versions[-1][1] if versions and versions[-1][1].cents >= 0 else None
            if row is not None or outer:
                expected.append(times(order, row))
        assert sorted(seen.all) == sorted(expected)
        assert late.all == [Order("a", [], 7)]
        if not outer and not crash:
            assert test.counters("joined")["unmatched_left"] == len(orders) - len(expected)

    run()


def test_a_late_record_without_a_side_output_is_dropped_as_of_a_time_and_counted() -> None:
    with StreamTest() as test:
        a, b, left, right = sources(test, 1)
        seen = test.collect(left.left_join_table(right.latest(), times, as_of=True, name="joined"))
        a.watermark(10)
        b.watermark(10)
        a.send(Order("a", [], 10), at=10)
        b.send(Price("a", 1, 9), at=9)
        a.send(Order("a", [], 11), at=11)
        a.end()
        b.end()
        assert seen.all == [("a", (11, 9))]
        assert test.counters("joined") == {"late_left": 1, "late_right": 1}


@pytest.mark.parametrize("tasks", [1, 2])
def test_changes_of_a_table_have_the_row_before_and_the_row_after(tasks: int) -> None:
    @StreamTest.every_seed(range(2))
    def run(test: StreamTest) -> None:
        chance = Random(test.seed)
        prices = test.source(Price)
        rows = prices.stream.key_by(lambda price: price.of, parallelism=tasks)
        seen = test.collect(rows.latest(deleted=lambda price: price.cents < 0).changes(name="changes"))
        expected: list[tuple[str, Change[Price]]] = []
        kept: dict[str, Price] = {}
        for at in range(20):
            price = Price(chance.choice("ab"), chance.choice((1, 2, -1)), at)
            old, new = kept.pop(price.of, None), None
            if price.cents >= 0:
                new = kept[price.of] = price
            if (old, new) != (None, None):
                expected.append((price.of, Change(old, new)))
            prices.send(price)
            if at == 10:
                test.crash("changes")
        assert sorted(seen.all, key=repr) == sorted(expected, key=repr)

    run()


class Longest:
    """Has to be opened before it is called."""

    opened = False

    def open(self, context: Any) -> None:
        assert context is None
        self.opened = True

    def __call__(self, *given: Any) -> int:
        assert self.opened
        return len(repr(given))


class Sum(Aggregate[Order, int]):
    def open(self, context: Any) -> None:
        self.by = 2

    def create(self) -> int:
        return 0

    def add(self, accumulator: int, record: Order) -> int:
        return accumulator + record.at * self.by

    def result(self, accumulator: int) -> int:
        return accumulator

    def merge(self, first: int, second: int) -> int:
        return first + second


def test_functions_of_joins_and_aggregates_are_opened_before_they_are_called() -> None:
    with StreamTest() as test:
        a, b, left, right = sources(test, 2)
        window = Tumbling("10ms")
        seen = [
            test.collect(stream)
            for stream in (
                left.join(right, Longest(), window=window, name="join"),
                left.interval_join(right, Longest(), after="1s", name="interval"),
                left.left_join_table(right.latest(), Longest(), name="table"),
                left.window(window).sum(Longest(), name="sum"),
                left.window(window).aggregate(Sum(), agg.max_of(Longest()), into=Longest(), name="aggregate"),
            )
        ]
        for key in "abcd":
            a.send(Order(key, [], 1), at=1)
            b.send(Price(key, 1, 2), at=2)
        test.crash("aggregate")
        a.end()
        b.end()
        assert [len(one.all) for one in seen] == [4] * 5


@pytest.mark.parametrize("kind", ["interval", "as_of"])
def test_a_record_whose_function_raises_when_time_has_passed_holds_up_no_later_one_of_its_key(kind: str) -> None:
    def refusing(order: Order, price: Price | None) -> tuple[int, int]:
        if order.at == 2:
            raise ValueError("no such order")
        return times(order, price)

    with StreamTest() as test:
        a, b, left, right = sources(test, 1)
        if kind == "interval":
            joined = left.left_interval_join(right, refusing, after="0s", name="joined")
        else:
            joined = left.left_join_table(right.latest(), refusing, as_of=True, name="joined")
        seen = test.collect(joined.values())
        for at in (1, 2, 3, 4):
            a.send(Order("a", [], at), at=at)
        a.watermark(2)
        b.watermark(2)
        test.crash("joined")
        a.end()
        b.end()
        assert seen.all == [(1, -1), (3, -1), (4, -1)]
        assert "no such order" in test.errors()[0].message
        assert [found.values for found in test.dead_letters()] == [("a", 2)]


@pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])
@pytest.mark.parametrize("kind", ["interval", "as_of"])
def test_a_record_whose_function_raises_takes_no_other_record_of_its_time_along(kind: str, delivery: str) -> None:
    def refusing(order: Order, _price: Price | None) -> int:
        if order.at == 2:
            raise ValueError("no such order")
        return order.at

    with StreamTest(delivery=delivery) as test:
        a, b, left, right = sources(test, 1)
        if kind == "interval":
            joined = left.left_interval_join(right, refusing, after="0s", of=int, name="joined")
        else:
            joined = left.left_join_table(right.latest(), refusing, as_of=True, of=int, name="joined")
        seen = test.collect(joined.values())
        a.send(*[Order("a", [], number) for number in (1, 2, 3)], at=5)
        a.end()
        b.end()
        assert seen.all == [1, 3]
        assert ["no such order" in error.message for error in test.errors()] == [True]
        assert [found.values for found in test.dead_letters()] == ([("a", 5)] if delivery == "exactly_once" else [])


@pytest.mark.parametrize("kind", ["interval", "as_of"])
@pytest.mark.parametrize("has_side", [False, True])
def test_a_replay_that_is_too_late_for_its_partners_is_not_dropped(kind: str, has_side: bool) -> None:
    """It was acked: its partner was gone, and no result had the record."""
    failures = [True]

    def flaky(order: Order) -> Order:
        if order.at == 1 and failures:
            failures.pop()
            raise ValueError("not yet")
        return order

    with StreamTest(delivery="at_least_once", attempts=3) as test:
        a, b = test.source(Order), test.source(Price, "prices")
        orders_in_time = a.stream.map(flaky).with_event_time(lambda order: order.at)
        left = orders_in_time.key_by(lambda order: order.id)
        right = b.stream.with_event_time(lambda price: price.at).key_by(lambda price: price.of)
        late: Any = (LATE_ORDERS, LATE_PRICES)[: 2 if kind == "interval" else 1] if has_side else None
        if kind == "interval":
            joined = left.interval_join(right, times, before="5ms", after="5ms", late=late, name="joined")
        else:
            joined = left.join_table(right.latest(), times, as_of=True, late=late and late[0], name="joined")
        seen, orders = test.collect(joined.values()), test.side(joined, LATE_ORDERS) if has_side else None
        if has_side and kind == "interval":
            test.side(joined, LATE_PRICES)
        b.send(Price("a", 1, 1), Price("b", 1, 2_000))
        a.send(Order("a", [], 1), Order("b", [], 2_000))
        a.end()
        b.end()
        assert seen.all == [(2_000, 2_000)]
        if orders is not None:
            assert orders.all == [Order("a", [], 1)]
        given_up = [] if has_side else [("a", (), 1)]
        assert [found.values for found in test.dead_letters()] == given_up
        kinds = {error.kind for error in test.errors()}
        assert ("LateReplayError" in kinds) is not has_side
