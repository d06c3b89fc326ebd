"""Programs of streams with checkpoints: tables that all tasks have, joins whose state expires, and other numbers of tasks.

A program reads two spouts. It is a component of the model, and the topology has all components that streams make of it. Between
two of them with the same parallelism rows stay in the task of one index, also where a rebalance has given them other numbers.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from msgspec import Struct

from tests.simulator import checkpointed_sinks, checkpointed_sources
from tests.simulator.chained_scenarios import draw_settings, draw_spout
from tests.simulator.checkpoint_scenarios import CheckpointScenario
from tests.simulator.checkpointed_sources import JITTER_MS, Source, event_time
from tests.simulator.checkpointed_stages import Beyond, CheckpointedStage, Mishaps, Row, Stateful, digest_of, key_of, row_of
from tests.simulator.faults import draw_checkpoint_faults
from tests.simulator.random_checkpoint_scenarios import draw_rescaled
from tests.simulator.savepoints import SavepointRequest, asked_again, draw_requests
from tests.simulator.topologies import Part
from topo.api.bolt import BasicCollector, StatefulBolt
from topo.api.context import TaskContext
from topo.api.topology import Topology
from topo.api.tuples import Tuple
from topo.streams import CoProcess, KeyedList, KeyedMap, Stream, StreamBuilder, Tumbling

BEFORE_MS, AFTER_MS, WINDOW_MS, TTL_MS = 20, 45, 100, 30
PROGRAM, LOG = "program", "log"


class Event(Struct, frozen=True):
    """A row, as a record of a stream."""

    key: str
    id: str
    n: int
    root: str


def at_of(event: Event | Row) -> int:
    """Return the event time of a record or row of a source."""
    return event_time(event.root, event.n)


def _is_deleted(at: int) -> bool:
    return at % 7 == 0


class Program(CheckpointedStage):
    """A program that reads the streams `left` and `right`.

    Attributes:
        disorder_ms: of both, as the program declares it.
    """

    disorder_ms = JITTER_MS

    @abstractmethod
    def draw(self, flow: StreamBuilder, left: Stream[Event], right: Stream[Event], tasks: int) -> Any:
        """Draw the program; return its results: a stream, or the id of a bolt."""

    def join(self, left: Any, right: Any) -> Event:
        """Return the result of two records; either may be None."""
        one, (first, second) = left or right, (side.id if side else "nothing" for side in (left, right))
        made = Event(one.key, f"({first} & {second})>{self.name}", one.n, one.root)
        # One failure for each key: a row that has many partners has as many attempts as any.
        self.meet(one.key)
        return made

    def joined(self, left: Row | None, right: Row | None) -> Row:
        """Return the result of two rows, as `join` does."""
        one, (first, second) = left or right, (side.id if side else "nothing" for side in (left, right))
        assert one is not None
        return one._replace(id=f"({first} & {second})>{self.name}")

    def given(self, expected: Any, found: Any, tasks: Sequence[int]) -> Any:
        """Return the rows that the log has to have, which may depend on those that it has.

        Args:
            tasks: the numbers of tasks that the program has had.
        """
        return expected

    def model(self, inputs: Mapping[str, Sequence[Row]]) -> list[Row]:
        return [self.joined(*pair) for pair in self.pairs(inputs["left"], inputs["right"])]

    def pairs(self, lefts: Sequence[Row], rights: Sequence[Row]) -> Iterator[tuple[Row | None, Row | None]]:
        """Yield the rows that meet."""
        raise NotImplementedError


class Near(Program):
    """An interval join: state expires by event time."""

    def draw(self, flow: StreamBuilder, left: Stream[Event], right: Stream[Event], tasks: int) -> Any:
        ones, others = (side.key_by(lambda event: event.key, parallelism=tasks) for side in (left, right))
        function = lambda one, other: self.join(one, other)  # noqa: E731
        return ones.left_interval_join(
            others, function, before=f"{BEFORE_MS}ms", after=f"{AFTER_MS}ms", of=Event, name=PROGRAM
        ).values().with_event_time(at_of, disorder="10s")  # fmt: skip

    def pairs(self, lefts: Sequence[Row], rights: Sequence[Row]) -> Iterator[tuple[Row | None, Row | None]]:
        for left in lefts:
            near = [one for one in rights if one.key == left.key and -BEFORE_MS <= at_of(one) - at_of(left) <= AFTER_MS]
            yield from ((left, right) for right in near or (None,))


class AsOf(Program):
    """A join with the row of a table that held at the time of the record."""

    def draw(self, flow: StreamBuilder, left: Stream[Event], right: Stream[Event], tasks: int) -> Any:
        ones, others = (side.key_by(lambda event: event.key, parallelism=tasks) for side in (left, right))
        function = lambda one, other: self.join(one, other and self.version(other.key, at_of(other)))  # noqa: E731
        table = others.latest(deleted=lambda event: _is_deleted(at_of(event)))
        return ones.left_join_table(table, function, as_of=True, of=Event, name=PROGRAM).values()

    def version(self, key: str, at: int) -> Event:
        """Return a row of the table: of two with the same time either may hold."""
        return Event(key, f"at {at}", 0, "")

    def pairs(self, lefts: Sequence[Row], rights: Sequence[Row]) -> Iterator[tuple[Row | None, Row | None]]:
        for left in lefts:
            at = max((at_of(one) for one in rights if one.key == left.key and at_of(one) <= at_of(left)), default=0)
            yield left, Row(left.key, f"at {at}", 0, "", at) if at and not _is_deleted(at) else None


class InWindows(Program):
    """A join by window."""

    def draw(self, flow: StreamBuilder, left: Stream[Event], right: Stream[Event], tasks: int) -> Any:
        ones, others = (side.key_by(lambda event: event.key, parallelism=tasks) for side in (left, right))
        function = lambda one, other: self.join(one, other)  # noqa: E731
        return ones.outer_join(others, function, window=Tumbling(f"{WINDOW_MS}ms"), of=Event, name=PROGRAM).values()

    def pairs(self, lefts: Sequence[Row], rights: Sequence[Row]) -> Iterator[tuple[Row | None, Row | None]]:
        sides = [[(row.key, at_of(row) // WINDOW_MS) for row in side] for side in (lefts, rights)]
        for window in {*sides[0], *sides[1]}:
            ones, others = ([row for row, at in zip(side, places, strict=True) if at == window]
                            for side, places in zip((lefts, rights), sides, strict=True))  # fmt: skip
            yield from ((one, other) for one in ones or (None,) for other in others or (None,))


class Clocked(CoProcess[str, Event, Event, Event]):
    """Pairs of records that come within a time by the clock, and for each record the moment at which it came."""

    lefts = KeyedMap(str, int, ttl=f"{TTL_MS}ms")
    rights = KeyedList(str, ttl=f"{TTL_MS}ms")

    def process_left(self, record: Event, context: Any, out: Any) -> None:
        self._came(record, context, out)
        for other in self.rights.get():
            out.emit(Event(record.key, f"{record.id} & {other}", 0, record.root))
        self.lefts.put(record.id, 1)

    def process_right(self, record: Event, context: Any, out: Any) -> None:
        self._came(record, context, out)
        for other in self.lefts.items():
            out.emit(Event(record.key, f"{other} & {record.id}", 0, record.root))
        self.rights.add(record.id)

    def _came(self, record: Event, context: Any, out: Any) -> None:
        out.emit(Event(record.key, f"{record.id}@{context.current_processing_time}", 0, record.root))


class Soon(Program):
    """A join whose state expires by the clock. Which rows meet follows from the moments that its results name."""

    def draw(self, flow: StreamBuilder, left: Stream[Event], right: Stream[Event], tasks: int) -> Any:
        ones, others = (side.key_by(lambda event: event.key, parallelism=tasks) for side in (left, right))
        return ones.connect(others).process(Clocked(), of=Event, name=PROGRAM).values()

    def model(self, inputs: Mapping[str, Sequence[Row]]) -> list[Row]:
        return [row for rows in inputs.values() for row in rows]

    def given(self, expected: Any, found: Any, tasks: Sequence[int]) -> Any:
        came = {(key, row): int(at) for key, row, at in ((key, *one.split("@")) for key, one in found if "@" in one)}
        rows = [(key, f"{row}@{came.get((key, row), 'never')}") for key, row in expected]
        for (key, left), at in came.items():
            if left.startswith("left"):
                rows += [(key, f"{left} & {right}") for (other, right), then in came.items()
                         if other == key and right.startswith("right") and abs(at - then) < TTL_MS]  # fmt: skip
        return sorted(rows)


class Enriched(Program, Stateful):
    """A table in all tasks. Its state is the rows of the table."""

    key = ""

    def draw(self, flow: StreamBuilder, left: Stream[Event], right: Stream[Event], tasks: int) -> Any:
        table = right.broadcast(lambda event: event.root)
        function = lambda event, table: self.join(event, next(iter(table.values()), event) and None)  # noqa: E731
        return left.rebalance(parallelism=tasks).enrich(table, function, of=Event, name=PROGRAM)

    def pairs(self, lefts: Sequence[Row], rights: Sequence[Row]) -> Iterator[tuple[Row | None, Row | None]]:
        yield from ((left, None) for left in lefts)

    def final(self, inputs: Mapping[str, Sequence[Row]]) -> Any:
        return sorted(row.root for row in inputs["right"])

    @staticmethod
    def together(states: Sequence[Any]) -> Any:
        return sorted(root for state in states for root, _ in state[None])


class Rules(Program, StatefulBolt):
    """A bolt with broadcast state, which counts the rows of the table. At the end each task emits the table that it has."""

    is_broadcast = True

    def prepare(self, context: TaskContext) -> None:
        self.table: dict[str, int] = {}

    def draw(self, flow: StreamBuilder, left: Stream[Event], right: Stream[Event], tasks: int) -> Any:
        flow.topology_builder.set_bolt(PROGRAM, self, tasks).shuffle_grouping(left.id).all_grouping(right.id)
        return PROGRAM

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        self.meet(tup["id"])
        if tup["root"].startswith("right"):
            self.table[tup["id"]] = self.table.get(tup["id"], 0) + 1
        else:
            collector.emit(self.joined(row_of(tup.values), None).values)

    def end_of_input(self, collector: BasicCollector) -> None:
        collector.emit(self._of_table(self.table).values)

    def snapshot(self) -> Any:
        return self.table

    def restore(self, state: Any) -> None:
        self.table = dict(state or {})

    def _of_table(self, table: Mapping[str, int]) -> Row:
        name = f"{self.name}[{len(table)}, {digest_of(f'{one} {count}' for one, count in table.items()):x}]"
        return Row(key_of(name), name, 0, name, None)

    def pairs(self, lefts: Sequence[Row], rights: Sequence[Row]) -> Iterator[tuple[Row | None, Row | None]]:
        yield from ((left, None) for left in lefts)

    def model(self, inputs: Mapping[str, Sequence[Row]]) -> list[Row]:
        return [*super().model(inputs), self._of_table({row.id: 1 for row in inputs["right"]})]

    def given(self, expected: Any, found: Any, tasks: Sequence[int]) -> Any:
        # A run that reads on from the savepoint of an ended one comes to the end once more.
        end = next(row for row in expected if row[1].startswith(f"{self.name}["))
        count = found.count(end)
        return sorted([*expected, *[end] * (count - 1)]) if count in (*tasks, sum(tasks)) else expected


class StreamScenario(CheckpointScenario):
    """A program of streams, its settings and its faults."""

    def topology(self, outside: Beyond) -> Topology:
        by_name = {part.name: part for part in self.parts}
        flow = StreamBuilder(f"streams-{self.seed}").config(**self.settings)
        program, log = by_name[PROGRAM], by_name[LOG]
        drawn = program.make(outside)
        left, right = (
            flow.from_spout(part.make(outside), of=Event, parallelism=part.parallelism, name=part.name).with_event_time(
                at_of, disorder=f"{drawn.disorder_ms}ms"
            )
            for part in self.parts[:2]
        )
        results = drawn.draw(flow, left, right, program.parallelism)
        if isinstance(results, Stream):
            # The field `key` in front of that of a record.
            results = results.key_by(lambda event: event.key).id
        flow.topology_builder.set_bolt(LOG, log.make(outside), log.parallelism).fields_grouping(results, "key")
        return flow.build()

    def given(self, name: str, expected: Any, found: Any) -> Any:
        program = self.parts[2]
        if name != LOG:
            return expected
        tasks = (program.parallelism, self.rescaled.get(PROGRAM, program.parallelism))
        return program.make(Beyond()).given(expected, found, tasks)


PROGRAMS: tuple[type[Program], ...] = (Near, AsOf, InWindows, Soon, Enriched, Rules)


def draw_stream_scenario(seed: int) -> StreamScenario:
    """Return the scenario of a seed; always the same."""
    random = Random(f"streams {seed}")
    parts = []
    for name in ("left", "right"):
        raises, quiet_s = random.choice((0, 20)), random.choice((0.0, 0.0, 0.1))
        source = Source(name, random.choice((15, 30)), random.choice((0.0, 0.002)), quiet_s, True, raises)
        parts.append(Part(name, draw_spout(random, source), random.choice((1, 2)), source=source))
    kind, work_s = random.choice(PROGRAMS), random.choice((0.0, 0.001))
    mishaps = Mishaps(random.choice((0, 3)), 0, random.choice((0, 0, 5)))
    make: Any = lambda outside: kind(outside, PROGRAM, work_s, mishaps)  # noqa: E731
    parts.append(Part(PROGRAM, make, random.choice((1, 2, 3)), (("left", "shuffle"), ("right", "shuffle"))))
    parts.append(Part(LOG, lambda outside: checkpointed_sinks.Log(outside, LOG), random.choice((1, 2)), ((PROGRAM, "key"),)))
    workers = random.choice((None, 1, 2))
    is_queue = any(isinstance(part.make(Beyond()), checkpointed_sources.QueueSpout) for part in parts[:2])
    scenario = StreamScenario(
        seed,
        parts,
        draw_settings(random, workers),
        draw_checkpoint_faults(random, has_links=workers != 1, may_damage=not is_queue),
        _draw_requests(random) if random.random() < 0.8 else (),
    )
    scenario.rescaled = draw_rescaled(random, scenario.topology(Beyond()))
    return scenario


def _draw_requests(random: Random) -> tuple[SavepointRequest, ...]:
    """Draw requests of savepoints, some of them made twice; most runs end with the last, and begin from it with other tasks."""
    *before, last = asked_again(random, draw_requests(random))
    return (*before, replace(last, stops=last.stops or random.random() < 0.5))
