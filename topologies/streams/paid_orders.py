"""Orders with the payments that come within an hour; an order without one has paid 0.

topo run topologies/streams/paid_orders.py -p orders=orders.jsonl -p payments=payments.jsonl
"""

import msgspec

from topo import JsonLinesSink
from topo.streams import StreamBuilder


class Order(msgspec.Struct):
    id: str
    at: int


class Payment(msgspec.Struct):
    order: str
    cents: int
    at: int


class Paid(msgspec.Struct):
    id: str
    cents: int


def topology(orders: str, payments: str, out: str = "paid.jsonl") -> StreamBuilder:
    flow = StreamBuilder("streams-paid-orders")
    ordered = flow.from_files(orders, name="orders").parse_json(Order).with_event_time(lambda order: order.at, disorder="5s")
    paid = flow.from_files(payments, name="payments").parse_json(Payment).with_event_time(lambda one: one.at, disorder="5s")
    by_id, by_order = ordered.key_by(lambda order: order.id), paid.key_by(lambda payment: payment.order)
    joined = by_id.left_interval_join(by_order, lambda o, p: Paid(o.id, p.cents if p else 0), after="1h", of=Paid, name="paid")
    joined.values().to(JsonLinesSink(out), name="out")
    return flow
