"""The summary of `topo run`: the counts of messages, the rates, and notes about the results."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from topo_cli.output import count, plural, rate, seconds

if TYPE_CHECKING:
    from topo.observability.status import StatusReport

_TOTALS = (
    ("emitted", "emitted"),
    ("acked", "acked"),
    ("failed", "failed"),
    ("replayed", "replayed"),
    ("timed out", "timed_out"),
    ("dead-lettered", "dead_lettered"),
    ("finally failed", "finally_failed"),
    ("refused", "refused"),
)
_LABEL_WIDTH = 16


def summary_text(status: StatusReport, exit_code: int) -> Text:
    """Return the summary of a run that has ended: its last status, as lines."""
    totals, uptime_s = status["totals"], status["uptime_s"]
    outcome = status["outcome"]
    text = Text.assemble(
        (status["topology"], "bold"),
        f" ended after {seconds(uptime_s)}: ",
        (outcome["reason"], "green" if exit_code == 0 else "red"),
        "\n",
    )
    for label, name in _TOTALS:
        text.append(_line(label, count(totals.get(name, 0))))
    if lost := _lost_tuples(status):
        shown = ", ".join(f"{count(number)} of {name}" for name, number in lost.items())
        text.append(_line("tuples lost", f"{count(sum(lost.values()))}: {shown}"))
    text.append(_line("restarts", count(status["restarts"])))
    mean_s = max(uptime_s, 1e-9)
    rates = f"{rate(totals['acked'] / mean_s)} messages acked/s, {rate(totals['executed'] / mean_s)} tuples executed/s"
    text.append(_line("mean rates", rates))
    latency = totals["complete_latency_s"]
    if latency:
        text.append(_line("acked within", f"p50 {seconds(latency['p50'])}, p99 {seconds(latency['p99'])}"))
    for note in notes(status):
        text.append(f"{note}\n", "yellow")
    text.rstrip()
    return text


def _lost_tuples(status: StatusReport) -> dict[str, int]:
    """Return, by component, the tuples that bolts have failed and rows that were not sent, where nothing is tracked."""
    if any(row["kind"] == "acker" for row in status["components"]):
        return {}
    lost = {}
    for row in status["components"]:
        names = ("unsent",) if row["kind"] == "spout" else ("failed", "unsent")
        lost[row["component"]] = sum(row["counters"].get(name, 0) for name in names)
    return {name: number for name, number in lost.items() if number}


def notes(status: StatusReport) -> list[str]:
    """Return notes for readers of the results: counts lost with processes, and messages that may have come twice."""
    found = []
    components = {row["component"]: row["kind"] for row in status["components"]}
    hosted = {row["task"]: row["component"] for row in status["tasks"]}
    lost = [
        f"{component} ({worker['losses']}x)"
        for worker in status["workers"]
        if worker["losses"]
        for component in dict.fromkeys(hosted[task] for task in worker["tasks"])
        if components[component] == "bolt"
    ]
    checkpoints = status.get("checkpoints")
    if checkpoints:
        restores = checkpoints["restores"]
        kept = "attributes of bolts that are in no snapshot started again from zero"
        if restores:
            found.append(f"Continued from a checkpoint {plural(restores, 'time')}; {kept}.")
        elif status["totals"]["emitted"] and any(worker["losses"] for worker in status["workers"]):
            found.append(f"Started again from the beginning, because there was no checkpoint yet; {kept}.")
    elif lost and status["totals"]["emitted"]:
        found.append(f"Lost with their processes: the attributes of {', '.join(lost)}; counts there started again from zero.")
    if unreported := status.get("unreported"):
        found.append(
            f"The counts of {count(unreported)} ended process{'es'[: 2 * (unreported > 1)]} are incomplete: those after the last "
            "heartbeat are missing, and messages in flight there count as emitted only. The outcome does not depend on them."
        )
    dropped = {row["component"]: row["counters"].get("late_dropped", 0) for row in status["components"]}
    if any(dropped.values()):
        shown = ", ".join(f"{count(number)} of {name}" for name, number in dropped.items() if number)
        found.append(
            f"Dropped, as too late for their windows: {shown}. More disorder (of the watermarks) or lateness keeps them; a late "
            "stream (late=, late_stream=) shows them."
        )
    again = status["totals"]["replayed"]
    if again:
        found.append(f"Replayed: {plural(again, 'message')}; bolts may have processed some of their tuples twice.")
    return found


def _line(label: str, value: str) -> str:
    return f"  {label:<{_LABEL_WIDTH}}{value}\n"
