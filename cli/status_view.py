"""A topology's status on the screen: `topo status`, and the live view of `topo run`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group, RenderableType
from rich.text import Text

from topo_cli.control_characters import printable
from topo_cli.output import count, percent, plural, rate, seconds
from topo_cli.tables import TableColumn, fitted_table

if TYPE_CHECKING:
    from topo.observability.status import StatusReport

STYLES = {
    "RUNNING": "green",
    "FINISHED": "green",
    "STARTING": "cyan",
    "DRAINING": "cyan",
    "INACTIVE": "yellow",
    "KILLED": "yellow",
    "DEGRADED": "yellow",
    "FAILED": "red",
    "LOST": "red",
    "STALLED": "red",
    "UNKNOWN": "red",
}
_OF_OPERATORS = ("open_windows", "timers", "async_in_flight", "state_entries")
"""Levels that only windows, process functions and asynchronous calls have."""
_ENDED = ("FINISHED", "KILLED", "FAILED")
_HOT = 0.8
"""Capacity above which a component holds the topology back."""


def styled_status(word: str) -> Text:
    return Text(word, style=STYLES.get(word, ""))


def headline(status: StatusReport) -> Text:
    """Return name, state and age on a line, and why it is so where there is a reason."""
    line = Text.assemble((status["topology"], "bold"), "  ", styled_status(status["status"]))
    line.append(f"  {seconds(status['uptime_s'])}")
    if status["restarts"]:
        line.append(f", {plural(status['restarts'], 'restart')}", style="yellow")
    if packing := status.get("packing"):
        line.append(f"\n{packing}")
    if status["reason"]:
        line.append(printable(f"\n{status['reason']}"), style="yellow" if status["status"] == "DEGRADED" else "")
    return line


def messages(status: StatusReport) -> list[str]:
    """Return the counts of the spouts' messages; with rates while the topology runs."""
    totals = status["totals"]
    is_over = status["status"] in _ENDED
    parts = [
        f"{name} {count(totals[name])}" + ("" if is_over else f" ({rate(totals[f'{name}_per_s'])}/s)")
        for name in ("emitted", "acked")
    ]
    parts.append(f"pending {count(totals['pending'])}")
    named = {"failed": "failed", "timed_out": "timed out", "replayed": "replayed", "dead_lettered": "dead-lettered"}
    named |= {"finally_failed": "finally failed", "refused": "refused"}
    parts += [f"{word} {count(totals[name])}" for name, word in named.items() if totals[name]]
    if errors := sum(row["counters"].get("errors", 0) for row in status["components"]):
        parts.append(f"errors {count(errors)}")
    return parts


def checkpoints(status: StatusReport) -> Text | None:
    """Return how checkpoints are doing, on a line; None where there are none."""
    known = status.get("checkpoints")
    if not known:
        return None
    is_over = status["ended_ms"] is not None
    line = Text(f"checkpoints  {count(known['complete'])} complete")
    last = next((row for row in reversed(known["latest"]) if row["state"] == "complete"), None)
    if last is not None:
        age = "the last" if is_over or known["age_s"] is None else f"{seconds(known['age_s'])} ago"
        line.append(
            f", {age}: {count(last['bytes'])} bytes in {seconds(last['duration_s'])}, "
            f"aligned {seconds(last['alignment_ms'] / 1000)}, paused {seconds(last['pause_ms'] / 1000)}"
        )
    if known["restores"]:
        line.append(f", restored {plural(known['restores'], 'time')}")
    if known["failed"]:
        line.append(f", failed {count(known['failed'])}", style="yellow")
    if known["under_way"] and not is_over:
        line.append(f", under way for {seconds(known['under_way']['since_s'])}")
    return line


def findings(status: StatusReport) -> list[Text]:
    """Return the findings about a running topology, each with its remedy."""
    lines = []
    for found in status.get("findings", ()):
        style = {"problem": "red", "slow": "yellow"}.get(found["severity"], "dim")
        line = Text.assemble((f"\n{found['kind']}", style), f"  {found['sentence']}\n    {found['remedy']}")
        if found["commands"]:
            line.append(": " + "; ".join(found["commands"]), style="dim" if found["severity"] == "note" else "bold")
        lines.append(line)
    return lines


