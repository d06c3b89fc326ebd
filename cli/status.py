"""`topo status`: how a topology is doing."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from topo_cli.options import deadline_option, examples, name_argument, reading_options, time_option


@click.command(
    epilog=examples(
        "topo status word-count", "topo status word-count --watch", "topo status word-count --json | jq .totals.acked"
    )
)
@name_argument
@click.option("-w", "--watch", is_flag=True, help="Refresh until the topology ends or Ctrl-C.")
@time_option("--interval", "interval", "1s", "Time between two refreshes.")
@click.option("--tasks", is_flag=True, help="A row for each task, and one for each worker.")
@deadline_option
@reading_options
def command(name: str, watch: bool, interval: float, tasks: bool, deadline: float, home: Path, as_json: bool) -> None:
    """Show the state of topology NAME, or how it ended. NAME may be a part of the name that fits only one topology.

    In the table: in/s and out/s are of the last seconds; capacity is the share of time that the busiest task needs to execute
    its input (above 0.8 it holds the others back); blocked is the share of time without room for output.

    Above it are the findings: what slows the topology down or goes wrong, and the command that fixes it.
    """
    from topo.operate.overviews import findings
    from topo.operate.topology_index import current_status, find_topology
    from topo_cli.output import json_text, print_json

    folder = find_topology(name, home)

    def look() -> dict[str, Any]:
        status = current_status(folder, deadline)
        found = findings(folder, deadline) if status["ended_ms"] is None else []
        return status | {"findings": [one.as_data() for one in found]}

    if not watch:
        status = look()
        print_json(status) if as_json else _print(status, tasks)
        return
    statuses = _every(interval, look)
    if as_json:
        for status in statuses:
            click.echo(json_text(status))
    else:
        _watch(statuses, tasks)


def _every(interval_s: float, look: Any) -> Iterator[dict[str, Any]]:
    """Yield a status at each interval, the last one when the topology is over."""
    while True:
        status = look()
        yield status
        if status["ended_ms"] is not None:
            return
        time.sleep(interval_s)


def _print(status: dict[str, Any], tasks: bool) -> None:
    from topo_cli.output import make_console
    from topo_cli.status_view import status_view

    console = make_console()
    console.print(status_view(console, status, tasks=tasks))


def _watch(statuses: Iterator[dict[str, Any]], tasks: bool) -> None:
    from rich.live import Live

    from topo_cli.output import make_console
    from topo_cli.status_view import status_view

    console = make_console()
    if not console.is_terminal:
        for status in statuses:
            console.print(status_view(console, status, tasks=tasks))
            console.print()
        return
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
        for status in statuses:
            live.update(status_view(console, status, tasks=tasks), refresh=True)
