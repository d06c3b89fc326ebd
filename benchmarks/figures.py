"""The figures that topo is to reach, each measured, beside its goal: one command, about ten minutes on two quiet cores.

    python -m benchmarks.figures                                     three rounds of everything
    python -m benchmarks.figures --only latency --rounds 5           the rows whose names contain a word
    python -m benchmarks.figures --out today.json
    python -m benchmarks.figures --compare earlier.json              with the values of an earlier run beside them

In each round every command runs once, so that what else the machine does meets all of them alike. A row is the median of its
rounds; a ratio is taken within each round. A command that fails leaves its rows out, with the reason.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.compare import figure, run

Figures = Mapping[str, Mapping[str, Any]]
"""What the commands of a round have printed, by name."""

_TOPO = f"{sys.executable} -m topo_cli"
_WORDS = f"{_TOPO} bench word-count --json --seconds 5s"
_ONE_EACH = f"{_WORDS} --splits 1 --counts 1 --ackers 1"
_SUM = f"{_TOPO} bench windowed-sum --splits 2 --counts 2 --json --seconds 5s"
_EXACTLY = "--delivery exactly_once -s checkpoint_interval=1s"
_PACED = f"{_TOPO} bench pipe --json --seconds 5s"
_PACED_EXACTLY = "-s delivery=exactly_once -s checkpoint_interval=1s -s max_spout_pending=50000"

COMMANDS: Mapping[str, str] = {
    "words by hand": f"{sys.executable} benchmarks/pipe.py --json",
    "words": f"{_ONE_EACH} --delivery at_least_once",
    "words, exactly_once": f"{_ONE_EACH} {_EXACTLY}",
    "words in Storm": f"{sys.executable} -m benchmarks.storm_words --json",
    "words, plain Python": f"env TOPO_PURE=1 {_ONE_EACH} --delivery at_least_once",
    "words, 16 tasks": f"{_WORDS} --splits 6 --counts 7 --ackers 2 --workers 2",
    "words, 64 tasks": f"{_WORDS} --splits 28 --counts 30 --ackers 5 --workers 2",
    "sum by hand": f"{sys.executable} benchmarks/windowed_pipe.py --json --events 500000",
    "sum": f"{_SUM} --delivery at_least_once",
    "sum, exactly_once": f"{_SUM} {_EXACTLY}",
    "batches": f"{sys.executable} -m benchmarks.batches --lines 400000 --json --rounds 1",
    "windows of batches": f"{sys.executable} -m benchmarks.batches --windows --lines 400000 --json --rounds 1",
    "1,000/s": f"{_PACED} --rate 1000",
    "1,000/s, packed": f"{_PACED} --rate 1000 --workers 1",
    "1,000/s by hand": f"{sys.executable} -m benchmarks.relay --json --rate 1000",
    "20,000/s": f"{_PACED} --rate 20000",
    "20,000/s by hand": f"{sys.executable} -m benchmarks.relay --json --rate 20000",
    "20,000/s, exactly_once": f"{_PACED} --rate 20000 {_PACED_EXACTLY}",
    "idle": f"{sys.executable} benchmarks/idle.py --seconds 10 --json",
    "start": f"{sys.executable} benchmarks/start_up.py --runs 3 --json",
}


def ratio(of: str, to: str, key: str) -> Callable[[Figures], float]:
    """Return how to get the ratio of a figure of one command to that of another."""
    return lambda found: figure(found[of], key) / figure(found[to], key)  # type: ignore[arg-type]


def value(of: str, key: str) -> Callable[[Figures], float]:
    """Return how to get a figure of a command."""
    return lambda found: figure(found[of], key)  # type: ignore[arg-type]


def cpu_each(of: str) -> Callable[[Figures], float]:
    """Return how to get the milliseconds of processor time, of all processes, for each acked message of a command."""

    def take(found: Figures) -> float:
        seen = found[of]
        return 1000 * float(seen["cpu_seconds"]) / (float(seen["measured_seconds"]) * float(seen["acked_per_second"]))

    return take


def batches_to_rows(of: str, key: str) -> Callable[[Figures], float]:
    """Return how to get how many times cheaper than rows Arrow batches are."""
    return lambda found: float(found[of]["rows"][key]) / float(found[of]["arrow"][key])


@dataclass(frozen=True)
class Row:
    """A figure.

    Attributes:
        name: what it is, with its unit.
        needs: the commands that it is made of.
        goal: to be reached; None: the value of the earlier run.
        take: makes it of what they print.
        is_most: the goal is an upper bound.
    """

    name: str
    needs: tuple[str, ...]
    goal: float | None
    take: Callable[[Figures], float]
    is_most: bool = False

    def is_reached(self, found: float, goal: float | None) -> bool | None:
        """Whether the value is as the goal wants it; None without one."""
        return None if goal is None else found <= goal if self.is_most else found >= goal


def _ratio(name: str, of: str, to: str, key: str, goal: float) -> Row:
    return Row(name, (of, to), goal, ratio(of, to, key))


def _least(name: str, of: str, key: str, goal: float) -> Row:
    return Row(name, (of,), goal, value(of, key), is_most=True)


def _plain(name: str, of: str, key: str) -> Row:
    """A figure without a goal."""
    return Row(name, (of,), None, value(of, key))


ROWS: Sequence[Row] = (
    _ratio("word count, at_least_once; to pipe.py", "words", "words by hand", "words_per_second", 2.2),
    _ratio("word count, exactly_once; to pipe.py", "words, exactly_once", "words by hand", "words_per_second", 3.5),
    _ratio("word count, at_least_once; to Apache Storm, tracked", "words", "words in Storm", "words_per_second", 2.2),
    _ratio("windowed sum, exactly_once; to windowed_pipe.py", "sum, exactly_once", "sum by hand", "events_per_second", 1.9),
    _ratio("windowed sum, at_least_once; to windowed_pipe.py", "sum", "sum by hand", "events_per_second", 0.9),
    Row(
        "word count, Arrow batches; processor time of rows to theirs", ("batches",), 8.0, batches_to_rows("batches", "ns_a_word")
    ),
    Row(
        "windowed sum, Arrow batches; processor time of rows to theirs",
        ("windows of batches",),
        7.0,
        batches_to_rows("windows of batches", "ns_an_event"),
    ),
    _ratio("word count, 16 tasks in 2 workers; to 4 tasks", "words, 16 tasks", "words", "words_per_second", 0.8),
    _ratio("word count, 64 tasks in 2 workers; to 4 tasks", "words, 64 tasks", "words", "words_per_second", 0.6),
    _least("latency at 1,000/s, p50, ms", "1,000/s", "latency_ms.p50", 0.4),
    _least("latency at 1,000/s, p99, ms", "1,000/s", "latency_ms.p99", 1.0),
    _plain("latency at 1,000/s, by hand, p99, ms", "1,000/s by hand", "latency_ms.p99"),
    _least("latency at 1,000/s in one worker, p50, ms", "1,000/s, packed", "latency_ms.p50", 0.2),
    _least("latency at 1,000/s in one worker, p99, ms", "1,000/s, packed", "latency_ms.p99", 0.5),
    _least("latency at 20,000/s, at_least_once, p99, ms", "20,000/s", "latency_ms.p99", 2.0),
    _least("latency at 20,000/s, exactly_once, p99, ms", "20,000/s, exactly_once", "latency_ms.p99", 3.0),
    _plain("latency at 20,000/s, by hand, p99, ms", "20,000/s by hand", "latency_ms.p99"),
    Row("processor time of a record at 1,000/s, two hops, ms", ("1,000/s",), 0.3, cpu_each("1,000/s"), is_most=True),
    _plain("the same by hand, ms", "1,000/s by hand", "cpu_ms_per_record"),
    _least("idle topology of five workers, % of a core", "idle", "workers_cpu_percent", 0.5),
    _least("memory of an idle worker, MB", "idle", "worker_rss_mb", 35.0),
    _least("topo run to the first ack, s", "start", "first_ack_s", 0.4),
    _plain("word count in plain Python, words/s", "words, plain Python", "words_per_second"),
)


def measure(
    rows: Sequence[Row], rounds: int, commands: Mapping[str, str] = COMMANDS
) -> tuple[dict[str, list[float]], dict[str, str]]:
    """Run the commands that rows need, in turn; return each row's values, and why rows are left out."""
    needed = [name for name in commands if any(name in row.needs for row in rows)]
    values: dict[str, list[float]] = {row.name: [] for row in rows}
    failed: dict[str, str] = {}
    for number in range(rounds):
        found: dict[str, dict[str, Any]] = {}
        for name in needed:
            if name in failed:
                continue
            print(f"{number + 1}/{rounds} {name}", file=sys.stderr)
            try:
                found[name], _, _ = run(commands[name])
            except SystemExit as error:
                failed[name] = str(error).strip().rpartition("\n")[2]
        for row in rows:
            if found.keys() >= set(row.needs):
                values[row.name].append(row.take(found))
    left_out = {row.name: failed[name] for row in rows for name in row.needs if name in failed}
    return {name: taken for name, taken in values.items() if taken and name not in left_out}, left_out


