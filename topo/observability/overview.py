"""The short answers of a master: what a topology does, by component, by edge and by worker.

`overview` costs by components: 400 tasks in six components are a few kilobytes, and no figure of a task is merged for it.
`component_rows` and `worker_rows` have the tasks of one component, and the processes. Everything is plain values; figures of
tuples are sums over all lives, rates and percentiles those of a window: the last 10 s, 1 or 10 minutes, or all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from topo.api.metrics import BUCKET_COUNT, HistogramSnapshot, upper_bound
from topo.api.topology import ComponentKind
from topo.errors import UserError
from topo.ids import TaskId
from topo.master.master import TopologyMaster
from topo.master.sums import HistogramSum
from topo.master.task_figures import EVENT_TIME, NOT_SHOWN, UNCONFIRMED
from topo.master.windows import WINDOWS, Span
from topo.observability.status import event_time, latency, shares, status_of, task_row, totals, worker_row
from topo.plan.logical import PlannedComponent
from topo.wire.control import SnapshotTaken
from topo.wire.frames import MIN_WATERMARK

Figures = dict[str, Any]

_RATES = {"in_per_s": "executed", "out_per_s": "emitted", "acked_per_s": "acked", "failed_per_s": "failed"}
_SHOWN = ("emitted", "transferred", "executed", "acked", "failed", "errors", "timed_out", "replayed", "reset", "late_acks")
"""Counters of every row; others are in it when they are not 0."""


BOUNDS_S = tuple(4.0**power for power in range(-10, 4))
"""Bounds of latencies for Prometheus: each is one of the bounds of our buckets, so the counts are exact."""
_BOUND_BUCKETS = tuple(next(bucket for bucket in range(BUCKET_COUNT) if upper_bound(bucket) >= bound) for bound in BOUNDS_S)
MINUTE_S = 60.0
"""Whatever window is asked for, counters of trouble grow in the last minute: they are few, and move in jerks."""
_TROUBLE = ("failed", "errors", "timed_out", "late_acks", "replayed", "dead_lettered", "late", "late_dropped")


def window_s(name: str) -> float | None:
    """Return the seconds of a window, None for all. Raises UserError for an unknown one."""
    if name not in WINDOWS:
        raise UserError(f"there is no window {name!r}; there are {', '.join(WINDOWS)}")
    return WINDOWS[name]


def overview(master: TopologyMaster, now: float, window: str = "10s", *, buckets: bool = False) -> Figures:
    """Return status, totals, components, edges, checkpoints and workers in brief. Raises UserError for an unknown window.

    Args:
        buckets: add the buckets of each histogram as they are.
    """
    span_s = window_s(window)
    plan, counts = master.plan, master.counts
    word, reason = status_of(master, now)
    spans = {component.id: master.figures.span(component.id, now, span_s) for component in plan.components}
    in_front = {component.id: master.figures.in_front(component.id) for component in plan.components}
    waiting: dict[str, int] = {}
    for targets in in_front.values():
        for target, tuples in targets.items():
            waiting[target] = waiting.get(target, 0) + tuples
    components = [
        _component(master, component, spans[component.id], now, waiting.get(component.id, 0), buckets)
        for component in plan.components
    ]
    return {
        "topology": plan.name,
        "status": word.value,
        "reason": reason,
        "window": window,
        "delivery": plan.config.delivery,
        "checkpoint_interval_s": plan.config.checkpoint_interval_s,
        "term": master.term,
        "epoch": master.recovery.epochs.epoch,
        "uptime_s": 0.0 if master.started_at is None else now - master.started_at,
        "tasks": len(plan.tasks),
        "totals": totals(master, now),
        "components": components,
        "edges": _edges(master, spans, in_front),
        "checkpoints": _checkpoints(master, now),
        "workers": [_worker(worker_row(master, slot, now)) for slot in master.membership.slots.values()],
        "restarts": counts.losses,
        "epochs_raised": counts.epochs,
        "edges_lost": counts.edges_lost,
        "stuck": counts.stuck,
        "dead_letters": master.dead_letters.count,
    }


def component_rows(master: TopologyMaster, component: str, now: float, window: str = "10s") -> Figures:
    """Return a component's row, and those of its tasks. Raises UserError for an unknown component or window."""
    if component not in {one.id for one in master.plan.components}:
        known = ", ".join(one.id for one in master.plan.components)
        raise UserError(f"{master.plan.name} has no component {component!r}; it has {known}")
    shown = overview(master, now, window)
    row = next(one for one in shown["components"] if one["component"] == component)
    tasks = [task_row(master, task) for task in master.plan.tasks_of(component)]
    edges = [edge for edge in shown["edges"] if component in (edge["source"], edge["target"])]
    operators = list(master.plan.component(component).operators)
    return {"component": row, "operators": operators, "tasks": tasks, "edges": edges}


