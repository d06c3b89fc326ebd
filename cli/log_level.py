"""`topo log-level`: log levels of a running topology, for a while."""

from __future__ import annotations

from pathlib import Path

import click

from topo_cli.options import deadline_option, examples, name_argument, reading_options, time_option


@click.command(
    epilog=examples(
        "topo log-level word-count debug",
        "topo log-level word-count topo.worker=debug --component count --for 1m",
        "topo log-level word-count",
    )
)
@name_argument
@click.argument("levels", metavar="[[LOGGER=]LEVEL]...", nargs=-1)
@click.option("--component", default="", help="Only in the workers that have tasks of this component.")
@time_option("--for", "for_s", "10m", "Afterwards the levels are as before.")
@deadline_option
@reading_options
def command(name: str, levels: tuple[str, ...], component: str, for_s: float, deadline: float, home: Path, as_json: bool) -> None:
    """Change log levels of topology NAME for a while; without a level, show those that are changed.

    LEVEL alone applies to all loggers without their own level. Python's loggers belong to a process: a level applies to all
    tasks of a worker.
    """
    from topo.operate.observing import log_levels
    from topo.operate.topology_index import find_topology
    from topo_cli.output import print_json, seconds, talk

    folder = find_topology(name, home)
    wanted = {logger if equals else "": level if equals else logger for logger, equals, level in map(_parts, levels)}
    rows = log_levels(folder, wanted or None, component, for_s, deadline)
    if as_json:
        print_json(rows)
        return
    for row in rows:
        where = f" in the workers of {row['component']}" if row["component"] else ""
        click.echo(f"{row['logger'] or 'all loggers'}: {row['level']}{where}, for {seconds(row['left_s'])} more")
    if not rows:
        talk(f"no log level of {folder.name} is changed")


def _parts(text: str) -> tuple[str, str, str]:
    return text.partition("=")
