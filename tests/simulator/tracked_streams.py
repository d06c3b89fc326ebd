"""Programs of streams with `at_least_once`, under faults: the names of each message have reached the sink before its ack."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from tests.simulator import random_scenarios
from tests.simulator.checkpointed_sources import JITTER_MS
from tests.simulator.external_world import BrokerSpout, ExternalWorld, PositionedSpout, message_key
from tests.simulator.faults import Fault, FaultKind, draw_fault, draw_faults
from tests.simulator.oracles import Oracles
from tests.simulator.scenarios import Scenario, ScenarioRun, SpoutFacts
from tests.simulator.topologies import Part
from tests.simulator.tracked_programs import (
    OPERATOR,
    PROGRAMS,
    SHAPES,
    SINK,
    BehindDedupe,
    Deduped,
    Flaky,
    Landing,
    Near,
    Note,
    TrackedProgram,
    note_of,
)
from topo.api.topology import Topology
from topo.master.outcome import OutcomeKind
from topo.streams import StreamBuilder

_HARMLESS = (*[FaultKind.CUT] * 3, FaultKind.REPEAT, FaultKind.SLOW_LINK, FaultKind.SLOW_WORKER, FaultKind.PAUSE)
"""Faults that leave all tasks their state."""


class _StreamOracles(Oracles):
    """The oracles of a program whose acks say less than elsewhere."""

    def __init__(self, scenario: TrackedStreams, outside: ExternalWorld) -> None:
        super().__init__(scenario, outside)
        self._program = scenario.program
        if not self._program.is_done_at_once:
            outside.on_ack = lambda _key: None

    def _missing(self, key: str) -> list[tuple[str, str]]:
        return [(sink, name) for sink, name in super()._missing(key) if not any(map(self._was_late, name.strip("()").split("&")))]

    def _was_late(self, name: str) -> bool:
        """Whether a record of a pair was late, or its message has been given up."""
        return (SINK, f"late:{name}") in self._outside.effects or name.partition("+")[0] in self._given_up

    def _stored_positions(self, progress: Any) -> None:
        if self._program.is_done_at_once:
            super()._stored_positions(progress)

    def _judge_outcome(self) -> None:
        outcome = self._simulation.master.outcome
        assert outcome is not None
        if not self._program.may_give_up or outcome.kind is not OutcomeKind.DEAD_LETTERS:
            super()._judge_outcome()

    def _judge_messages(self) -> None:
        history = self._simulation.history
        if not self._program.may_give_up:
            super()._judge_messages()
        elif missing := [found for key in self._leaves for found in self._missing(key)]:
            history.violated(1, f"neither come nor given up: {missing[:3]}")
        elif self._given_up and all(row.kind != "LateReplayError" for _, row in self._simulation.master.store.errors):
            history.violated(1, f"given up without a reason: {sorted(self._given_up)[:3]}")


class TrackedStreams(Scenario):
    """A program of streams, its settings and its faults.

    Args:
        program: the operator with state.
        shapes: by source, the operators ahead of the one with state.
        fails: functions raise the first time at one in this number of records; 0 for never.
        is_followed: another component is behind the operator, which raises, too.
    """

    def __init__(
        self,
        seed: int,
        parts: Sequence[Part],
        spouts: Sequence[SpoutFacts],
        settings: Mapping[str, Any],
        faults: Sequence[Fault],
        program: TrackedProgram,
        shapes: Sequence[str],
        *,
        fails: int,
        is_followed: bool,
    ) -> None:
        self.program, self.shapes, self.fails, self.is_followed = program, tuple(shapes), fails, is_followed
        super().__init__(seed, parts, spouts, settings, faults=faults)

    def topology(self, outside: ExternalWorld) -> Topology:
        flow = StreamBuilder(f"tracked-{self.seed}").config(**self.settings)
        streams = []
        for part, shape in zip(self.parts, self.shapes, strict=True):
            stream = flow.from_spout(part.make(outside), parallelism=part.parallelism, name=part.name).map(
                lambda row: note_of(row[0]), of=Note
            )
            if self.program.has_time:
                stream = stream.with_event_time(lambda note: note.at, disorder=f"{JITTER_MS}ms")
            streams.append(SHAPES[shape][1](stream, Flaky(outside, f"{part.name} {shape}", self.fails)))
        results = type(self.program)(self.program.tasks, Flaky(outside, OPERATOR, self.fails)).draw(streams)
        if self.is_followed:
            results = results.rebalance(parallelism=2).map(Flaky(outside, "behind", self.fails))
        results.to(Landing(outside), name=SINK)
        return flow.build()

    def describe(self) -> str:
        program, shapes = f"{type(self.program).__name__} x{self.program.tasks}", ", ".join(self.shapes)
        what = f"  {program} behind {shapes}, fails at one in {self.fails}"
        return f"{super().describe()}\n{what}{', another behind it' * self.is_followed}"

    def leaves(self) -> dict[str, frozenset[tuple[str, str]]]:
        made: dict[str, Sequence[str]] = {}
        for spout, shape in zip(self.spouts, self.shapes, strict=True):
            for index in range(spout.parallelism):
                for number in range(spout.total):
                    message = message_key(spout.name, index, number)
                    made[message] = SHAPES[shape][0](message)
        found = self.program.names(made)
        return {message: frozenset((SINK, name) for name in names) for message, names in found.items()}

    def takes_single_roots(self) -> set[str]:
        return set()

    def oracles(self, outside: ExternalWorld) -> Oracles:
        return _StreamOracles(self, outside)

    def run(self, *, keeps_trace: bool = False, may_reopen_trees: bool = False) -> ScenarioRun:
        """Run it to its end; without faults each effect has come as often as the program expects."""
        run = super().run(keeps_trace=keeps_trace, may_reopen_trees=may_reopen_trees)
        history = run.simulation.history
        history.count(f"program: {type(self.program).__name__}")
        for shape in self.shapes:
            history.count(f"shape: {shape}")
        if not run.violations and not self.faults and not self.fails:
            history.count("nothing goes wrong")
            expected = {name for names in self.leaves().values() for _, name in names}
            found = {name: count for (_, name), count in run.outside.effects.items()}
            if set(found) != expected or any(found[name] not in self.program.times(name) for name in found):
                wrong = {name: found.get(name, 0) for name in expected if found.get(name, 0) not in self.program.times(name)}
                history.violated(7, f"without a fault: wrong {wrong}, too many {sorted(set(found) - expected)[:5]}")
        return run


def draw_tracked_streams(seed: int) -> TrackedStreams:
    """Return the scenario of a seed; always the same."""
    random = Random(f"tracked streams {seed}")
    kind, attempts = PROGRAMS[seed % len(PROGRAMS)], 10
    parts, spouts, shapes = [], [], []
    for name in ("one", "two")[: kind.sources]:
        has_positions = kind.has_time or issubclass(kind, Deduped | BehindDedupe) or random.random() < 0.65
        facts = SpoutFacts(name, random.choice((1, 2)), random.choice((20, 40)), has_positions)
        spouts.append(facts)
        parts.append(Part(name, _spout(random, facts, attempts), facts.parallelism))
        usual = ("plain", "parted", "doubled", "sieved", "spread", "called")
        shapes.append(random.choice(("plain", "sieved") if issubclass(kind, Near) else usual))
    is_quiet = random.random() < 0.15
    settings = {
        **random_scenarios.SETTINGS,
        **random_scenarios.draw_sizes(seed),
        "delivery": "at_least_once",
        "message_timeout": "3s",
        "attempts": attempts,
        "ackers": random.choice((1, 2)),
        "workers": random.choice((None, None, 1, 2, 3)),
        "max_spout_pending": 1000 if kind.holds else random.choice((4, 20, 100)),
        "batch_size": random.choice((2, 8, 32)),
        "edge_window": random.choice((1, 4, 16)),
        "outbox_limit": random.choice((1, 4)),
        "flush_interval": random.choice(("1ms", "5ms")),
        "watermark_interval": random.choice(("5ms", "25ms")),
    }
    faults: tuple[Fault, ...] = ()
    if not is_quiet and kind.keeps_tasks:
        harmless = [one for one in _HARMLESS if not kind.is_in_order or one is not FaultKind.CUT]
        kinds = random.choices(harmless, k=random.choice((1, 2))) if settings["workers"] != 1 else []
        faults = tuple(sorted((draw_fault(random, one) for one in kinds), key=lambda fault: fault.share))
    elif not is_quiet:
        faults = draw_faults(random, has_links=settings["workers"] != 1, most=3)
    tasks, fails, is_followed = random.choice((1, 2, 3)), 0 if is_quiet else random.choice((0, 8)), random.random() < 0.5
    is_followed = is_followed and kind.is_followed
    program = kind(tasks, lambda note: note)
    return TrackedStreams(seed, parts, spouts, settings, faults, program, shapes, fails=fails, is_followed=is_followed)


def _spout(random: Random, facts: SpoutFacts, attempts: int) -> Any:
    work_s, in_fail = random.choice((0.0, 0.0005, 0.002)), random.random() < 0.5
    if facts.has_positions:
        return lambda outside: PositionedSpout(outside, facts.name, facts.total, work_s, 0, 0.0)
    return lambda outside: BrokerSpout(outside, facts.name, facts.total, work_s, attempts, in_fail, False)
