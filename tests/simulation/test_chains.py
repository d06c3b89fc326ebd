"""Random runs under faults with chains in the tasks of spouts.

Some pass every row on: all oracles hold as without one. Others raise, drop and multiply rows, end their process, are cut short.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.simulation import planted_chains
from tests.simulation.planted import Plant, check_caught
from tests.simulator.chained_scenarios import draw_chained_checkpoints, draw_chained_trees
from tests.simulator.random_checkpoint_scenarios import draw_checkpoint_scenario
from tests.simulator.random_scenarios import draw_scenario
from topo import BasicBolt, TopologyBuilder
from topo.api.streams import DEFAULT_STREAM, streams_of
from topo.api.topology import ComponentKind

SEEDS = range(5)
CHAINED_SEEDS = 40
RUNS: dict[str, Callable[[int], Any]] = {
    "chained_checkpoints": lambda seed: draw_chained_checkpoints(seed).run(),
    "chained_trees": lambda seed: draw_chained_trees(seed).run(),
}
_build = TopologyBuilder.build
behind: list[str] = []
"""The spouts that have had a chain."""


class Same(BasicBolt):
    """Passes rows on."""

    def __init__(self, outputs: Any) -> None:
        self.outputs = outputs

    def execute(self, tup: Any, collector: Any) -> None:
        collector.emit(tup.values)


def chained(builder: TopologyBuilder, aliases: Any = None, given: Any = None) -> Any:
    chains: dict[str, BasicBolt] = dict(given or {})
    for spec, _ in builder._declared:
        streams = streams_of(spec.component)
        is_plain = [(one.name, one.direct, one.columnar) for one in streams] == [(DEFAULT_STREAM, False, False)]
        if spec.kind is ComponentKind.SPOUT and is_plain:
            chains[spec.id] = Same(spec.component.outputs)
    behind.extend(chains)
    return _build(builder, aliases, chains)


pytestmark = pytest.mark.usefixtures("quiet")


@pytest.mark.parametrize("draw", [draw_scenario, draw_checkpoint_scenario])
@pytest.mark.parametrize("seed", SEEDS)
def test_every_oracle_holds_behind_a_chain(seed: int, draw: Callable[[int], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TopologyBuilder, "build", chained)
    behind.clear()
    run = draw(seed).run()
    assert behind
    assert run.violations == []


@pytest.mark.parametrize("chunk", range(4))
@pytest.mark.parametrize("name", RUNS)
def test_what_a_chain_makes_is_right_whatever_goes_wrong(name: str, chunk: int) -> None:
    runs = [RUNS[name](seed) for seed in range(chunk, CHAINED_SEEDS, 4)]
    assert {run.scenario.seed: run.violations for run in runs if run.violations} == {}
    assert all(any(run.counts().get(what) for run in runs) for what in ("row: Trouble", "recovery"))


@pytest.mark.parametrize("plant", planted_chains.PLANTS, ids=lambda plant: plant.__name__)
def test_a_planted_fault_is_caught(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    oracles, promising, name = planted_chains.PLANTS[plant]
    plant(monkeypatch)
    check_caught(plant, oracles, promising, range(CHAINED_SEEDS), RUNS[name])
