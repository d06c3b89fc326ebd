"""`topo errors`: the errors of a topology."""

from __future__ import annotations

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

    Errors of one kind from one line of code are counted together; their last different messages are shown.
    """
    from topo.operate.distinct_errors import distinct
    from topo.operate.topology_index import find_topology
    from topo_cli.known_components import check_component
    from topo_cli.output import print_json, talk

    folder = find_topology(name, home)
    if component is not None:
        check_component(folder, component)
    found = distinct(row for row in folder.all_errors() if component in (None, row["component"]))[-number:]
    if as_json:
        print_json(found)
    elif found:
        _print(found, traceback)
    else:
        talk(f"no errors in {folder.name}" + (f" from component {component!r}" if component else ""))


def _print(found: list[dict[str, Any]], traceback: bool) -> None:
    from rich.text import Text

    from topo_cli.output import clock_time, count, make_console

    console = make_console()
    for error in found:
        workers = ", ".join(map(str, error["workers"]))
        of_workers = f"worker{'s' * (len(error['workers']) > 1)} {workers}" if workers else ""
        where = f"{error['component']} ({of_workers})" if error["component"] and of_workers else error["component"] or of_workers
        line = Text.assemble((f"{count(error['count'])}x ", "bold"), (error["kind"], "red"), f": {error['message']}")
        console.print(line)
        times = f"last at {clock_time(error['last_ms'])}"
        if error["count"] > 1:
            times = f"first at {clock_time(error['first_ms'])}, {times}"
        place = f"{error['file']}:{error['line']}" if error["file"] else ""
        console.print(
            Text("    " + "  ".join(part for part in (f"in {where}" if where else "", times, place) if part), style="dim")
        )
        for message in error["others"]:
            console.print(Text(f"    also: {message}"))
        if traceback and error["traceback"]:
            console.print(Text(error["traceback"].rstrip()))
