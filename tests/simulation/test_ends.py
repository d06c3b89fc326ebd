"""Results that bolts emit at the end of their input, with deaths around that end: each is published once.

Small topologies of their own, since the seeds of `test_exactly_once.py` mostly strike while rows are still coming.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

import pytest

from tests.simulator import checkpointed_sinks as sinks
from tests.simulator import checkpointed_sources as sources
from tests.simulator.checkpoint_scenarios import CheckpointRun, CheckpointScenario
from tests.simulator.checkpointed_sources import Source
from tests.simulator.checkpointed_stages import Beyond, CheckpointedStage, Row, digest_of
from tests.simulator.faults import Fault, FaultKind, Moment
from tests.simulator.processes import CrashPoint
from tests.simulator.random_checkpoint_scenarios import SETTINGS
from tests.simulator.topologies import Part
from topo.api.bolt import BasicBolt, BasicCollector, StatefulBolt
from topo.api.context import TaskContext
from topo.api.tuples import Tuple
from topo.task.runners.input_end import InputEnd

SEEDS = 60


class Totals(CheckpointedStage, StatefulBolt):
    """For each key the number of rows and a digest of them, emitted when the input has ended."""

    key = "key"
    grouped_by = "key"
    keeps_time = False

    def prepare(self, context: TaskContext) -> None:
        self.state: dict[str, list[int]] = {}

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        found = self.state.setdefault(tup["key"], [0, 0])
        found[:] = [found[0] + 1, found[1] ^ digest_of([tup["id"]])]

    def end_of_input(self, collector: BasicCollector) -> None:
        for key, (count, digest) in self.state.items():
            collector.emit(self.total(key, count, digest).values)

    def total(self, key: str, count: int, digest: int) -> Row:
        """Return the row of a key."""
        return Row(key, f"{self.name} {key} {count} {digest}", count, key, None)

    def snapshot(self) -> Any:
        return self.state

    def restore(self, state: Any) -> None:
        self.state = {key: list(found) for key, found in (state or {}).items()}

    def model(self, inputs: Mapping[str, Sequence[Row]]) -> list[Row]:
        rows = self.survivors(inputs)
        by_key = {key: [row.id for row in rows if row.key == key] for key in {row.key for row in rows}}
        return [self.total(key, len(ids), digest_of(ids)) for key, ids in sorted(by_key.items())]


class Trailer(CheckpointedStage, BasicBolt):
    """Lets rows through, and puts one more behind them."""

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        collector.emit(tup.values)

    def end_of_input(self, collector: BasicCollector) -> None:
        collector.emit(self.trailer.values)

    @property
    def trailer(self) -> Row:
        """Return the last row."""
        return Row("trailer", f"{self.name} trailer", 0, "trailer", None)

    def model(self, inputs: Mapping[str, Sequence[Row]]) -> list[Row]:
        return [*self.survivors(inputs), self.trailer]


def scenario(seed: int) -> CheckpointScenario:
    """Draw sources, totals and a sink, and deaths of which most come when the input has ended."""
    random = Random(f"ends {seed}")
    settings = {
        **SETTINGS,
        "workers": random.choice((None, 1, 2)),
        "checkpoint_interval": random.choice(("15ms", "40ms")),
        "checkpoint_pause": "20ms",
        "checkpoint_timeout": "1s",
        "flush_interval": random.choice(("0ms", "2ms")),
    }
    parts = []
    for number in range(random.choice((1, 2))):
        source = Source(f"spout{number}", random.choice((2, 8, 30)), random.choice((0.0, 0.002)))
        parts.append(Part(source.name, draw_spout(random, source), random.choice((1, 2)), source=source))
    names = tuple((part.name, "key") for part in parts)
    parts += [
        Part("totals", lambda outside: Totals(outside, "totals"), random.choice((1, 2)), names),
        Part("trailer", lambda outside: Trailer(outside, "trailer"), 1, (("totals", "shuffle"),)),
        Part("ledger", lambda outside: sinks.Ledger(outside, "ledger"), random.choice((1, 2)), (("trailer", "shuffle"),)),
    ]
    faults = [draw_fault(random) for _ in range(random.choice((1, 2, 3)))]
    return CheckpointScenario(seed, parts, settings, faults)


def draw_spout(random: Random, source: Source) -> Callable[[Beyond], Any]:
    kind = random.choice(("positions", "telling", "queue"))
    if kind == "queue":
        in_fail = random.random() < 0.5
        return lambda outside: sources.QueueSpout(outside, source, in_fail)
    spout = sources.ReplayableSpout if kind == "positions" else sources.TellingSpout
    return lambda outside: spout(outside, source)


def draw_fault(random: Random) -> Fault:
    return Fault(
        random.choice((FaultKind.CRASH, FaultKind.CRASH, FaultKind.MASTER, FaultKind.CUT)),
        share=random.choice((0.0, 0.5, 1.0, 1.0, 1.0)),
        after_s=random.choice((0.0, 0.0, random.random() * 0.1)),
        pick=random.random(),
        for_s=random.uniform(0.01, 0.2),
        point=random.choice(list(CrashPoint)),
        countdown=random.choice((0, 0, 1, 2, 5)),
        moment=random.choice((None, *Moment)),
    )


def judged(drawn: CheckpointScenario) -> CheckpointRun:
    """Run a scenario; a violation fails the test."""
    run = drawn.run()
    assert run.violations == [], drawn.describe()
    return run


@pytest.mark.parametrize("chunk", range(6))
def test_what_comes_of_the_end_of_the_input_is_published_once_whatever_dies(chunk: int) -> None:
    counts = [judged(scenario(seed)).counts() for seed in range(chunk, SEEDS, 6)]
    assert sum(count.get("restored", 0) for count in counts) > 0


def test_a_checkpoint_that_forgets_the_end_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(InputEnd, "has_passed", False)
    assert any(violation.oracle == 7 for seed in range(SEEDS) for violation in scenario(seed).run().violations)
