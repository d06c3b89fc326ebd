"""Rules about event time, checkpoints, losses and failures. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from topo.operate.view import FindingRow, View, count, seconds

BEHIND_S = 10.0
"""A watermark that is so much behind the clock, and waits for an input that is silent, holds windows back."""

_BARRIERS = "barriers queue behind tuples: fix the bottleneck, or lower queue_time"


def held_back(view: View) -> Iterator[FindingRow]:
    for row in view.bolts if view.is_settled else ():
        time, component = row["event_time"], row["component"]
        # Event time of old data is far behind the clock, too; but then the input that is waited for emits.
        if time is None or time["held_back_by"] is None or time["emits_per_s"] > 0 or row["in_per_s"] == 0:
            continue
        if time["lag_s"] is not None and time["lag_s"] < BEHIND_S:
            continue
        culprit = time["held_back_by"]
        # A bolt that passes nothing on, such as a filter, passes watermarks on all the same; a source without rows has none. Its
        # rate is that of about ten seconds: the lag has grown by as much, and is not constant.
        source = view.rows.get(culprit.partition("[")[0])
        if source is None or source["kind"] != "spout" or (source["parallelism"] == 1 and source["out_per_s"] > 0):
            continue
        stands = "has not begun" if time["lag_s"] is None else f"is {seconds(time['lag_s'])} behind the clock"
        yield FindingRow(
            culprit.partition("[")[0],
            f"event time in {component} {stands}: it waits for {culprit}, which emits nothing",
            f"WatermarkStrategy.with_idleness(...) for {culprit.partition('[')[0]}",
            (f"topo status {view.name}" if time["lag_s"] is None else f"topo history {view.name} --series lag",),
            {} if time["lag_s"] is None else {"lag_s": time["lag_s"]},
        )


def slow_checkpoints(view: View) -> Iterator[FindingRow]:
    known = view.all["checkpoints"]
    if not known:
        return
    last, slowest, under_way = known["last"], known["slowest"], known["under_way"]
    most_s = 0.5 * view.all["checkpoint_interval_s"]
    if under_way and under_way["since_s"] > most_s and (last is None or under_way["since_s"] > last["duration_s"]):
        # The first that "the parts of tasks 3 (count), 4 (count)" names.
        component = under_way["waiting_for"].partition("(")[2].partition(")")[0]
        remedy, command = _remedy_under_way(view, component)
        yield FindingRow(
            component,
            f"checkpoint {under_way['checkpoint']} is under way for {seconds(under_way['since_s'])}, and waits for "
            f"{under_way['waiting_for']}",
            remedy,
            (command,),
            {"since_s": under_way["since_s"]},
        )
    elif last and slowest and last["duration_s"] > most_s:
        yield _slow_part(view, last, slowest)


def _remedy_under_way(view: View, component: str) -> tuple[str, str]:
    """Return a remedy for a checkpoint that is under way, and a command: queues are the cause where nothing else is known."""
    if view.all["status"] == "DEGRADED":
        return "fix the reason of DEGRADED first", f"topo status {view.name}"
    if component in view.rows and view.rows[component]["growing"].get("errors"):
        return f"{component} reports errors, which may hold it up", f"topo errors {view.name} --component {component}"
    return _BARRIERS, f"topo checkpoints {view.name}"


def _slow_part(view: View, last: Mapping[str, Any], slowest: Mapping[str, Any]) -> FindingRow:
    parts = {"alignment_ms": "waits for barriers", "pause_ms": "copies its state", "duration_ms": "stores its part"}
    longest = max(parts, key=lambda name: slowest[name])
    longest_s = slowest[longest] / 1000
    component, task = str(slowest["component"]), f"{slowest['component']}[{slowest['index']}]"
    rest_s = last["duration_s"] - sum(slowest[name] for name in parts) / 1000
    if rest_s > 0.5 * last["duration_s"]:
        # No task has taken long. Barriers pass one queue after another; where those are short, the cause is not measured.
        before = max(view.bolts, key=_wait_s, default=None)
        if before is not None and sum(map(_wait_s, view.bolts)) > 0.5 * rest_s:
            component = before["component"]
            why, remedy = f"its barriers wait behind the tuples in front of {component} for {seconds(rest_s)}", _BARRIERS
        else:
            component, why = "", f"it waits for barriers or the store for {seconds(rest_s)}"
            remedy = "a faster store; or code that lets barriers pass"
    else:
        why = f"{task} {parts[longest]} for {seconds(longest_s)}"
        remedy = _BARRIERS if longest == "alignment_ms" else "less state, or a faster store"
    return FindingRow(
        component,
        f"checkpoint {last['checkpoint']} took {seconds(last['duration_s'])}: {why}",
        remedy,
        (f"topo checkpoints {view.name}",),
        {"duration_s": last["duration_s"], longest: slowest[longest]},
    )


def _wait_s(row: Mapping[str, Any]) -> float:
    return float("inf") if row["wait_s"] is None else float(row["wait_s"])


def lost_workers(view: View) -> Iterator[FindingRow]:
    for worker in view.all["workers"]:
        if worker["losses"] >= 3 and view.all["status"] == "DEGRADED":
            yield FindingRow(
                worker["busy_in"].partition(":")[0],
                f"worker {worker['worker']} was lost {worker['losses']} times: {worker['lost_why']}",
                "the exception, or the signal, names the cause",
                (f"topo errors {view.name} --traceback -n 3", f"topo logs {view.name} --level warning"),
                {"losses": worker["losses"]},
            )


def growing(counter: str, sentence: str, remedy: str, *commands: str) -> Callable[[View], Iterator[FindingRow]]:
    """Return a rule about a counter that should stand still; texts may name `component`, `topology` and `count` a minute."""

    def rule(view: View) -> Iterator[FindingRow]:
        for component, row in view.rows.items():
            if per_s := row["growing"].get(counter):
                facts = {"component": component, "topology": view.name, "count": count(60 * per_s)}
                texts = tuple(command.format(**facts) for command in commands)
                yield FindingRow(component, sentence.format(**facts), remedy, texts, {f"{counter}_per_s": per_s})

    return rule


failing = growing(
    "errors",
    "{component} has {count} errors a minute",
    "the file and line are in",
    "topo errors {topology} --component {component}",
)
given_up = growing(
    "dead_lettered",
    "{component} gives up {count} messages a minute",
    "fix the cause",
    "topo dead-letters {topology}",
    "topo errors {topology}",
)
late_data = growing(
    "late_dropped",
    "{component} drops {count} inputs a minute that come too late for their windows",
    "a later watermark (out_of_orderness), allowed lateness, or a late stream",
    "topo status {topology}",
)
