"""Tables that fit: where the terminal is too narrow, whole columns are left out rather than every cell cut."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from topo_cli.output import make_console


@dataclass(frozen=True, slots=True)
class TableColumn:
    """One column of a table.

    Attributes:
        title: its head.
        cell: the text of a row in this column.
        keep: how long it stays when there is no room: the lowest goes first.
        is_text: whether it is aligned left, and wrapped where need be; else it is a number.
        content_with: the width that a text gets at least; a longer text is wrapped before columns are left out. None: all.
    """

    title: str
    cell: Callable[[Any], str | Text]
    keep: int = 0
    is_text: bool = False
    content_with: int | None = None


def fitted_table(console: Console, rows: Iterable[Any], columns: Sequence[TableColumn]) -> Table:
    """Return a table of as many columns as the console has room for, at least the two that are kept longest."""
    rows = list(rows)
    shown = list(columns)
    left_out: list[TableColumn] = []

    def has_room(chosen: Sequence[TableColumn]) -> bool:
        return _needed(console, _table(rows, chosen, narrow=True)) <= console.width

    while len(shown) > 2 and not has_room(shown):
        left_out.append(min(shown, key=lambda column: column.keep))
        shown.remove(left_out[-1])
    # Perhaps only the last of them was too wide.
    for column in reversed(left_out):
        chosen = [one for one in columns if one in shown or one is column]
        shown = chosen if has_room(chosen) else shown
    return _table(rows, shown)


def print_table(rows: Iterable[Any], columns: Sequence[TableColumn]) -> None:
    """Print a table of as many columns as stdout has room for."""
    console = make_console()
    console.print(fitted_table(console, rows, columns))


def table_width(console: Console, rows: Iterable[Any], columns: Sequence[TableColumn]) -> int:
    """Return the width of a table of all these columns."""
    return _needed(console, _table(list(rows), columns))


def _needed(console: Console, table: Table) -> int:
    return Measurement.get(console, console.options.update(max_width=100_000), table).maximum


def _table(rows: Sequence[Any], columns: Sequence[TableColumn], *, narrow: bool = False) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        table.add_column(
            column.title,
            justify="left" if column.is_text else "right",
            no_wrap=not column.is_text,
            overflow="fold",
            max_width=column.content_with if narrow else None,
        )
    for row in rows:
        table.add_row(*(_text(column.cell(row)) for column in columns))
    return table


def _text(cell: str | Text) -> Text:
    # Names and messages are the user's: brackets in them are no markup.
    return Text(cell) if isinstance(cell, str) else cell
