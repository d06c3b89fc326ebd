"""Looks up each visitor in a service that fails at times: retries with back-off, and dead letters for unknown visitors.

Every tenth visitor needs a second attempt, and the service knows none of the visitors counted in `unknown`: they end as dead
letters, so the command exits with 1 unless there are none.

    topo run topologies/enrichment.py
    topo dead-letters enrichment
    topo run topologies/enrichment.py -p unknown=0
"""

from __future__ import annotations

from topo import BasicBolt, BasicCollector, IterableSpout, TaskContext, Topology, TopologyBuilder, Tuple

COUNTRIES = ("Chile", "Ghana", "Japan", "Kenya", "Latvia", "Nepal", "Peru")


class Directory:
    """Stands for a service elsewhere: some answers time out when they are first asked for, and some visitors it does not know."""

    def __init__(self, visitors: int, unknown: int) -> None:
        self.known = visitors - unknown
        self.is_warm: set[int] = set()

    def country_of(self, visitor: int) -> str:
        if visitor >= self.known:
            raise LookupError(f"unknown visitor {visitor}")
        if visitor % 10 == 0 and visitor not in self.is_warm:
            self.is_warm.add(visitor)
            raise TimeoutError(f"no answer about visitor {visitor}; try again")
        return COUNTRIES[visitor % len(COUNTRIES)]


class Enrich(BasicBolt):
    """Adds the visitor's country. An exception fails the message, which its spout then emits again, after a wait."""

    outputs = ("visitor", "country")

    def __init__(self, visitors: int, unknown: int) -> None:
        self.visitors, self.unknown = visitors, unknown

    def prepare(self, context: TaskContext) -> None:
        self.directory = Directory(self.visitors, self.unknown)

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        collector.emit((tup["visitor"], self.directory.country_of(tup["visitor"])))


class Report(BasicBolt):
    """Counts visitors by country, each visitor once, and prints the counts at the end."""

    def prepare(self, context: TaskContext) -> None:
        self.visitors: dict[str, set[int]] = {}

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        self.visitors.setdefault(tup["country"], set()).add(tup["visitor"])

    def cleanup(self) -> None:
        for country in sorted(self.visitors):
            print(f"{len(self.visitors[country]):>6,}  {country}")


def topology(visitors: int = 1000, unknown: int = 3) -> Topology:
    """Build the topology.

    Args:
        visitors: how many visitors there are.
        unknown: how many of them the service does not know.
    """
    builder = TopologyBuilder("enrichment")
    builder.config(attempts=3, backoff=("100ms", "400ms"))
    builder.set_spout("visitors", IterableSpout(range(visitors), fields=("visitor",)))
    builder.set_bolt("enrich", Enrich(visitors, unknown), 2).fields_grouping("visitors", "visitor")
    builder.set_bolt("report", Report()).global_grouping("enrich")
    return builder.build()
