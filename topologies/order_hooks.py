"""Orders come as requests, and leave as requests: each sender is answered when the receiver has taken the invoice.

    topo run topologies/order_hooks.py                                  # its own receiver listens on port 9080
    curl -d '{"id": "o-1", "cents": 500}' http://127.0.0.1:8080/orders
    topo run topologies/order_hooks.py -p target=https://example.org/invoices -p secret=mine

With a `secret` each request has to carry the HMAC of its body in X-Hub-Signature-256. It needs aiohttp, and runs until
Ctrl-C ends it.
"""

from __future__ import annotations

from topo import BasicBolt, BasicCollector, HttpSink, PrintBolt, Topology, TopologyBuilder, Tuple, WebhookSpout


class Invoice(BasicBolt):
    """Adds the tax; an order without an amount is the sender's error, which its answer names."""

    outputs = ("order", "cents")

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        collector.emit((tup["id"], round(tup["cents"] * 1.2)))


def topology(port: int = 8080, target: str = "", secret: str = "") -> Topology:
    """Build the topology.

    Args:
        port: where orders come.
        target: the URL of the receiver of invoices; "": a webhook of this topology, on port + 1000, which prints them.
        secret: of the senders; "": they need none.
    """
    builder = TopologyBuilder("order-hooks")
    builder.set_spout("orders", WebhookSpout(port, "/orders", fields=("id", "cents"), secret=secret or None))
    builder.set_bolt("invoice", Invoice()).shuffle_grouping("orders")
    if not target:
        target = f"http://127.0.0.1:{port + 1000}/invoices"
        builder.set_spout("receiver", WebhookSpout(port + 1000, "/invoices", fields=("order", "cents")))
        builder.set_bolt("print", PrintBolt()).shuffle_grouping("receiver")
    builder.set_bolt("send", HttpSink(target, id="order", key="order")).fields_grouping("invoice", "order")
    return builder.build()
