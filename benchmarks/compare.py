"""Runs commands in turn, several times, and prints the median of a figure that each of them prints as JSON.

    python benchmarks/compare.py --runs 5 \\
        topo="topo bench word-count --splits 1 --counts 1 --ackers 1 --json" \\
        pipe="python benchmarks/pipe.py --json"

The ratios are those of the medians to the last command's. Runs alternate, so that what else the machine does meets all of them
alike; `elsewhere` is the share of the machine's CPU time that went to others while they ran.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shlex
import subprocess
import sys
from collections.abc import Sequence
from statistics import median
from typing import Any

import psutil


def busy_s() -> float:
    """Return the CPU seconds that this machine has spent on anything."""
    times = psutil.cpu_times()
    return float(times.user + times.nice + times.system)


def children_s() -> float:
    """Return the CPU seconds of the processes that this one has started, and theirs, once they are over."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run(command: str) -> tuple[dict[str, Any], float, float]:
    """Run a command; return its figures, and the CPU seconds that it and all others spent.

    Raises:
        SystemExit: it failed, or printed no JSON object as its last thing.
    """
    own, all_ = children_s(), busy_s()
    done = subprocess.run(shlex.split(command), capture_output=True, text=True)
    used = children_s() - own
    try:
        begin = 0 if done.stdout.startswith("{") else done.stdout.rindex("\n{") + 1
        figures = json.loads(done.stdout[begin:])
    except ValueError:
        figures = None
    if done.returncode or not isinstance(figures, dict):
        sys.exit(f"{command}\nexit code {done.returncode}\n{done.stdout}{done.stderr}")
    return figures, used, max(0.0, busy_s() - all_ - used)


def figure(figures: dict[str, Any], key: str) -> float:
    """Return a figure by its name; a dot leads into an object."""
    value: Any = figures
    for part in key.split("."):
        value = value[part]
    return float(value)


def compare(commands: dict[str, str], key: str, runs: int) -> dict[str, Any]:
    """Run the commands in turn and return all figures, their medians and ratios."""
    found: dict[str, list[float]] = {name: [] for name in commands}
    used: dict[str, list[float]] = {name: [] for name in commands}
    elsewhere = total = 0.0
    for number in range(runs):
        for name, command in commands.items():
            figures, own, others = run(command)
            value = figure(figures, key)
            found[name].append(value)
            used[name].append(own)
            elsewhere += others
            total += own + others
            print(f"{number + 1}/{runs} {name}: {value:,} {key}", file=sys.stderr)
    medians = {name: median(values) for name, values in found.items()}
    base = list(commands)[-1]
    return {
        "key": key,
        "commands": commands,
        "median": medians,
        "ratio_to": base,
        "ratio": {name: round(value / medians[base], 3) for name, value in medians.items()},
        "runs": found,
        "cpu_seconds": {name: [round(value, 2) for value in values] for name, values in used.items()},
        "elsewhere": round(elsewhere / total, 3) if total else 0.0,
        "cores": os.cpu_count(),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commands", nargs="+", metavar="NAME=COMMAND")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--key", default="words_per_second", help="the figure to compare; a dot leads into an object")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    commands = dict(command.split("=", 1) for command in options.commands)
    result = compare(commands, options.key, options.runs)
    if options.json:
        print(json.dumps(result, indent=2))
        return
    for name, value in result["median"].items():
        print(f"{name:<16} {value:>14,.3f}  {result['ratio'][name]:.2f} of {result['ratio_to']}")
    print(f"elsewhere: {result['elsewhere']:.0%} of the CPU time in use")


if __name__ == "__main__":
    main()
