"""What rules look at, and what they return: an overview by component, and findings. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

HOT = 0.8
"""Capacity from which on a task holds others back."""
SETTLED_S = 10.0
"""Figures of a younger topology are those of its start."""
WAITS_S = 0.2
"""Tuples that wait for less than this in front of a component are no queue."""

Overview = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class FindingRow:
    """A finding.

    Attributes:
        component: the component that it is about; "" for the whole topology.
        sentence: cause and evidence.
        remedy: the fix.
        commands: those that fix it, or show more.
        figures: the evidence, by name.
        kind: a word for programs, such as "bottleneck"; it and the next are those of the rule.
        severity: "problem", "slow" or "note".
    """

    component: str
    sentence: str
    remedy: str
    commands: tuple[str, ...]
    figures: Mapping[str, float]
    kind: str = ""
    severity: str = ""

    def as_data(self) -> dict[str, Any]:
        return asdict(self) | {"commands": list(self.commands), "figures": dict(self.figures)}


class View:
    """An overview, by component."""

    def __init__(self, overview: Overview) -> None:
        self.all = overview
        self.name: str = overview["topology"]
        self.is_settled = overview["uptime_s"] >= SETTLED_S and overview["status"] in ("RUNNING", "DEGRADED")
        self.rows = {row["component"]: row for row in overview["components"] if row["kind"] != "acker"}
        self.spouts = [row for row in self.rows.values() if row["kind"] == "spout"]
        self.bolts = [row for row in self.rows.values() if row["kind"] == "bolt"]
        self.readers: dict[str, list[str]] = {}
        self.sources: dict[str, list[str]] = {}
        for edge in overview["edges"]:
            self.readers.setdefault(edge["source"], []).append(edge["target"])
            self.sources.setdefault(edge["target"], []).append(edge["source"])

    def behind(self, component: str) -> list[str]:
        """Return all components that a component's output goes to, directly or not."""
        return _reached(component, self.readers)

    def before(self, component: str) -> list[str]:
        return _reached(component, self.sources)

    def with_queue(self) -> list[Mapping[str, Any]]:
        """Return the bolts whose busiest task can take no more, with tuples in front of them."""
        return [row for row in self.bolts if row["capacity"] >= HOT and (row["wait_s"] is None or row["wait_s"] >= WAITS_S)]

    def holder(self) -> Mapping[str, Any] | None:
        """Return the bolt that has the most inputs which it has neither acked nor failed.

        None where that is not known: inputs are not tracked, or a loss has ended some of them, which the counters over all lives
        do not distinguish from held ones."""
        is_known = self.all["delivery"] == "at_least_once" and not self.all["restarts"] and self.all["epoch"] <= 1
        return max(self.bolts, key=unacked, default=None) if is_known else None


def _reached(component: str, edges: Mapping[str, list[str]]) -> list[str]:
    found = list(edges.get(component, ()))
    for one in found:
        # The loop comes to those that it appends.
        found += [other for other in edges.get(one, ()) if other not in found]
    return found


def unacked(row: Mapping[str, Any]) -> int:
    counters = row["counters"]
    return max(0, int(counters["executed"] - counters["acked"] - counters["failed"]))


def names(components: list[str]) -> str:
    return components[0] if len(components) == 1 else f"{', '.join(components[:-1])} and {components[-1]}"


def count(number: float) -> str:
    return f"{number:,.0f}"


def percent(share: float) -> str:
    return f"{min(share, 1.0):.0%}"


def rate(per_second: float) -> str:
    return f"{per_second:,.0f}" if per_second >= 10 or per_second == 0 else f"{per_second:.1f}"


def seconds(duration_s: float) -> str:
    if duration_s >= 100:
        return f"{duration_s / 60:.0f} min"
    return f"{duration_s:.2g} s" if duration_s < 10 else f"{duration_s:.0f} s"
