"""Describes a running topology in plain values: the same ones for `topo status`, for JSON and for the web page.

Shares and rates are those of the last seconds. `busy`, `backpressured` and `idle` are shares of wall time and add up to 1.
`capacity` is the tuples executed times the mean execute latency over the time in which they were: at 1 a task can take no more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from enum import Enum
from typing import Any

from topo.api.metrics import HistogramSnapshot
from topo.api.topology import ComponentKind
from topo.ids import TaskId
from topo.master.ending import EndingStage
from topo.master.epochs import EpochState
from topo.master.master import TopologyMaster
from topo.master.membership import Slot, SlotState
from topo.master.outcome import Outcome, OutcomeKind
from topo.master.task_figures import EVENT_TIME, NOT_SHOWN, known_gauges
from topo.plan.describe import placement_text
from topo.plan.logical import PlannedComponent
from topo.wire.statistics import Counters

StatusReport = dict[str, Any]
"""The figures of a topology, as `describe` makes them."""


class TopologyStatus(Enum):
    """The state of a topology, in a word."""

    STARTING = "STARTING"
    """No spout has emitted yet."""
    RUNNING = "RUNNING"
    INACTIVE = "INACTIVE"
    """The operator has paused the spouts."""
    DEGRADED = "DEGRADED"
    """A worker is being replaced, or has been lost again and again."""
    DRAINING = "DRAINING"
    """It is about to end."""
    FINISHED = "FINISHED"
    KILLED = "KILLED"
    """The operator has ended it, at once or after the messages in flight were done."""
    FAILED = "FAILED"
    """It has ended as it should not have."""


_END = {
    OutcomeKind.DONE: TopologyStatus.FINISHED,
    OutcomeKind.FINALLY_FAILED: TopologyStatus.FAILED,
    OutcomeKind.DEAD_LETTERS: TopologyStatus.FAILED,
    OutcomeKind.REFUSED: TopologyStatus.FAILED,
    OutcomeKind.RESULTS_LOST: TopologyStatus.FAILED,
    OutcomeKind.UNACCOUNTED: TopologyStatus.FAILED,
    OutcomeKind.CRASHED: TopologyStatus.FAILED,
    OutcomeKind.DRAINED: TopologyStatus.KILLED,
    OutcomeKind.CUT_SHORT: TopologyStatus.KILLED,
    OutcomeKind.KILLED: TopologyStatus.KILLED,
}

_TOTALS = ("emitted", "acked", "failed", "timed_out", "replayed", "reset", "finally_failed", "refused")
_RATES = ("emitted", "executed", "acked")
_NO_COUNTS = asdict(Counters())
_LATENCIES = {ComponentKind.SPOUT: ("complete",), ComponentKind.BOLT: ("execute",)}


def describe(master: TopologyMaster, now: float) -> StatusReport:
    word, reason = status_of(master, now)
    counts = master.counts
    plan = master.plan
    return {
        "topology": plan.name,
        "packing": placement_text(plan) if plan.is_packed_by_default else "",
        "status": word.value,
        "reason": reason,
        "outcome": _end(master),
        "term": master.term,
        "epoch": master.recovery.epochs.epoch,
        "uptime_s": 0.0 if master.started_at is None else now - master.started_at,
        "totals": totals(master, now),
        "components": [component_row(master, component, now) for component in plan.components],
        "tasks": [task_row(master, task.id) for task in plan.tasks],
        "workers": [worker_row(master, slot, now) for slot in master.recovery.membership.slots.values()],
        "restarts": counts.losses,
        "unreported": counts.unreported,
        "epochs_raised": counts.epochs,
        "edges_lost": counts.edges_lost,
        "stuck": counts.stuck,
        "fenced": counts.fenced,
        "misdirected": counts.misdirected,
        "unreadable": master.figures.unreadable,
        "dead_letters": master.dead_letters.count,
        "checkpoints": None if master.checkpoints is None else master.checkpoints.describe(now),
    }


def _end(master: TopologyMaster) -> dict[str, Any] | None:
    outcome = master.ending.outcome
    if outcome is None or master.ending.stage is not EndingStage.FINISHED:
        return None
    return outcome.as_dict() | {"stays_ended": master.ending.stays_ended}


def never_ran(topology: str, outcome: Outcome) -> dict[str, Any]:
    """Return the status of a topology whose master could not begin: the shape of `describe`, without tasks."""
    counts = (
        "restarts",
        "unreported",
        "epochs_raised",
        "edges_lost",
        "stuck",
        "fenced",
        "misdirected",
        "unreadable",
        "dead_letters",
    )
    return {
        "topology": topology,
        "packing": "",
        "status": _END[outcome.kind].value,
        "reason": outcome.reason,
        "outcome": outcome.as_dict() | {"stays_ended": False},
        "term": 0,
        "epoch": 0,
        "uptime_s": 0.0,
        "totals": dict.fromkeys((*_TOTALS, "dead_lettered", "executed", "pending"), 0)
        | {"emitted_per_s": 0.0, "acked_per_s": 0.0, "complete_latency_s": None},
        "components": [],
        "tasks": [],
        "workers": [],
        **dict.fromkeys(counts, 0),
        "checkpoints": None,
    }


def status_of(master: TopologyMaster, now: float) -> tuple[TopologyStatus, str]:
    """Return the status and why it is so, in words; "" when there is nothing to explain."""
    ending = master.ending
    if ending.stage is EndingStage.FINISHED and ending.outcome is not None:
        return _END[ending.outcome.kind], ending.outcome.reason
    if ending.stage is not EndingStage.SERVING:
        return TopologyStatus.DRAINING, "closing" if ending.stage is EndingStage.CLOSING else "stopping"
    if ending.is_draining:
        pending = master.quiescence.pending()
        return TopologyStatus.DRAINING, f"{pending} message{'s'[: pending > 1]} pending" if pending else ""
    problem = _problem(master, now)
    if not master.recovery.epochs.has_run:
        return TopologyStatus.STARTING, problem or _doing(master) or _handshake(master)
    if problem or master.recovery.epochs.state is not EpochState.RUNNING:
        return TopologyStatus.DEGRADED, problem or _handshake(master)
    failing = ("" if master.checkpoints is None else master.checkpoints.problem) or _doing(master)
    return (TopologyStatus.RUNNING, failing) if master.is_active else (TopologyStatus.INACTIVE, failing or "deactivated")


def _doing(master: TopologyMaster) -> str:
    """Return what user code reports of calls that take long, such as "numbers: skipping to item 1,000,000"; "" when nothing."""
    doing = [slot.busy_in for slot in master.recovery.membership.slots.values() if ": " in slot.busy_in]
    return "; ".join(doing)


def _handshake(master: TopologyMaster) -> str:
    if master.recovery.epochs.state is EpochState.FORMING:
        waiting = [slot.worker for slot in master.recovery.membership.slots.values() if slot.state is not SlotState.LIVE]
        if not waiting and master.checkpoints is not None and master.checkpoints.holds_epoch:
            return "waiting for the store of checkpoints"
        return f"waiting for workers {', '.join(map(str, waiting))}" if waiting else "an edge was lost"
    waiting_for = ", ".join(map(str, master.recovery.epochs.waiting_for()))
    return f"waiting for tasks {waiting_for} to open"


def _problem(master: TopologyMaster, now: float) -> str:
    """Return the problem of the first worker that was lost and has not recovered; "" when all have."""
    for slot in master.recovery.membership.slots.values():
        who = f"worker {slot.worker} ({_hosted(master, slot)})"
        if slot.restarts.is_crash_loop(now):
            return f"{who} was lost {slot.restarts.losses_in_a_row} times: {slot.lost_why}"
        if slot.lost_why and slot.state is not SlotState.LIVE:
            return f"{who} is being replaced: {slot.lost_why}"
    return ""


def _hosted(master: TopologyMaster, slot: Slot) -> str:
    return ", ".join(dict.fromkeys(master.plan.task(task).component for task in slot.tasks))


def worker_row(master: TopologyMaster, slot: Slot, now: float) -> dict[str, Any]:
    is_there = slot.incarnation is not None
    return {
        "worker": slot.worker,
        "state": slot.state.value,
        "incarnation": slot.incarnation,
        "pid": slot.pid or None,
        "host": slot.host,
        "tasks": list(slot.tasks),
        "busy_in": slot.busy_in,
        "silent_s": now - slot.last_message_at if is_there else None,
        "starts_in_s": max(0.0, slot.start_at - now) if slot.state is SlotState.WAITING else None,
        "losses": slot.restarts.losses,
        "lost_why": slot.lost_why,
        **master.figures.processes.of(slot.worker, slot.incarnation),
    }


def totals(master: TopologyMaster, now: float) -> dict[str, Any]:
    """Messages, as spouts count them, and what became of them; and the tuples that all tasks handled."""
    figures = master.figures
    spouts = [component.id for component in master.plan.components if component.kind is ComponentKind.SPOUT]
    complete = HistogramSnapshot()
    for spout in spouts:
        if (histogram := figures.sums(spout).latencies.get("complete")) is not None:
            complete = complete.merged(histogram.snapshot())
    spans = [figures.span(spout, now) for spout in spouts]
    return {
        **{name: sum(figures.counter(spout, name) for spout in spouts) for name in _TOTALS},
        "dead_lettered": master.dead_letters.count,
        "executed": sum(figures.counter(component.id, "executed") for component in master.plan.components),
        "pending": sum(figures.levels(spout).get("pending", 0) for spout in spouts),
        "emitted_per_s": sum(span.rate("emitted") for span in spans),
        "acked_per_s": sum(span.rate("acked") for span in spans),
        "complete_latency_s": latency(complete),
    }


def component_row(master: TopologyMaster, component: PlannedComponent, now: float) -> dict[str, Any]:
    figures, tasks = master.figures, master.plan.tasks_of(component.id)
    sums, span = figures.sums(component.id), figures.span(component.id, now)
    user = {
        "counters": dict(sums.user_counters),
        "gauges": figures.gauges(component.id),
        "histograms": {name: latency(histogram.snapshot()) for name, histogram in sums.user_histograms.items()},
    }
    return {
        "component": component.id,
        "kind": component.kind.value,
        "parallelism": len(tasks),
        "operators": list(component.operators),
        "counters": _NO_COUNTS | sums.counters,
        **_of_levels(master, component, figures.levels(component.id)),
        "latencies_s": _latencies(component, {name: histogram.snapshot() for name, histogram in sums.latencies.items()}),
        **{f"{name}_per_s": span.rate(name) for name in _RATES},
        **shares(span.rate("busy_s") / len(tasks), span.rate("blocked_s") / len(tasks)),
        # The hottest task holds the component back.
        "capacity": max(figures.capacity(task) for task in tasks),
        "user": user,
    }


def task_row(master: TopologyMaster, task: TaskId) -> dict[str, Any]:
    figures, planned = master.figures, master.plan.task(task)
    component, own = master.plan.component_of(task), figures.of(task)
    metrics = own.user.metrics
    user = {
        "counters": dict(metrics.counters),
        "gauges": known_gauges(metrics.gauges),
        "histograms": {name: latency(histogram) for name, histogram in metrics.histograms.items()},
    }
    return {
        "task": task,
        "component": planned.component,
        "index": planned.index,
        "worker": master.plan.worker_of(task),
        "counters": _NO_COUNTS | own.counters,
        **_of_levels(master, component, own.levels),
        "latencies_s": _latencies(component, own.latencies),
        **{f"{name}_per_s": figures.rate(task, name) for name in _RATES},
        **shares(figures.rate(task, "busy_s"), figures.rate(task, "blocked_s")),
        "capacity": figures.capacity(task),
        "user": user,
    }


def shares(busy: float, blocked: float) -> dict[str, float]:
    """Return the shares of time, which add up to 1."""
    busy = min(busy, 1.0)
    blocked = min(blocked, 1.0 - busy)
    return {"busy": busy, "backpressured": blocked, "idle": max(0.0, 1.0 - busy - blocked)}


def _of_levels(master: TopologyMaster, component: PlannedComponent, levels: Mapping[str, float]) -> dict[str, Any]:
    # What every task of the kind has, so that the shape does not depend on which heartbeats have arrived.
    names = _levels_of(component, master.plan.config.delivery)
    shown = dict.fromkeys(names, 0.0) | {name: it for name, it in levels.items() if name not in NOT_SHOWN}
    return {"levels": shown, "event_time": event_time(master, levels)}


def _latencies(component: PlannedComponent, measured: Mapping[str, HistogramSnapshot]) -> dict[str, Any]:
    return dict.fromkeys(_LATENCIES.get(component.kind, ())) | {name: latency(it) for name, it in measured.items()}


def _levels_of(component: PlannedComponent, delivery: str) -> tuple[str, ...]:
    """Return the levels that the tasks of a component report once they are open."""
    checkpointed = delivery == "exactly_once"
    own: tuple[str, ...] = ()
    if component.kind is ComponentKind.ACKER:
        own = ("trees", "expired_last")
    elif component.kind is ComponentKind.SPOUT:
        own = ("pending", "in_flight", "finally_failed", "suspects", *(["uncovered"] if checkpointed else []))
    elif component.state.startswith("windows"):
        own = ("timers", "state_entries", "open_windows", *([] if checkpointed else ["open_firings"]))
    elif component.state.startswith("state and timers"):
        own = ("timers", "state_entries")
    elif component.state == "calls":
        own = ("async_in_flight",)
    if component.kind is ComponentKind.BOLT:
        own += ("allowance", "queue_s")
    return ("queue", "outbox", *own)


def event_time(master: TopologyMaster, levels: Mapping[str, float]) -> dict[str, Any] | None:
    """Return how far event time has come in the task that is behind, and whom it waits for; None without event time."""
    watermark_name, lag_name, by_name = EVENT_TIME
    if watermark_name not in levels:
        return None
    by = None
    if by_name in levels:
        task = master.plan.task(TaskId(int(levels[by_name])))
        by = f"{task.component}[{task.index}]"
    # Without a lag there has been no watermark yet.
    watermark = int(levels[watermark_name]) if lag_name in levels else None
    return {"watermark_ms": watermark, "lag_s": levels.get(lag_name), "held_back_by": by}


def latency(histogram: HistogramSnapshot | None) -> dict[str, Any] | None:
    """Return count, mean, percentiles and maximum; None when nothing was recorded."""
    if histogram is None or not histogram.count:
        return None
    return {
        "count": histogram.count,
        "mean": histogram.total / histogram.count,
        "p50": histogram.percentile(50),
        "p99": histogram.percentile(99),
        "p999": histogram.percentile(99.9),
        "max": histogram.highest,
    }
