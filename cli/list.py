"""`topo list`: the topologies of this machine."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import click

from topo_cli.options import examples, reading_options, time_option


@click.command(epilog=examples("topo list", "topo list word --json"))
@click.argument("pattern", required=False, default="")
@time_option("--deadline", "deadline", "2s", "How long each topology may take to answer.")
@reading_options
def command(pattern: str, deadline: float, home: Path, as_json: bool) -> None:
    """List the topologies whose name contains PATTERN, running ones and ended ones.

    LOST: the master is gone without a summary; `topo resume NAME` continues the topology. STALLED: the master runs
    and does not answer. UNKNOWN: its files cannot be read.
    """
    from topo.errors import NotFoundError
    from topo.operate.topology_index import list_row
    from topo.storage.state_folder import StateFolder
    from topo_cli.output import print_json, talk

    state = StateFolder(home)
    rows = []
    for name in state.names():
        # Those that are asked before may take their time, and a topology be removed meanwhile.
        with suppress(NotFoundError):
            rows += [list_row(state.find(name), deadline)] if pattern in name else []
    if as_json:
        print_json(rows)
    elif rows:
        _print_table(rows)
    else:
        talk(f"no topology{f' whose name contains {pattern!r}' if pattern else ''}; `topo submit TOPOLOGY` starts one")


def _print_table(rows: list[dict[str, object]]) -> None:
    from topo_cli.output import ago, count, now_ms, rate, seconds
    from topo_cli.status_view import styled_status
    from topo_cli.tables import TableColumn, print_table

    now = now_ms()
    columns = [
        TableColumn("topology", lambda row: row["topology"], 100, is_text=True),
        TableColumn("status", lambda row: styled_status(row["status"]), 99, is_text=True),
        TableColumn("tasks", lambda row: str(row["tasks"] or "-"), 30),
        TableColumn("workers", lambda row: str(row["workers"] or "-"), 20),
        TableColumn("ran", lambda row: seconds(row["uptime_s"]), 60),
        TableColumn("ended", lambda row: ago(row["ended_ms"], now), 40),
        TableColumn("acked", lambda row: "-" if row["acked"] is None else count(row["acked"]), 50),
        TableColumn("acked/s", lambda row: "-" if row["acked_per_s"] is None else rate(row["acked_per_s"]), 35),
        TableColumn("reason", lambda row: row["reason"], 10, is_text=True),
    ]
    print_table(rows, columns)
