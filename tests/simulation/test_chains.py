"""Random runs under faults with a chain behind each spout that passes every row on: all oracles hold as without one."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.simulator.random_checkpoint_scenarios import draw_checkpoint_scenario
from tests.simulator.random_scenarios import draw_scenario
from topo import BasicBolt, TopologyBuilder
from topo.api.streams import DEFAULT_STREAM, streams_of
from topo.api.topology import ComponentKind

SEEDS = range(5)
_build = TopologyBuilder.build
behind: list[str] = []
"""The spouts that have had a chain."""


class Same(BasicBolt):
    """Passes rows on."""

    def __init__(self, outputs: Any) -> None:
        self.outputs = outputs

    def execute(self, tup: Any, collector: Any) -> None:
        collector.emit(tup.values)


def chained(builder: TopologyBuilder) -> Any:
    chains: dict[str, BasicBolt] = {}
    for spec, _ in builder._declared:
        streams = streams_of(spec.component)
        is_plain = [(one.name, one.direct, one.columnar) for one in streams] == [(DEFAULT_STREAM, False, False)]
        if spec.kind is ComponentKind.SPOUT and is_plain:
            chains[spec.id] = Same(spec.component.outputs)
    behind.extend(chains)
    return _build(builder, None, chains)


@pytest.fixture(autouse=True)
def with_chains(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(TopologyBuilder, "build", chained)
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("draw", [draw_scenario, draw_checkpoint_scenario])
@pytest.mark.parametrize("seed", SEEDS)
def test_every_oracle_holds_behind_a_chain(seed: int, draw: Callable[[int], Any]) -> None:
    behind.clear()
    run = draw(seed).run()
    assert behind
    assert run.violations == []
