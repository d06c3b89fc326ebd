"""`topo dead-letters`: the messages that were given up, and how to emit them again."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from topo_cli.options import ShownByDefault, deadline_option, examples, home_option, json_option, name_argument, reading_options

if TYPE_CHECKING:
    from topo.storage.state_folder import TopologyFolder


@click.group(cls=ShownByDefault, epilog=examples("topo dead-letters enrichment", "topo dead-letters replay enrichment --all"))
def command() -> None:
    """Show the messages of a topology that were given up, or emit them again. Without `show` or `replay` it shows them."""


@command.command(
    short_help="Show the messages that were given up.",
    epilog=examples("topo dead-letters enrichment", "topo dead-letters enrichment --json | jq '.[].values'"),
)
@name_argument
@click.option(
    "-n", "--number", type=click.IntRange(1, 10**9), default=20, show_default=True, help="How many, the latest; JSON has all."
)
@reading_options
def show(name: str, number: int, home: Path, as_json: bool) -> None:
    """Show the messages of topology NAME that failed as often as `attempts` allows, and were stored and given up.

    `id` is what `topo dead-letters replay` takes; `replay` is when a dead letter was emitted again, and the result.
    """
    from topo.operate.dead_letter_rows import dead_letter_rows
    from topo.operate.topology_index import find_topology
    from topo.storage.shapes import LetterShape
    from topo_cli.output import print_json_rows, talk

    folder = find_topology(name, home)
    if as_json:
        print_json_rows(dead_letter_rows(folder, LetterShape))
        return
    # Hundreds of thousands would be gigabytes.
    rows = list(deque(dead_letter_rows(folder, LetterShape), number))
    if not rows:
        talk(f"no dead letters in {folder.name}")
        return
    _print(rows)
    if (count := rows[-1]["id"]) > number:
        talk(f"the latest {number} of {count:,}; all of them: {folder.dead_letters}")


@command.command(
    short_help="Emit them again.",
    epilog=examples(
        "topo dead-letters replay enrichment --ids 3,7",
        "topo dead-letters replay enrichment --cause KeyError --dry-run",
        "topo dead-letters replay enrichment --where 'country == \"de\" and cents > 100'",
    ),
)
@name_argument
@click.option("--ids", help="These, by `id`: 3,7,10-20.")
@click.option("--where", metavar="EXPR", help="Those whose fields meet a condition: 'cents > 100'.")
@click.option("--component", help="Those of this spout.")
@click.option("--cause", metavar="TEXT", help="Those with this text in their last error, such as the class of an exception.")
@click.option("--all", "everything", is_flag=True, help="All of them.")
@click.option("--dry-run", is_flag=True, help="Report what would be emitted, and change nothing.")
@deadline_option
@home_option
@json_option
def replay(
    name: str,
    ids: str | None,
    where: str | None,
    component: str | None,
    cause: str | None,
    everything: bool,
    dry_run: bool,
    deadline: float,
    home: Path,
    as_json: bool,
) -> None:
    """Emit dead letters of topology NAME again, each as a new message of its spout, on its stream.

    If the topology does not run, its next `topo resume` emits them before it ends; while it is paused they wait for
    `topo activate`. A dead letter that is under way or done is not emitted again, however often you ask; after another
    failure it may be. Options that choose dead letters are combined. Not with delivery=exactly_once.
    """
    from topo.master_process.client import Client
    from topo_cli.exits import Exit
    from topo_cli.letter_files import chosen, replayed
    from topo_cli.output import print_json, talk

    if not any((ids, where, component, cause, everything)):
        raise click.UsageError("choose dead letters: --ids, --where, --component, --cause or --all")
    client = Client(name, home)
    numbers = chosen(client.folder, ids, where, component, cause)
    is_running = client.folder.is_running()
    ask = client.request if is_running else partial(_ask_for_resume, client.folder)
    answer = replayed(ask, numbers, deadline, dry_run=dry_run)
    count = len(answer["asked"])
    if as_json:
        print_json({"topology": name, "dry_run": dry_run, **answer})
    else:
        for why, ids in _by_value(answer["refused"]):
            click.echo(f"{ids}: cannot be emitted again: {why}")
        for state, ids in _by_value(answer["known"]):
            click.echo(f"{ids}: {state} already")
        when = _after_pause(client.folder) if is_running else " by the next `topo resume`"
        click.echo(f"{count} of {len(numbers)} dead letters {'would be' if dry_run else 'are'} emitted again{when}")
        if count and not dry_run:
            talk(f"next: topo dead-letters {name}" if is_running else f"next: topo resume {name}")
    if answer["refused"] and not count and not answer["known"]:
        raise SystemExit(Exit.FAILED)


def _by_value(found: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Yield each value with the ids that have it, as `--ids` takes them."""
    by_value: dict[str, list[tuple[int, int]]] = {}
    for number, value in sorted((int(number), value) for number, value in found.items()):
        spans = by_value.setdefault(value, [])
        first = spans.pop()[0] if spans and spans[-1][1] == number - 1 else number
        spans.append((first, number))
    for value, spans in by_value.items():
        yield value, ",".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)


def _after_pause(folder: TopologyFolder) -> str:
    from topo.storage.master_record import RecordDamaged, read_record

    with suppress(RecordDamaged):
        if (record := read_record(folder.master)) is not None and not record.active:
            return f" after `topo activate {folder.name}`"
    return ""


def _ask_for_resume(
    folder: TopologyFolder, _verb: str, _deadline_s: float, *, numbers: list[int], dry_run: bool
) -> dict[str, Any]:
    """Answer as the master of a running topology does."""
    from topo.master_process.replay_desk import ask_for_resume

    return ask_for_resume(folder, numbers, dry_run=dry_run)


def _print(rows: list[dict[str, Any]]) -> None:
    from topo_cli.output import clock_time
    from topo_cli.tables import TableColumn, print_table

    columns = [
        TableColumn("id", lambda row: str(row["id"]), 20),
        TableColumn("at", lambda row: clock_time(row["at_ms"]), 20),
        TableColumn("component", lambda row: row["component"], 50, is_text=True),
        TableColumn("message", lambda row: "" if row["message"] is None else repr(row["message"]), 90, is_text=True),
        TableColumn("attempts", lambda row: str(row["attempts"]), 40),
        TableColumn("values", lambda row: _in_words(row["values"]), 100, is_text=True),
        TableColumn("last error", lambda row: row["errors"][-1] if row["errors"] else "", 80, is_text=True, content_with=30),
    ]
    if any(row["replay"] for row in rows):
        columns.append(TableColumn("replay", lambda row: _result(row["replay"]), 85, is_text=True, content_with=30))
    print_table(rows, columns)


def _result(replay: dict[str, Any] | None) -> str:
    from topo_cli.output import clock_time

    if replay is None:
        return ""
    return f"{replay['state']} {clock_time(replay['at_ms'])}" + (f": {replay['why']}" if replay["why"] else "")


def _in_words(values: Any) -> str:
    """Values that could not be carried or shown are text already."""
    return values if isinstance(values, str) else ", ".join(map(repr, values))
