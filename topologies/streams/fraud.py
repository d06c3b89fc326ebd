"""Cards with a payment under 1.00 and, within a minute, one over 500.00: state and a timer for each card.

topo run topologies/streams/fraud.py -p path=payments.jsonl
"""

import msgspec

from topo import JsonLinesSink
from topo.streams import KeyedProcess, KeyedValue, StreamBuilder, StreamContext, StreamOutput


class Payment(msgspec.Struct):
    card: str
    cents: int
    at: int


class Alert(msgspec.Struct):
    card: str
    at: int


class SmallThenLarge(KeyedProcess[str, Payment, Alert]):
    small = KeyedValue(int)

    def process(self, record: Payment, context: StreamContext[str], out: StreamOutput[Alert]) -> None:
        # The timer alone would be late: the watermark moves behind the records.
        if (small := self.small.get()) is not None and record.cents > 500_00 and 0 <= record.at - small < 60_000:
            out.emit(Alert(context.key, record.at))
        self.small.clear()
        if record.cents < 1_00:
            self.small.set(record.at)
            context.register_event_time_timer(record.at + 60_000)

    def on_timer(self, timestamp: int, context: StreamContext[str], out: StreamOutput[Alert]) -> None:
        if self.small.get() == timestamp - 60_000:
            self.small.clear()


def topology(path: str, out: str = "alerts.jsonl") -> StreamBuilder:
    flow = StreamBuilder("streams-fraud").config(checkpoint_interval="1s")
    paid = flow.from_files(path).parse_json(Payment).with_event_time(lambda payment: payment.at, disorder="10s")
    paid.key_by(lambda p: p.card).process(SmallThenLarge(), of=Alert, name="fraud").values().to(JsonLinesSink(out), name="out")
    return flow