def components_table(console: Console, status: StatusReport) -> RenderableType:
    rows = [row for row in status["components"] if row["kind"] != "acker"]
    name = TableColumn("component", lambda row: row["component"], 100, is_text=True)
    tasks = TableColumn("tasks", lambda row: str(row["parallelism"]), 50)
    return fitted_table(console, rows, [name, tasks, *_figure_columns(status)])


def tasks_table(console: Console, status: StatusReport) -> RenderableType:
    name = TableColumn("task", lambda row: f"{row['task']} {row['component']}[{row['index']}]", 100, is_text=True)
    worker = TableColumn("worker", lambda row: str(row["worker"]), 35)
    return fitted_table(console, status["tasks"], [name, *_figure_columns(status), worker])


def workers_table(console: Console, status: StatusReport) -> RenderableType:
    is_spread = len({row["host"] for row in status["workers"]} - {""}) > 1
    columns = [
        TableColumn("worker", lambda row: str(row["worker"]), 100),
        TableColumn("state", lambda row: str(row["state"]).lower(), 90, is_text=True),
        *([TableColumn("host", lambda row: row["host"], 55, is_text=True)] if is_spread else []),
        TableColumn("pid", lambda row: str(row["pid"] or "-"), 50),
        TableColumn("tasks", lambda row: ",".join(map(str, row["tasks"])), 30, is_text=True),
        TableColumn("losses", lambda row: str(row["losses"]), 60),
        TableColumn("last lost because", lambda row: row["lost_why"], 70, is_text=True),
    ]
    return fitted_table(console, status["workers"], columns)


def operators_table(console: Console, status: StatusReport) -> RenderableType | None:
    """Return, for each component of a program of streams, the operators that run in it; None where there are none."""
    rows = [row for row in status["components"] if row.get("operators")]
    if not rows:
        return None
    columns = [
        TableColumn("component", lambda row: row["component"], 100, is_text=True),
        TableColumn("operators", lambda row: ", ".join(row["operators"]), 90, is_text=True),
    ]
    return fitted_table(console, rows, columns)


def user_metrics_table(console: Console, status: StatusReport) -> RenderableType | None:
    """Return a table of the metrics that user code keeps; None when it keeps none."""
    rows = [(row["component"], *metric) for row in status["components"] for metric in _user_metrics(row["user"])]
    if not rows:
        return None
    columns = [
        TableColumn("component", lambda row: row[0], 80, is_text=True),
        TableColumn("metric", lambda row: row[1], 100, is_text=True),
        TableColumn("value", lambda row: row[2], 90, is_text=True),
    ]
    return fitted_table(console, rows, columns)


def event_time_table(console: Console, status: StatusReport, *, tasks: bool = False) -> RenderableType | None:
    """Return a table of event time, windows, timers and calls; None when there are none."""
    rows = [row for row in status["tasks" if tasks else "components"] if _has_event_time(row)]
    if not rows:
        return None

    def level(name: str) -> Callable[[Any], str]:
        return lambda row: count(row["levels"][name]) if name in row["levels"] else ""

    def late(name: str) -> Callable[[Any], str]:
        return lambda row: count(row["counters"].get(name, 0)) if _keeps_windows(row) else ""

    def name_of(row: Any) -> str:
        return f"{row['task']} {row['component']}[{row['index']}]" if tasks else str(row["component"])

    columns = [
        TableColumn("task" if tasks else "component", name_of, 100, is_text=True),
        TableColumn("watermark lag", _watermark_lag, 90),
        TableColumn("held back by", lambda row: (row["event_time"] or {}).get("held_back_by") or "", 85, is_text=True),
        TableColumn("late", late("late"), 80),
        TableColumn("dropped", late("late_dropped"), 75),
        TableColumn("windows", level("open_windows"), 70),
        TableColumn("timers", level("timers"), 50),
        TableColumn("in flight", level("async_in_flight"), 60),
        TableColumn("state", level("state_entries"), 40),
    ]
    return fitted_table(console, rows, columns)


def _has_event_time(row: Mapping[str, Any]) -> bool:
    return row["event_time"] is not None or any(name in row["levels"] for name in _OF_OPERATORS)


