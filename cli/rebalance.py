"""`topo rebalance`: other numbers of tasks for a topology that runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from topo_cli.options import Parallelism, TimeSpan, examples, home_option, json_option, name_argument

if TYPE_CHECKING:
    from topo.launch.rebalancing import Rebalancing


@click.command(epilog=examples("topo rebalance flights -e delays=4 --dry-run", "topo rebalance word-count -e count=3 -e split=2"))
@name_argument
@click.option("-e", "--parallelism", type=Parallelism(), multiple=True, required=True, help="The number of tasks of a component.")
@click.option("--dry-run", is_flag=True, help="Show the state that would move, and change nothing.")
@click.option("--deadline", type=TimeSpan(), default="60s", show_default=True, help="How long the stop, and the start, may take.")
@home_option
@json_option
def command(
    name: str, parallelism: tuple[tuple[str, int], ...], dry_run: bool, deadline: float, home: Path, as_json: bool
) -> None:
    """Give components of topology NAME other numbers of tasks.

    The topology stops with a savepoint and restarts from it, with the code, parameters and settings of its submit. Keyed state
    moves to the new owners of its keys. Spouts, and state without keys, cannot be split.
    """
    from topo.launch.rebalancing import rebalancing_of
    from topo.launch.running import RunningTopology
    from topo.master_process.client import Client
    from topo_cli.output import print_json, talk
    from topo_cli.wait_for_start import wait_until_running

    client = Client(name, home)
    if dry_run:
        change = rebalancing_of(client.folder, dict(parallelism))
    else:
        client.request("ping")
        change = RunningTopology(client.folder).rebalance(dict(parallelism), deadline)
        wait_until_running(client.folder, deadline)
    if as_json:
        print_json(_facts(name, change, dry_run))
        return
    for move in change.moves:
        click.echo(
            f"{move.component}: {move.before} -> {move.after} tasks, {move.moved} of {move.key_groups} key groups "
            f"{'would move' if dry_run else 'moved'}"
        )
    if not change.moves:
        talk(f"nothing to do: {name} already has these numbers of tasks")
    elif not dry_run:
        talk(f"{name} continues from a savepoint; next: topo status {name}, topo checkpoints {name}")


def _facts(name: str, change: Rebalancing, dry_run: bool) -> dict[str, Any]:
    rows = [{key: getattr(move, key) for key in ("component", "before", "after", "key_groups", "moved")} for move in change.moves]
    return {"topology": name, "dry_run": dry_run, "moves": rows}
