"""`topo kill`: the end of a topology."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from topo_cli.exits import Failed
from topo_cli.options import DEADLINE_S, TimeSpan, examples, home_option, name_argument, place_option


@click.command(
    epilog=examples("topo kill word-count", "topo kill word-count -w 30s --yes", "topo kill flights --savepoint --yes")
)
@name_argument
@click.option("-w", "--wait", "wait_s", type=TimeSpan(), help="Let messages in flight finish first, for at most this time.")
@click.option("--savepoint", is_flag=True, help="Let messages in flight finish, and take a savepoint.")
@place_option("--to", "place", "Where the savepoint goes.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@home_option
def command(name: str, wait_s: float | None, savepoint: bool, place: str, yes: bool, home: Path) -> None:
    """End topology NAME and wait until it is gone.

    It ends at once, or with -w or --savepoint when messages in flight are done. Nothing is lost either way:
    `topo resume NAME` continues after the last message that was done, or at the last checkpoint. When the savepoint cannot be
    written, also because messages in flight take longer than -w, the topology continues.
    """
    from shlex import quote

    from topo.launch.savepoints import SAVEPOINT_S, end_with_savepoint, wait_for_drained, wait_until_ended
    from topo.master_process.client import Client
    from topo_cli.output import talk

    client = Client(name, home)
    if place and not savepoint:
        raise click.UsageError("--to is the place of a savepoint; add --savepoint")
    client.request("ping", DEADLINE_S)
    if not yes:
        _confirm(name)
    try:
        if savepoint:
            written = end_with_savepoint(client.folder, place, SAVEPOINT_S if wait_s is None else wait_s)
            click.echo(written)
            from_it = f"`topo submit TOPOLOGY --from {quote(written)}`"
            talk(f"{name}: ended with a savepoint; `topo resume {name}` or {from_it} continues")
            return
        if wait_s is None:
            client.request("kill", DEADLINE_S)
            wait_until_ended(client.folder, DEADLINE_S)
        else:
            client.request("drain", DEADLINE_S, within_s=wait_s)
            wait_for_drained(client, wait_s)
    except KeyboardInterrupt:
        unless = ", unless the savepoint cannot be written" if savepoint else ""
        talk(f"{name} ends anyway{unless}; `topo status {name}` shows how far it is")
        raise
    if (summary := client.folder.last_summary()) is None:
        raise Failed(
            f"the master of {name!r} is gone and left no summary, as after `kill -9` or on a full disk: workers that it left end "
            f"after `master_timeout`; `topo resume {name}` continues it"
        )
    talk(f"{name}: {summary['outcome']['reason']}; `topo resume {name}` would continue it")


def _confirm(name: str) -> None:
    if not sys.stdin.isatty():
        raise click.UsageError("there is no terminal to ask on; add --yes")
    if not click.confirm(f"End topology {name}?", err=True):
        raise Failed(f"{name} was not ended")
