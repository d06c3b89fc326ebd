"""`topo logs`: the output and the log rows of a topology's tasks."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from topo_cli.options import TimeSpan, examples, name_argument, reading_options

_LOOK_S = 0.2
_COLORS = ("cyan", "magenta", "blue", "green", "yellow")
_LEVEL_STYLES = {"WARNING": "yellow", "ERROR": "red", "CRITICAL": "red bold"}


@click.command(
    epilog=examples(
        "topo logs word-count -f",
        "topo logs word-count --component count --level warning --since 5m",
        "topo logs word-count --json | jq -r .message",
    )
)
@name_argument
@click.option("-f", "--follow", is_flag=True, help="Show new rows as they are written, until the topology ends or Ctrl-C.")
@click.option("--component", help="Only rows of this component's tasks.")
@click.option(
    "--level",
    type=click.Choice(["debug", "info", "warning", "error", "critical"], case_sensitive=False),
    default="info",
    show_default=True,
    help="Only rows of this level or above; printed lines count as info.",
)
@click.option("--since", type=TimeSpan(), help="Only rows of this last time, such as 5m.")
@click.option("-n", "--lines", type=click.IntRange(0, 10**9), help="Only this number of lines at the end.")
@reading_options
def command(
    name: str, follow: bool, component: str | None, level: str, since: float | None, lines: int | None, home: Path, as_json: bool
) -> None:
    """Show the output and the log rows of topology NAME: all workers, in order of time."""
    from topo.operate.log_files import LogFiles, is_at_least, moment
    from topo.operate.topology_index import find_topology
    from topo_cli.known_components import check_component
    from topo_cli.output import talk
    from topo_cli.raw_output import raw_output_note

    folder = find_topology(name, home)
    if component is not None:
        check_component(folder, component)
    earliest = "" if since is None else moment(since)

    def is_wanted(row: dict[str, Any]) -> bool:
        return component in (None, row.get("component")) and is_at_least(row, level.upper()) and row["time"] >= earliest

    show = _printer(as_json)
    with LogFiles(folder.logs, rotated=True, since=earliest) as files:
        if lines is None:
            for row in filter(is_wanted, files.each_row()):
                show(row)
        else:
            for row in files.new_rows(is_wanted=is_wanted, most=lines)[-lines or sys.maxsize :]:
                show(row)
        # Read before the files, so that the last rows are shown, too.
        while follow and folder.is_running():
            time.sleep(_LOOK_S)
            _show_new(files, is_wanted, show)
        if follow:
            _show_new(files, is_wanted, show)
    if not as_json and (note := raw_output_note(folder.logs)):
        talk(note)


def _show_new(files: Any, is_wanted: Callable[[dict[str, Any]], bool], show: Callable[[dict[str, Any]], None]) -> None:
    for row in filter(is_wanted, files.new_rows()):
        show(row)
    sys.stdout.flush()


def _printer(as_json: bool) -> Callable[[dict[str, Any]], None]:
    """Return a function that prints a row: as JSON, or as a line, each component in its own colour."""
    if as_json:
        return lambda row: click.echo(json.dumps(row, ensure_ascii=False))
    from rich.text import Text

    from topo.operate.log_files import is_printed, source_of
    from topo_cli.output import clock_time, make_console

    def clock_of(moment: str) -> str:
        """Return the local time of day, as all commands show it; logs are in UTC."""
        try:
            return clock_time(round(datetime.fromisoformat(moment).timestamp() * 1000))
        except ValueError:
            return moment

    console, colors = make_console(), dict[str, str]()

    def show(row: dict[str, Any]) -> None:
        source = source_of(row)
        color = colors.setdefault(str(row.get("component")), _COLORS[len(colors) % len(_COLORS)])
        level = "" if is_printed(row) else f"{row['level']} "
        line = Text.assemble(
            (f"{clock_of(row['time'])} ", "dim"),
            (f"{source:<16} ", color),
            (level, _LEVEL_STYLES.get(row["level"], "")),
            row["message"],
        )
        console.print(line, soft_wrap=True)
        if row.get("exception"):
            console.print(Text(row["exception"]), soft_wrap=True)

    return show
