"""Whole topologies under seeded faults: 500 seeds, every oracle.

A failing seed replays with `python -m tests.simulator --seed N`, or with `--trace` as well, to see all that happened.
"""

from __future__ import annotations

import pytest

from tests.simulation.chunks_of_seeds import never_seen, output_elsewhere, totals_by_chunk
from tests.simulator.faults import FaultKind
from tests.simulator.processes import CrashPoint
from tests.simulator.random_scenarios import FEWEST_ROOTS, draw_scenario
from tests.simulator.scenarios import ScenarioRun

SEEDS = 500
CHUNK = 25


def counted(run: ScenarioRun) -> dict[str, int]:
    """Check that a run is worth while, and return what occurred in it."""
    assert len(run.scenario.parts) >= 3
    assert run.simulation.history.roots >= FEWEST_ROOTS
    return {**run.counts(), "fault": bool(run.simulation.strikes.struck)}


totals_of = totals_by_chunk(draw_scenario, CHUNK, "", counted)


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
    assert never_seen(SOMETIMES, totals_of, SEEDS // CHUNK) == []


def test_a_seed_gives_the_same_run_again() -> None:
    first, second, other = draw_scenario(4).run(), draw_scenario(4).run(keeps_trace=True), draw_scenario(5).run()
    assert first.simulation.trace_hash == second.simulation.trace_hash != other.simulation.trace_hash
    assert len(second.simulation.trace_lines) > 500


@pytest.mark.parametrize(("hash_seed", "is_plain"), [("1", ""), ("2", "1")])
def test_a_run_depends_neither_on_the_order_of_sets_nor_on_the_kind_of_the_per_tuple_path(hash_seed: str, is_plain: str) -> None:
    # Where every message of every process is the same with either kind, workers of one topology may mix them.
    trace = draw_scenario(4).run().simulation.trace_hash
    assert f"trace {trace}" in output_elsewhere("", 4, hash_seed, is_plain)