def report(rows: Sequence[Row], values: Mapping[str, list[float]], earlier: Mapping[str, float]) -> list[dict[str, Any]]:
    """Return a line for each row that was measured: value, goal, whether it is reached, and the value before."""
    lines = []
    for row in rows:
        if row.name not in values:
            continue
        found, before = median(values[row.name]), earlier.get(row.name)
        goal = before if row.goal is None else row.goal
        line = {"name": row.name, "value": round(found, 3), "goal": goal, "is_reached": row.is_reached(found, goal)}
        lines.append(line | {"before": before, "runs": [round(one, 3) for one in values[row.name]]})
    return lines


def show(lines: Sequence[Mapping[str, Any]], left_out: Mapping[str, str]) -> None:
    """Print a table."""
    verdicts = {True: "ok", False: "not", None: "-"}
    print(f"{'':62}{'value':>12}{'goal':>12}{'':>5}{'before':>12}")
    for line in lines:
        goal, before = ("" if line[name] is None else f"{line[name]:,.3g}" for name in ("goal", "before"))
        print(f"{line['name']:62}{line['value']:>12,.3g}{goal:>12}{verdicts[line['is_reached']]:>5}{before:>12}")
    for name, why in left_out.items():
        print(f"{name:62}not run: {why}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="the rows whose names contain this")
    parser.add_argument("--compare", type=Path, metavar="FILE.json", help="an earlier run, to show beside this one")
    parser.add_argument("--out", type=Path, metavar="FILE.json", help="where to store this run")
    options = parser.parse_args()
    earlier = {} if options.compare is None else json.loads(options.compare.read_bytes())
    before = {line["name"]: line["value"] for line in earlier.get("rows", ())}
    rows = [row for row in ROWS if options.only in row.name]
    values, left_out = measure(rows, options.rounds)
    lines = report(rows, values, before)
    if options.out is not None:
        machine = {"cores": os.cpu_count(), "python": platform.python_version(), "machine": platform.platform()}
        options.out.write_text(
            json.dumps(machine | {"rounds": options.rounds, "rows": lines, "not_run": left_out}, indent=2) + "\n"
        )
    show(lines, left_out)


if __name__ == "__main__":
    main()
