"""Every metric for Prometheus: name, type, labels and meaning, and how an overview has it. The page is made from this table."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from topo.observability.status import TopologyStatus
from topo.operate.diagnosis import diagnose
from topo.operate.view import Overview
from topo.version import __version__

Labels = tuple[str, ...]
LabelledFigure = tuple[Labels, float]
HistogramFigures = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric.

    Attributes:
        name: with its unit, and `_total` where it is a counter.
        kind: "counter", "gauge" or "histogram".
        labels: besides `topology`.
        help: for people.
        read: returns its samples of a topology that runs: values of the labels, and the figure; of a histogram its counts.
    """

    name: str
    kind: str
    labels: Labels
    help: str
    read: Callable[[Overview], Iterable[tuple[Labels, Any]]]


def _one(read: Callable[[Overview], float | None]) -> Callable[[Overview], list[LabelledFigure]]:
    def samples(overview: Overview) -> list[LabelledFigure]:
        value = read(overview)
        return [] if value is None else [((), float(value))]

    return samples


def _components(read: Callable[[Mapping[str, Any]], float | None], *kinds: str) -> Callable[[Overview], list[LabelledFigure]]:
    def samples(overview: Overview) -> list[LabelledFigure]:
        rows = [row for row in overview["components"] if row["kind"] in (kinds or ("spout", "bolt"))]
        return [((row["component"],), float(value)) for row in rows if (value := read(row)) is not None]

    return samples


def _count(name: str, *kinds: str) -> Callable[[Overview], list[LabelledFigure]]:
    return _components(lambda row: row["counters"].get(name, 0), *kinds)


def _of(name: str) -> Callable[[Mapping[str, Any]], Any]:
    return lambda row: row[name]


def _bolts(read: Callable[[Mapping[str, Any]], float | None]) -> Callable[[Overview], list[LabelledFigure]]:
    return _components(read, "bolt")


def _info(overview: Overview) -> list[LabelledFigure]:
    return [((__version__, overview["delivery"]), 1.0)]


def _level(name: str, *kinds: str) -> Callable[[Overview], list[LabelledFigure]]:
    return _components(lambda row: row["levels"].get(name, 0), *kinds)


def _histogram(kind: str) -> Callable[[Overview], list[tuple[Labels, HistogramFigures]]]:
    return lambda overview: [
        ((row["component"],), row["histogram"]) for row in overview["components"] if row["kind"] == kind and row["histogram"]
    ]


def _edges(name: str) -> Callable[[Overview], list[LabelledFigure]]:
    return lambda overview: [((edge["source"], edge["target"]), float(edge[name])) for edge in overview["edges"]]


def _workers(name: str) -> Callable[[Overview], list[LabelledFigure]]:
    return lambda overview: [((str(row["worker"]),), float(row[name])) for row in overview["workers"] if row[name] is not None]


def _last_checkpoint(name: str) -> Callable[[Overview], list[LabelledFigure]]:
    return _one(lambda overview: ((overview["checkpoints"] or {}).get("last") or {}).get(name))


def _age(overview: Overview) -> float | None:
    return (overview["checkpoints"] or {}).get("age_s")


def _checkpoints(overview: Overview) -> list[LabelledFigure]:
    known = overview["checkpoints"] or {}
    return [((result,), float(known[result])) for result in ("complete", "failed", "aborted") if result in known]


def _lag(row: Mapping[str, Any]) -> float | None:
    return None if row["event_time"] is None else row["event_time"]["lag_s"]


def _findings(overview: Overview) -> list[LabelledFigure]:
    found = {(one.kind, one.severity, one.component): 1.0 for one in diagnose(overview) if one.severity != "note"}
    return list(found.items())


def statuses(word: str) -> list[LabelledFigure]:
    """Return a sample for each status: 1 for the present one."""
    return [((one.value,), float(one.value == word)) for one in TopologyStatus]


BOLT, SPOUT = "bolt", "spout"
COUNTER, GAUGE, HISTOGRAM = "counter", "gauge", "histogram"
COMPONENT = ("component",)
EDGE = ("source", "target")
WORKER = ("worker",)

