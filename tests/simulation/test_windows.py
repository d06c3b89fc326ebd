"""Windows in whole topologies, in virtual time: disorder, idleness and back-pressure, with faults and without, by a seed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import pytest

from tests.simulator.faults import Fault, draw_faults
from tests.simulator.simulation import Simulation
from topo.api.aggregates import Sum
from topo.api.bolt import BasicBolt
from topo.api.operator_bolts import WindowBolt
from topo.api.spout import RetryingSpout
from topo.api.topology import Topology
from topo.api.watermarks import WatermarkStrategy
from topo.api.windows import (
    EventTimeSessionWindows,
    ProcessWindowFunction,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from topo.builder import TopologyBuilder
from topo.master.outcome import OutcomeKind
from topo.tracking.window_tracking import WindowTracker
from topo.wire.codec import Codec

COUNT = 120
STEP_MS = 10
DISORDER_MS = 150
FIELDS = ("number", "key", "at", "digits")
_DIGITS = 4
"""Bits of a sum in which one event counts."""
_KEYS_OF_SUMS = 12


@dataclass
class World:
    """The world outside of all processes, which outlives them."""

    seed: int
    kind: str
    bound_ms: int
    quiet_s: float
    spouts: int
    work_s: float
    simulation: Any = None
    rows: list[tuple[str, int, int, tuple[int, ...]]] = field(default_factory=list)
    late: list[int] = field(default_factory=list)
    quiet_until: dict[int, float] = field(default_factory=dict)
    fails_one_in: int = 0
    """A bolt ahead of the windows raises for one in this number of events, the first time; 0 for none."""
    failed: set[int] = field(default_factory=set)
    has_late_stream: bool = True
    delivery: str = "auto"
    sums: bool = False
    """Windows add a field up, and those that end together fire at once. Each event counts in separate digits."""

    @classmethod
    def drawn(cls, seed: int) -> World:
        chance = Random(seed)
        return cls(
            seed,
            chance.choice(("tumbling", "tumbling", "sliding", "session")),
            chance.choice((DISORDER_MS, DISORDER_MS, 40, 0)),
            chance.choice((0.0, 0.0, 0.6)),
            chance.choice((1, 2)),
            chance.choice((0.0, 0.0, 0.002)),
        )

    def at(self, number: int) -> int:
        return number // self.spouts * STEP_MS + Random(self.seed * 1_000_003 + number).randrange(DISORDER_MS)

    def key(self, number: int) -> str:
        return f"k{number % (_KEYS_OF_SUMS if self.sums else 3)}"

    def digits(self, number: int) -> int:
        return 1 << _DIGITS * (number // _KEYS_OF_SUMS)

    def members(self, key: str, total: int) -> tuple[int, ...]:
        """The events of a sum, each as often as it was added."""
        numbers = range(int(key[1:]), COUNT, _KEYS_OF_SUMS)
        return tuple(number for number in numbers for _ in range(total // self.digits(number) % (1 << _DIGITS)))

    @property
    def seen(self) -> set[int]:
        return {number for row in self.rows for number in row[3]} | set(self.late)

    def topology(self) -> Topology:
        builder = TopologyBuilder("windows").config(
            max_spout_pending=400, batch_size=8, edge_window=3, outbox_limit=2, watermark_interval="20ms", heartbeat="200ms",
            worker_timeout="1s", restart_backoff="20ms", backoff="50ms", master_timeout="20s", delivery=self.delivery,
        )  # fmt: skip
        strategy = WatermarkStrategy.bounded_out_of_orderness(f"{self.bound_ms}ms", timestamp="at")
        if self.quiet_s:
            strategy = strategy.with_idleness("200ms")
        builder.set_spout("events", Events(self), parallelism=self.spouts, watermarks=strategy)
        window: Any = {
            "tumbling": TumblingEventTimeWindows.of("100ms"),
            "sliding": SlidingEventTimeWindows.of("200ms", "100ms"),
            "session": EventTimeSessionWindows.with_gap("35ms"),
        }[self.kind]
        if self.fails_one_in:
            builder.set_bolt("flaky", Flaky(self)).shuffle_grouping("events")
        result: Any = {"aggregate": Sum("digits")} if self.sums else {"process": Members()}
        builder.set_bolt(
            "windows",
            WindowBolt(
                key="key",
                window=window,
                **result,
                outputs=("key", "start", "end", "numbers"),
                late_stream="late" if self.has_late_stream else None,
            ),
            parallelism=2,
        ).fields_grouping("flaky" if self.fails_one_in else "events", "key")
        builder.set_bolt("out", Out(self)).shuffle_grouping("windows")
        if self.has_late_stream:
            builder.set_bolt("late", Late(self)).shuffle_grouping("windows", stream="late")
        return builder.build()


class Events(RetryingSpout):
    """The events of one task: every `spouts`-th. One of two tasks falls silent for a while, if anything does."""

    outputs = FIELDS

    def __init__(self, world: World) -> None:
        self.world = world

    def open(self, context: Any, collector: Any) -> None:
        self.collector = collector
        self.index = context.task_index
        done = context.committed_position
        self.next = self.index if done is None else done + self.world.spouts

    def next_tuple(self) -> None:
        world = self.world
        if self.next >= COUNT:
            self.collector.end_of_input()
            return
        if world.quiet_s and self.index == world.spouts - 1 and self.next >= COUNT // 2:
            until = world.quiet_until.setdefault(self.index, world.simulation.now + world.quiet_s)
            if world.simulation.now < until:
                return
        number = self.next
        self.next += world.spouts
        self.collector.emit((number, world.key(number), world.at(number), world.digits(number)), number)


class Members(ProcessWindowFunction):
    def process(self, key: Any, elements: Sequence[Any], context: Any, collector: Any) -> None:
        collector.emit((key, context.window.start, context.window.end, tuple(sorted(row[0] for row in elements))))


class Out(BasicBolt):
    def __init__(self, world: World) -> None:
        self.world = world

    def execute(self, tup: Any, collector: Any) -> None:
        if self.world.work_s:
            self.world.simulation.work(self.world.work_s)
        key, start, end, numbers = tup.values
        self.world.rows.append((key, start, end, self.world.members(key, numbers) if self.world.sums else numbers))


class Flaky(BasicBolt):
    """Lets events through; raises for some, the first time, so that their replays come behind the watermark."""

    outputs = FIELDS

    def __init__(self, world: World) -> None:
        self.world = world

    def execute(self, tup: Any, collector: Any) -> None:
        number = tup["number"]
        if number % self.world.fails_one_in == 0 and number not in self.world.failed:
            self.world.failed.add(number)
            raise OSError(f"event {number} fails once")
        self.world.simulation.work(0.003)
        collector.emit(tup.values)


class Late(Out):
    def execute(self, tup: Any, collector: Any) -> None:
        self.world.late.append(tup["number"])


def simulated(seed: int, faults: Sequence[Fault] = (), **changes: Any) -> World:
    world = replace(World.drawn(seed), **changes)
    simulation = Simulation(world.topology, seed, faults, lambda: len(world.seen) / COUNT)
    world.simulation = simulation
    simulation.run()
    assert simulation.violations == [], f"seed {seed}: {simulation.violations[0]}"
    outcome = simulation.master.outcome
    allowed = {OutcomeKind.DONE} if world.has_late_stream else {OutcomeKind.DONE, OutcomeKind.DEAD_LETTERS}
    assert outcome is not None and outcome.kind in allowed, outcome
    return world


def windows_of(world: World, numbers: Sequence[int]) -> dict[tuple[str, int, int], tuple[int, ...]]:
    """The windows that these events make, worked out at once."""
    found: dict[tuple[str, int, int], list[int]] = {}
    for number in numbers:
        key, at = world.key(number), world.at(number)
        if world.kind == "tumbling":
            found.setdefault((key, at // 100 * 100, at // 100 * 100 + 100), []).append(number)
        elif world.kind == "sliding":
            for start in (at // 100 * 100 - 100, at // 100 * 100):
                found.setdefault((key, start, start + 200), []).append(number)
    if world.kind == "session":
        for key in {world.key(number) for number in numbers}:
            start = end = None
            held: list[int] = []
            for at, number in sorted((world.at(number), number) for number in numbers if world.key(number) == key):
                if end is not None and at > end:
                    found[key, start, end] = held  # type: ignore[index]
                    held, start = [], None
                start = at if start is None else start
                end = at + 35 if end is None or not held else max(end, at + 35)
                held.append(number)
            found[key, start, end] = held  # type: ignore[index]
    return {window: tuple(sorted(members)) for window, members in found.items()}


def check_without_faults(seed: int, **changes: Any) -> World:
    world = simulated(seed, **changes)
    assert len({row[:3] for row in world.rows}) == len(world.rows), f"seed {seed}: a window has fired twice"
    windowed = Counter(number for row in world.rows for number in row[3])
    late = Counter(world.late)
    if world.kind == "sliding":
        # An element that is late for some of its windows only is in the others, and not on the late stream.
        assert set(windowed) | set(late) == set(range(COUNT)) and not set(windowed) & set(late), f"seed {seed}"
        assert max(windowed.values()) <= 2 and set(late.values()) <= {1}
    else:
        assert windowed + late == Counter(range(COUNT)), f"seed {seed}: in windows + late is not the input"
    on_time = windows_of(world, sorted(set(range(COUNT)) - set(late)))
    if world.kind == "tumbling":
        assert {tuple(row[:3]): row[3] for row in world.rows} == on_time, f"seed {seed}"
    if world.bound_ms == DISORDER_MS and not world.quiet_s:
        assert not late, f"seed {seed}: late within the bound"
        assert {tuple(row[:3]): row[3] for row in world.rows} == on_time, f"seed {seed}"
    return world


BATCHES = 8


@pytest.mark.parametrize("batch", range(BATCHES))
def test_every_window_is_right_and_windows_and_late_make_up_the_input_exactly(batch: int) -> None:
    worlds = [check_without_faults(seed) for seed in range(batch, 120, BATCHES)]
    assert any(world.late for world in worlds) and any(not world.late for world in worlds)


@pytest.mark.parametrize("batch", range(BATCHES))
def test_whatever_dies_every_input_reaches_a_window_or_the_late_stream(batch: int) -> None:
    for seed in range(1000 + batch, 1120, BATCHES):
        faults = draw_faults(Random(seed), has_links=True)
        world = simulated(seed, faults)
        missing = set(range(COUNT)) - world.seen
        assert not missing, f"seed {seed}: {sorted(missing)} are in no window and not late; {[str(fault) for fault in faults]}"


DELIVERIES = pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])


@DELIVERIES
def test_sums_whose_panes_fire_at_once_have_each_event_once(delivery: str) -> None:
    for seed in range(6):
        check_without_faults(seed, sums=True, delivery=delivery)


def lost_to_sums(seed: int, delivery: str) -> set[int]:
    """Return the events that are in no sum and not late, whatever has died."""
    world = simulated(seed, draw_faults(Random(seed), has_links=True), sums=True, delivery=delivery)
    return set(range(COUNT)) - world.seen


@DELIVERIES
def test_whatever_dies_every_event_is_in_a_sum_or_late(delivery: str) -> None:
    assert {seed: lost for seed in range(1000, 1016) if (lost := lost_to_sums(seed, delivery))} == {}


def test_inputs_that_are_acked_before_their_sums_are_processed_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def fired_once(self: WindowTracker, keys: Any, window: Any, panes: Any, *_: Any) -> None:
        self._panes.remove_all(keys, window)
        self._release_each(panes)

    monkeypatch.setattr(WindowTracker, "fired_once", fired_once)
    assert any(lost_to_sums(seed, "at_least_once") for seed in (1009, 1011, 1012))


def with_late_replays(seed: int) -> World:
    """Run a seed whose events are in order within the bound; those that fail once are replayed behind the watermark."""
    faults = draw_faults(Random(seed), has_links=True) if seed % 4 == 3 else ()
    options = {"fails_one_in": 9, "has_late_stream": seed % 2 == 1, "delivery": "at_least_once"}
    return simulated(seed, faults, bound_ms=DISORDER_MS, quiet_s=0.0, **options)


def unaccounted(world: World) -> set[int]:
    """Return the events that are in no window, not on the late stream and no dead letter."""
    codec = Codec()
    given_up = {codec.unpack_value(one.position) for one in world.simulation.master.store.dead_letters}
    return set(range(COUNT)) - world.seen - given_up


@pytest.mark.parametrize("batch", range(2))
def test_replays_behind_the_watermark_are_on_the_late_stream_or_dead_letters(batch: int) -> None:
    worlds = [with_late_replays(seed) for seed in range(2000 + batch, 2024, 2)]
    for world in worlds:
        assert not unaccounted(world), f"seed {world.seed}: a late replay was dropped"
    were_late = [
        world for world in worlds if (world.late if world.has_late_stream else world.simulation.master.store.dead_letters)
    ]
    assert were_late


def test_the_same_seed_gives_the_same_run() -> None:
    def trace(seed: int) -> str:
        world = simulated(seed, draw_faults(Random(seed), has_links=True))
        found: str = world.simulation.trace_hash
        return found

    assert trace(7) == trace(7)
