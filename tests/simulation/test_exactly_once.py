"""Topologies with checkpoints under seeded faults: 500 seeds whose state and output are exactly those of a run without faults.

A failing seed replays with `python -m tests.simulator --exactly-once --seed N`, or with `--trace` as well.
"""

from __future__ import annotations

import pytest

from tests.simulation import planted_checkpoints, planted_control, planted_decisions, planted_storage
from tests.simulation.chunks_of_seeds import never_seen, output_elsewhere, totals_by_chunk
from tests.simulation.planted import check_caught
from tests.simulator.faults import FaultKind, Moment
from tests.simulator.memory_files import WriteEnding
from tests.simulator.random_checkpoint_scenarios import draw_checkpoint_scenario

SEEDS = 500
CHUNK = 25

PLANTS = {
    **planted_checkpoints.PLANTS,
    **planted_storage.PLANTS,
    **planted_control.CHECKPOINT_PLANTS,
    **{plant: known for plant, known in planted_decisions.CHECKPOINT_PLANTS.items() if known[0]},
}

pytestmark = pytest.mark.usefixtures("quiet")


totals_of = totals_by_chunk(draw_checkpoint_scenario, CHUNK, "--exactly-once")


@pytest.mark.parametrize("chunk", range(SEEDS // CHUNK))
def test_whatever_goes_wrong_state_and_output_are_those_of_a_run_without_faults(chunk: int) -> None:
    assert totals_of(chunk)["checkpoint"] > CHUNK


SOMETIMES = (
    "alignment",
    "barrier waited",
    "frames behind a barrier",
    "checkpoint not committed",
    "restored",
    "recovery",
    "another master",
    "an earlier checkpoint was looked for",
    "a master found a damaged checkpoint",
    "dead letters",
    "part cut short",
    "part flipped",
    "part lost",
    *(f"write failed: {ending.value}" for ending in WriteEnding),
    *(f"death in a write: {ending.value}" for ending in WriteEnding),
    *(f"struck when {moment.value}" for moment in Moment),
    "an edge without room",
    "back-pressure",
    "frame of a newer epoch left unread",
    "frame of a replaced worker refused",
    "stale_frames",
    "duplicate_frames",
    "gaps",
    "row: EdgeLost",
    "row: WorkerLost",
    "row: Trouble",
    "row: UnsupportedValueError",
    "row: CheckpointFailed",
    "row: CheckpointDamaged",
    *(f"fault: {kind.name}" for kind in FaultKind if kind is not FaultKind.UNREADABLE_STORE),
    "the master could not write",
    "a full connection refused frames",
    "an order was refused",
    "a report was refused",
    "component: ReplayableSpout",
    "component: TellingSpout",
    "component: QueueSpout",
    "component: Relay",
    "component: Odd",
    "component: Double",
    "component: Sieve",
    "component: Hand",
    "component: Hoard",
    "component: Call",
    "component: Tally",
    "component: Whole",
    "component: Later",
    "component: Buckets",
    "component: Pairs",
    "component: tumbling Windows",
    "component: tumbling adding Windows",
    "component: sliding Windows",
    "component: sliding adding Windows",
    "component: session Windows",
    "component: session adding Windows",
    "component: Log",
    "component: Ledger",
    "an idle spout",
    "a spout that ends long before the other",
)
"""The situations that must occur in some seed, or the seeds do not test their purpose."""


@pytest.mark.timeout(900)
def test_each_situation_of_interest_occurs_in_some_seed() -> None:
    assert never_seen(SOMETIMES, totals_of, SEEDS // CHUNK) == []


@pytest.mark.timeout(600)
@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_a_planted_fault_is_caught(plant: planted_checkpoints.Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    oracles, promising = PLANTS[plant]
    plant(monkeypatch)
    check_caught(plant, oracles, promising, range(SEEDS), lambda seed: draw_checkpoint_scenario(seed).run())


def test_a_seed_gives_the_same_run_again() -> None:
    first, second, other = (draw_checkpoint_scenario(seed).run(keeps_trace=seed == 4) for seed in (4, 4, 5))
    assert first.simulation.trace_hash == second.simulation.trace_hash != other.simulation.trace_hash
    assert len(second.simulation.trace_lines) > 100


@pytest.mark.parametrize(("hash_seed", "is_plain"), [("1", ""), ("2", "1")])
def test_a_run_depends_neither_on_the_order_of_sets_nor_on_the_kind_of_the_per_tuple_path(hash_seed: str, is_plain: str) -> None:
    # Where every message of every process is the same with either kind, workers of one topology may mix them.
    trace = draw_checkpoint_scenario(4).run().simulation.trace_hash
    assert f"trace {trace}" in output_elsewhere("--exactly-once", 4, hash_seed, is_plain)
