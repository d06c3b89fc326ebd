"""`topo dead-letters`: the messages that were given up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from topo_cli.options import examples, name_argument, reading_options


@click.command(epilog=examples("topo dead-letters enrichment", "topo dead-letters enrichment --json | jq '.[].values'"))
@name_argument
@click.option(
    "-n", "--number", type=click.IntRange(min=1), default=20, show_default=True, help="How many, the latest; JSON has all."
)
@reading_options
def command(name: str, number: int, home: Path, as_json: bool) -> None:
    """Show the messages of topology NAME that failed as often as `attempts` allows, and were stored and given up."""
    from topo.storage.state_folder import read_json_lines
    from topo_cli.output import print_json, talk
    from topo_cli.topology_index import find_topology

    folder = find_topology(name, home)
    rows = read_json_lines(folder.dead_letters)
    if as_json:
        print_json(rows)
        return
    if not rows:
        talk(f"no dead letters in {folder.name}")
        return
    _print(rows[-number:])
    if len(rows) > number:
        talk(f"the latest {number} of {len(rows):,}; all of them: {folder.dead_letters}")


def _print(rows: list[dict[str, Any]]) -> None:
    from topo_cli.output import clock_time, make_console
    from topo_cli.tables import TableColumn, fitted_table

    console = make_console()
    columns = [
        TableColumn("at", lambda row: clock_time(row["at_ms"]), 20),
        TableColumn("component", lambda row: row["component"], 50, is_text=True),
        TableColumn("message", lambda row: "" if row["message"] is None else repr(row["message"]), 90, is_text=True),
        TableColumn("attempts", lambda row: str(row["attempts"]), 40),
        TableColumn("values", lambda row: _in_words(row["values"]), 100, is_text=True),
        TableColumn("last error", lambda row: row["errors"][-1] if row["errors"] else "", 80, is_text=True, content_with=30),
    ]
    console.print(fitted_table(console, rows, columns))


def _in_words(values: Any) -> str:
    """Values that could not be carried or shown are text already."""
    return values if isinstance(values, str) else ", ".join(map(repr, values))
