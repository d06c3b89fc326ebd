"""`topo checkpoints`: the checkpoints that a topology can be restored from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from topo_cli.options import DEADLINE_S, examples, name_argument, reading_options

if TYPE_CHECKING:
    from topo.storage.checkpoint_store import StoredCheckpoint
    from topo.storage.state_folder import TopologyFolder


@click.command(epilog=examples("topo checkpoints flights", "topo checkpoints flights --json | jq '.checkpoints[-1]'"))
@name_argument
@reading_options
def command(name: str, home: Path, as_json: bool) -> None:
    """Show the checkpoints that topology NAME has stored, the latest last, and recent failures. NAME may be a part of the name
    that fits only one topology.

    Took is the time from the first barrier until all was stored; aligned and paused are those of the slowest task.
    """
    from topo.storage.checkpoint_store import open_store
    from topo.storage.submitted import checkpoints_of
    from topo_cli.output import print_json, talk
    from topo_cli.topology_index import find_topology

    folder = find_topology(name, home)
    place = checkpoints_of(folder)
    stored = open_store(place, folder.name).checkpoints() if place else []
    status = _status(folder)
    rows = merged(stored, status.get("latest", ()))
    if as_json:
        print_json({"topology": folder.name, "folder": place, "checkpoints": rows, "status": status or None})
    elif not place:
        talk(f"{folder.name} takes no checkpoints; run it with -s delivery=exactly_once")
    elif not rows:
        talk(f"no checkpoint of {folder.name} is complete yet")
    else:
        _print(rows)
        talk(f"they are in {place}; topo state show PATH shows the content of one")


def merged(stored: Iterable[StoredCheckpoint], reported: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return a row by number for each checkpoint that is stored, or that the master reported as failed or aborted."""
    rows: dict[int, dict[str, Any]] = {}
    for row in reported:
        if row["state"] != "complete":
            rows[row["checkpoint"]] = {**_NOTHING, **{key: row[key] for key in ("checkpoint", "state", "duration_s", "why")}}
    for one in stored:
        if one.manifest is None:
            rows[one.checkpoint] = {**_NOTHING, "checkpoint": one.checkpoint, "state": "damaged", "why": one.problem}
            continue
        figures = one.manifest.figures
        rows[one.checkpoint] = {
            "checkpoint": one.checkpoint,
            "state": "savepoint" if one.manifest.is_savepoint else "complete",
            "created_ms": one.manifest.created_ms,
            "bytes": figures.bytes,
            "duration_s": figures.duration_ms / 1000,
            "alignment_s": figures.alignment_ms / 1000,
            "pause_s": figures.pause_ms / 1000,
            "parts": len(one.manifest.parts),
            "why": "",
        }
    return [rows[number] for number in sorted(rows)]


_NOTHING: dict[str, Any] = {
    "created_ms": None,
    "bytes": None,
    "duration_s": None,
    "alignment_s": None,
    "pause_s": None,
    "parts": None,
}


def _status(folder: TopologyFolder) -> dict[str, Any]:
    """Return the master's last report of checkpoints; empty when neither the master nor its summary can be read."""
    from topo.errors import TopoError
    from topo_cli.topology_index import current_status

    try:
        return current_status(folder, DEADLINE_S).get("checkpoints") or {}
    except TopoError:
        return {}


def _print(rows: list[dict[str, Any]]) -> None:
    from topo_cli.output import ago, count, make_console, now_ms, seconds
    from topo_cli.tables import TableColumn, fitted_table

    now = now_ms()
    console = make_console()
    columns = [
        TableColumn("checkpoint", lambda row: str(row["checkpoint"]), 100),
        TableColumn("state", lambda row: row["state"], 90, is_text=True),
        TableColumn("stored", lambda row: ago(row["created_ms"], now), 80),
        TableColumn("bytes", lambda row: "-" if row["bytes"] is None else count(row["bytes"]), 70),
        TableColumn("took", lambda row: seconds(row["duration_s"]), 60),
        TableColumn("aligned", lambda row: seconds(row["alignment_s"]), 40),
        TableColumn("paused", lambda row: seconds(row["pause_s"]), 50),
        TableColumn("parts", lambda row: "-" if row["parts"] is None else str(row["parts"]), 20),
        TableColumn("why", lambda row: row["why"], 30, is_text=True),
    ]
    console.print(fitted_table(console, rows, columns))
