"""What the hooks of observations cost while nothing is observed: the tasks of `hot_path` as they are, and without the hooks.

    python -m benchmarks.hooks                     ten alternating pairs of processes
    python -m benchmarks.hooks --pairs 3 --lines 5000 --json
    python -m benchmarks.hooks --trace             what a trace costs its tasks: pairs of rounds in one process

A hook is an `if` that asks whether there is an observer or a tap. The second process of a pair cuts them out of the source of
tasks and emission as it imports them; both read the source, so that nothing else differs. The ratio is the processor time of all
tasks as they are, to that without hooks.

With `--trace` it is the processor time of all tasks while they are traced, to that while they are not. A round takes a tenth of a
second, and every tenth round has one traced message: the medians of both kinds are weighted so. The rate of a topology cannot
show so small a cost: medians of ten pairs of equal runs differ from 1 by up to 3 %.
"""

from __future__ import annotations

import argparse
import ast
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from statistics import median
from types import CodeType, ModuleType
from typing import Any

PAIRS, LINES, ROUNDS = 10, 20_000, 3
TRACE_PAIRS, MARKED_EVERY = 200, 10
_PACKAGES = ("topo.task", "topo.emission")


class Cut(ast.NodeTransformer):
    """Cuts hooks out; counts them in `count`."""

    def __init__(self) -> None:
        self.count = 0

    def visit_If(self, node: ast.If) -> Any:
        self.generic_visit(node)
        if not _is_hook(node.test):
            return node
        self.count += 1
        return node.orelse or ast.Pass()


def _is_hook(test: ast.expr) -> bool:
    """Whether a condition is or begins with `observer is not None`; a lookout, or a tap of `_taps`, may be in its stead."""
    first = test.values[0] if isinstance(test, ast.BoolOp) else test
    if not isinstance(first, ast.Compare) or not isinstance(first.ops[0], ast.IsNot):
        return False
    asked = first.left.value if isinstance(first.left, ast.NamedExpr) else first.left
    if isinstance(asked, ast.Attribute) and isinstance(asked.value, ast.Attribute) and asked.value.attr == "_taps":
        return True
    return (asked.attr if isinstance(asked, ast.Attribute) else getattr(asked, "id", "")) in ("observer", "lookout")


class _Loader(SourceFileLoader):
    cut: Cut | None = None

    def get_code(self, fullname: str) -> CodeType:
        tree = ast.parse(self.get_data(self.path))
        if self.cut is not None:
            tree = ast.fix_missing_locations(self.cut.visit(tree))
        return compile(tree, self.path, "exec", dont_inherit=True)


class Reads(MetaPathFinder):
    """Has the modules of tasks and emission read from their source."""

    def __init__(self, cut: Cut | None) -> None:
        self._cut = cut

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path) if name.startswith(_PACKAGES) else None
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(name, spec.loader.path)
            spec.loader.cut = self._cut
        return spec


def run_once(lines: int, *, is_cut: bool) -> tuple[float, int]:
    """Return the least processor time of several rounds, and the number of hooks cut. It changes imports."""
    cut = Cut() if is_cut else None
    sys.meta_path.insert(0, Reads(cut))
    from benchmarks.hot_path import Round, word_count

    options = argparse.Namespace(lines=lines, counts=1, retrying=False)
    spent = [sum(Round(word_count(options).config(delivery="at_least_once").build()).run().values()) for _ in range(ROUNDS)]
    return min(spent), 0 if cut is None else cut.count


def measure(pairs: int, lines: int) -> dict[str, Any]:
    """Return the ratio of each pair, and their median."""
    ratios, cut = [], 0
    for number in range(pairs):
        spent = {}
        for mode in ("--cut", "--whole") if number % 2 else ("--whole", "--cut"):
            command = [sys.executable, "-m", "benchmarks.hooks", "--lines", str(lines), mode]
            found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            spent[mode], cut = found["seconds"], max(cut, found["cut"])
        ratios.append(spent["--whole"] / spent["--cut"])
    # Without this the benchmark would measure nothing once a hook is spelt in another way.
    assert cut >= 15, f"only {cut} hooks were found"
    return {"hooks": cut, "pairs": pairs, "ratio": round(median(ratios), 5), "ratios": [round(one, 5) for one in ratios]}


def measure_trace(pairs: int, lines: int) -> dict[str, Any]:
    """Return the ratio of processor time, traced to untraced: of pairs without and with a traced message, and of all."""
    ratios: dict[bool, list[float]] = {False: [], True: []}
    for number in range(-1, pairs):
        # One of ten; a traced round comes first in half of them, too.
        marks = number % MARKED_EVERY == number // MARKED_EVERY % 2
        spent = {}
        for is_traced in (True, False) if number % 2 else (False, True):
            spent[is_traced] = _traced_round(lines, is_traced=is_traced, marks=is_traced and marks)
        if number >= 0:
            # The first pair imports and warms up.
            ratios[marks].append(spent[True] / spent[False])
    quiet, marked = median(ratios[False]), median(ratios[True])
    found = {"ratio": quiet + (marked - quiet) / MARKED_EVERY, "quiet": quiet, "marked": marked}
    return {name: round(value, 5) for name, value in found.items()} | {"pairs": pairs}


def _traced_round(lines: int, *, is_traced: bool, marks: bool) -> float:
    from benchmarks.hot_path import Round, word_count
    from topo.wire.control import Observe
    from topo.worker.tracer import TaskTraces

    options = argparse.Namespace(lines=lines, counts=1, retrying=False)
    turn = Round(word_count(options).config(delivery="at_least_once").build())
    spouts = list(turn.plan.spouts)
    # No message is marked while a trace settles.
    observe = Observe(1, "trace", spouts, {"spouts": spouts, "rate": 1, "settle_s": 0.0 if marks else 600.0}, 600.0)
    watch = TaskTraces(turn.tasks, turn.plan, time.monotonic, time.time).begin(observe)
    if not is_traced:
        watch.end()
    spent = sum(turn.run().values())
    assert any(report.rows for report in watch.reports()) == marks
    return spent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, help=f"{PAIRS}, or {TRACE_PAIRS} with --trace")
    parser.add_argument("--lines", type=int, default=LINES, help="lines of ten words in a round (%(default)s)")
    parser.add_argument("--trace", action="store_true", help="the cost of a trace")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--cut", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--whole", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.cut or options.whole:
        seconds, cut = run_once(options.lines, is_cut=options.cut)
        print(json.dumps({"seconds": seconds, "cut": cut}))
        return
    if options.trace:
        what, found = "a trace", measure_trace(max(2, options.pairs or TRACE_PAIRS), options.lines)
    else:
        found = measure(options.pairs or PAIRS, options.lines)
        what = f"{found['hooks']} hooks"
    if options.json:
        print(json.dumps(found))
    else:
        print(f"{what}: {100 * (found['ratio'] - 1):+.2f} % of processor time, median of {found['pairs']} pairs")


if __name__ == "__main__":
    main()
