"""Every metric for Prometheus: name, type, labels and meaning, and how an overview has it. The page is made from this table."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple

from topo.observability.status import TopologyStatus
from topo.operate.diagnosis import diagnose
from topo.operate.view import Overview
from topo.version import __version__

Labels = tuple[str, ...]
SubjectRow = Mapping[str, Any]


class Subject(NamedTuple):
    """What a metric is about: rows of the overview of a topology that runs, and the values in them that are labels."""

    labels: Labels
    rows: Callable[[Overview], Iterable[SubjectRow]]


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric.

    Attributes:
        name: with its unit, and `_total` where it is a counter.
        kind: "counter", "gauge" or "histogram".
        help: for people.
        read: returns the figure of a row, of a histogram its counts; None where it is not known.
    """

    name: str
    kind: str
    subject: Subject
    help: str
    read: Callable[[SubjectRow], Any]

    def samples(self, overview: Overview) -> list[tuple[Labels, Any]]:
        """Return the values of the labels, and the figure, of all rows with one."""
        read = [(tuple(str(row[label]) for label in self.subject.labels), self.read(row)) for row in self.subject.rows(overview)]
        return [(labels, one if self.kind == HISTOGRAM else float(one)) for labels, one in read if one is not None]


def _components(*kinds: str) -> Subject:
    return Subject(("component",), lambda overview: [row for row in overview["components"] if row["kind"] in kinds])


def _checkpoints(overview: Overview) -> Iterable[SubjectRow]:
    return filter(None, [overview["checkpoints"]])


def _results(overview: Overview) -> Iterable[SubjectRow]:
    return [
        {"result": word, "count": known[word]} for known in _checkpoints(overview) for word in ("complete", "failed", "aborted")
    ]


def _findings(overview: Overview) -> Iterable[SubjectRow]:
    return {(one.kind, one.component): one.as_data() for one in diagnose(overview) if one.severity != "note"}.values()


def _of_group(group: str, name: str) -> Callable[[SubjectRow], float]:
    return lambda row: float(row[group].get(name, 0))


_count, _level = partial(_of_group, "counters"), partial(_of_group, "levels")
COUNTER, GAUGE, HISTOGRAM = "counter", "gauge", "histogram"
WHOLE = Subject((), lambda overview: [overview])
SPOUTS, BOLTS, ALL = _components("spout"), _components("bolt"), _components("spout", "bolt")
EDGES, WORKERS = Subject(("source", "target"), itemgetter("edges")), Subject(("worker",), itemgetter("workers"))
LAST = Subject((), lambda overview: [known["last"] for known in _checkpoints(overview) if known["last"]])
CHECKPOINTS, RESULTS = Subject((), _checkpoints), Subject(("result",), _results)
VERSIONS = Subject(("version", "delivery"), lambda overview: [{"version": __version__, "delivery": overview["delivery"]}])
STATUSES = Subject(
    ("status",), lambda shown: [{"status": one.value, "is_it": float(one.value == shown["status"])} for one in TopologyStatus]
)
TIMED = Subject(("component",), lambda shown: [one | one["event_time"] for one in shown["components"] if one["event_time"]])
FINDINGS = Subject(("kind", "severity", "component"), _findings)
_of = itemgetter

