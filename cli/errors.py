"""`topo errors`: what went wrong in a topology."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from topo_cli.options import examples, name_argument, reading_options


@click.command(epilog=examples("topo errors enrichment", "topo errors enrichment --traceback -n 1"))
@name_argument
@click.option(
    "-n", "--number", type=click.IntRange(min=1), default=20, show_default=True, help="How many distinct errors, the latest."
)
@click.option("--component", help="Only those of this component.")
@click.option("--traceback", is_flag=True, help="With the latest traceback of each kind.")
@reading_options
def command(name: str, number: int, component: str | None, traceback: bool, home: Path, as_json: bool) -> None:
    """Show the distinct errors of topology NAME, the latest last: exceptions of user code, and workers that were lost.

    Errors of one kind from one line of code are counted together.
    """
    from topo_cli.known import find_topology
    from topo_cli.output import print_json, talk

    folder = find_topology(name, home)
    found = distinct(row for row in folder.all_errors() if component in (None, row["component"]))[-number:]
    if as_json:
        print_json(found)
    elif found:
        _print(found, traceback)
    else:
        talk(f"no errors in {folder.name}" + (f" from component {component!r}" if component else ""))


def distinct(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return one entry for each error that differs in component, kind or line, in the order of their last occurrence.

    Where no line of user code is at fault, the message tells errors apart.
    """
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in rows:
        key = (row["component"], row["kind"], row["file"], row["line"] or row["message"])
        earlier = found.pop(key, None)
        found[key] = {
            "component": row["component"],
            "kind": row["kind"],
            "message": row["message"],
            "file": row["file"],
            "line": row["line"],
            "count": row["count"] + (earlier["count"] if earlier else 0),
            "first_ms": earlier["first_ms"] if earlier else row["at_ms"],
            "last_ms": row["at_ms"],
            "task": row["task"],
            "worker": row["worker"],
            "traceback": row["traceback"] or (earlier["traceback"] if earlier else ""),
        }
    return list(found.values())


def _print(found: list[dict[str, Any]], traceback: bool) -> None:
    from rich.text import Text

    from topo_cli.output import clock_time, count, make_console

    console = make_console()
    for error in found:
        where = error["component"] or ("" if error["worker"] is None else f"worker {error['worker']}")
        line = Text.assemble((f"{count(error['count'])}x ", "bold"), (error["kind"], "red"), f": {error['message']}")
        console.print(line)
        times = f"last at {clock_time(error['last_ms'])}"
        if error["count"] > 1:
            times = f"first at {clock_time(error['first_ms'])}, {times}"
        place = f"{error['file']}:{error['line']}" if error["file"] else ""
        console.print(
            Text("    " + "  ".join(part for part in (f"in {where}" if where else "", times, place) if part), style="dim")
        )
        if traceback and error["traceback"]:
            console.print(Text(error["traceback"].rstrip()))
