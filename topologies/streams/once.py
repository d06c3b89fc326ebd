"""Payments, each once: one with an id seen within a day is left out.

topo run topologies/streams/once.py -p path=payments.jsonl
"""

import msgspec

from topo import JsonLinesSink
from topo.streams import StreamBuilder


class Payment(msgspec.Struct):
    id: str
    cents: int


def topology(path: str, out: str = "once.jsonl") -> StreamBuilder:
    flow = StreamBuilder("streams-once")
    payments = flow.from_files(path).parse_json(Payment).key_by(lambda payment: payment.id, parallelism=2)
    payments.dedupe(within="24h", name="once").values().to(JsonLinesSink(out), name="out")
    return flow