TABLE: tuple[Metric, ...] = (
    Metric("topo_up", GAUGE, WHOLE, "1 while a master of the topology runs and answers, else 0.", lambda _: 1.0),
    Metric("topo_info", GAUGE, VERSIONS, "1; version of topo and delivery mode.", lambda _: 1.0),
    Metric("topo_status", GAUGE, STATUSES, "1 for the present status, 0 for all others.", _of("is_it")),
    Metric("topo_epochs_total", COUNTER, WHOLE, "Epochs begun: the first, and one for each loss.", _of("epochs_raised")),
    Metric("topo_tasks", GAUGE, ALL, "Tasks of the component.", _of("parallelism")),
    Metric("topo_tuples_emitted_total", COUNTER, ALL, "Rows that user code has emitted.", _count("emitted")),
    Metric("topo_tuples_transferred_total", COUNTER, ALL, "Tuples made of them, one a target.", _count("transferred")),
    Metric("topo_tuples_executed_total", COUNTER, BOLTS, "Tuples given to execute.", _count("executed")),
    Metric("topo_tuples_acked_total", COUNTER, ALL, "Inputs acked; of a spout, messages that are done.", _count("acked")),
    Metric("topo_tuples_failed_total", COUNTER, ALL, "Inputs failed; of a spout, verdicts of failure.", _count("failed")),
    Metric("topo_errors_total", COUNTER, ALL, "Exceptions of user code, and errors it has reported.", _count("errors")),
    Metric("topo_messages_timed_out_total", COUNTER, SPOUTS, "Messages without a timely verdict.", _count("timed_out")),
    Metric("topo_messages_late_acks_total", COUNTER, SPOUTS, "Verdicts after the timeout.", _count("late_acks")),
    Metric("topo_messages_replayed_total", COUNTER, SPOUTS, "Messages emitted again by topo.", _count("replayed")),
    Metric("topo_messages_reset_total", COUNTER, SPOUTS, "Messages put back when an epoch ended.", _count("reset")),
    Metric("topo_messages_dead_lettered_total", COUNTER, SPOUTS, "Messages given up.", _count("dead_lettered")),
    Metric("topo_messages_pending", GAUGE, SPOUTS, "Messages that are not done.", _level("pending")),
    Metric("topo_messages_finally_failed", GAUGE, SPOUTS, "Failed, not emitted again.", _level("finally_failed")),
    Metric("topo_busy_seconds_total", COUNTER, ALL, "Seconds in user code, of all tasks.", _count("busy_s")),
    Metric("topo_blocked_seconds_total", COUNTER, ALL, "Seconds with input and no room for output.", _count("blocked_s")),
    Metric("topo_capacity_ratio", GAUGE, BOLTS, "Load of the busiest task; 1 is full.", _of("capacity")),
    Metric("topo_waiting_tuples", GAUGE, BOLTS, "Tuples in front of the component.", _of("in_front")),
    Metric("topo_state_entries", GAUGE, BOLTS, "Entries of keyed state.", _level("state_entries")),
    Metric("topo_edge_tuples_total", COUNTER, EDGES, "Tuples sent.", _of("tuples")),
    Metric("topo_edge_full_seconds_total", COUNTER, EDGES, "Seconds in which an edge was full, over all edges.", _of("full_s")),
    Metric("topo_edge_waiting_tuples", GAUGE, EDGES, "Tuples buffered or sent, and not confirmed.", _of("in_front")),
    Metric("topo_execute_seconds", HISTOGRAM, BOLTS, "Time of one tuple in execute.", _of("histogram")),
    Metric("topo_complete_seconds", HISTOGRAM, SPOUTS, "From the emit of a message until it is done.", _of("histogram")),
    Metric("topo_watermark_lag_seconds", GAUGE, TIMED, "Watermark behind the clock, of the last task.", _of("lag_s")),
    Metric("topo_late_total", COUNTER, BOLTS, "Inputs too late for all their windows.", _count("late")),
    Metric("topo_late_dropped_total", COUNTER, BOLTS, "Those that no late stream has taken.", _count("late_dropped")),
    Metric("topo_checkpoint_duration_seconds", GAUGE, LAST, "Of the last complete checkpoint.", _of("duration_s")),
    Metric("topo_checkpoint_bytes", GAUGE, LAST, "Size of the last complete checkpoint.", _of("bytes")),
    Metric("topo_checkpoint_age_seconds", GAUGE, CHECKPOINTS, "Since the last complete checkpoint of this master.", _of("age_s")),
    Metric("topo_checkpoints_total", COUNTER, RESULTS, "Checkpoints: complete, failed, aborted.", _of("count")),
    Metric("topo_worker_cpu_seconds_total", COUNTER, WORKERS, "Processor time over all lives of the slot.", _of("cpu_s")),
    Metric("topo_worker_resident_memory_bytes", GAUGE, WORKERS, "Resident memory.", _of("rss_bytes")),
    Metric("topo_worker_starved_ratio", GAUGE, WORKERS, "Share of time in which its tasks had no core.", _of("starved")),
    Metric("topo_worker_restarts_total", COUNTER, WORKERS, "Processes that ended unexpectedly.", _of("losses")),
    Metric("topo_finding", GAUGE, FINDINGS, "1 for each finding of topo status but notes.", lambda _: 1.0),
)


class Family(NamedTuple):
    """The samples of one metric of all topologies: the topology, the values of the labels, the figure."""

    name: str
    kind: str
    help: str
    labels: Labels
    samples: list[tuple[str, Labels, Any]]


def families(running: Mapping[str, Overview], ended: Mapping[str, str]) -> Iterator[Family]:
    """Return all metrics that have samples, and those of user code.

    Args:
        running: overviews by topology.
        ended: of topologies without a master, the last status; "" when lost or stalled.
    """
    for metric in TABLE:
        found = [(name, *sample) for name, overview in running.items() for sample in metric.samples(overview)]
        for name, word in ended.items():
            if metric.name == "topo_up":
                found.append((name, (), 0.0))
            elif metric.name == "topo_status" and word:
                found += [(name, *sample) for sample in metric.samples({"status": word})]
        if found:
            yield Family(metric.name, metric.kind, metric.help, metric.subject.labels, found)
    users: dict[str, Family] = {}
    for topology, overview in running.items():
        for (name, kind, component), value in user_metrics(overview).items():
            # A name that is a counter in one topology and a gauge in another has `_total` in the first alone.
            family = users.setdefault(name, Family(name, kind, "Kept by user code.", ("component",), []))
            family.samples.append((topology, (component,), value))
    yield from users.values()


def user_metrics(overview: Overview) -> dict[tuple[str, str, str], float]:
    """Return the counters and gauges of user code by name, kind and component; names that become alike are added up."""
    found: dict[tuple[str, str, str], float] = {}
    for row in overview["components"]:
        for kind, values in row["user"].items():
            for name, value in values.items():
                clean = re.sub(r"\W", "_", name, flags=re.ASCII)
                key = (f"topo_user_{clean}" + ("_total" if kind == "counters" else ""), kind[:-1], row["component"])
                found[key] = found.get(key, 0.0) + float(value)
    counters = {name for name, kind, _ in found if kind == "counter"}
    return {(f"{n}_gauge" if kind == "gauge" and n in counters else n, kind, of): value for (n, kind, of), value in found.items()}


def page() -> str:
    """Return the table of docs/metrics.md."""
    labels = {one.name: ", ".join(f"`{label}`" for label in one.subject.labels) for one in TABLE}
    rows = [f"| `{one.name}` | {one.kind} | {labels[one.name]} | {one.help} |" for one in TABLE]
    return "\n".join(["| metric | type | labels besides `topology` | meaning |", "| --- | --- | --- | --- |", *rows]) + "\n"