def worker_rows(master: TopologyMaster, now: float) -> list[Figures]:
    """Return a row for each worker, with its process."""
    return [worker_row(master, slot, now) for slot in master.membership.slots.values()]


def _component(
    master: TopologyMaster, component: PlannedComponent, span: Span, now: float, waiting: int, buckets: bool
) -> Figures:
    figures, tasks = master.figures, master.plan.tasks_of(component.id)
    sums, levels = figures.sums(component.id), figures.levels(component.id)
    counters = {name: count for name, count in sums.counters.items() if count or name in _SHOWN}
    name = "complete" if component.kind is ComponentKind.SPOUT else "execute"
    measured = {} if component.kind is ComponentKind.ACKER else {f"{name}_s": _brief(span.latency(name))}
    rates = {name: _short(span.rate(counter)) for name, counter in _RATES.items()}
    capacities = [figures.capacity(task) for task in tasks]
    hottest = max(range(len(tasks)), key=capacities.__getitem__)
    in_per_s = span.rate("executed")
    waiting = max(0, waiting - int(levels.get(UNCONFIRMED, 0)))
    # A spout has nothing in front of it; a component that stands still would take for ever.
    wait_s = 0.0 if not waiting else waiting / in_per_s if in_per_s > 0 else None
    user: dict[str, Mapping[str, float]] = {"counters": sums.user_counters, "gauges": figures.gauges(component.id)}
    return {
        "component": component.id,
        "kind": component.kind.value,
        "parallelism": len(tasks),
        "counters": {name: _exact(count) for name, count in counters.items()},
        "levels": {name: _short(level) for name, level in levels.items() if level and name not in NOT_SHOWN},
        "event_time": _event_time(master, levels),
        **rates,
        **{name: _short(share) for name, share in _shares(span, len(tasks)).items()},
        "capacity": _short(capacities[hottest]),
        "hottest": hottest,
        "capacity_mean": _short(sum(capacities) / len(tasks)),
        "in_front": waiting,
        "wait_s": _short(wait_s),
        **measured,
        "histogram": _histogram(sums.latencies.get(name), buckets),
        "growing": {name: _short(rate) for name, rate in figures.growth(component.id, now, _TROUBLE, MINUTE_S).items()},
        **_limits(master, component),
        "user": {kind: {name: _short(value) for name, value in values.items()} for kind, values in user.items() if values},
    }


def _limits(master: TopologyMaster, component: PlannedComponent) -> Figures:
    """Return the settings that bound the messages of a spout."""
    if component.kind is not ComponentKind.SPOUT:
        return {}
    config = master.plan.config_of(component.id)
    return {"max_pending": config.max_spout_pending, "message_timeout_s": config.message_timeout_s}


def _event_time(master: TopologyMaster, levels: Mapping[str, float]) -> Figures | None:
    shown = event_time(master, levels)
    if shown is None:
        return None
    by = levels.get(EVENT_TIME[2])
    return shown | {"emits_per_s": None if by is None else _short(master.figures.rate(TaskId(int(by)), "emitted"))}


def _shares(span: Span, tasks: int) -> dict[str, float]:
    return shares(span.rate("busy_s") / tasks, span.rate("blocked_s") / tasks)


