"""Output of the commands: consoles, JSON, and numbers as people read them."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click

from topo_cli.control_characters import printable

if TYPE_CHECKING:
    from rich.console import Console

_UNBOUND_WIDTH = 10_000


def make_console(*, stderr: bool = False) -> Console:
    """Return a console for stdout or stderr.

    On a terminal it has the terminal's width, or that of COLUMNS; elsewhere only COLUMNS limits it, so nothing is cut.
    """
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    columns = os.environ.get("COLUMNS", "")
    width = None if stream.isatty() or columns.isdecimal() else _UNBOUND_WIDTH
    if columns.isdecimal() and int(columns) == 0:
        # rich would print nothing at all. A terminal without a size has 0 columns, and `get_terminal_size` passes over that.
        width = shutil.get_terminal_size().columns if stream.isatty() else _UNBOUND_WIDTH
    # rich would take FORCE_COLOR as a terminal; pipes and files get plain text.
    console = Console(stderr=stderr, width=width, highlight=False, soft_wrap=False, force_terminal=stream.isatty())
    if not stderr:
        from topo_cli.printable_hook import PrintableHook

        console.push_render_hook(PrintableHook())
    return console


def json_text(value: Any, *, indent: int | None = None) -> str:
    """Return a value as JSON. NaN and infinite numbers, for which JSON has no word, are null."""
    try:
        return json.dumps(value, indent=indent, ensure_ascii=False, allow_nan=False)
    except ValueError:
        return json_text(json.loads(json.dumps(value), parse_constant=lambda _: None), indent=indent)


def print_json(value: Any) -> None:
    click.echo(json_text(value, indent=2))


def print_json_rows(rows: Iterable[Any]) -> None:
    """Print rows one at a time, in the form of `print_json` for a list: all of them may be gigabytes."""
    before = "[\n  "
    for row in rows:
        sys.stdout.write(before + json_text(row, indent=2).replace("\n", "\n  "))
        before = ",\n  "
    click.echo("\n]" if before[0] == "," else "[]")


def talk(line: str) -> None:
    """Print a line about progress to stderr: stdout is for data."""
    click.echo(printable(line), err=True)


def count(number: float) -> str:
    return f"{number:,.0f}"


def plural(number: float, word: str) -> str:
    return f"{count(number)} {word}" if number == 1 else f"{count(number)} {word}s"


def rate(per_second: float) -> str:
    """Return a rate, with a digit behind the point where it matters."""
    return f"{per_second:,.0f}" if per_second >= 10 or per_second == 0 else f"{per_second:.1f}"


def seconds(duration_s: float | None) -> str:
    """Return a duration to three digits: 890ns, 12.3us, 4.5ms, 1.25s, 3m20s, 5h02m, 3d04h; "-" for None."""
    if duration_s is None:
        return "-"
    if duration_s < 60:
        for unit, length in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9)):
            if duration_s >= length:
                return f"{duration_s / length:.3g}{unit}"
        return "0s"
    whole = int(duration_s)
    for unit, length, small, part in (("d", 86400, "h", 3600), ("h", 3600, "m", 60), ("m", 60, "s", 1)):
        if whole >= length:
            return f"{whole // length}{unit}{whole % length // part:02}{small}"
    return f"{whole}s"


def percent(share: float) -> str:
    return f"{share:.0%}"


def ago(at_ms: int | None, now_ms: int) -> str:
    """Return how long ago a moment of the wall clock was."""
    return "-" if not at_ms else f"{seconds(max(0, now_ms - at_ms) // 1000)} ago"


def clock_time(at_ms: int) -> str:
    """Return a moment as the local time of day, with milliseconds; with the date unless it is of today."""
    local = time.localtime(at_ms / 1000)
    shape = "%H:%M:%S" if local[:3] == time.localtime()[:3] else "%Y-%m-%d %H:%M:%S"
    return f"{time.strftime(shape, local)}.{at_ms % 1000:03}"


def now_ms() -> int:
    """Return the wall clock in milliseconds since the epoch."""
    return int(time.time() * 1000)