TABLE: tuple[Metric, ...] = (
    Metric("topo_up", GAUGE, (), "1 while a master of the topology runs and answers, else 0.", _one(lambda _: 1.0)),
    Metric("topo_info", GAUGE, ("version", "delivery"), "1; version of topo and delivery mode.", _info),
    Metric("topo_status", GAUGE, ("status",), "1 for the present status, 0 for all others.", lambda one: statuses(one["status"])),
    Metric("topo_epochs_total", COUNTER, (), "Epochs begun: the first, and one for each loss.", _one(_of("epochs_raised"))),
    Metric("topo_tasks", GAUGE, COMPONENT, "Tasks of the component.", _components(_of("parallelism"))),
    Metric("topo_tuples_emitted_total", COUNTER, COMPONENT, "Rows that user code has emitted.", _count("emitted")),
    Metric("topo_tuples_transferred_total", COUNTER, COMPONENT, "Tuples made of them, one a target.", _count("transferred")),
    Metric("topo_tuples_executed_total", COUNTER, COMPONENT, "Tuples given to execute.", _count("executed", BOLT)),
    Metric("topo_tuples_acked_total", COUNTER, COMPONENT, "Inputs acked; of a spout, messages that are done.", _count("acked")),
    Metric("topo_tuples_failed_total", COUNTER, COMPONENT, "Inputs failed; of a spout, verdicts of failure.", _count("failed")),
    Metric("topo_errors_total", COUNTER, COMPONENT, "Exceptions of user code, and errors it has reported.", _count("errors")),
    Metric("topo_messages_timed_out_total", COUNTER, COMPONENT, "Messages without a timely verdict.", _count("timed_out", SPOUT)),
    Metric("topo_messages_late_acks_total", COUNTER, COMPONENT, "Verdicts after the timeout.", _count("late_acks", SPOUT)),
    Metric("topo_messages_replayed_total", COUNTER, COMPONENT, "Messages emitted again by topo.", _count("replayed", SPOUT)),
    Metric("topo_messages_reset_total", COUNTER, COMPONENT, "Messages put back when an epoch ended.", _count("reset", SPOUT)),
    Metric("topo_messages_dead_lettered_total", COUNTER, COMPONENT, "Messages given up.", _count("dead_lettered", SPOUT)),
    Metric("topo_messages_pending", GAUGE, COMPONENT, "Messages that are not done.", _level("pending", SPOUT)),
    Metric("topo_messages_finally_failed", GAUGE, COMPONENT, "Failed, not emitted again.", _level("finally_failed", SPOUT)),
    Metric("topo_busy_seconds_total", COUNTER, COMPONENT, "Seconds in user code, of all tasks.", _count("busy_s")),
    Metric("topo_blocked_seconds_total", COUNTER, COMPONENT, "Seconds with input and no room for output.", _count("blocked_s")),
    Metric("topo_capacity_ratio", GAUGE, COMPONENT, "Load of the busiest task; 1 is full.", _bolts(_of("capacity"))),
    Metric("topo_waiting_tuples", GAUGE, COMPONENT, "Tuples in front of the component.", _bolts(_of("in_front"))),
    Metric("topo_state_entries", GAUGE, COMPONENT, "Entries of keyed state.", _level("state_entries", BOLT)),
    Metric("topo_edge_tuples_total", COUNTER, EDGE, "Tuples sent.", _edges("tuples")),
    Metric("topo_edge_full_seconds_total", COUNTER, EDGE, "Seconds in which an edge was full, over all edges.", _edges("full_s")),
    Metric("topo_edge_waiting_tuples", GAUGE, EDGE, "Tuples buffered or sent, and not processed.", _edges("in_front")),
    Metric("topo_execute_seconds", HISTOGRAM, COMPONENT, "Time of one tuple in execute.", _histogram(BOLT)),
    Metric("topo_complete_seconds", HISTOGRAM, COMPONENT, "From the emit of a message until it is done.", _histogram(SPOUT)),
    Metric("topo_watermark_lag_seconds", GAUGE, COMPONENT, "Watermark behind the clock, of the last task.", _components(_lag)),
    Metric("topo_late_total", COUNTER, COMPONENT, "Inputs too late for all their windows.", _count("late", BOLT)),
    Metric("topo_late_dropped_total", COUNTER, COMPONENT, "Those that no late stream has taken.", _count("late_dropped", BOLT)),
    Metric("topo_checkpoint_duration_seconds", GAUGE, (), "Of the last complete checkpoint.", _last_checkpoint("duration_s")),
    Metric("topo_checkpoint_bytes", GAUGE, (), "Size of the last complete checkpoint.", _last_checkpoint("bytes")),
    Metric("topo_checkpoint_age_seconds", GAUGE, (), "Since the last complete checkpoint of this master.", _one(_age)),
    Metric("topo_checkpoints_total", COUNTER, ("result",), "Checkpoints: complete, failed, aborted.", _checkpoints),
    Metric("topo_worker_cpu_seconds_total", COUNTER, WORKER, "Processor time over all lives of the slot.", _workers("cpu_s")),
    Metric("topo_worker_resident_memory_bytes", GAUGE, WORKER, "Resident memory.", _workers("rss_bytes")),
    Metric("topo_worker_starved_ratio", GAUGE, WORKER, "Share of time in which its tasks had no core.", _workers("starved")),
    Metric("topo_worker_restarts_total", COUNTER, WORKER, "Processes that ended unexpectedly.", _workers("losses")),
    Metric("topo_finding", GAUGE, ("kind", "severity", "component"), "1 for each finding of topo status but notes.", _findings),
)


def user_metrics(overview: Overview) -> Iterable[tuple[str, str, Labels, float]]:
    """Return (name, kind, labels, value) of the counters and gauges of user code; names that become alike are added up."""
    found: dict[tuple[str, str, str], float] = {}
    for row in overview["components"]:
        for kind, values in row["user"].items():
            for name, value in values.items():
                clean = re.sub(r"\W", "_", name, flags=re.ASCII)
                key = (f"topo_user_{clean}" + ("_total" if kind == "counters" else ""), kind[:-1], row["component"])
                found[key] = found.get(key, 0.0) + float(value)
    for (name, kind, component), value in found.items():
        yield name, kind, (component,), value


def page() -> str:
    """Return the table of docs/metrics.md."""
    rows = [f"| `{one.name}` | {one.kind} | {', '.join(f'`{label}`' for label in one.labels)} | {one.help} |" for one in TABLE]
    return "\n".join(["| metric | type | labels besides `topology` | meaning |", "| --- | --- | --- | --- |", *rows]) + "\n"
