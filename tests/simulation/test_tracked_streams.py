"""Programs of streams with `at_least_once` under faults: chains, windows, `dedupe`, joins and tables lose no message.

A failing seed replays with `python -m tests.simulator --tracked-streams --seed N`.
"""

from __future__ import annotations

import pytest

from tests.simulation import planted_tracked_streams
from tests.simulation.chunks_of_seeds import never_seen, totals_by_chunk
from tests.simulation.planted import Plant, check_caught
from tests.simulator.tracked_programs import PROGRAMS, SHAPES
from tests.simulator.tracked_streams import draw_tracked_streams

SEEDS = 40
CHUNK = 20
SOMETIMES = (
    *(f"program: {program.__name__}" for program in PROGRAMS),
    *(f"shape: {shape}" for shape in SHAPES),
    *("recovery", "another master", "row: Trouble", "row: LateReplayError", "nothing goes wrong"),
)
"""The situations that must occur in some seed, or the seeds do not test their purpose."""

pytestmark = pytest.mark.usefixtures("quiet")


totals_of = totals_by_chunk(draw_tracked_streams, CHUNK, "--tracked-streams")


@pytest.mark.parametrize("chunk", range(SEEDS // CHUNK))
def test_no_message_is_lost_whatever_goes_wrong(chunk: int) -> None:
    assert totals_of(chunk)["recovery"] > CHUNK // 4


def test_each_situation_of_interest_occurs_in_some_seed() -> None:
    assert never_seen(SOMETIMES, totals_of, SEEDS // CHUNK) == []


@pytest.mark.parametrize("plant", planted_tracked_streams.PLANTS, ids=lambda plant: plant.__name__)
def test_a_planted_fault_is_caught(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    oracles, promising = planted_tracked_streams.PLANTS[plant]
    plant(monkeypatch)
    check_caught(plant, oracles, promising, range(SEEDS), lambda seed: draw_tracked_streams(seed).run())