def _keeps_windows(row: Mapping[str, Any]) -> bool:
    return "open_windows" in row["levels"] or bool(row["counters"].get("late", 0))


def _watermark_lag(row: Mapping[str, Any]) -> str:
    time = row["event_time"]
    if time is None:
        return ""
    return "none yet" if time["lag_s"] is None else seconds(time["lag_s"])


def status_view(console: Console, status: StatusReport, *, tasks: bool = False) -> Group:
    """Return all that `topo status` shows."""
    if not status["components"]:
        return Group(headline(status))
    parts: list[RenderableType] = [headline(status), Text("  ".join(messages(status)))]
    latency = status["totals"]["complete_latency_s"]
    if latency:
        parts.append(Text(f"complete latency  p50 {seconds(latency['p50'])}  p99 {seconds(latency['p99'])}"))
    stored = checkpoints(status)
    if stored is not None:
        parts.append(stored)
    parts += findings(status)
    parts += [Text(), tasks_table(console, status) if tasks else components_table(console, status)]
    for more in (operators_table(console, status), event_time_table(console, status, tasks=tasks)):
        if more is not None:
            parts += [Text(), more]
    if tasks or any(worker["losses"] or worker["state"] in ("waiting", "starting") for worker in status["workers"]):
        parts += [Text(), workers_table(console, status)]
    user = user_metrics_table(console, status)
    if user is not None:
        parts += [Text(), user]
    return Group(*parts)


def _figure_columns(status: StatusReport) -> list[TableColumn]:
    """Return the columns of figures; without those of the moment when the topology is over."""

    def counter(name: str) -> Callable[[Any], str]:
        return lambda row: count(row["counters"].get(name, 0))

    def of_bolts(cell: Callable[[Any], str]) -> Callable[[Any], str]:
        return lambda row: "" if row["component"] in spouts else cell(row)

    spouts = {row["component"] for row in status["components"] if row["kind"] == "spout"}
    of_all_time = [
        TableColumn("emitted", counter("emitted"), 80),
        TableColumn("executed", of_bolts(counter("executed")), 85),
        TableColumn("acked", counter("acked"), 30),
        TableColumn("failed", counter("failed"), 75),
        TableColumn("execute p50", of_bolts(lambda row: _latency(row, "p50")), 10),
        TableColumn("p99", of_bolts(lambda row: _latency(row, "p99")), 15),
    ]
    of_the_moment = [
        TableColumn("in/s", of_bolts(lambda row: rate(row["executed_per_s"])), 70),
        TableColumn("out/s", lambda row: rate(row["emitted_per_s"]), 65),
        TableColumn("capacity", _capacity, 60),
        TableColumn("busy", lambda row: percent(row["busy"]), 20),
        TableColumn("blocked", lambda row: percent(row["backpressured"]), 40),
        TableColumn("queue", lambda row: count(row["levels"].get("queue", 0)), 25),
        TableColumn("wait", of_bolts(lambda row: seconds(row["levels"]["queue_s"]) if "queue_s" in row["levels"] else ""), 35),
    ]
    if any(row["counters"].get("batch_rows_in", 0) or row["counters"].get("batch_rows_out", 0) for row in status["components"]):
        of_all_time[2:2] = [
            TableColumn("rows out", counter("batch_rows_out"), 78),
            TableColumn("rows in", of_bolts(counter("batch_rows_in")), 79),
        ]
    return of_all_time if status["ended_ms"] is not None else of_all_time + of_the_moment


def _latency(row: Mapping[str, Any], which: str) -> str:
    latency = row["latencies_s"].get("execute")
    return seconds(latency[which]) if latency else "-"


def _capacity(row: Mapping[str, Any]) -> Text:
    return Text(f"{row['capacity']:.2f}", style="red" if row["capacity"] > _HOT else "")


def _user_metrics(user: Mapping[str, Any]) -> list[tuple[str, str]]:
    found = [(name, count(value)) for name, value in user["counters"].items()]
    found += [(name, f"{value:,.6g}") for name, value in user["gauges"].items()]
    for name, histogram in user["histograms"].items():
        if histogram:
            shown = "  ".join(f"{key} {histogram[key]:,.4g}" for key in ("p50", "p99", "max"))
            found.append((name, f"{count(histogram['count'])} values  {shown}"))
    return found
