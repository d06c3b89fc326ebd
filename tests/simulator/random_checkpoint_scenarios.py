"""From a seed to a topology with checkpoints, with random settings and faults."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from tests.simulator import checkpointed_operators as operators
from tests.simulator import checkpointed_sinks as sinks
from tests.simulator import checkpointed_sources as sources
from tests.simulator import checkpointed_stages as stages
from tests.simulator import random_scenarios
from tests.simulator.checkpoint_scenarios import CheckpointScenario
from tests.simulator.checkpointed_sources import Source
from tests.simulator.checkpointed_stages import Beyond, Mishaps
from tests.simulator.faults import draw_checkpoint_faults, with_control_faults
from tests.simulator.savepoints import draw_requests
from tests.simulator.topologies import Part
from topo.api.topology import ComponentKind, Topology
from topo.plan.parallelism import unsplittable

_REFUSING = (stages.Relay, stages.Odd, stages.Hand, stages.Tally, stages.Call)
"""Which may always fail for some rows."""
SETTINGS: dict[str, Any] = {**random_scenarios.SETTINGS, "delivery": "exactly_once", "watermark_interval": "5ms"}
ROWS = 60
"""Rows that the spouts of a run emit, at least."""
SAVEPOINTS_IN = 0.1
"""The share of seeds in which savepoints are asked for."""


def draw_checkpoint_scenario(seed: int) -> CheckpointScenario:
    """Return the scenario of a seed; always the same."""
    random = Random(f"checkpoints {seed}")
    drawing = _Drawing(random, Random(f"odd {seed}").choice((stages.Relay, stages.Odd)))
    drawing.settings |= random_scenarios.draw_sizes(seed)
    # A short interval takes most turns of a run while spouts wait; a long one lets windows fire together.
    drawing.settings["watermark_interval"] = Random(f"watermarks {seed}").choice(("5ms", "25ms", "25ms"))
    faults = draw_checkpoint_faults(random, has_links=drawing.settings["workers"] != 1, may_damage=not drawing.is_irrevocable)
    faults = with_control_faults(faults, seed, is_checkpointed=True)
    chance = Random(f"operator {seed}")
    requests = draw_requests(chance) if chance.random() < SAVEPOINTS_IN else ()
    return CheckpointScenario(seed, drawing.parts, drawing.settings, faults, requests)


def draw_savepoint_scenario(seed: int) -> CheckpointScenario:
    """Return the scenario of a seed, in which savepoints are asked for in any case."""
    scenario = draw_checkpoint_scenario(seed)
    scenario.requests = draw_requests(Random(f"asked {seed}"))
    scenario.rescaled = draw_rescaled(Random(f"rescaled {seed}"), scenario.topology(Beyond()))
    return scenario


def draw_rescaled(random: Random, topology: Topology) -> dict[str, int]:
    """Draw other numbers of tasks, of components whose tasks can share their state out."""
    found = {}
    for spec in topology.components:
        tasks, wanted = spec.parallelism, random.choice((1, 2, 3, 4))
        # Rows of several spouts in one task that gives event time would come further out of order.
        may_be = wanted != tasks and spec.kind is ComponentKind.BOLT and not (spec.id.endswith("-steps") and wanted < tasks)
        if may_be and random.random() < 0.7 and not unsplittable(topology, {spec.id: tasks}):
            found[spec.id] = wanted
    return found


class _Drawing:
    """A topology while it is drawn.

    Attributes:
        is_irrevocable: what a complete checkpoint allows cannot be taken back: an earlier one does not do.
    """

    def __init__(self, random: Random, relay: Any) -> None:
        self._random = random
        self.parts: list[Part] = []
        self.is_irrevocable = False
        self._relay = relay
        self._work_s = random.choice((0.0, 0.0002, 0.001))
        spouts = random.choice((1, 1, 2))
        needs_time = random.random() < 0.75
        for number in range(spouts):
            self._draw_spout(f"spout{number}", ROWS // spouts, needs_time, number)
        ends = [part.name for part in self.parts]
        keeps_time = True
        for level in range(random.randint(1, 3)):
            ends, keeps_time = self._draw_stage(f"b{level}", ends, keeps_time and needs_time)
        if random.random() < 0.7:
            self._add("sink", sinks.Log, ends)
        if len(self.parts) < 3 or random.random() < 0.5 or not any(part.name == "sink" for part in self.parts):
            self._add("ledger", sinks.Ledger, ends)
            self.is_irrevocable = True
        tasks = sum(part.parallelism for part in self.parts)
        self.settings = {
            **SETTINGS,
            "attempts": random.choice((2, 3)),
            "ackers": random.choice((1, 1, 2)),
            "workers": random.choice((None, None, 1, 2, 3, max(2, tasks // 2))),
            "max_spout_pending": random.choice((4, 20, 100)),
            "batch_size": random.choice((2, 8, 32)),
            "edge_window": random.choice((1, 2, 4, 16)),
            "outbox_limit": random.choice((1, 4, 64)),
            "flush_interval": random.choice(("0ms", "1ms", "5ms")),
            "checkpoint_interval": random.choice(("15ms", "40ms", "100ms", "300ms")),
            "checkpoint_pause": random.choice(("20ms", "50ms")),
            "checkpoint_timeout": random.choice(("300ms", "1s")),
            "checkpoint_keep": random.choice((2, 3)),
        }
        if any(isinstance(part.make(Beyond()), stages.Odd) for part in self.parts):
            # Within a process a value is passed on as it is.
            self.settings["workers"], self.is_irrevocable = None, True

    def _draw_spout(self, name: str, rows: int, needs_time: bool, number: int) -> None:
        random = self._random
        parallelism = random.choice((1, 1, 2))
        total = rows // parallelism + random.randrange(1, 9)
        if number and random.random() < 0.3:
            # Uneven: it ends long before the other.
            total = max(4, total // 6)
        source = Source(
            name,
            total,
            random.choice((0.0, 0.0005, 0.002)),
            quiet_s=random.choice((0.0, 0.0, 0.05, 0.2)),
            ends_quiet=needs_time,
            raises=random.choice((0, 0, 20)),
        )
        made: Callable[[Beyond], Any]
        kind = random.choice(("positions", "positions", "telling", "queue", "queue"))
        if kind == "queue":
            in_fail = random.random() < 0.5
            self.is_irrevocable = True
            made = lambda outside: sources.QueueSpout(outside, source, in_fail)  # noqa: E731
        else:
            spout = sources.ReplayableSpout if kind == "positions" else sources.TellingSpout
            made = lambda outside: spout(outside, source)  # noqa: E731
        self.parts.append(Part(name, made, parallelism, source=source))

    def _draw_stage(self, name: str, ends: Sequence[str], has_time: bool) -> tuple[list[str], bool]:
        random = self._random
        kinds = [
            "hoard",
            "relay",
            "double",
            "sieve",
            "hand",
            "call",
            "call",
            "tally",
            "tally",
            "whole",
            "later",
            "pairs",
            "pairs",
        ]
        if has_time:
            kinds += ["tumbling", "sliding", "session", "tumbling", "sliding", "session", "buckets", "buckets", "buckets"]
        kind = random.choice(kinds)
        if kind in ("tumbling", "sliding", "session"):
            self._add(name, operators.Windows, ends, kind=kind, adds=random.random() < 0.5)
        elif kind == "call":
            self._add(name, stages.Call, ends, is_ordered=random.random() < 0.5, capacity=random.choice((1, 3, 10)))
        elif kind == "hoard":
            self._add(name, stages.Hoard, ends, holds=random.choice((2, 5, 20)), keeps_held=random.random() < 0.3)
        elif kind == "pairs":
            for side in ("l", "r"):
                self._add(f"{name}{side}", random.choice((stages.Relay, stages.Tally)), ends)
            self._add(name, operators.Pairs, [f"{name}l", f"{name}r"], left=f"{name}l", right=f"{name}r")
        else:
            self._add(name, {
                "relay": self._relay, "double": stages.Double, "sieve": stages.Sieve, "hand": stages.Hand,
                "tally": stages.Tally, "whole": stages.Whole, "later": operators.Later, "buckets": operators.Buckets,
            }[kind], ends)  # fmt: skip
        # What comes out of windows behind an idle input, or of calls that the news of its idleness has overtaken, may be late.
        is_quiet = any(part.source is not None and part.source.quiet_s for part in self.parts)
        may_be_late = is_quiet and kind in ("call", "buckets", "tumbling", "sliding", "session")
        return [name], has_time and kind != "later" and not may_be_late

    def _add(self, name: str, stage: Any, ends: Sequence[str], **arguments: Any) -> None:
        random, work_s = self._random, self._random.choice((0.0, 0.0, self._work_s))
        settings: dict[str, Any] = {}
        hopeless = kills = 0
        fails = random.choice((0, 0, 0, 20)) if stage not in (stages.Call, stages.Hoard, sinks.Log) else 0
        if fails and stage is not sinks.Ledger and random.random() < 0.3:
            settings["on_error"] = "crash"
        may_refuse = arguments["adds"] if stage is operators.Windows else stage in _REFUSING
        if not settings and may_refuse and random.random() < 0.2:
            hopeless = 15
        if stage in (stages.Relay, stages.Odd, stages.Tally, operators.Buckets, sinks.Ledger) and random.random() < 0.1:
            kills = 30
        mishaps = Mishaps(fails, hopeless, kills)
        made: Callable[[Beyond], Any] = lambda outside: stage(outside, name, work_s, mishaps, **arguments)  # noqa: E731
        grouping = made(Beyond()).grouped_by
        usual = ("shuffle", "shuffle", "key", "global", "partial-key", "none", "local-or-shuffle")
        self.is_irrevocable = self.is_irrevocable or bool(hopeless)
        inputs = tuple((source, grouping or random.choice(usual)) for source in ends)
        self.parts.append(Part(name, made, random.choice((1, 1, 2, 2, 3)), inputs, settings))
