"""Orders go two ways at once and are joined again: a tuple with two anchors, and a bolt with two streams.

                 /-> price -\\             /-- accepted --\\
    orders -----<            >--> join --<                >--> report
                 \\-> stock -/             \\-- rejected --/

An order counts as processed only when both of its ways, their join and the report are done. If one way fails, it is replayed.

    topo run topologies/diamond.py
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from topo import BasicBolt, BasicCollector, Bolt, Collector, IterableSpout, TaskContext, Topology, TopologyBuilder, Tuple

PRICES = {"tea": 450, "coffee": 620, "sugar": 180, "salt": 90, "pepper": 310}
"""Cents."""
STOCK = {"tea": 40, "coffee": 12, "sugar": 60, "salt": 80, "pepper": 5}
REMEMBERED = 20_000
"""Orders whose result is kept for replayed answers: more than can be in flight."""


class Price(BasicBolt):
    """Computes the price of an order."""

    outputs = ("order", "cents")

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        collector.emit((tup["order"], PRICES[tup["item"]] * tup["pieces"]))


class Stock(BasicBolt):
    """Checks whether the ordered item is in stock."""

    outputs = ("order", "available")

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        collector.emit((tup["order"], tup["pieces"] <= STOCK[tup["item"]]))


class Join(Bolt):
    """Waits for both answers about an order, and emits one tuple that descends from both.

    When one way fails, the order is replayed on both, and an answer waiting here from the first attempt may meet one of the
    second. The answer that is then left over would wait in vain; it brings the result once more instead.
    """

    outputs = {"accepted": ("order", "cents"), "rejected": ("order", "cents")}

    def prepare(self, context: TaskContext, collector: Collector) -> None:
        self.collector = collector
        self.waiting: dict[tuple[str, int], Tuple] = {}
        self.results: dict[int, tuple[str, tuple[Any, ...]]] = {}

    def execute(self, tup: Tuple) -> None:
        if tup["order"] in self.results:
            stream, values = self.results[tup["order"]]
            self.collector.emit(values, anchors=tup, stream=stream)
            self.collector.ack(tup)
            return
        other = "stock" if tup.component == "price" else "price"
        partner = self.waiting.pop((other, tup["order"]), None)
        if partner is None:
            earlier = self.waiting.get((tup.component, tup["order"]))
            if earlier is not None:
                # The order has been replayed; whatever became of the first attempt, this one replaces it.
                self.collector.ack(earlier)
            self.waiting[tup.component, tup["order"]] = tup
            return
        price, stock = (tup, partner) if tup.component == "price" else (partner, tup)
        stream = "accepted" if stock["available"] else "rejected"
        self.collector.emit(price.values, anchors=(price, stock), stream=stream)
        self.collector.ack(price)
        self.collector.ack(stock)
        self.results[price["order"]] = stream, price.values
        if len(self.results) > REMEMBERED:
            del self.results[next(iter(self.results))]

    def on_reset(self) -> None:
        self.waiting.clear()


class Report(BasicBolt):
    """Adds up both streams and prints the sums at the end. Orders are kept by number, so a repeated order counts once."""

    def prepare(self, context: TaskContext) -> None:
        self.orders: dict[str, dict[int, int]] = {"accepted": {}, "rejected": {}}

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        self.orders[tup.stream][tup["order"]] = tup["cents"]

    def cleanup(self) -> None:
        for stream, orders in self.orders.items():
            print(f"{stream}: {len(orders):,} orders, {sum(orders.values()) / 100:,.2f} in all")


def some_orders(count: int) -> Iterator[tuple[int, str, int]]:
    """Yield (number, item, pieces), the same every time."""
    items = tuple(PRICES)
    for number in range(count):
        yield number, items[number * 7 % len(items)], 1 + number * 31 % 50


def topology(orders: int = 50_000, joins: int = 2) -> Topology:
    """Build the topology.

    Args:
        orders: how many orders there are.
        joins: tasks that join.
    """
    builder = TopologyBuilder("diamond")
    builder.set_spout("orders", IterableSpout(lambda: some_orders(orders), fields=("order", "item", "pieces")))
    builder.set_bolt("price", Price()).shuffle_grouping("orders")
    builder.set_bolt("stock", Stock()).shuffle_grouping("orders")
    builder.set_bolt("join", Join(), joins).fields_grouping("price", "order").fields_grouping("stock", "order")
    report = builder.set_bolt("report", Report())
    report.global_grouping("join", stream="accepted").global_grouping("join", stream="rejected")
    return builder.build()
