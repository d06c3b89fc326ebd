"""Sources of partitions under seeded faults, in both modes, with one parallelism and then another one.

A failing seed replays with `PartitionScenario(N).run()`.
"""

from __future__ import annotations

from collections import Counter

import pytest

from tests.simulation import planted_partitions
from tests.simulation.planted import Plant, check_caught
from tests.simulator.partition_scenarios import PartitionScenario

SEEDS = 40

SOMETIMES = (
    "recovery",
    "another parallelism",
    "dead letters",
    "records lost",
    "partition gone",
    "row: RecordsLost",
    "row: TopoEnvironmentError",
    "row: Trouble",
    "row: WorkerLost",
)


def test_each_record_of_each_partition_comes_out_whatever_goes_wrong() -> None:
    totals = Counter[str]()
    for seed in range(SEEDS):
        scenario = PartitionScenario(seed).run()
        assert scenario.violations == [], f"seed {seed}"
        totals += scenario.counts
    assert [name for name in SOMETIMES if not totals[name]] == []


@pytest.mark.parametrize("plant", planted_partitions.PLANTS, ids=lambda plant: plant.__name__)
def test_a_planted_fault_is_caught(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    oracles, promising = planted_partitions.PLANTS[plant]
    plant(monkeypatch)
    check_caught(plant, oracles, promising, range(SEEDS), lambda seed: PartitionScenario(seed).run())
