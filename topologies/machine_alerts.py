"""Readings of machines come by MQTT, and a machine that is too hot twice in a row is an alert, which leaves by MQTT.

    make mqtt &                                            # a broker at port 1883
    topo run topologies/machine_alerts.py
    mosquitto_sub -t 'alerts/#' -v &
    mosquitto_pub -t machines/m1/readings -q 1 -m '{"celsius": 93}'

It needs paho-mqtt, and runs until Ctrl-C ends it. The broker keeps readings while it does not run.
"""

from __future__ import annotations

from topo import BasicBolt, BasicCollector, MqttSink, MqttSpout, TaskContext, Topology, TopologyBuilder, Tuple


class Machine(BasicBolt):
    """Names the machine of a reading by its topic."""

    outputs = ("machine", "celsius")

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        collector.emit((tup["topic"].split("/")[1], tup["celsius"]))


class TooHot(BasicBolt):
    """Emits a machine whose last two readings are above the limit. Its memory is lost with its process: one alert may be late."""

    outputs = ("machine", "celsius")

    def __init__(self, limit: float) -> None:
        self.limit = limit

    def prepare(self, context: TaskContext) -> None:
        self.hot: set[str] = set()

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        machine, celsius = tup["machine"], tup["celsius"]
        if celsius <= self.limit:
            self.hot.discard(machine)
        elif machine in self.hot:
            collector.emit((machine, celsius))
        else:
            self.hot.add(machine)


def topology(url: str = "mqtt://127.0.0.1:1883", limit: float = 80.0) -> Topology:
    """Build the topology.

    Args:
        url: of the broker.
        limit: degrees above which a machine is too hot.
    """
    builder = TopologyBuilder("machine-alerts").config(delivery="at_least_once")
    readings = MqttSpout(url, "machines/+/readings", value_deserializer="json", fields=("celsius",), metadata=("topic",))
    builder.set_spout("readings", readings)
    builder.set_bolt("machine", Machine()).shuffle_grouping("readings")
    builder.set_bolt("hot", TooHot(limit), 2).fields_grouping("machine", "machine")
    builder.set_bolt("alerts", MqttSink(url, "alerts/{machine}")).shuffle_grouping("hot")
    return builder.build()
