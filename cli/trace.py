"""`topo trace`: single messages on their way through a topology, and where their time goes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from topo_cli.options import ParamType, examples, name_argument, reading_options, time_option

_POLL_S = 0.25
_LAST_POLLS = 3
"""Polls after the last verdict: each worker reports its tuples every quarter of a second, in its own rhythm."""
_MOST_ROWS = 40
SETTLE_S = 10.0
"""How long messages that have begun may take when the time is up."""


class MessageRate(ParamType[float]):
    """Messages a second: "2", or "2/s"."""

    name = "rate"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            rate = float(str(value).removesuffix("/s"))
        except ValueError:
            rate = 0.0
        if not 0 < rate <= 100:
            self.fail(f'{value!r} is no number of messages a second up to 100, such as "1/s" or "0.5/s"', param, ctx)
        return rate


@click.command(
    epilog=examples(
        "topo trace word-count",
        "topo trace word-count --rate 10/s --for 30s --slowest 5",
        "topo trace word-count --json | jq '.where'",
        "topo trace word-count --otlp http://127.0.0.1:4318",
    )
)
@name_argument
@click.option("--rate", type=MessageRate(), default="1/s", show_default=True, help="Messages a second, of all spouts together.")
@click.option("--spout", default="", metavar="COMPONENT", help="Only messages of this spout.")
@click.option("--slowest", type=click.IntRange(1, 1000), default=20, show_default=True, help="How many messages to show.")
@time_option("--for", "for_s", "30s", "How long.")
@click.option("--otlp", metavar="URL", default="", help="Also push all messages to an OpenTelemetry collector.")
@reading_options
def command(name: str, rate: float, spout: str, slowest: int, for_s: float, otlp: str, home: Path, as_json: bool) -> None:
    """Follow single messages of topology NAME through all components, and show where the time of the slowest went.

    The slowest is drawn tuple by tuple: on the way, waiting in front of a task, executing. Nothing has to be prepared. Needs
    ackers, and delivery at_least_once.
    """
    from topo.operate.observing import observe
    from topo.operate.topology_index import find_topology
    from topo.operate.traces import Traces
    from topo_cli.output import print_json, talk

    folder = find_topology(name, home)
    if otlp:
        # Before the time passes: the packages may be missing, and the address may be none.
        from topo.operate.otlp import endpoint, push_traces

        endpoint(otlp, "traces")
    with observe(folder, "trace", "", for_s=for_s + SETTLE_S, rate=rate, settle_s=SETTLE_S, spout=spout) as seen:
        talk(f"tracing {folder.name} at {rate:g}/s for {for_s:g} s; Ctrl-C ends it early")
        traces = Traces(seen.tasks)
        counts = follow(seen, traces, for_s)
    lost = counts.get("lost")
    if lost is not None and not traces.slowest(1):
        raise lost
    chosen = traces.slowest(slowest)
    messages, where = [traces.shown(trace) for trace in chosen], traces.where(chosen)
    facts = {name: counts.get(name, 0) for name in ("seen", "matched", "dropped")}
    facts["dropped"] += traces.dropped
    if as_json:
        print_json({"messages": messages, "where": where, "open": traces.open, "forgotten": traces.forgotten, **facts})
    elif messages:
        _print(messages, where)
    talk(_summary(traces, len(messages), facts, counts.get("problem", "")))
    if otlp:
        spans = push_traces(otlp, folder.name, seen.term, traces, traces.slowest())
        talk(f"{spans:,} spans pushed to {otlp}")
    if lost is not None:
        raise lost


def follow(seen: Any, traces: Any, for_s: float) -> dict[str, Any]:
    """Gather rows until the time is up and all messages have had a verdict for a while; return the last answer.

    Where the topology ends before, the error is `lost` of the answer.
    """
    import time

    from topo.errors import TopoEnvironmentError

    counts: dict[str, Any] = {}
    until = time.monotonic() + for_s
    last_polls = 0
    try:
        while not counts.get("ended") and last_polls < _LAST_POLLS:
            time.sleep(_POLL_S)
            counts = seen.poll()
            traces.take(counts.pop("rows"))
            last_polls = last_polls + 1 if time.monotonic() >= until and not traces.open else 0
    except KeyboardInterrupt:
        # Ctrl-C is how a trace ends: the result follows.
        pass
    except TopoEnvironmentError as error:
        counts["lost"] = error
    return counts


def _summary(traces: Any, shown: int, facts: dict[str, Any], problem: str) -> str:
    from topo_cli.output import count, plural

    text = f"{plural(facts['matched'], 'message')} traced of {count(facts['seen'])}; the {shown} slowest shown"
    if not facts["matched"]:
        text = f"no message was traced: the spouts have emitted {count(facts['seen'])} messages with ids"
    if traces.open:
        text += f"; {traces.open} without a verdict"
    if traces.forgotten:
        text += f"; the {plural(traces.forgotten, 'quickest message')} not kept"
    if facts["dropped"]:
        text += f"; {plural(facts['dropped'], 'tuple')} too many to follow"
    return text + (f"; {problem}" if problem else "")


def _print(messages: Sequence[dict[str, Any]], where: Sequence[dict[str, Any]]) -> None:
    from topo.operate.traces import rows_of
    from topo_cli.output import make_console, plural, seconds
    from topo_cli.tables import TableColumn, fitted_table
    from topo_cli.waterfall import LEGEND, bar

    console = make_console()
    slowest = messages[0]
    rows, left_out = rows_of(slowest, _MOST_ROWS)
    width = max(20, min(60, console.width - 70))

    def phase(begin: str, end: str) -> Any:
        return lambda row: seconds(max(0, row[end] - row[begin]) / 1e6) if begin in row and end in row else "-"

    console.print(_title(slowest), markup=False)
    columns = [
        TableColumn("tuple at", lambda row: f"{'  ' * row['depth']}{row['component']}[{row['index']}]", 100, is_text=True),
        TableColumn("on the way", phase("sent_us", "arrived_us"), 80),
        TableColumn("in front", phase("arrived_us", "began_us"), 80),
        TableColumn("executing", phase("began_us", "ended_us"), 80),
        TableColumn("", lambda row: bar(slowest, row, width), 90, is_text=True),
        TableColumn("outcome", lambda row: row.get("outcome", "not seen"), 10, is_text=True),
    ]
    console.print(fitted_table(console, rows, columns))
    console.print(LEGEND + (f"; {plural(left_out, 'tuple')} left out" if left_out else ""), markup=False)
    if len(messages) > 1:
        console.print()
        console.print(fitted_table(console, messages, [
            TableColumn("took", lambda one: seconds(one["took_us"] / 1e6), 100),
            TableColumn("message", lambda one: _message(one), 90, is_text=True),
            TableColumn("tuples", lambda one: str(len(one["spans"])), 50),
            TableColumn("outcome", lambda one: one["outcome"], 60, is_text=True),
            TableColumn("longest", _longest, 80, is_text=True),
        ]))  # fmt: skip
    whole = sum(sum(row["us"].values()) for row in where) or 1

    def mean(name: str) -> Any:
        return lambda row: seconds(row["us"][name] / len(messages) / 1e6 or None)

    console.print(f"\nwhere the time went, mean of {plural(len(messages), 'message')}:")
    console.print(fitted_table(console, where, [
        TableColumn("component", lambda row: row["component"] or "acks, windows", 100, is_text=True),
        TableColumn("on the way", mean("on the way"), 80),
        TableColumn("in front", mean("in front"), 80),
        TableColumn("executing", mean("executing"), 80),
        TableColumn("until the verdict", mean("acks"), 70),
        TableColumn("share", lambda row: f"{sum(row['us'].values()) / whole:.0%}", 90),
    ]))  # fmt: skip


def _title(message: dict[str, Any]) -> str:
    from topo_cli.output import plural, seconds

    count = plural(len(message["spans"]), "tuple")
    return f"{_message(message)}: {message['outcome']} after {seconds(message['took_us'] / 1e6)}, {count}"


def _message(message: dict[str, Any]) -> str:
    shown = "" if message["message"] is None else f" {message['message']!r}"
    return f"{message['component']}[{message['index']}]{shown}"


def _longest(message: dict[str, Any]) -> str:
    from topo_cli.output import seconds

    part = max(message["path"], key=lambda part: int(part["us"]))
    what = "until the verdict" if part["phase"] == "acks" else f"{part['phase']} {part['component']}"
    return f"{what}, {seconds(part['us'] / 1e6)}"
