"""`topo savepoint`: the state of a running topology, stored for good."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from topo_cli.exits import Failed, TimedOut
from topo_cli.options import DEADLINE_S, Duration, examples, home_option, name_argument

if TYPE_CHECKING:
    from topo.runtime.state_folder import TopologyFolder

SAVEPOINT_S = 60.0
_LOOK_S = 0.1


@click.command(epilog=examples("topo savepoint flights", "topo savepoint flights --to /backup/flights --deadline 5m"))
@name_argument
@click.option("--to", "folder", default="", metavar="PATH", help="Where it goes: a path or a URL. Default: a new folder.")
@click.option(
    "--deadline", type=Duration(), default=f"{SAVEPOINT_S:g}s", show_default=True, help="How long to wait until it is there."
)
@home_option
def command(name: str, folder: str, deadline: float, home: Path) -> None:
    """Take a savepoint of topology NAME, which goes on, and print where it is.

    A savepoint is a checkpoint that is kept until you remove it. `topo run` and `topo submit` go on from it with --from, with
    another parallelism if you like.
    """
    from topo.runtime.client import Client, Unreachable
    from topo_cli.known import current_status, last_summary

    client = Client(name, home)
    place = savepoint_folder(client.folder, folder)
    client.request("savepoint", DEADLINE_S, folder=place)
    until = time.monotonic() + deadline
    while time.monotonic() < until:
        try:
            status: Mapping[str, Any] | None = current_status(client.folder, DEADLINE_S)
        except Unreachable:
            status = last_summary(client.folder)
        if _state(status, place) in ("written", "failed") or status is None or "ended_ms" in status:
            report_written(client.folder, place, status)
            return
        time.sleep(_LOOK_S)
    raise TimedOut(f"the savepoint is not written after {deadline:g} s; `topo checkpoints {name}` shows what is under way")


def savepoint_folder(folder: TopologyFolder, given: str) -> str:
    """Return where a savepoint goes: as the user says, else into a new folder of the topology's own."""
    if given:
        return given if "://" in given else str(Path(given).expanduser().absolute())
    moment = time.time()
    return str(folder.savepoints / f"{time.strftime('%Y%m%d-%H%M%S', time.localtime(moment))}-{int(moment * 1000) % 1000:03}")


def report_written(folder: TopologyFolder, place: str, status: Mapping[str, Any] | None) -> None:
    """Print where a savepoint is. Raises Failed when it was not written."""
    if _state(status, place) != "written":
        found = _savepoint(status, place)
        why = found["why"] or "the topology ended before" if found else "the master is gone"
        raise Failed(f"the savepoint of {folder.name} was not written: {why}")
    click.echo(place)


def _state(status: Mapping[str, Any] | None, place: str) -> str:
    found = _savepoint(status, place)
    return found["state"] if found else ""


def _savepoint(status: Mapping[str, Any] | None, place: str) -> Mapping[str, Any] | None:
    told = ((status or {}).get("checkpoints") or {}).get("savepoints", ())
    return next((savepoint for savepoint in told if savepoint["folder"] == place), None)
