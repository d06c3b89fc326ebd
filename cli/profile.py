"""`topo profile`: where the time of a component goes."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from topo_cli.options import TimeSpan, examples, name_argument, reading_options

if TYPE_CHECKING:
    from topo.operate.observing import Observation

_POLL_S = 0.5
_LINES = 20
_SETTLE_S = 0.6
"""The last samples of the workers are under way for up to two of their intervals."""

Stacks = Sequence[Mapping[str, Any]]


@click.command(
    epilog=examples(
        "topo profile word-count count",
        "topo profile word-count count --seconds 30 --clock cpu -o count.speedscope.json",
        "topo profile word-count count --dump",
    )
)
@name_argument
@click.argument("component", metavar="COMPONENT")
@click.option("--task", type=click.IntRange(0, 10**9), help="Only this task of the component, counted from 0.")
@click.option("--seconds", type=TimeSpan(least=0.5, most=600), default="10s", show_default=True, help="How long.")
@click.option("--rate", type=click.IntRange(1, 1000), default=100, show_default=True, help="Samples a second.")
@click.option("--clock", type=click.Choice(("wall", "cpu")), default="wall", show_default=True, help="wall includes waiting.")
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="Write a file for speedscope.app.")
@click.option("--dump", is_flag=True, help="Print the most frequent stack of each task, with lines of code, of half a second.")
@reading_options
def command(
    name: str,
    component: str,
    task: int | None,
    seconds: float,
    rate: int,
    clock: str,
    output: Path | None,
    dump: bool,
    home: Path,
    as_json: bool,
) -> None:
    """Sample where tasks of COMPONENT of topology NAME spend their time, and print the functions with the largest shares.

    A timer signal in the worker takes the samples: no rights, restart or setting are needed. Shares are of the time in which the
    component was at work. Only the thread of the tasks is sampled. Ctrl-C ends it early, and shows the samples until then.
    """
    from topo.errors import UserError
    from topo.operate.observing import observe
    from topo.operate.topology_index import find_topology
    from topo_cli.output import print_json, talk

    if output is not None and not os.access(output if output.exists() else output.parent, os.W_OK):
        raise click.UsageError(f"{output} cannot be written: its folder is missing, or not writable")
    folder = find_topology(name, home)
    length = 0.5 if dump else seconds
    with observe(folder, "profile", component, for_s=length, index=task, rate=rate, clock=clock, lines=dump) as seen:
        try:
            if not dump:
                talk(f"profiling {component} of {folder.name} for {length:g} s; Ctrl-C ends it early")
            answer = gathered(seen, length + _SETTLE_S)
        except KeyboardInterrupt:
            # The result follows; a second Ctrl-C ends the command.
            answer = gathered(seen, _SETTLE_S)
    lost = answer.pop("lost", None)
    if lost is not None and not answer.get("stacks"):
        raise lost
    stacks: Stacks = answer["stacks"]
    if not stacks and answer["problem"]:
        raise UserError(answer["problem"])
    if output is not None:
        output.write_text(json.dumps(speedscope(f"{folder.name} {component}", stacks, rate)))
        talk(f"{output}: open it at https://www.speedscope.app, or with `npx speedscope`")
    if as_json:
        print_json(answer)
    elif dump:
        _print_dump(component, stacks)
    elif output is None and stacks:
        _print_shares(stacks)
    talk(summary(component, folder.name, answer))
    if lost is not None:
        raise lost


def gathered(seen: Observation, for_s: float) -> dict[str, Any]:
    """Return the last answer to polls during a time: without any the observation would end.

    Where the topology ends before, the error is `lost` of the answer.
    """
    import time

    from topo.errors import TopoEnvironmentError

    answer: dict[str, Any] = {}
    until = time.monotonic() + for_s
    try:
        while (left_s := until - time.monotonic()) > 0:
            time.sleep(min(_POLL_S, left_s))
            answer = seen.poll()
    except TopoEnvironmentError as error:
        answer["lost"] = error
    return answer


def summary(component: str, topology: str, answer: dict[str, Any]) -> str:
    """Return how many samples there are, and why, where there is none."""
    if not answer["seen"] and not answer["problem"]:
        stuck = f"`topo errors {topology}` has its line after progress_timeout"
        return f"no samples of {component}: its workers were idle, or in a call that began before and has not returned ({stuck})"
    share = answer["matched"] / answer["seen"] if answer["seen"] else 0.0
    problem = f"; {answer['problem']}" if answer["problem"] else ""
    return f"{answer['matched']:,} samples of {component}, {share:.0%} of those of its workers{problem}"


def _print_dump(component: str, stacks: Stacks) -> None:
    for index in sorted({stack["index"] for stack in stacks}):
        stack = max((one for one in stacks if one["index"] == index), key=lambda one: int(one["count"]))
        click.echo(f"{component}[{index}], {stack['count']} samples, innermost last:")
        for frame in stack["frames"]:
            click.echo(f"  {frame}")


def shares(stacks: Stacks) -> list[tuple[str, int, int]]:
    """Return function, samples in it alone, and samples in it or in functions that it calls; the largest alone first."""
    alone, together = Counter[str](), Counter[str]()
    for stack in stacks:
        alone[stack["frames"][-1]] += stack["count"]
        for frame in set(stack["frames"]):
            together[frame] += stack["count"]
    return sorted(((frame, alone[frame], total) for frame, total in together.items()), key=lambda row: (-row[1], -row[2]))


def _print_shares(stacks: Stacks) -> None:
    from topo_cli.tables import TableColumn, print_table

    total = sum(stack["count"] for stack in stacks) or 1
    columns = [
        TableColumn("self", lambda row: f"{row[1] / total:.1%}", 100),
        TableColumn("with calls", lambda row: f"{row[2] / total:.1%}", 90),
        TableColumn("function", lambda row: row[0], 100, is_text=True),
    ]
    print_table([row for row in shares(stacks)[:_LINES] if row[1]], columns)


def speedscope(title: str, stacks: Stacks, rate: float) -> dict[str, Any]:
    """Return stacks in the file format of speedscope: a profile for each task."""
    places: dict[str, int] = {}
    profiles = []
    for index in sorted({stack["index"] for stack in stacks}):
        own = [stack for stack in stacks if stack["index"] == index]
        weights = [stack["count"] / rate for stack in own]
        samples = [[places.setdefault(frame, len(places)) for frame in stack["frames"]] for stack in own]
        profiles.append(
            {
                "type": "sampled",
                "name": f"{title}[{index}]",
                "unit": "seconds",
                "startValue": 0,
                "endValue": sum(weights),
                "samples": samples,
                "weights": weights,
            }
        )
    return {
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "shared": {"frames": [{"name": frame} for frame in places]},
        "profiles": profiles,
        "name": title,
        "exporter": "topo",
    }
