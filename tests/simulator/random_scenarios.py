"""From a seed to a scenario: a random topology with random settings, in which random things go wrong."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from tests.simulator import stages
from tests.simulator.external_world import BrokerSpout, PositionedSpout, message_key
from tests.simulator.faults import draw_faults, with_control_faults
from tests.simulator.scenarios import Scenario, SpoutFacts
from tests.simulator.topologies import Part
from topo.api.streams import DEFAULT_STREAM

ROOTS = 200
"""Messages of a run, at least; replays come on top."""
FEWEST_ROOTS = 70
MOST_TUPLES = 1000
"""Tuples that the messages of a run make, at most: where each makes many, a run has fewer messages, down to `FEWEST_ROOTS`."""
SETTINGS: dict[str, Any] = {
    "backoff": ("20ms", "50ms"),
    "heartbeat": "250ms",
    "worker_timeout": "1s",
    "progress_timeout": "500ms",
    "start_timeout": "2s",
    "master_timeout": "5s",
    "restart_backoff": "20ms",
    "restart_backoff_max": "300ms",
}
"""Short times, so that faults and their mending take seconds: a lost tail is noticed after 2.25 s, before messages time out."""


def draw_scenario(seed: int) -> Scenario:
    """Return the scenario of a seed; always the same."""
    scenario = _draw(seed, ROOTS)
    tuples = scenario.tuples_of_a_message()
    # The draws are the same for any number of messages.
    return scenario if ROOTS * tuples <= MOST_TUPLES else _draw(seed, max(FEWEST_ROOTS, int(MOST_TUPLES / tuples)))


def _draw(seed: int, roots: int) -> Scenario:
    random = Random(f"scenario {seed}")
    drawing = _Drawing(random, Random(f"calls {seed}"), Random(f"pauses {seed}"), roots)
    drawing.settings |= draw_sizes(seed)
    faults = draw_faults(random, has_links=drawing.settings["workers"] != 1)
    faults = with_control_faults(faults, seed, is_checkpointed=False)
    return Scenario(
        seed, drawing.parts, drawing.spouts, drawing.settings, hopeless=drawing.hopeless, poison=drawing.poison, faults=faults
    )


def draw_sizes(seed: int) -> dict[str, str]:
    """Draw sizes, most of them so small that batches and frames of ids have several pieces."""
    random = Random(f"sizes {seed}")
    return {"batch_bytes": random.choice(("1B", "200B", "64KiB", "64KiB")), "max_control_frame": random.choice(("1KiB", "1MiB"))}


class _Drawing:
    """A topology while it is drawn."""

    def __init__(self, random: Random, calls: Random, pauses: Random, roots: int) -> None:
        self._random = random
        self._roots = roots
        self._calls = calls
        self._pauses = pauses
        self.parts: list[Part] = []
        self.spouts: list[SpoutFacts] = []
        self.hopeless: list[tuple[str, str]] = []
        self.poison: list[tuple[str, str]] = []
        self.settings: dict[str, Any] = {}
        self._draw_topology()

    def _draw_topology(self) -> None:
        random = self._random
        self._work_s = random.choice((0.0, 0.0001, 0.0005))
        # With the short timeout, messages may time out whenever something is mended, so they have more attempts.
        self._timeout, self._attempts = random.choice((("3s", 4), ("3s", 4), ("1s", 10)))
        # A tree that its spout has timed out expires in its acker up to two timeouts later, if the topology still runs.
        self._quiet_s = 4.5 if self._timeout == "1s" and self._pauses.random() < 0.5 else 0.0
        spouts = random.choice((1, 1, 1, 2))
        for number in range(spouts):
            self._draw_spout(f"spout{number}", self._roots // spouts)
        ends = [(spout.name, DEFAULT_STREAM) for spout in self.spouts]
        is_batched = False
        for level in range(random.randint(1, 3)):
            ends, is_batched = self._draw_stage(f"b{level}", ends, is_batched, level)
        for number in range(random.choice((1, 1, 2))):
            settings = {"tick_interval": "30ms"} if random.random() < 0.3 else {}
            kind = stages.BufferingSink if settings else stages.Sink
            extra: dict[str, Any] = {"holds": random.choice((2, 8))} if settings else {}
            self._add(f"sink{number}", kind, ends, settings=settings, **extra)
        tasks = sum(part.parallelism for part in self.parts)
        self.settings = {
            **SETTINGS,
            "message_timeout": self._timeout,
            "attempts": self._attempts,
            "ackers": random.choice((1, 1, 2, 3)),
            "workers": random.choice((None, None, 1, 2, 3, max(2, tasks // 2))),
            "max_spout_pending": random.choice((4, 20, 100, 100, 1000)),
            "batch_size": random.choice((2, 8, 32, 512)),
            "edge_window": random.choice((1, 2, 4, 16)),
            "outbox_limit": random.choice((1, 4, 64)),
            "flush_interval": random.choice(("0ms", "1ms", "1ms", "5ms", "5ms")),
        }
        if self._timeout == "1s":
            # Many messages, run one by one, would time out merely because they wait for each other.
            self.settings["max_spout_pending"] = min(self.settings["max_spout_pending"], 100)
            self.settings["flush_interval"] = self.settings["flush_interval"].replace("0ms", "1ms")

    def _draw_spout(self, name: str, roots: int) -> None:
        random = self._random
        parallelism, work_s = random.choice((1, 1, 2)), random.choice((0.0, 0.0002, 0.001))
        total = roots // parallelism + random.randrange(1, 9)
        has_positions = random.random() < 0.65
        self.spouts.append(SpoutFacts(name, parallelism, total, has_positions))
        if has_positions:
            raises, quiet_s = self._calls.choice((0, 0, 40)), self._quiet_s
            self.parts.append(
                Part(name, lambda outside: PositionedSpout(outside, name, total, work_s, raises, quiet_s), parallelism)
            )
        else:
            in_fail, untracked = random.random() < 0.5, random.random() < 0.2
            self.parts.append(
                Part(
                    name,
                    lambda outside: BrokerSpout(outside, name, total, work_s, self._attempts, in_fail, untracked),
                    parallelism,
                )
            )

    def _draw_stage(
        self, name: str, ends: Sequence[tuple[str, str]], is_batched: bool, level: int
    ) -> tuple[list[tuple[str, str]], bool]:
        random = self._random
        kinds = ["map", "map", "split", "filter", "fork", "address", "odd", "forward", "forward", "batch"]
        if level and not is_batched:
            kinds += ["diamond", "diamond"]
        kind = random.choice(kinds)
        # One path that fails takes all those with it that were gathered into its tuple.
        flaky = random.choice((0, 0, 60 if is_batched else 15))
        ends = list(ends)
        if kind == "diamond":
            # Both branches read all there is, and keep the key by which they are joined again.
            for side in ("l", "r"):
                self._add(f"{name}{side}", stages.Map, ends, fails_one_in=flaky, keeps_key=True)
            branches = [(f"{name}l", DEFAULT_STREAM), (f"{name}r", DEFAULT_STREAM)]
            self._add(name, stages.Join, branches, grouping="fields")
        elif kind == "address":
            self._add(name, stages.Address, ends, reader=f"{name}x")
            self._add(f"{name}x", stages.Map, [(name, DEFAULT_STREAM)], grouping="direct")
            return [(f"{name}x", DEFAULT_STREAM)], is_batched
        elif kind in ("forward", "batch"):
            holds = random.choice((1, 3, 10))
            settings = {"tick_interval": "20ms"} if holds > 1 or kind == "batch" else {}
            made = stages.Batch if kind == "batch" else stages.Forward
            extra: dict[str, Any] = {"forgets_one_in": random.choice((0, 0, 50)), "keeps_held": random.random() < 0.3}
            if kind == "forward":
                extra |= {"fails_one_in": flaky, "touches": random.random() < 0.3}
            self._add(name, made, ends, holds=holds, settings=settings, **extra)
            is_batched = is_batched or kind == "batch"
        elif kind == "odd":
            self._add(name, stages.Odd, ends)
        else:
            trouble = {} if is_batched else self._draw_trouble(name)
            made_of = {"map": stages.Map, "split": stages.Split, "filter": stages.Filter, "fork": stages.Fork}[kind]
            if kind == "map" and "poison" not in trouble and self._calls.random() < 0.7:
                self._add(name, stages.Call, ends, fails_one_in=flaky, **trouble, **self._draw_call())
                return [(name, DEFAULT_STREAM)], is_batched
            self._add(name, made_of, ends, fails_one_in=flaky, **trouble)
            if kind == "fork":
                return [(name, "even"), (name, "odd")] if random.random() < 0.8 else [(name, "odd")], is_batched
        return [(name, DEFAULT_STREAM)], is_batched

    def _draw_call(self) -> dict[str, Any]:
        calls = self._calls
        return {
            "is_ordered": calls.random() < 0.5,
            "capacity": calls.choice((2, 5, 20)),
            "hangs_one_in": calls.choice((0, 0, 60)),
            "retries": calls.random() < 0.5,
        }

    def _draw_trouble(self, component: str) -> dict[str, Any]:
        random = self._random
        trouble: dict[str, Any] = {}
        spout = random.choice(self.spouts)
        if random.random() < 0.15:
            trouble["hopeless"] = [message_key(spout.name, 0, int(random.random() * spout.total))]
            self.hopeless.append((component, *trouble["hopeless"]))
        if random.random() < 0.3 and self._attempts < 10 and all(found.has_positions for found in self.spouts):
            trouble["poison"] = [message_key(spout.name, 0, int(random.random() * spout.total))]
            self.poison.append((component, *trouble["poison"]))
        return trouble

    def _add(
        self,
        name: str,
        kind: Any,
        ends: Sequence[tuple[str, str]],
        *,
        grouping: str = "",
        settings: dict[str, Any] | None = None,
        **arguments: Any,
    ) -> None:
        random, work_s = self._random, self._random.choice((0.0, self._work_s))
        parallelism = random.choice((1, 1, 1, 2, 2, 3))
        usual = ("shuffle", "shuffle", "fields", "global", "partial-key", "none", "local-or-shuffle", "custom")
        rare = ("all",) if random.random() < 0.1 else ()
        inputs = tuple((source, stream, grouping or random.choice(rare or usual)) for source, stream in ends)
        self.parts.append(
            Part(name, lambda outside: kind(outside, name, work_s, **arguments), parallelism, inputs, settings or {})
        )
