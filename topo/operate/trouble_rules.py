"""Rules about event time, checkpoints, losses and failures. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from topo.operate.view import FindingRow, View, count, seconds

BEHIND_S = 10.0
"""A watermark that is so much behind the clock, and waits for an input that is silent, holds windows back."""

_BARRIERS = "barriers queue behind tuples: mend the bottleneck, or lower queue_time"


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
            "event time held back",
            "slow",
            culprit.partition("[")[0],
            f"event time in {component} {stands}: it waits for {culprit}, which emits nothing",
            f"WatermarkStrategy.with_idleness(...) for {culprit.partition('[')[0]}",
            (f"topo history {view.name} --series lag",),
            {} if time["lag_s"] is None else {"lag_s": time["lag_s"]},
        )


def late_data(view: View) -> Iterator[FindingRow]:
    for component, growing in view.growing.items():
        if dropped := growing.get("late_dropped"):
            yield FindingRow(
                "late data",
                "problem",
                component,
                f"{component} drops {count(60 * dropped)} inputs a minute that come too late for their windows",
                "a later watermark (out_of_orderness), allowed lateness, or a late stream",
                (f"topo status {view.name}",),
                {"late_dropped_per_s": dropped},
            )


def slow_checkpoints(view: View) -> Iterator[FindingRow]:
    known = view.all["checkpoints"]
    if not known:
        return
    last, slowest, under_way = known["last"], known["slowest"], known["under_way"]
    most_s = 0.5 * view.all["checkpoint_interval_s"]
    if under_way and under_way["since_s"] > most_s and (last is None or under_way["since_s"] > last["duration_s"]):
        yield FindingRow(
            "checkpoint slow",
            "slow",
            _component_in(under_way["waiting_for"]),
            f"checkpoint {under_way['checkpoint']} is under way for {seconds(under_way['since_s'])}, and waits for "
            f"{under_way['waiting_for']}",
            _BARRIERS,
            (f"topo checkpoints {view.name}",),
            {"since_s": under_way["since_s"]},
        )
    elif last and slowest and last["duration_s"] > most_s:
        yield _slow_part(view, last, slowest)


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
            remedy = "a quicker store; or code that lets barriers pass"
    else:
        why = f"{task} {parts[longest]} for {seconds(longest_s)}"
        remedy = _BARRIERS if longest == "alignment_ms" else "less state, or a quicker store"
    return FindingRow(
        "checkpoint slow",
        "slow",
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
                "worker lost again and again",
                "problem",
                worker["busy_in"].partition(":")[0],
                f"worker {worker['worker']} was lost {worker['losses']} times: {worker['lost_why']}",
                "the exception, or the signal, names the cause",
                (f"topo errors {view.name} --traceback -n 3", f"topo logs {view.name} --worker {worker['worker']}"),
                {"losses": worker["losses"]},
            )


def given_up(view: View) -> Iterator[FindingRow]:
    for spout in view.spouts:
        if dropped := view.growing[spout["component"]].get("dead_lettered"):
            yield FindingRow(
                "dead letters",
                "problem",
                spout["component"],
                f"{count(60 * dropped)} messages of {spout['component']} a minute are given up",
                "mend what they fail on",
                (f"topo dead-letters {view.name}", f"topo errors {view.name}"),
                {"dead_lettered_per_s": dropped},
            )


def failing(view: View) -> Iterator[FindingRow]:
    for component, growing in view.growing.items():
        if errors := growing.get("errors"):
            yield FindingRow(
                "errors",
                "problem",
                component,
                f"{component} has {count(60 * errors)} errors a minute",
                "the file and line are in",
                (f"topo errors {view.name} --component {component}",),
                {"errors_per_s": errors},
            )


def _component_in(waiting_for: str) -> str:
    """Return the first component that "the parts of tasks 3 (count), 4 (count)" names."""
    return waiting_for.partition("(")[2].partition(")")[0]
