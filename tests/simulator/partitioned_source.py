"""A source of partitions that outlives all processes, and the spout that reads it. What becomes of a partition follows the clock.

Partitions are listed from some moment on, fall silent, end, are not listed for a while or ever again, lose old records, and have
records that cannot be decoded. One talks to the end: its event time has to pass all others, whatever those do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any
from zlib import crc32

from tests.simulator.checkpointed_sources import JITTER_MS
from tests.simulator.checkpointed_stages import FIELDS, Beyond, Row, key_of
from tests.simulator.external_world import chosen
from tests.simulator.stages import Trouble
from topo.api.context import TaskContext
from topo.api.partition_values import Partition, PartitionOutput, StoredPartitions
from topo.api.partitions import PartitionedSpout
from topo.api.spout import SpoutCollector

TALKER = "talker"
_FAR_MS = 10_000
"""How far the last records of the talker are behind all others in event time."""
PATIENCE_S = 20.0
"""Virtual seconds without a fault in which every record comes out, and every window of older records fires."""
QUIET_S = 0.3
"""How long nothing is read before that: a multiple of the idleness of partitions."""
Place = tuple[str, int]
"""A record: its partition, its position."""


class RecordsLost(Exception):
    """The source no longer has the records behind a position."""


@dataclass(frozen=True, slots=True)
class PartitionPlan:
    """What becomes of a partition, in seconds of the clock of the source.

    Attributes:
        partition: its name, group and number.
        total: the number of its records.
        begins_at: since when it is listed.
        step_s: the time between two records.
        has_end: it ends behind its last record, and is not listed any more when all of it is committed; else it falls silent.
        away: from when to when it is not listed and cannot be read; for ever, if that is infinite.
        forgets_at: when the source loses the first half of it.
    """

    partition: Partition
    total: int
    begins_at: float = 0.0
    step_s: float = 0.01
    has_end: bool = False
    away: tuple[float, float] = (inf, inf)
    forgets_at: float = inf

    @property
    def over_at(self) -> float:
        """When nothing more becomes of it."""
        moments = (self.begins_at + self.total * self.step_s, *self.away, self.forgets_at)
        return max(moment for moment in moments if moment < inf)

    @property
    def is_removed(self) -> bool:
        """Whether it goes and does not return."""
        return self.away[0] < inf and self.away[1] == inf


@dataclass(slots=True)
class PartitionedWorld(Beyond):
    """The outside world of a topology that reads partitions.

    Attributes:
        plans: by name.
        bad_one_in, fails_one_in: how many records cannot be decoded, and how many cannot be read the first time.
        trims: the source loses records up to committed positions.
        began_at: seconds of its clock before this simulation.
        committed: the last position that each partition was reported to be done up to.
        lost: records that the source had lost before they were read.
        read_at: when a record was read that is not among the last of the talker.
        is_released: the talker may end: all other records have come out.
        quiet_since: since when nothing has gone wrong, in seconds of the simulation.
        dead_letters: the places of those that are stored.
        is_checkpointed: rows that are done are in a checkpoint, behind which no partition is read again, or still in a window.
        complain: takes the number of an oracle and a sentence.
    """

    plans: dict[str, PartitionPlan] = field(default_factory=dict)
    bad_one_in: int = 0
    fails_one_in: int = 0
    trims: bool = False
    began_at: float = 0.0
    committed: dict[str, int] = field(default_factory=dict)
    lost: set[Place] = field(default_factory=set)
    read_at: float = 0.0
    is_released: bool = False
    quiet_since: Callable[[], float] = lambda: 0.0
    dead_letters: Callable[[], set[Place]] = set
    is_checkpointed: bool = False
    complain: Callable[[int, str], None] = lambda _oracle, _what: None

    @property
    def clock(self) -> float:
        """Seconds since the source began."""
        return self.began_at + self.now()

    def row(self, name: str, number: int) -> Row:
        """Return a record as a row."""
        plan, row_id = self.plans[name], f"{name}.{number}"
        at = int((plan.begins_at + number * plan.step_s) * 1000) + crc32(row_id.encode()) % JITTER_MS
        return Row(key_of(row_id), row_id, number, row_id, at + _FAR_MS * self.is_last(name, number))

    def is_last(self, name: str, number: int) -> bool:
        """Whether a record is among the last of the talker, by which event time passes all others."""
        return name == TALKER and number >= self.plans[name].total - 2

    def is_bad(self, name: str, number: int) -> bool:
        """Whether a record cannot be decoded."""
        return chosen(f"{name}.{number}", self.bad_one_in, "bad") and not self.is_last(name, number)

    def places(self) -> list[Place]:
        """Return all records."""
        return [(name, number) for name, plan in self.plans.items() for number in range(plan.total)]

    def owed(self) -> list[Place]:
        """Return the records that have to come out, as rows or as dead letters."""
        return [place for place in self.places() if place not in self.lost and not self.plans[place[0]].is_removed]

    def seen(self) -> set[str]:
        """Return the ids of the records whose rows a sink has had."""
        return {path.partition(">")[0] for _, path in self.effects}

    # -- called by spouts ----------------------------------------------------------------------------------------------------

    def listed(self) -> list[Partition]:
        """Return the partitions that there are."""
        return [plan.partition for name, plan in self.plans.items() if self.is_listed(name)]

    def is_listed(self, name: str) -> bool:
        """Whether a partition can be read now."""
        plan, now = self.plans[name], self.clock
        is_through = plan.has_end and self.committed.get(name, -1) == plan.total - 1
        return plan.begins_at <= now and not plan.away[0] <= now < plan.away[1] and not is_through

    def first(self, name: str) -> int:
        """Return the position of the oldest record that a partition has."""
        plan = self.plans[name]
        forgotten = plan.total // 2 if self.clock >= plan.forgets_at else 0
        return max(forgotten, self.committed.get(name, -1) + 1 if self.trims else 0)

    def end(self, name: str) -> int:
        """Return the position behind the last record that a partition has now."""
        plan = self.plans[name]
        count = min(plan.total, int((self.clock - plan.begins_at) / plan.step_s) + 1)
        if name != TALKER:
            return count
        is_quiet = self.clock > max(self.read_at, *(plan.over_at for plan in self.plans.values())) + QUIET_S
        # Where all partitions are idle at once event time stays where it is.
        return min(count, plan.total - (0 if self._may_end(is_quiet) else 1 if is_quiet else 2))

    def _may_end(self, is_quiet: bool) -> bool:
        """Whether all records have come out but the last one, for which the topology waits."""
        if self.is_released or not is_quiet:
            return self.is_released
        rows = [place for place in self.owed() if not self.is_bad(*place) and not self.is_last(*place)]
        seen = self.seen()
        missing = [(name, number) for name, number in rows if f"{name}.{number}" not in seen]
        if missing and self.now() > self.quiet_since() + PATIENCE_S:
            self.complain(17, f"event time is far behind {missing[:3]}, which do not come out")
        self.is_released = not missing
        return self.is_released

    def assigned(self, name: str, position: int | None) -> None:
        """A spout reads a partition from here on."""
        committed = self.committed.get(name, -1)
        if self.is_checkpointed and (-1 if position is None else position) < committed:
            self.complain(4, f"{name} is read behind {position}, and position {committed} was reported to be done")

    def done(self, positions: Mapping[str, int]) -> None:
        """The engine reports positions up to which rows are done."""
        seen, dead = self.seen(), self.dead_letters()
        for name, position in positions.items():
            before = self.committed.get(name, -1)
            for number in range(before + 1, 0 if self.is_checkpointed else position + 1):
                is_bad, place = self.is_bad(name, number), (name, number)
                if place not in self.lost and (place not in dead if is_bad else f"{name}.{number}" not in seen):
                    self.complain(4, f"{name} is reported to be done up to {position}; {number} is not done")
            self.committed[name] = max(position, before)


class SourceReader:
    """Reads the partitions of one task.

    Attributes:
        ended: names of those that it has read to their ends.
    """

    def __init__(self, world: PartitionedWorld, context: TaskContext) -> None:
        self._world, self._context = world, context
        self._next: dict[str, int] = {}
        self._paused: set[str] = set()
        self.ended: set[str] = set()

    @property
    def is_through(self) -> bool:
        """Whether the source is over and this task has read all of its partitions."""
        world, context = self._world, self._context
        mine = [one.name for one in world.listed() if one.owner(context.parallelism) == context.task_index]
        return world.is_released and all(name in self.ended or self._next.get(name) == world.end(name) for name in mine)

    def assign(self, partition: Partition, position: Any, found_later: bool) -> Any:
        name = partition.name
        self._world.assigned(name, position)
        if not self._world.is_listed(name):
            raise Trouble(f"there is no {name}")
        self._next[name] = 0 if position is None else position + 1
        self.ended.discard(name)
        return position

    def release(self, partition: Partition) -> None:
        self._next.pop(partition.name, None)
        self._paused.discard(partition.name)

    def pause(self, partition: Partition, paused: bool) -> None:
        (self._paused.add if paused else self._paused.discard)(partition.name)

    def poll(self, output: PartitionOutput) -> None:
        for name in [name for name in self._next if name not in self._paused and self._world.is_listed(name)]:
            self._read(name, output)

    def _read(self, name: str, output: PartitionOutput) -> None:
        world, partition = self._world, self._world.plans[name].partition
        at, first = self._next[name], world.first(name)
        if at < first:
            world.lost.update((name, number) for number in range(at, first))
            output.lost(partition, first - at, RecordsLost(f"{name} has no records {at} to {first - 1}"))
            at = self._next[name] = first
        for number in range(at, min(world.end(name), at + output.room)):
            row = world.row(name, number)
            if chosen(row.id, world.fails_one_in, "unreadable") and not world.tried("source", row.id):
                error = Trouble(f"{row.id} cannot be read at once")
                if number % 2:
                    raise error
                output.failed(partition, error)
                return
            if world.is_bad(name, number):
                output.bad(partition, number, row.id.encode(), Trouble(f"{row.id} cannot be decoded"))
            else:
                output.rows(partition, [row.values], [number], [row.at or 0])
            output.room -= 1
            if not world.is_last(name, number):
                world.read_at = world.clock
            self._next[name] = number + 1
        if world.plans[name].has_end and self._next[name] == world.plans[name].total:
            del self._next[name]
            self.ended.add(name)
            output.ended(partition)

    def committed(self, positions: Mapping[str, Any]) -> None:
        self._world.done(positions)

    def lag(self) -> int | None:
        return None

    def close(self) -> None:
        self._next.clear()


class PartitionsSpout(PartitionedSpout):
    """Reads a `PartitionedWorld`. Its input ends when the source is over."""

    outputs = FIELDS
    discovery_interval = "40ms"
    on_lost = "skip"
    batch_size = 7

    def __init__(self, outside: PartitionedWorld, max_drift: str | None = None) -> None:
        self.outside, self.max_drift = outside, max_drift

    def partitions(self) -> Iterable[Partition]:
        return self.outside.listed()

    def reader(self, context: TaskContext) -> SourceReader:
        self._reader = SourceReader(self.outside, context)
        return self._reader

    def open(self, context: TaskContext, collector: SpoutCollector) -> None:
        super().open(context, collector)
        self._collector = collector

    def restart(self, stored: StoredPartitions | None) -> None:
        self._reader.ended.clear()
        super().restart(stored)

    def next_tuple(self) -> None:
        if self._reader.is_through:
            self._collector.end_of_input()
        else:
            super().next_tuple()
