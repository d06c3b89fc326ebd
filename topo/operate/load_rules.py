"""Rules about load: bottlenecks, hot keys, held messages, slow sources, processes without a core. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from topo.operate.view import HOT, WAITS_S, FindingRow, View, count, names, percent, rate, seconds, unacked


def bottlenecks(view: View) -> Iterator[FindingRow]:
    queued = view.with_queue() if view.is_settled else []
    hot = {row["component"] for row in queued}
    for row in queued:
        component = row["component"]
        # A component that waits for a hot one behind it is its victim, however busy it is meanwhile.
        if hot & set(view.behind(component)) or _is_one_key(row):
            continue
        wait = "" if row["wait_s"] is None else f", {seconds(row['wait_s'])} of work,"
        held = [name for name in view.before(component) if view.rows[name]["backpressured"] > 0.3]
        victims = f"; it holds back {names(held)}" if held else ""
        more = 2 * row["parallelism"]
        yield FindingRow(
            component,
            f"{component} is the bottleneck: its busiest task works {percent(row['capacity'])} of the time, and "
            f"{count(row['in_front'])} tuples{wait} wait in front of it{victims}",
            f"more tasks of {component}, or faster code",
            (f"topo rebalance {view.name} -e {component}={more}",),
            {"capacity": row["capacity"], "in_front": row["in_front"]},
        )


def hot_keys(view: View) -> Iterator[FindingRow]:
    for row in view.bolts if view.is_settled else ():
        if row["capacity"] < HOT or not _is_one_key(row):
            continue
        component, task = row["component"], f"{row['component']}[{row['hottest']}]"
        others = _of_others(row)
        groupings = {grouping for edge in view.all["edges"] if edge["target"] == component for grouping in edge["groupings"]}
        keyed = not groupings.isdisjoint(("fields", "partial-key", "custom"))
        cause = "one key has most of its tuples" if keyed else "its tuples take longer than those of the others"
        yield FindingRow(
            component,
            f"{task} works {percent(row['capacity'])} of the time, the other tasks of {component} {percent(others)}: {cause}",
            "another key, or partial_key_grouping" if keyed else "look at the tuples of that task",
            (f"topo status {view.name} --tasks",),
            {"capacity": row["capacity"], "others": others, "task": row["hottest"]},
        )


def too_many_processes(view: View) -> Iterator[FindingRow]:
    hosts: dict[str, list[Mapping[str, Any]]] = {}
    for worker in view.all["workers"] if view.is_settled else ():
        if worker["cores"] is not None and worker["starved"] is not None:
            hosts.setdefault(worker["host"], []).append(worker)
    for host, workers in hosts.items():
        cores = int(max(worker["cores"] for worker in workers))
        starved, used = sum(worker["starved"] for worker in workers), sum(worker["cpu"] or 0.0 for worker in workers)
        # A whole core's worth of work that has no core, in more processes than there are cores.
        if len(workers) > cores and starved > max(1.0, 0.5 * cores) and used > 0.3 * cores:
            yield FindingRow(
                "",
                f"{len(workers)} workers share {cores} cores of {host}: they use {used:.1f} of them, and wait for "
                f"{starved:.1f} more that do not exist",
                "fewer workers, with more tasks each",
                (f"topo rebalance {view.name} --workers {cores}",),
                {"workers": len(workers), "cores": cores, "used": used, "starved": starved},
            )


def messages_held(view: View) -> Iterator[FindingRow]:
    for spout in view.spouts if view.is_settled and not view.with_queue() else ():
        most, pending = spout["max_pending"], spout["levels"].get("pending", 0)
        waiting = sum(row["in_front"] for row in view.bolts)
        if not most or pending < 0.9 * most * spout["parallelism"] or waiting > 0.2 * pending:
            continue
        holder = view.holder()
        held = 0 if holder is None else unacked(holder)
        where, component = "somewhere", spout["component"]
        if holder is not None and held > 0.5 * pending:
            component = holder["component"]
            keeps = "its windows keep" if holder["levels"].get("open_windows") else "it has taken and not acked"
            where = f"in {component}: {keeps} {count(held)} of them"
        yield FindingRow(
            component,
            f"all idle, and {count(pending)} messages of {spout['component']} are pending, as many as may be: "
            f"they are held {where}",
            "ack earlier, or a higher max_spout_pending",
            _with_setting(view, f"max_spout_pending={4 * int(most)}"),
            {"pending": pending, "max_pending": most, "in_front": waiting},
        )


def slow_sources(view: View) -> Iterator[FindingRow]:
    is_free = view.is_settled and all(
        row["capacity"] < 0.5 and row["in_front"] <= max(50, row["in_per_s"] * WAITS_S) for row in view.bolts
    )
    for spout in view.spouts if is_free else ():
        pending = spout["levels"].get("pending", 0)
        most = spout["max_pending"]
        if spout["backpressured"] > 0.2 or (most and pending > 0.5 * most * spout["parallelism"]):
            continue
        component, busiest = spout["component"], max((row["capacity"] for row in view.bolts), default=0.0)
        why = (
            f"it spends {percent(spout['busy'])} of the time in next_tuple and, of a stream, in the operators behind it"
            if spout["busy"] > 0.5
            else "it has nothing more to emit"
        )
        yield FindingRow(
            component,
            f"the source {component} sets the pace, {rate(spout['out_per_s'])} a second: {why}, and no bolt is busier than "
            f"{percent(busiest)}",
            "nothing, if that is all there is; else faster reading, more tasks of the spout, or a rebalance behind it",
            (),
            {"out_per_s": spout["out_per_s"], "busy": spout["busy"], "capacity": busiest},
        )


def timeouts(view: View) -> Iterator[FindingRow]:
    for spout in view.spouts:
        growing = spout["growing"]
        if "timed_out" not in growing and "late_acks" not in growing:
            continue
        timed_out = growing.get("timed_out", 0.0)
        limit = seconds(spout["message_timeout_s"]) if spout["message_timeout_s"] else "message_timeout"
        holder = view.holder()
        held = 0 if holder is None else unacked(holder)
        component = holder["component"] if holder is not None and held else spout["component"]
        where = f"{component} has {count(held)} inputs that it has not acked; " if held else ""
        is_late = "late_acks" in growing
        forgotten = "it waits for its target, or forgets to ack them" if held else "a bolt forgets to ack them"
        cause = "their acks come later, so they are processed twice" if is_late else forgotten
        fix = "if its errors name a server, a disk or a table, mend that; else ack every input" if held else "ack every input"
        at_fault = f"topo errors {view.name} --component {component}" if held else f"topo dead-letters {view.name}"
        longer = int(4 * (spout["message_timeout_s"] or 30))
        commands = _with_setting(view, f"message_timeout={longer}s") if is_late else (at_fault,)
        yield FindingRow(
            component,
            f"{count(60 * timed_out)} messages of {spout['component']} a minute get no ack within {limit}: {where}{cause}",
            "a longer message_timeout, or collector.reset_timeout while a call lasts" if is_late else fix,
            commands,
            {"timed_out_per_s": timed_out, "late_acks_per_s": growing.get("late_acks", 0.0), "held": held},
        )


def _is_one_key(row: Mapping[str, Any]) -> bool:
    """Whether the busiest task has much more to do than the others."""
    return bool(row["parallelism"] > 1 and _of_others(row) < 0.5 * row["capacity"])


def _of_others(row: Mapping[str, Any]) -> float:
    """Return the mean capacity of the tasks besides the busiest."""
    tasks = row["parallelism"]
    return max(0.0, float((row["capacity_mean"] * tasks - row["capacity"]) / (tasks - 1)))


def _with_setting(view: View, setting: str) -> tuple[str, ...]:
    # A submit that does not resume would discard the positions of the sources.
    return (f"topo kill {view.name} --wait 30s", f"topo submit TOPOLOGY --resume-or-start -s {setting}")
