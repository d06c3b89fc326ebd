"""`topo checkpoints`: the checkpoints that a topology can be restored from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from topo_cli.options import DEADLINE_S, examples, name_argument, reading_options


@click.command(epilog=examples("topo checkpoints flights", "topo checkpoints flights --json | jq '.checkpoints[-1]'"))
@name_argument
@reading_options
def command(name: str, home: Path, as_json: bool) -> None:
    """Show the checkpoints that topology NAME has stored, the latest last, and recent failures. NAME may be a part of the name
    that fits only one topology.

    Took is the time from the first barrier until all was stored; aligned and paused are those of the slowest task.
    """
    from topo.operate.checkpoint_rows import checkpoint_report
    from topo.operate.topology_index import find_topology
    from topo_cli.output import print_json, talk

    folder = find_topology(name, home)
    report = checkpoint_report(folder, DEADLINE_S)
    place, rows = report["folder"], report["checkpoints"]
    if as_json:
        print_json(report)
    elif not place:
        talk(f"{folder.name} takes no checkpoints; run it with -s delivery=exactly_once")
    elif not rows:
        talk(f"no checkpoint of {folder.name} is complete yet")
    else:
        _print(rows)
        talk(f"they are in {place}; topo state show PATH shows the content of one")


def _print(rows: list[dict[str, Any]]) -> None:
    from topo_cli.output import ago, count, now_ms, seconds
    from topo_cli.tables import TableColumn, print_table

    now = now_ms()
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
    print_table(rows, columns)
