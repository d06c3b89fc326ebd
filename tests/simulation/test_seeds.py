"""Whole topologies under seeded faults: 500 seeds, every oracle.

A failing seed replays with `python -m tests.simulator --seed N`, or with `--trace` as well, to see all that happened.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulator.faults import FaultKind
from tests.simulator.processes import CrashPoint
from tests.simulator.random_scenarios import FEWEST_ROOTS, draw_scenario
from tests.simulator.scenarios import ScenarioRun

SEEDS = 500
CHUNK = 25

ROOT = Path(__file__).parents[2]

_totals: dict[int, dict[str, int]] = {}
"""What occurred in the runs of each chunk of seeds."""


def judged(seed: int) -> ScenarioRun:
    run = draw_scenario(seed).run()
    if run.violations:
        violations = "\n".join(f"  {violation}" for violation in run.violations)
        pytest.fail(f"{violations}\nreplay it with: python -m tests.simulator --seed {seed}", pytrace=False)
    return run


def totals_of(chunk: int) -> dict[str, int]:
    """Run the seeds of a chunk, once, and return what occurred in them."""
    if chunk not in _totals:
        totals: dict[str, int] = {}
        for seed in range(chunk * CHUNK, (chunk + 1) * CHUNK):
            run = judged(seed)
            assert len(run.scenario.parts) >= 3
            assert run.simulation.history.roots >= FEWEST_ROOTS
            totals["fault"] = totals.get("fault", 0) + bool(run.simulation.strikes.struck)
            for name, count in run.counts().items():
                totals[name] = totals.get(name, 0) + count
        _totals[chunk] = totals
    return _totals[chunk]


@pytest.mark.parametrize("chunk", range(SEEDS // CHUNK))
def test_every_oracle_holds_whatever_goes_wrong(chunk: int) -> None:
    # A run may be over before the moment of its only fault.
    assert totals_of(chunk)["fault"] >= 0.9 * CHUNK, "too few seeds with a fault"


OF_STORES = {FaultKind[name] for name in ["SLOW_STORE", "FAILING_STORE", "UNREADABLE_STORE", "TORN_WRITE", "POWER", "DAMAGE"]}
SOMETIMES = (
    "ack before init",
    "fail before init",
    "late acks",
    "timed out",
    "timeout reset",
    "trees expired",
    "replayed",
    "reset",
    "dead letters",
    "given up by a spout",
    "an edge without room",
    "back-pressure",
    "frame of a newer epoch left unread",
    "stale_frames",
    "stale_tuples",
    "duplicate_frames",
    "gaps",
    "frame of a replaced worker refused",
    "exit: the routes name another incarnation of this worker",
    "exit: stopped by the master",
    "recovery",
    "another master",
    "resumed from a position",
    "suspect",
    "row: EdgeLost",
    "row: WorkerLost",
    "row: Trouble",
    "row: TimeoutError",
    "row: UnsupportedValueError",
    "row: EmitError",
    *(f"fault: {kind.name}" for kind in FaultKind if kind not in OF_STORES),
    "the master could not write",
    "a full connection refused frames",
    "an order was refused",
    "a report was refused",
    *(f"crash {point.value}" for point in CrashPoint),
    "death of a spout",
    "death of a bolt",
    "death of an acker",
    "death with calls in flight",
)
"""The situations that must occur in some seed, or the seeds do not test their purpose."""


@pytest.mark.timeout(900)
def test_each_situation_of_interest_occurs_in_some_seed() -> None:
    never = [name for name in SOMETIMES if not any(totals_of(chunk).get(name) for chunk in range(SEEDS // CHUNK))]
    assert never == []


def test_a_seed_gives_the_same_run_again() -> None:
    first, second, other = draw_scenario(4).run(), draw_scenario(4).run(keeps_trace=True), draw_scenario(5).run()
    assert first.simulation.trace_hash == second.simulation.trace_hash != other.simulation.trace_hash
    assert len(second.simulation.trace_lines) > 500


@pytest.mark.parametrize(("hash_seed", "is_plain"), [("1", ""), ("2", "1")])
def test_a_run_depends_neither_on_the_order_of_sets_nor_on_the_kind_of_the_per_tuple_path(hash_seed: str, is_plain: str) -> None:
    # Where every message of every process is the same with either kind, workers of one topology may mix them.
    found = subprocess.run(
        [sys.executable, "-m", "tests.simulator", "--seed", "4"],
        env={**os.environ, "PYTHONHASHSEED": hash_seed, "TOPO_PURE": is_plain},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert f"trace {draw_scenario(4).run().simulation.trace_hash}" in found.stdout
