"""`topo deactivate`: spouts pause."""

from __future__ import annotations

from pathlib import Path

import click

from topo_cli.options import deadline_option, examples, home_option, name_argument


@click.command(epilog=examples("topo deactivate word-count"))
@name_argument
@deadline_option
@home_option
def command(name: str, deadline: float, home: Path) -> None:
    """Pause the spouts of topology NAME: they emit nothing new, and messages in flight are processed."""
    from topo.master_process.client import Client
    from topo_cli.output import talk

    Client(name, home).request("deactivate", deadline)
    talk(f"{name}: its spouts are paused; `topo activate {name}` continues")
