"""Topologies whose spouts run a bolt in their tasks, as they run the first operators of a stream.

The bolt is a component of the model: it raises, drops rows, makes several, ends its process, emits what cannot be carried. Only
the topology that is built does not have it: its readers read the spouts, and messages that it gives up are dead letters of these.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

from tests.simulator import checkpointed_operators as operators
from tests.simulator import checkpointed_sinks, checkpointed_stages, random_scenarios, stages
from tests.simulator import checkpointed_sources as sources
from tests.simulator.checkpoint_scenarios import CheckpointScenario, Expected
from tests.simulator.checkpointed_sources import Source
from tests.simulator.checkpointed_stages import Beyond, CheckpointedStage, Mishaps
from tests.simulator.external_world import BrokerSpout, ExternalWorld, PositionedSpout, chosen, message_key
from tests.simulator.faults import draw_checkpoint_faults, draw_faults
from tests.simulator.random_checkpoint_scenarios import SETTINGS
from tests.simulator.scenarios import Scenario, SpoutFacts
from tests.simulator.topologies import Part, build
from topo.api.streams import DEFAULT_STREAM
from topo.api.topology import Topology
from topo.api.tuples import Tuple

CHAIN = "chain"
"""The component that the spouts run."""
_PAUSE_S = 0.3
"""How long the chain works on a row at which it pauses: the watchdog cuts such a slice short, and its rest waits."""
_PAUSES_ONE_IN = 12


class _Pausing:
    """Mixed into the chain."""

    def pause(self, row: str) -> None:
        """Work on a row for a long time, at a fixed share of rows."""
        if chosen(row, _PAUSES_ONE_IN, "pauses"):
            self.outside.work(_PAUSE_S)  # type: ignore[attr-defined]


class _Checked(_Pausing, CheckpointedStage):
    def meet(self, row_id: str) -> None:
        self.pause(row_id)
        super().meet(row_id)


class _Tracked(_Pausing, stages.Stage):
    def of_tuple(self, tup: Tuple) -> list[tuple[str, tuple[Any, ...]]]:
        self.pause(tup["key"])
        return super().of_tuple(tup)


class Relay(_Checked, checkpointed_stages.Relay):
    """One row for each."""


class Double(_Checked, checkpointed_stages.Double):
    """Two rows for each."""


class Sieve(_Checked, checkpointed_stages.Sieve):
    """Two of three rows."""


class Odd(_Checked, checkpointed_stages.Odd):
    """Some of its rows cannot be carried."""


class Map(_Tracked, stages.Map):
    """One tuple for each."""


class Split(_Tracked, stages.Split):
    """Several tuples for each."""


class Filter(_Tracked, stages.Filter):
    """Two of three tuples."""


def _fused(
    name: str, parts: Sequence[Part], settings: dict[str, Any], outside: ExternalWorld, watermarks: Any = None
) -> Topology:
    """Build the topology with the chain in the tasks of the spouts that it reads."""
    chain = next(part for part in parts if part.name == CHAIN)
    spouts = [source for source, *_ in chain.inputs]
    built = []
    for part in parts:
        if part is not chain:
            ways = [[(spout, *way) for spout in spouts] if source == CHAIN else [(source, *way)] for source, *way in part.inputs]
            built.append(replace(part, inputs=tuple(way for one in ways for way in one)))
    return build(name, built, settings, outside, watermarks, dict.fromkeys(spouts, chain.make))


class ChainedCheckpoints(CheckpointScenario):
    """A topology with checkpoints."""

    def topology(self, outside: Beyond) -> Topology:
        return _fused(f"chained-{self.seed}", self.parts, self.settings, outside, sources.strategy())

    def expected(self) -> Expected:
        expected = super().expected()
        by_component, expected.dead_letters = expected.dead_letters, type(expected.dead_letters)()
        for (component, row), count in by_component.items():
            expected.dead_letters[row.partition(".")[0] if component == CHAIN else component, row] += count
        return expected


def draw_chained_checkpoints(seed: int) -> ChainedCheckpoints:
    """Return a topology with checkpoints; always the same."""
    random = Random(f"chained checkpoints {seed}")
    mishaps = Mishaps(random.choice((0, 8)), random.choice((0, 0, 15)), random.choice((0, 0, 30)))
    kind = random.choice((Relay, Double, Sieve, Odd))
    parts, is_revocable = [], not mishaps.hopeless and kind is not Odd
    for number in range(random.choice((1, 1, 2))):
        quiet_s = random.choice((0.0, 0.0, 0.1))
        source = Source(
            f"spout{number}", random.choice((20, 50)), random.choice((0.0, 0.002)), quiet_s, True, random.choice((0, 20))
        )
        parts.append(Part(source.name, draw_spout(random, source), random.choice((1, 2)), source=source))
        is_revocable = is_revocable and not isinstance(parts[-1].make(Beyond()), sources.QueueSpout)
    reads = tuple((part.name, "shuffle") for part in parts)
    parts.append(Part(CHAIN, lambda outside: kind(outside, CHAIN, 0.0002, mishaps), 1, reads))
    middle = random.choice(("tumbling", "session", "tally"))
    made: Any = lambda outside: checkpointed_stages.Tally(outside, "middle")  # noqa: E731
    if middle != "tally":
        made = lambda outside: operators.Windows(outside, "middle", kind=middle, adds=False)  # noqa: E731
    parts.append(Part("middle", made, random.choice((1, 2)), ((CHAIN, "key"),)))
    if is_revocable and random.random() < 0.5:
        parts.append(Part("log", lambda outside: checkpointed_sinks.Log(outside, "log"), 2, (("middle", "key"),)))
        may_damage = True
    else:
        ledger = lambda outside: checkpointed_sinks.Ledger(outside, "ledger")  # noqa: E731
        parts.append(Part("ledger", ledger, random.choice((1, 2)), (("middle", "shuffle"),)))
        may_damage = False
    # Within a process a value is passed on as it is.
    workers = None if kind is Odd else random.choice((None, 1, 2))
    settings = draw_settings(random, workers)
    return ChainedCheckpoints(
        seed, parts, settings, draw_checkpoint_faults(random, has_links=workers != 1, may_damage=may_damage)
    )


def draw_settings(random: Random, workers: int | None) -> dict[str, Any]:
    """Draw the settings of a small topology with checkpoints."""
    return {
        **SETTINGS,
        "attempts": random.choice((2, 3)),
        "workers": workers,
        "max_spout_pending": random.choice((4, 20, 100)),
        "batch_size": random.choice((8, 32)),
        "edge_window": random.choice((1, 2, 16)),
        "outbox_limit": random.choice((1, 4)),
        "flush_interval": random.choice(("0ms", "2ms")),
        "watermark_interval": random.choice(("5ms", "25ms")),
        "checkpoint_interval": random.choice(("15ms", "40ms", "100ms")),
        "checkpoint_pause": "20ms",
        "checkpoint_timeout": "1s",
    }


def draw_spout(random: Random, source: Source) -> Any:
    """Draw the kind of a spout; return what makes it."""
    kind, in_fail = random.choice(("positions", "telling", "queue")), random.random() < 0.5
    if kind == "queue":
        return lambda outside: sources.QueueSpout(outside, source, in_fail)
    spout = sources.ReplayableSpout if kind == "positions" else sources.TellingSpout
    return lambda outside: spout(outside, source)


class ChainedTrees(Scenario):
    """A topology whose messages are tracked."""

    def topology(self, outside: ExternalWorld) -> Topology:
        return _fused(f"chained-{self.seed}", self.parts, self.settings, outside)


def draw_chained_trees(seed: int) -> ChainedTrees:
    """Return a topology whose messages are tracked; always the same."""
    random = Random(f"chained trees {seed}")
    attempts, parts, spouts = 4, [], []
    for number in range(random.choice((1, 1, 2))):
        facts = SpoutFacts(f"spout{number}", random.choice((1, 2)), random.choice((30, 60)), random.random() < 0.65)
        spouts.append(facts)
        parts.append(Part(facts.name, _tracked_spout(random, facts, attempts), facts.parallelism))
    chosen = [message_key(spout.name, 0, random.randrange(spout.total)) for spout in spouts]
    trouble: dict[str, Any] = {"fails_one_in": random.choice((0, 8))}
    if random.random() < 0.3:
        trouble["hopeless"] = chosen[:1]
    if random.random() < 0.3 and all(spout.has_positions for spout in spouts):
        trouble["poison"] = chosen[-1:]
    kind = random.choice((Map, Split, Filter))
    reads = tuple((spout.name, DEFAULT_STREAM, "shuffle") for spout in spouts)
    parts += [
        Part(CHAIN, lambda outside: kind(outside, CHAIN, 0.0002, **trouble), 1, reads),
        Part("map", lambda outside: stages.Map(outside, "map"), random.choice((1, 2)), ((CHAIN, DEFAULT_STREAM, "fields"),)),
        Part("sink", lambda outside: stages.Sink(outside, "sink"), 1, (("map", DEFAULT_STREAM, "shuffle"),)),
    ]
    settings = {
        **random_scenarios.SETTINGS,
        "message_timeout": "3s",
        "attempts": attempts,
        "ackers": random.choice((1, 2)),
        "workers": random.choice((None, 1, 2)),
        "max_spout_pending": random.choice((4, 20, 100)),
        "batch_size": random.choice((8, 32)),
        "edge_window": random.choice((1, 4, 16)),
        "outbox_limit": random.choice((1, 4)),
        "flush_interval": random.choice(("1ms", "5ms")),
    }
    faults = draw_faults(random, has_links=settings["workers"] != 1, most=2)
    hopeless, poison = ([(CHAIN, key) for key in trouble.get(what, ())] for what in ("hopeless", "poison"))
    return ChainedTrees(seed, parts, spouts, settings, hopeless=hopeless, poison=poison, faults=faults)


def _tracked_spout(random: Random, facts: SpoutFacts, attempts: int) -> Any:
    work_s, in_fail, untracked = random.choice((0.0, 0.0005)), random.random() < 0.5, random.random() < 0.2
    if facts.has_positions:
        return lambda outside: PositionedSpout(outside, facts.name, facts.total, work_s, 0, 0.0)
    return lambda outside: BrokerSpout(outside, facts.name, facts.total, work_s, attempts, in_fail, untracked)
