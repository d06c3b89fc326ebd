"""`topo savepoint`: stores the state of a running topology until a user removes it."""

from __future__ import annotations

from pathlib import Path

import click

from topo_cli.options import examples, home_option, name_argument, place_option, time_option


@click.command(epilog=examples("topo savepoint flights", "topo savepoint flights --to /backup/flights --deadline 5m"))
@name_argument
@place_option("--to", "place", "Where it goes: a path or a URL. Default: a new folder.")
@time_option("--deadline", "deadline", "60s", "How long to wait for it.")
@home_option
def command(name: str, place: str, deadline: float, home: Path) -> None:
    """Take a savepoint of topology NAME, which keeps running, and print its path.

    A savepoint is a checkpoint that is kept until you remove it. `topo run` and `topo submit` restore it with --from, with
    another parallelism if you like.
    """
    from shlex import quote

    from topo.launch.savepoints import take_savepoint
    from topo.storage.state_folder import StateFolder
    from topo_cli.output import talk

    written = take_savepoint(StateFolder(home).find(name), place, deadline)
    click.echo(written)
    talk(f"next: topo state show {quote(written)}, topo submit TOPOLOGY --from {quote(written)}")
