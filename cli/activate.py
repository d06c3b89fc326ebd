"""`topo activate`: spouts emit again."""

from __future__ import annotations

from pathlib import Path

import click

from topo_cli.options import deadline_option, examples, home_option, name_argument


@click.command(epilog=examples("topo activate word-count"))
@name_argument
@deadline_option
@home_option
def command(name: str, deadline: float, home: Path) -> None:
    """Let the spouts of topology NAME emit again, after `topo deactivate`."""
    from topo.master_process.client import Client
    from topo_cli.output import talk

    Client(name, home).request("activate", deadline)
    talk(f"{name}: its spouts emit")