def _edges(master: TopologyMaster, spans: Mapping[str, Span], in_front: Mapping[str, Mapping[str, int]]) -> list[Figures]:
    found = []
    for source, target in dict.fromkeys((one.source, one.target) for one in master.plan.subscriptions):
        event_time = master.figures.watermarks(target)
        span, whole = spans[source], master.figures.sums(source).edges.get(target)
        lately = span.edge(target)
        row = {
            "source": source,
            "target": target,
            "streams": [one.stream for one in master.plan.subscriptions if (one.source, one.target) == (source, target)],
            "groupings": [
                one.grouping.value for one in master.plan.subscriptions if (one.source, one.target) == (source, target)
            ],
            "tuples": 0 if whole is None else whole.sent,
            "per_s": _short(lately.sent / span.seconds if span.seconds > 0 else 0.0),
            "in_front": in_front[source].get(target, 0),
            "full_s": _exact(0.0 if whole is None else whole.full_s),
            "full": _short(_full_share(master, source, target, lately.full_s, span.seconds)),
        }
        if source in event_time:
            row["watermark_ms"] = None if event_time[source] == MIN_WATERMARK else event_time[source]
        found.append(row)
    return found


def _full_share(master: TopologyMaster, source: str, target: str, full_s: float, seconds: float) -> float:
    """Return the share of time in which an edge between two tasks of these components was full, on average."""
    edges = len(master.plan.tasks_of(source)) * len(master.plan.tasks_of(target))
    return min(1.0, full_s / (seconds * edges)) if seconds > 0 else 0.0


def _checkpoints(master: TopologyMaster, now: float) -> Figures | None:
    if master.checkpoints is None:
        return None
    known = master.checkpoints.describe(now)
    last = next((row for row in reversed(known.pop("latest")) if row["state"] == "complete"), None)
    parts = () if last is None else master.checkpoints.parts_of(last["checkpoint"])
    return known | {"last": last, "slowest": _part(master, max(parts, key=_took_ms)) if parts else None}


def checkpoint_rows(master: TopologyMaster, checkpoint: int) -> list[Figures]:
    """Return the parts of one of the last checkpoints by task, the slowest first; empty for an unknown one."""
    parts = () if master.checkpoints is None else master.checkpoints.parts_of(checkpoint)
    return [_part(master, part) for part in sorted(parts, key=_took_ms, reverse=True)]


def _took_ms(part: SnapshotTaken) -> float:
    return part.alignment_ms + part.pause_ms + part.duration_ms


def _part(master: TopologyMaster, part: SnapshotTaken) -> Figures:
    planned = master.plan.task(part.task)
    named = {"task": part.task, "component": planned.component, "index": planned.index, "bytes": part.length}
    return named | {name: getattr(part, name) for name in ("alignment_ms", "pause_ms", "duration_ms")}


def _worker(row: Figures) -> Figures:
    brief = {name: row[name] for name in ("worker", "state", "pid", "host", "busy_in", "losses", "lost_why")}
    return (
        brief
        | {"cpu_s": _exact(row["cpu_s"])}
        | {name: _short(row[name]) for name in ("cpu", "rss_bytes", "silent_s", "starved", "cores")}
    )


def _histogram(measured: HistogramSum | None, buckets: bool) -> Figures | None:
    """Return the counts up to each of BOUNDS_S, and the sum, since the master has begun; None where nothing was measured."""
    if measured is None:
        return None
    counts = measured.counts
    below = [sum(count for bucket, count in counts.items() if bucket <= bound) for bound in _BOUND_BUCKETS]
    shown = {"counts": below, "count": sum(counts.values()), "sum_s": measured.total}
    return shown | {"buckets": {str(bucket): count for bucket, count in counts.items()}} if buckets else shown


def _brief(histogram: HistogramSnapshot) -> Figures | None:
    shown = latency(histogram)
    return None if shown is None else {name: _short(shown[name]) for name in ("count", "mean", "p50", "p99", "max")}


def _exact(count: float) -> float:
    """Return a count as it is; one of seconds to the millisecond."""
    return count if isinstance(count, int) else round(count, 3)


def _short(value: float | None) -> float | None:
    """Return a figure with six digits: what a person reads, at half the size."""
    if value is None or isinstance(value, int):
        return value
    return float(f"{value:.6g}")


def questions(master: TopologyMaster, clock: Callable[[], float]) -> dict[str, Callable[..., Any]]:
    """Return the verbs of a master that ask for figures, each with a function of its arguments."""
    return {
        "overview": lambda window="10s", buckets=False: overview(master, clock(), window, buckets=buckets),
        "component": lambda component, window="10s": component_rows(master, component, clock(), window),
        "workers": lambda: worker_rows(master, clock()),
        "checkpoint": lambda checkpoint: checkpoint_rows(master, checkpoint),
    }
