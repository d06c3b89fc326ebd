"""`topo rebalance`: other numbers of tasks and workers for a topology that runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from topo_cli.options import Parallelism, examples, home_option, json_option, name_argument, time_option

if TYPE_CHECKING:
    from topo.launch.rebalancing import Rebalancing
    from topo.plan.parallelism import Move


@click.command(
    epilog=examples(
        "topo rebalance flights -e delays=4 --dry-run",
        "topo rebalance word-count -e count=3 -e split=2",
        "topo rebalance word-count --workers 4",
    )
)
@name_argument
@click.option("-e", "--parallelism", type=Parallelism(), multiple=True, help="The number of tasks of a component.")
@click.option("--workers", type=click.IntRange(min=1), help="Number of processes that the tasks are packed into.")
@click.option("--dry-run", is_flag=True, help="Show the state that would move, and change nothing.")
@time_option("--deadline", "deadline", "60s", "How long the stop, and the start, may take.")
@home_option
@json_option
def command(
    name: str,
    parallelism: tuple[tuple[str, int], ...],
    workers: int | None,
    dry_run: bool,
    deadline: float,
    home: Path,
    as_json: bool,
) -> None:
    """Give components of topology NAME other numbers of tasks, or the topology another number of workers.

    With exactly_once the topology stops with a savepoint and restarts from it; keyed state moves to the new owners of its keys.
    When the savepoint cannot be written the topology continues unchanged. In the other modes it drains, and its spouts continue
    after their stored positions. It keeps the code and parameters of its submit. Spouts without partitions, and state without
    keys, cannot be split; without checkpoints, state cannot move.
    """
    from topo.launch.rebalancing import rebalancing_of
    from topo.launch.running import RunningTopology
    from topo.master_process.client import AnswerTimeout, Client
    from topo_cli.output import print_json, talk
    from topo_cli.wait_for_start import wait_until_running

    if not parallelism and workers is None:
        raise click.UsageError("give -e COMPONENT=N, --workers N, or both")
    client = Client(name, home)
    if dry_run:
        change = rebalancing_of(client.folder, dict(parallelism), workers)
    else:
        client.request("ping")
        try:
            change = RunningTopology(client.folder).rebalance(dict(parallelism), deadline, workers=workers)
        except (AnswerTimeout, KeyboardInterrupt):
            talk(f"if {name} has ended, or ends now, nothing starts it again; `topo resume {name}` continues it")
            raise
        try:
            wait_until_running(client.folder, deadline)
        except click.ClickException:
            if not client.folder.is_running():
                talk(f"{name} has ended; `topo resume {name}` continues it, with the new numbers of tasks and workers")
            raise
    if as_json:
        print_json(_facts(name, change, dry_run))
        return
    for move in change.moves:
        click.echo(f"{move.component}: {move.before} -> {move.after} tasks{_moved(move, change, dry_run)}")
    if change.workers[0] != change.workers[1]:
        click.echo(f"workers: {change.workers[0]} -> {change.workers[1]}")
    if not change.changes_something:
        talk(f"nothing to do: {name} already has these numbers of tasks and workers")
        return
    for spout in change.plain_spouts:
        talk(f"{spout} is a spout without positions: it {'would begin' if dry_run else 'began'} where its own code begins")
    if not dry_run:
        where = "from a savepoint" if change.takes_savepoint else "behind its stored positions"
        checkpoints = f", topo checkpoints {name}" if change.takes_savepoint else ""
        talk(f"{name} continues {where}; next: topo status {name}{checkpoints}")


def _moved(move: Move, change: Rebalancing, dry_run: bool) -> str:
    if not change.takes_savepoint:
        return ""
    return f", {move.moved} of {move.key_groups} key groups {'would move' if dry_run else 'moved'}"


def _facts(name: str, change: Rebalancing, dry_run: bool) -> dict[str, Any]:
    rows = [{key: getattr(move, key) for key in ("component", "before", "after", "key_groups", "moved")} for move in change.moves]
    before, after = change.workers
    workers = {"before": before, "after": after}
    from_savepoint = change.takes_savepoint
    return {"topology": name, "dry_run": dry_run, "moves": rows, "workers": workers, "from_savepoint": from_savepoint}
