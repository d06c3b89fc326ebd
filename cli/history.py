"""`topo history`: the past figures of a topology, running or ended."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from topo_cli.options import TimeSpan, deadline_option, examples, name_argument, reading_options

if TYPE_CHECKING:
    from topo.observability.history import PastPoints

_BARS = "▁▂▃▄▅▆▇█"
_WIDTH = 60
"""Points of a line where there is room, and in JSON."""
_LEAST_WIDTH = 20
_GAP = 2
_BESIDE = 57
"""Columns of a terminal that the names and figures beside a line take, about."""
_SHOWN = ("in", "out", "capacity", "in_front", "p99")
_KINDS = ("total", "component", "edge", "worker")


@click.command(
    epilog=examples(
        "topo history word-count",
        "topo history word-count --since 1h --step 1m --series out,p99",
        "topo history word-count --component count --json | jq .series",
    )
)
@name_argument
@click.option("--component", "components", multiple=True, help="Only this component.")
@click.option("--since", type=TimeSpan(), default="15m", show_default=True, help="From how long ago.")
@click.option(
    "--step", type=TimeSpan(), help="Time between two points; by default such that there are 60, or fewer on a narrow terminal."
)
@click.option("--series", help="These series, separated by commas; by default in,out,capacity,in_front,p99; all: every one.")
@deadline_option
@reading_options
def command(
    name: str,
    components: tuple[str, ...],
    since: float,
    step: float | None,
    series: str | None,
    deadline: float,
    home: Path,
    as_json: bool,
) -> None:
    """Show the past of topology NAME: rates, load, latencies and queues by component, edge and worker.

    The master keeps a point a second for 15 minutes, one of 10 s for 6 hours, and one of 5 minutes for 14 days; of an ended or
    lost topology those of 10 s are on disk, up to 32 MiB of them.
    """
    import time
    from functools import partial

    from topo.operate.past import as_data, history
    from topo.operate.topology_index import find_topology
    from topo_cli.output import make_console, print_json, seconds, talk

    folder = find_topology(name, home)
    now_s = int(time.time()) + 1
    points = _WIDTH if as_json else _points(make_console().width - _BESIDE)
    step_s = max(1, math.ceil(since / points) if step is None else round(step))
    ask = partial(history, folder, int(now_s - since), step_s, until_s=now_s, deadline_s=deadline)
    columns = ask(**asked_for(components, series))
    if _lacks(columns, components, series):
        # All of them, to name those that there are.
        columns = ask()
    _choose(columns, components, series, folder.name)
    if as_json:
        print_json(as_data(columns))
    elif columns.series:
        _print(columns)
    else:
        talk(f"no history of {folder.name} in the last {seconds(since)}; the first point comes two seconds after its start")


def asked_for(components: Sequence[str], series: str | None) -> dict[str, list[str] | None]:
    """Return the subjects and series to ask a master for: it packs no more than is shown. None: all."""
    names = list(_SHOWN) if series is None else None if series == "all" else [one.strip() for one in series.split(",")]
    return {"subjects": [f"component/{component}" for component in components] or None, "series": names}


def _lacks(columns: PastPoints, components: Sequence[str], series: str | None) -> bool:
    """Whether a component or series that the user has named has no points."""
    asked, found = asked_for(components, series), {part for key in columns.series for part in key}
    return not found.issuperset([*(asked["subjects"] or ()), *((series is not None and asked["series"]) or ())])


def _choose(columns: PastPoints, components: Sequence[str], series: str | None, name: str) -> None:
    """Leave the series that were asked for. Raises a usage error for unknown ones."""
    known = {subject for subject, _ in columns.series}
    for component in components:
        if known and f"component/{component}" not in known:
            has = ", ".join(sorted(subject.partition("/")[2] for subject in known if subject.startswith("component/")))
            raise click.UsageError(f"{name} has no component {component!r} in that time; it has {has}")
    names = {one for _, one in columns.series}
    wanted = set(_SHOWN) if series is None else names if series == "all" else {one.strip() for one in series.split(",")}
    if series is not None and names and (unknown := wanted - names):
        refuse_series(unknown, names)
    subjects = {f"component/{component}" for component in components}
    columns.series = {
        key: column
        for key, column in columns.series.items()
        if key[1] in wanted and (key[0] in subjects if subjects else series is not None or key[0].startswith("component/"))
    }


def refuse_series(unknown: set[str], known: set[str]) -> NoReturn:
    """Raise a usage error that names the known series: those of latencies, a power of two each, as a range."""
    powers = sorted((name for name in known if name.startswith("2^")), key=lambda name: int(name[2:]))
    words = ", ".join(sorted(known.difference(powers)))
    latencies = f", and of latencies {powers[0]} to {powers[-1]}" if powers else ""
    raise click.UsageError(f"there is no series {min(unknown)!r}; there are {words}{latencies}")


def _print(columns: PastPoints) -> None:
    from topo_cli.output import clock_time, make_console
    from topo_cli.tables import TableColumn, fitted_table, table_width

    console = make_console()
    order = {name: place for place, name in enumerate(_KINDS)}
    rows = sorted(columns.series.items(), key=lambda row: (order.get(row[0][0].partition("/")[0], 9), row[0]))
    beside = [
        TableColumn("", lambda row: row[0][0].partition("/")[2] or row[0][0], 100, is_text=True),
        TableColumn("series", lambda row: row[0][1], 100, is_text=True),
        TableColumn("min", lambda row: _figure(min(_values(row[1]), default=None)), 40),
        TableColumn("max", lambda row: _figure(max(_values(row[1]), default=None)), 60),
        TableColumn("last", lambda row: _figure(next(iter(_values(reversed(row[1]))), None)), 70),
    ]
    # The last points are those that fit; an earlier time is asked for with a longer step.
    points = _points(console.width - table_width(console, rows, beside) - _GAP)
    line = TableColumn(_title(columns, points), lambda row: sparkline(row[1]), 50, is_text=True, content_with=points)
    console.print(fitted_table(console, [(key, list(column[-points:])) for key, column in rows], [*beside, line]))
    for at_ms, text in columns.marks[-10:]:
        console.print(f"{clock_time(at_ms)}  {text}", style="dim", markup=False)


def sparkline(values: Sequence[float]) -> str:
    """Return a character for each value, by its share of the greatest; a blank where there is none."""
    greatest = max(_values(values), default=0.0)
    top = len(_BARS) - 1
    return "".join(
        " " if math.isnan(value) else _BARS[0 if greatest <= 0 else min(top, max(0, round(value / greatest * top)))]
        for value in values
    )


def _points(room: int) -> int:
    """Return how many points a line has."""
    return max(_LEAST_WIDTH, min(_WIDTH, room))


def _values(values: Iterable[float]) -> list[float]:
    return [value for value in values if not math.isnan(value)]


def _title(columns: PastPoints, points: int) -> str:
    from topo_cli.output import clock_time, seconds

    shown = min(points, columns.length)
    until = columns.first_s + columns.length * columns.step_s
    begin, end = (clock_time(1000 * at).rpartition(".")[0] for at in (until - shown * columns.step_s, until))
    return f"{begin} to {end}, {seconds(columns.step_s)} each"


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:,.4g}" if abs(value) < 10_000 else f"{value:,.0f}"
