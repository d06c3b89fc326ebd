"""`topo tap`: live tuples of a component."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from topo_cli.options import Number, examples, home_option, name_argument, no_color_option, time_option

_POLL_S = 0.25


@click.command(
    epilog=examples(
        "topo tap word-count count",
        "topo tap word-count count --where 'count > 3 and word != \"the\"' -n 20",
        "topo tap word-count count --in --rate 50 --json | jq .fields",
    )
)
@name_argument
@click.argument("component", metavar="COMPONENT")
@click.option("--in", "is_in", is_flag=True, help="The tuples that it reads, instead of those that it emits.")
@click.option("--stream", default="", help="Only this stream.")
@click.option("--where", default="", help="Only tuples for which this holds: fields, constants, comparisons, and, or, not, in.")
@click.option("--rate", type=Number(min=0.01, max=1000), default=5, show_default=True, help="Tuples a second, at most.")
@time_option("--for", "for_s", "60s", "How long.")
@click.option("-n", "--number", type=click.IntRange(min=1), help="End after this number of tuples.")
@click.option("--json", "as_json", is_flag=True, help="Print a line of JSON for each tuple, and the counts to stderr.")
@no_color_option
@home_option
def command(
    name: str,
    component: str,
    is_in: bool,
    stream: str,
    where: str,
    rate: float,
    for_s: float,
    number: int | None,
    as_json: bool,
    home: Path,
) -> None:
    """Show live tuples that COMPONENT of topology NAME emits: time, task, stream, and fields by name.

    They are a sample; the last line counts all. Nothing has to be prepared, and the topology does not wait. Values are cut
    at 200 characters; settings `tap=off` and `secret_fields` hide them.
    """
    import time

    from topo.errors import TopoEnvironmentError
    from topo.operate.observing import observe
    from topo.operate.topology_index import find_topology
    from topo_cli.output import talk

    folder = find_topology(name, home)
    shown, began, answer, lost = 0, time.monotonic(), {}, None
    spec = {"direction": "in" if is_in else "out", "stream": stream, "where": where, "rate": rate}
    with observe(folder, "tap", component, for_s=for_s, **spec) as seen:
        try:
            while not answer.get("ended"):
                time.sleep(_POLL_S)
                answer = seen.poll()
                rows = answer["rows"] if number is None else answer["rows"][: number - shown]
                for row in rows:
                    click.echo(json.dumps(row, ensure_ascii=False) if as_json else _line(component, row))
                shown += len(rows)
                if shown == number:
                    break
        except KeyboardInterrupt:
            # Ctrl-C is how a tap ends: the summary follows.
            pass
        except TopoEnvironmentError as error:
            lost = error
    if answer:
        talk(_summary(answer, shown, time.monotonic() - began, where))
    if lost is not None:
        raise lost


def _line(component: str, row: dict[str, Any]) -> str:
    from topo_cli.control_characters import printable
    from topo_cli.output import clock_time

    fields = "  ".join(f"{name}={_value(value)}" for name, value in row["fields"].items())
    stream = "" if row["stream"] == "default" else f" {row['stream']}"
    return printable(f"{clock_time(row['at_ms'])} {component}[{row['index']}]{stream}  {fields}")


def _value(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else str(value)


def _summary(answer: dict[str, Any], shown: int, seconds: float, where: str) -> str:
    """Return how many tuples the rows are a sample of."""
    from topo_cli.output import count, plural, rate

    passed = answer["seen"]
    text = f"{plural(shown, 'tuple')} shown of {count(passed)} that passed"
    if seconds >= 1:
        # Workers report four times a second, the first time at once: too little to make a rate of.
        text += f", {rate(passed / seconds)} a second"
    if where:
        text += f"; {count(answer['matched'])} of {count(answer['looked'])} looked at matched"
    if answer["dropped"]:
        text += f"; {count(answer['dropped'])} were too much to send"
    if answer["problem"]:
        text += f"; {answer['problem']}"
    return text
