"""Delays of flights by carrier and hour: rows that Spark has written come in, rows that Spark reads go out.

topo run topologies/streams/delays.py -p table=flights -p out=delays
"""

import msgspec

from topo.spark import SparkSink, SparkSpout
from topo.streams import StreamBuilder, Tumbling, agg


class Flight(msgspec.Struct):
    carrier: str
    delay: float
    at: int


class Hour(msgspec.Struct):
    carrier: str
    start: int
    flights: int
    delay: float


def topology(table: str, out: str) -> StreamBuilder:
    flow = StreamBuilder("streams-delays")
    flights = flow.from_spout(SparkSpout(table), of=Flight, name="flights").with_event_time(lambda f: f.at, disorder="1m")
    hours = flights.key_by(lambda f: f.carrier).window(Tumbling("1h")).aggregate(agg.count(), agg.mean_of(lambda f: f.delay))
    hours.map_keyed(lambda carrier, w: Hour(carrier, w.start, *w.value), of=Hour).to(SparkSink(out), name="out")
    return flow
