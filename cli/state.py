"""`topo state`: the contents of a checkpoint, read from its files alone."""

from __future__ import annotations

from typing import Any

import click

from topo_cli.options import ShownByDefault, examples, json_option, no_color_option


@click.group(
    cls=ShownByDefault, epilog=examples("topo state show ~/savepoints/flights", "topo state show PATH --component delays -n 5")
)
def command() -> None:
    """Show the content of a checkpoint or a savepoint; the topology need not run. `show` may be left out."""


@command.command(
    short_help="Show the last checkpoint in a path.",
    epilog=examples("topo state show ~/savepoints/flights", "topo state show PATH --component delays -n 5"),
)
@click.argument("path", metavar="PATH")
@click.option("--component", help="Show the state of this component, one entry a line.")
@click.option("-n", "--number", type=click.IntRange(min=1), default=20, show_default=True, help="How many entries; JSON has all.")
@json_option
@no_color_option
def show(path: str, component: str | None, number: int, as_json: bool) -> None:
    """Show the last checkpoint in PATH: a savepoint, the folder of a topology's checkpoints (`topo checkpoints` names it), or one
    of them. With fsspec installed PATH may be a URL.

    Nothing is changed, and no code of the topology runs: values of types that it registered are shown by their size. The files
    are checked as they are read.
    """
    from topo_cli.output import print_json
    from topo_cli.state_reading import entries_of, overview, read_checkpoint

    checkpoint = read_checkpoint(path)
    if component is None:
        found = overview(checkpoint)
        print_json(found) if as_json else _print_overview(found)
        return
    entries = entries_of(checkpoint, component)
    if as_json:
        print_json(entries)
    else:
        _print_entries(entries, number)


def _print_overview(found: dict[str, Any]) -> None:
    from topo_cli.output import count, now_ms, seconds, talk
    from topo_cli.tables import TableColumn, print_table

    kind = "savepoint" if found["is_savepoint"] else "checkpoint"
    age = seconds(max(0, now_ms() - found["created_ms"]) // 1000)
    talk(f"{kind} {found['checkpoint']} of {found['topology']}, stored {age} ago by topo {found['topo']}")
    columns = [
        TableColumn("task", lambda row: f"{row['component']}[{row['index']}]", 100, is_text=True),
        TableColumn("bytes", lambda row: count(row["bytes"]), 80),
        TableColumn("key groups", lambda row: count(row["key_groups"]), 50),
        TableColumn("keyed state", lambda row: _counts(row["states"]), 90, is_text=True),
        TableColumn("timers", lambda row: count(row["timers"]), 70),
        TableColumn("also", lambda row: ", ".join(row["values"]), 60, is_text=True),
    ]
    print_table(found["tasks"], columns)


def _print_entries(entries: list[dict[str, Any]], number: int) -> None:
    from topo_cli.output import talk
    from topo_cli.tables import TableColumn, print_table

    if not entries:
        talk("no state")
        return
    columns = [
        TableColumn("task", lambda row: str(row["index"]), 40),
        TableColumn("state", lambda row: row["state"], 80, is_text=True),
        TableColumn("key", lambda row: row["key"], 100, is_text=True),
        TableColumn("namespace", lambda row: row["namespace"], 60, is_text=True),
        TableColumn("value", lambda row: row["value"], 90, is_text=True),
    ]
    print_table(entries[:number], columns)
    if len(entries) > number:
        talk(f"the first {number} of {len(entries):,}; -n shows more")


def _counts(states: dict[str, int]) -> str:
    from topo_cli.output import count

    return ", ".join(f"{name}: {count(entries)}" for name, entries in states.items())
