"""Column batches under seeded faults: results with checkpoints are exact, and tracked batches are acked when all is done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any
from zlib import crc32

import pytest

from tests.simulator import checkpointed_sinks, checkpointed_sources, random_scenarios, stages
from tests.simulator.checkpoint_scenarios import CheckpointScenario
from tests.simulator.checkpointed_sources import Source
from tests.simulator.checkpointed_stages import CheckpointedStage, Mishaps, Row, Stateful, Tally, row_of
from tests.simulator.external_world import PositionedSpout
from tests.simulator.faults import draw_checkpoint_faults, draw_faults
from tests.simulator.random_checkpoint_scenarios import SETTINGS
from tests.simulator.scenarios import Scenario, SpoutFacts
from tests.simulator.topologies import Part
from topo import ColumnBatch, ColumnBolt, ColumnCollector, StatefulColumnBolt, TaskContext

SEEDS = range(16)


def columns_of(fields: Sequence[str], rows: Sequence[Sequence[Any]]) -> dict[str, list[Any]]:
    return {field: [row[place] for row in rows] for place, field in enumerate(fields)}


# -- with checkpoints --------------------------------------------------------------------------------------------------


class Relay(CheckpointedStage, ColumnBolt):
    """One row for each, in batches; it raises after it has emitted."""

    def execute_batch(self, batch: ColumnBatch, collector: ColumnCollector) -> None:
        rows = [self.renamed(row_of(row)).values for row in batch.rows()]
        collector.emit_batch(columns_of(self.outputs, rows), timestamps=batch.timestamps)
        for row in batch["id"]:
            self.meet(row)

    def model(self, inputs: Mapping[str, Sequence[Row]]) -> list[Row]:
        return [self.renamed(row) for row in self.survivors(inputs)]


class Totals(Stateful, StatefulColumnBolt):
    """As `Tally`, by batches that are split by key."""

    key = ("key",)
    grouped_by = "key"
    model, final, together = Tally.model, Tally.final, staticmethod(Tally.together)  # type: ignore[assignment]

    def prepare(self, context: TaskContext) -> None:
        self.state: dict[str, list[int]] = {}

    def execute_batch(self, batch: ColumnBatch, collector: ColumnCollector) -> None:
        rows = [row_of(row) for row in batch.rows()]
        collector.emit_batch(columns_of(self.outputs, [self.renamed(row).values for row in rows]), timestamps=batch.timestamps)
        for row in rows:
            self.meet(row.id)
        for row in rows:
            found = self.state.setdefault(row.key, [0, 0, 0])
            found[:] = [found[0] + 1, found[1] + row.n, found[2] ^ crc32(row.id.encode())]

    def snapshot(self) -> Any:
        return self.state

    def restore(self, state: Any) -> None:
        self.state = {key: list(found) for key, found in (state or {}).items()}


def checkpointed(seed: int) -> CheckpointScenario:
    """Rows, gathered into batches, split by key, then rows for a sink."""
    random = Random(f"column batches {seed}")
    source = Source("rows", 60, random.choice((0.0, 0.0005)))
    mishaps = Mishaps(random.choice((0, 20)), 0, random.choice((0, 30)))
    grouping = random.choice(("shuffle", "global", "local-or-shuffle"))
    parts = [
        Part("rows", lambda outside: checkpointed_sources.ReplayableSpout(outside, source), random.choice((1, 2)), source=source),
        Part("relay", lambda outside: Relay(outside, "relay", 0.0002, mishaps), random.choice((1, 2)), (("rows", "shuffle"),)),
        Part("totals", lambda outside: Totals(outside, "totals"), random.choice((1, 3)), (("relay", "key"),)),
        Part("again", lambda outside: Relay(outside, "again", 0.0, mishaps), random.choice((1, 2)), (("totals", grouping),)),
        Part("log", lambda outside: checkpointed_sinks.Log(outside, "log"), random.choice((1, 2)), (("again", "key"),)),
    ]
    settings = {
        **SETTINGS,
        "attempts": 3,
        "workers": random.choice((None, 1, 2)),
        "max_spout_pending": random.choice((4, 20, 100)),
        "batch_size": random.choice((2, 8, 32)),
        "edge_window": random.choice((1, 2, 16)),
        "outbox_limit": random.choice((1, 4)),
        "checkpoint_interval": random.choice(("15ms", "40ms", "100ms")),
        "checkpoint_pause": "20ms",
        "checkpoint_timeout": "1s",
    }
    faults = draw_checkpoint_faults(random, has_links=settings["workers"] != 1, may_damage=True)
    return CheckpointScenario(seed, parts, settings, faults)


@pytest.mark.parametrize("seed", SEEDS)
def test_batches_count_each_row_once_whatever_goes_wrong(seed: int) -> None:
    run = checkpointed(seed).run()
    assert run.violations == [], run.scenario.describe()
    assert run.simulation.strikes.struck, "a seed without a fault"


# -- tracked -----------------------------------------------------------------------------------------------------------


class Map(stages.Stage, ColumnBolt):
    """One row for each, in batches; some fail the first time, after they were emitted."""

    fails_one_in = 0

    def execute_batch(self, batch: ColumnBatch, collector: ColumnCollector) -> None:
        self.outside.work(self.work_s)
        made = [[path for one in paths for _, path in self.of_path(one)] for paths in batch["paths"]]
        keys = [paths[0] for paths in made]
        collector.emit_batch({"key": keys, "paths": list(map(tuple, made)), "extra": [None] * len(made)})
        for paths in batch["paths"]:
            for path in paths:
                if stages.chosen(path, self.fails_one_in, self.name) and not self.outside.tried(f"{self.name} fails", path):
                    raise stages.Trouble(f"{path} fails once")


class Sink(stages.Stage, ColumnBolt):
    """Writes the rows of batches to the outside world."""

    outputs: Any = ()

    def of_path(self, path: str) -> stages.Outcomes:
        return []

    def execute_batch(self, batch: ColumnBatch, collector: ColumnCollector) -> None:
        for paths in batch["paths"]:
            stages.write(self.outside, self.name, paths)


class TrackedScenario(Scenario):
    """A scenario whose sink is a column bolt."""

    def leaves(self) -> dict[str, frozenset[tuple[str, str]]]:
        return {key: frozenset(met for met in self._follow(key) if met[0] == "sink") for key in super().leaves()}


def tracked(seed: int) -> Scenario:
    random = Random(f"tracked batches {seed}")
    total = 80

    def flaky(outside: Any) -> Map:
        made = Map(outside, "map", 0.0002)
        made.fails_one_in = 15
        return made

    parts = [
        Part("spout", lambda outside: PositionedSpout(outside, "spout", total, 0.0002, 0, 0.0), 1),
        Part("map", flaky, random.choice((1, 2)), (("spout", "default", random.choice(("shuffle", "fields"))),)),
        Part("more", lambda outside: Map(outside, "more"), random.choice((1, 3)), (("map", "default", "fields"),)),
        Part("sink", lambda outside: Sink(outside, "sink"), 1, (("more", "default", "shuffle"),)),
    ]
    settings = {
        **random_scenarios.SETTINGS,
        "message_timeout": "3s",
        "attempts": 9,
        "ackers": random.choice((1, 2)),
        "workers": random.choice((None, 1, 2)),
        "max_spout_pending": random.choice((4, 20, 100)),
        "batch_size": random.choice((2, 8, 32)),
        "edge_window": random.choice((1, 4, 16)),
        "outbox_limit": random.choice((1, 4)),
    }
    faults = draw_faults(random, has_links=settings["workers"] != 1)
    return TrackedScenario(seed, parts, [SpoutFacts("spout", 1, total)], settings, faults=faults)


@pytest.mark.parametrize("seed", SEEDS)
def test_tracked_batches_are_acked_when_all_of_them_is_done(seed: int) -> None:
    run = tracked(seed).run()
    assert run.violations == [], run.scenario.describe()
    assert run.simulation.strikes.struck, "a seed without a fault"
    assert any(component == "map fails" for component, _ in run.outside.tries), "a seed without a batch that fails"
