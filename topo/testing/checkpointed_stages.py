"""Components for simulated topologies with checkpoints, each with a model: what becomes of its input, whatever its order.

A row is known by its id, to which every component appends. Which rows a topology makes, and what state it ends with, follows from
the rows of its spouts alone: timestamps are such that nothing is late by chance, and whatever is emitted depends on no order.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from operator import xor
from typing import Any, NamedTuple
from zlib import crc32

from topo.api.async_io import AsyncMode
from topo.api.bolt import BasicBolt, BasicCollector, Bolt, Collector, StatefulBolt
from topo.api.component import Component
from topo.api.context import TaskContext
from topo.api.operator_bolts import AsyncBolt, ProcessBolt, WindowBolt
from topo.api.spout import RetryingSpout, Spout, SpoutCollector
from topo.api.tuples import Tuple
from topo.api.two_phase import TwoPhaseSink
from topo.api.watermarks import WatermarkStrategy
from topo.api.windows import (
    EventTimeSessionWindows,
    ProcessWindowFunction,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from topo.testing.outside import Outside, Sleep, chosen
from topo.testing.stages import Trouble

FIELDS = ("key", "id", "n", "root")
KEYS = 5
STEP_MS = 10
JITTER_MS = 30
"""Rows of a spout task come out of order by less than this."""
TUMBLING_MS, SLIDING_MS, SLIDE_MS, GAP_MS, BUCKET_MS = 100, 200, 100, 35, 80
_WAIT_MS = 15
"""Rows wait so long for a timer of the clock."""
_AT_THE_END = 1 << 61


Token = tuple[str, int, int]
"""What a sink has staged: its name, the index of its task, a number."""


class Row(NamedTuple):
    """One tuple of the model. `at` is its event time; None where that depends on the order of things."""

    key: str
    id: str
    n: int
    root: str
    at: int | None

    @property
    def values(self) -> tuple[Any, ...]:
        """What is emitted."""
        return self[:4]


def row_of(values: Sequence[Any]) -> Row:
    """Return the row of which the values arrived."""
    key, row_id, n, root = values
    return Row(key, row_id, n, root, None)


@dataclass(slots=True)
class Beyond(Outside):
    """What is outside of all processes of a topology with checkpoints.

    Attributes:
        now: virtual seconds.
        quiet_until: by (spout, index): until when it has nothing to emit.
        staged: by token: ids of rows that are durable and not visible.
        published: by token: ids of rows that are visible.
    """

    now: Callable[[], float] = lambda: 0.0
    quiet_until: dict[tuple[str, int], float] = field(default_factory=dict)
    staged: dict[Token, list[str]] = field(default_factory=dict)
    published: dict[Token, list[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Mishaps:
    """What user code does wrong, each to one in so many rows; 0 for none.

    Attributes:
        fails: raises, the first time.
        hopeless: raises always.
        kills: takes its process down, the first time.
    """

    fails: int = 0
    hopeless: int = 0
    kills: int = 0


def digest_of(ids: Iterable[str]) -> int:
    """Return a number for a multiset of ids, in whatever order they come."""
    found = 0
    for one in ids:
        found ^= crc32(one.encode())
    return found


def key_of(name: str) -> str:
    """Return the key of a row that is made of nothing else."""
    return f"k{crc32(name.encode()) % KEYS}"


class CheckpointedStage(Component):
    """What the components share. A subclass is a bolt of some kind, too.

    Attributes:
        keeps_time: its output has the event time of its input.
        grouped_by: the field that its input has to be grouped by; "" for none.
    """

    outputs: Any = FIELDS
    keeps_time = True
    grouped_by = ""

    def __init__(self, outside: Beyond, name: str, work_s: float = 0.0, mishaps: Mishaps | None = None) -> None:
        self.outside, self.name, self.work_s = outside, name, work_s
        self.mishaps = mishaps or Mishaps()

    @abstractmethod
    def model(self, inputs: Mapping[str, Sequence[Row]]) -> list[Row]:
        """Return what it emits, given what it gets from each source. Pure."""

    def is_hopeless(self, row_id: str) -> bool:
        """Whether the row always fails."""
        return chosen(row_id, self.mishaps.hopeless, f"{self.name} hopeless")

    def survivors(self, inputs: Mapping[str, Sequence[Row]]) -> list[Row]:
        """Return the input that is not given up."""
        return [row for rows in inputs.values() for row in rows if not self.is_hopeless(row.id)]

    def letters(self, inputs: Mapping[str, Sequence[Row]]) -> list[Row]:
        """Return the input that is given up."""
        return [row for rows in inputs.values() for row in rows if self.is_hopeless(row.id)]

    def meet(self, row_id: str) -> None:
        """Work on a row, and go wrong if that is its fate."""
        self.outside.work(self.work_s)
        if chosen(row_id, self.mishaps.kills, f"{self.name} kills") and not self.outside.tried(f"{self.name} kills", row_id):
            self.outside.kill()
        if self.is_hopeless(row_id):
            raise Trouble(f"{row_id} is hopeless")
        if chosen(row_id, self.mishaps.fails, f"{self.name} fails") and not self.outside.tried(f"{self.name} fails", row_id):
            raise Trouble(f"{row_id} fails once")

    def renamed(self, row: Row, more: str = "") -> Row:
        """Return the row as it leaves."""
        return row._replace(id=f"{row.id}>{self.name}{more}")


# -- bolts without state -----------------------------------------------------------------------------------------------


class Relay(CheckpointedStage, BasicBolt):
    """One row for each; it raises after it has emitted."""

    def made_of(self, row: Row) -> list[Row]:
        """What becomes of one row."""
        return [self.renamed(row)]

    def model(self, inputs: Mapping[str, Sequence[Row]]) -> list[Row]:
        return [made for row in self.survivors(inputs) for made in self.made_of(row)]

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        for made in self.made_of(row_of(tup.values)):
            collector.emit(made.values)
        self.meet(tup["id"])


class Double(Relay):
    """Two rows for each."""

    def made_of(self, row: Row) -> list[Row]:
        return [self.renamed(row, ".0"), self.renamed(row, ".1")]


class Sieve(Relay):
    """Two of three rows."""

    def made_of(self, row: Row) -> list[Row]:
        return [] if chosen(row.id, 3, self.name) else [self.renamed(row)]


class Hand(CheckpointedStage, Bolt):
    """Anchors and acks by itself; what is hopeless it fails."""

    def prepare(self, context: TaskContext, collector: Collector) -> None:
        self.collector = collector

    def model(self, inputs: Mapping[str, Sequence[Row]]) -> list[Row]:
        return [self.renamed(row) for row in self.survivors(inputs)]

    def execute(self, tup: Tuple) -> None:
        if self.is_hopeless(tup["id"]):
            self.collector.fail(tup)
            return
        self.collector.emit(self.renamed(row_of(tup.values)).values, tup)
        self.meet(tup["id"])
        self.collector.ack(tup)


class Call(CheckpointedStage, AsyncBolt):
    """Asynchronous calls that take different times."""

    def __init__(
        self, outside: Beyond, name: str, work_s: float = 0.0, mishaps: Mishaps | None = None, *, is_ordered: bool, capacity: int
    ) -> None:
        CheckpointedStage.__init__(self, outside, name, work_s, mishaps)
        AsyncBolt.__init__(self, AsyncMode.ORDERED if is_ordered else AsyncMode.UNORDERED, capacity)

    def model(self, inputs: Mapping[str, Sequence[Row]]) -> list[Row]:
        return [self.renamed(row) for row in self.survivors(inputs)]

    async def call(self, tup: Tuple) -> Any:
        await Sleep(crc32(tup["id"].encode()) % 20 * 0.001)
        if self.is_hopeless(tup["id"]):
            raise Trouble(f"{tup['id']} is hopeless")
        return self.renamed(row_of(tup.values)).values


# -- bolts with state --------------------------------------------------------------------------------------------------


class Stateful(CheckpointedStage):
    """A bolt whose state after the last checkpoint is known."""

    @abstractmethod
    def final(self, inputs: Mapping[str, Sequence[Row]]) -> Any:
        """Return its state, of all tasks together, after all its input. Pure."""

    @staticmethod
    @abstractmethod
    def together(states: Sequence[Any]) -> Any:
        """Return the states of its tasks, as `snapshot` gave them, in the form of `final`."""


class Tally(Stateful, StatefulBolt):
    """For each key: how many rows, the sum of their numbers, a digest of their ids. It lets them through."""

    key = "key"
    grouped_by = "key"

    def prepare(self, context: TaskContext) -> None:
        self.state: dict[str, list[int]] = {}

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        collector.emit(self.renamed(row_of(tup.values)).values)
        self.meet(tup["id"])
        found = self.state.setdefault(tup["key"], [0, 0, 0])
        found[:] = [found[0] + 1, found[1] + tup["n"], found[2] ^ crc32(tup["id"].encode())]

    def snapshot(self) -> Any:
        return self.state

    def restore(self, state: Any) -> None:
        self.state = {key: list(found) for key, found in (state or {}).items()}

    def model(self, inputs: Mapping[str, Sequence[Row]]) -> list[Row]:
        return [self.renamed(row) for row in self.survivors(inputs)]

    def final(self, inputs: Mapping[str, Sequence[Row]]) -> Any:
        rows: dict[str, list[Row]] = {}
        for row in self.survivors(inputs):
            rows.setdefault(row.key, []).append(row)
        return {key: (len(of), sum(one.n for one in of), digest_of(one.id for one in of)) for key, of in rows.items()}

    @staticmethod
    def together(states: Sequence[Any]) -> Any:
        return {key: tuple(found) for state in states for key, found in state.items()}


class Whole(Stateful, StatefulBolt):
    """As `Tally`, over all rows of a task."""

    def prepare(self, context: TaskContext) -> None:
        self.state = (0, 0, 0)

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        self.meet(tup["id"])
        count, total, digest = self.state
        self.state = (count + 1, total + tup["n"], digest ^ crc32(tup["id"].encode()))
        collector.emit(self.renamed(row_of(tup.values)).values)

    def snapshot(self) -> Any:
        return self.state

    def restore(self, state: Any) -> None:
        self.state = tuple(state or (0, 0, 0))

    def model(self, inputs: Mapping[str, Sequence[Row]]) -> list[Row]:
        return [self.renamed(row) for row in self.survivors(inputs)]

    def final(self, inputs: Mapping[str, Sequence[Row]]) -> Any:
        rows = self.survivors(inputs)
        return (len(rows), sum(row.n for row in rows), digest_of(row.id for row in rows))

    @staticmethod
    def together(states: Sequence[Any]) -> Any:
        counts, totals, digests = zip(*states, strict=True)
        found = 0
        for digest in digests:
            found = xor(found, digest)
        return (sum(counts), sum(totals), found)


class Log(Stateful, StatefulBolt):
    """A sink that remembers every row."""

    outputs: Any = ()
    key = "key"
    grouped_by = "key"

    def prepare(self, context: TaskContext) -> None:
        self.state: dict[str, list[str]] = {}

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        self.meet(tup["id"])
        self.outside.effects[self.name, tup["id"]] = self.outside.effects.get((self.name, tup["id"]), 0) + 1
        self.state.setdefault(tup["key"], []).append(tup["id"])

    def snapshot(self) -> Any:
        return self.state

    def restore(self, state: Any) -> None:
        self.state = {key: list(ids) for key, ids in (state or {}).items()}

    def model(self, inputs: Mapping[str, Sequence[Row]]) -> list[Row]:
        return []

    def final(self, inputs: Mapping[str, Sequence[Row]]) -> Any:
        return sorted((row.key, row.id) for row in self.survivors(inputs))

    @staticmethod
    def together(states: Sequence[Any]) -> Any:
        return sorted((key, one) for state in states for key, ids in state.items() for one in ids)


class Ledger(CheckpointedStage, TwoPhaseSink):
    """A sink whose rows are published when their checkpoint is complete. Publishing goes wrong half way, now and then."""

    outputs: Any = ()

    def open(self, context: TaskContext) -> None:
        self.index, self.parallelism = context.task_index, context.parallelism
        self.rows: list[str] = []

    def begin(self) -> None:
        self.rows = []

    def write(self, tup: Tuple) -> None:
        self.meet(tup["id"])
        self.outside.effects[self.name, tup["id"]] = self.outside.effects.get((self.name, tup["id"]), 0) + 1
        self.rows.append(tup["id"])

    def pre_commit(self) -> Any:
        if not self.rows:
            return None
        number = self.outside.tried(f"{self.name} tokens", "")
        self.stumble(f"stage {number}")
        token = (self.name, self.index, number)
        self.outside.staged[token] = self.rows
        return token

    def commit(self, token: Any) -> None:
        rows = self.outside.staged.get(token)
        if rows is None:
            return
        published = self.outside.published.setdefault(token, [])
        published[:] = rows[: len(rows) // 2]
        self.stumble(f"publish {token}")
        published[:] = rows
        del self.outside.staged[token]

    def stumble(self, what: str) -> None:
        """Go wrong, now and then."""
        if chosen(what, self.mishaps.kills and 4, f"{self.name} kills") and not self.outside.tried(f"{self.name} kills", what):
            self.outside.kill()
        if chosen(what, self.mishaps.fails and 4, f"{self.name} fails") and not self.outside.tried(f"{self.name} fails", what):
            raise Trouble(f"cannot {what}")

    def abort(self, token: Any) -> None:
        if token is None:
            self.rows = []
        else:
            self.outside.staged.pop(token, None)

    def recover(self, tokens: Sequence[Any]) -> None:
        super().recover(tokens)
        for token in list(self.outside.staged):
            if token[0] == self.name and token[1] % self.parallelism == self.index:
                del self.outside.staged[token]

    def model(self, inputs: Mapping[str, Sequence[Row]]) -> list[Row]:
        return []


# -- the operator core -------------------------------------------------------------------------------------------------


class Contents(ProcessWindowFunction):
    """One row for what was in a window."""

    def __init__(self, stage: Windows) -> None:
        self.stage = stage

    def process(self, key: Any, elements: Sequence[Any], context: Any, collector: Any) -> None:
        self.stage.outside.work(self.stage.work_s)
        rows = [row_of(values) for values in elements]
        collector.emit(self.stage.result(key, context.window.start, context.window.end, rows).values)


class Windows(CheckpointedStage, WindowBolt):
    """Tumbling, sliding or session windows."""

    grouped_by = "key"

    def __init__(self, outside: Beyond, name: str, work_s: float = 0.0, mishaps: Mishaps | None = None, *, kind: str) -> None:
        CheckpointedStage.__init__(self, outside, name, work_s, mishaps)
        self.kind = kind
        windows: dict[str, Any] = {
            "tumbling": TumblingEventTimeWindows.of(f"{TUMBLING_MS}ms"),
            "sliding": SlidingEventTimeWindows.of(f"{SLIDING_MS}ms", f"{SLIDE_MS}ms"),
            "session": EventTimeSessionWindows.with_gap(f"{GAP_MS}ms"),
        }
        WindowBolt.__init__(self, key="key", window=windows[kind], process=Contents(self), outputs=FIELDS)
        self.grouped_by = "key"

    def result(self, key: str, start: int, end: int, rows: Sequence[Row]) -> Row:
        """Return what a window gives."""
        name = f"{self.name}[{key} {start}-{end}: {len(rows)}, {digest_of(row.id for row in rows):x}]"
        return Row(key, name, sum(row.n for row in rows), name, end - 1)

    def model(self, inputs: Mapping[str, Sequence[Row]]) -> list[Row]:
        contents: dict[tuple[str, int, int], list[Row]] = {}
        by_key: dict[str, list[tuple[int, str, Row]]] = {}
        for row in self.survivors(inputs):
            assert row.at is not None
            if self.kind == "session":
                by_key.setdefault(row.key, []).append((row.at, row.id, row))
                continue
            size, slide = (TUMBLING_MS, TUMBLING_MS) if self.kind == "tumbling" else (SLIDING_MS, SLIDE_MS)
            last = row.at // slide * slide
            for start in range(last - size + slide, last + 1, slide):
                contents.setdefault((row.key, start, start + size), []).append(row)
        for key, timed in by_key.items():
            timed.sort()
            held: list[Row] = []
            begin = end = timed[0][0]
            for at, _, row in timed:
                if held and at > end:
                    contents[key, begin, end] = held
                    held, begin = [], at
                held.append(row)
                end = at + GAP_MS
            contents[key, begin, end] = held
        return [self.result(*window, rows) for window, rows in contents.items()]


class Buckets(CheckpointedStage, ProcessBolt):
    """Sums by key and stretch of event time, given out by timers of event time."""

    def __init__(self, outside: Beyond, name: str, work_s: float = 0.0, mishaps: Mishaps | None = None) -> None:
        CheckpointedStage.__init__(self, outside, name, work_s, mishaps)
        ProcessBolt.__init__(self, key="key")
        self.grouped_by = "key"

    def open(self, context: Any) -> None:
        self.sums = context.state.map("sums")

    def process(self, tup: Tuple, context: Any, collector: Any) -> None:
        start = context.timestamp // BUCKET_MS * BUCKET_MS
        count, total, digest = self.sums.get(start, (0, 0, 0))
        self.sums.put(start, (count + 1, total + tup["n"], digest ^ crc32(tup["id"].encode())))
        context.register_event_time_timer(start + BUCKET_MS - 1)
        self.meet(tup["id"])

    def on_timer(self, timestamp: int, context: Any, collector: Any) -> None:
        start = timestamp + 1 - BUCKET_MS
        collector.emit(self.result(context.key, start, *self.sums.get(start)).values)
        self.sums.remove(start)

    def result(self, key: str, start: int, count: int, total: int, digest: int) -> Row:
        """Return what a bucket gives."""
        name = f"{self.name}[{key} {start}: {count}, {digest:x}]"
        return Row(key, name, total, name, start + BUCKET_MS - 1)

    def model(self, inputs: Mapping[str, Sequence[Row]]) -> list[Row]:
        buckets: dict[tuple[str, int], list[Row]] = {}
        for row in self.survivors(inputs):
            assert row.at is not None
            buckets.setdefault((row.key, row.at // BUCKET_MS * BUCKET_MS), []).append(row)
        return [
            self.result(key, start, len(rows), sum(row.n for row in rows), digest_of(row.id for row in rows))
            for (key, start), rows in buckets.items()
        ]


class Later(CheckpointedStage, ProcessBolt):
    """Holds rows back until a timer of the clock, or to the end of event time."""

    keeps_time = False

    def __init__(self, outside: Beyond, name: str, work_s: float = 0.0, mishaps: Mishaps | None = None) -> None:
        CheckpointedStage.__init__(self, outside, name, work_s, mishaps)
        ProcessBolt.__init__(self, key="key")
        self.grouped_by = "key"

    def open(self, context: Any) -> None:
        self.held = context.state.list("held")

    def process(self, tup: Tuple, context: Any, collector: Any) -> None:
        self.held.add(tup.values)
        context.register_processing_time_timer(context.current_processing_time + _WAIT_MS)
        context.register_event_time_timer(_AT_THE_END)
        self.meet(tup["id"])

    def on_timer(self, timestamp: int, context: Any, collector: Any) -> None:
        for values in self.held.get():
            collector.emit(self.renamed(row_of(values)).values)
        self.held.clear()

    def model(self, inputs: Mapping[str, Sequence[Row]]) -> list[Row]:
        return [self.renamed(row)._replace(at=None) for row in self.survivors(inputs)]


class Pairs(CheckpointedStage, ProcessBolt):
    """Joins the rows of two sources that have the same root."""

    def __init__(
        self, outside: Beyond, name: str, work_s: float = 0.0, mishaps: Mishaps | None = None, *, left: str, right: str
    ) -> None:
        CheckpointedStage.__init__(self, outside, name, work_s, mishaps)
        ProcessBolt.__init__(self, key="root")
        self.grouped_by = "root"
        self.left, self.right = left, right

    def open(self, context: Any) -> None:
        self.sides = {side: context.state.list(side) for side in ("left", "right")}

    def process(self, tup: Tuple, context: Any, collector: Any) -> None:
        is_left = tup.component == self.left
        mine, others = (self.sides["left"], self.sides["right"]) if is_left else (self.sides["right"], self.sides["left"])
        mine.add(tup.values)
        self.meet(tup["id"])
        for values in others.get():
            one, other = row_of(tup.values), row_of(values)
            collector.emit(self.pair(*((one, other) if is_left else (other, one))).values)

    def pair(self, left: Row, right: Row) -> Row:
        """Return what comes of two rows."""
        return left._replace(id=f"({left.id} & {right.id})>{self.name}", n=left.n + right.n)

    def model(self, inputs: Mapping[str, Sequence[Row]]) -> list[Row]:
        sides: list[dict[str, list[Row]]] = [{}, {}]
        for side, source in zip(sides, (self.left, self.right), strict=True):
            for row in self.survivors({source: inputs[source]}):
                side.setdefault(row.root, []).append(row)
        left, right = sides
        return [self.pair(*both) for root in left for both in product(left[root], right.get(root, ()))]


# -- spouts ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Source:
    """What a spout emits.

    Attributes:
        total: rows of each task.
        work_s: what each takes.
        quiet_s: in the middle it says that it is idle, for so long; after that it ends, if event time matters downstream.
        ends_quiet: whether it does.
    """

    name: str
    total: int
    work_s: float = 0.0
    quiet_s: float = 0.0
    ends_quiet: bool = False

    def row(self, index: int, number: int) -> Row:
        """Return a row."""
        name = f"{self.name}.{index}.{number}"
        return Row(key_of(name), name, number, name, number * STEP_MS + crc32(name.encode()) % JITTER_MS)

    def numbers(self) -> range:
        """Return the numbers of those that it emits."""
        return range(self.total // 2 if self.quiet_s and self.ends_quiet else self.total)


def strategy() -> WatermarkStrategy:
    """Return how all spouts make watermarks."""
    return WatermarkStrategy.bounded_out_of_orderness(f"{JITTER_MS}ms")


class _SourceSpout(Spout):
    outputs = FIELDS

    def __init__(self, outside: Beyond, source: Source) -> None:
        self.outside, self.source = outside, source

    def is_quiet(self, number: int) -> bool:
        """Whether it is in its quiet time before a row."""
        source, outside = self.source, self.outside
        if not source.quiet_s or number < source.total // 2:
            return False
        now = outside.now()
        return now < outside.quiet_until.setdefault((source.name, self.index), now + source.quiet_s)

    def emit(self, number: int) -> None:
        """Emit a row."""
        row = self.source.row(self.index, number)
        self.outside.work(self.source.work_s)
        self.collector.emit(row.values, number, timestamp=row.at)

    def open(self, context: TaskContext, collector: SpoutCollector) -> None:
        self.index, self.collector = context.task_index, collector


class ReplayableSpout(_SourceSpout, RetryingSpout):
    """Reads on from a position."""

    def open(self, context: TaskContext, collector: SpoutCollector) -> None:
        super().open(context, collector)
        done = context.committed_position
        self.next = 0 if done is None else done + 1

    def next_tuple(self) -> None:
        if self.is_quiet(self.next):
            self.collector.mark_idle()
        elif self.next >= len(self.source.numbers()):
            self.collector.end_of_input()
        else:
            self.emit(self.next)
            self.next += 1


class TellingSpout(ReplayableSpout):
    """One that wants to know which of its messages are covered."""

    def ack(self, message_id: Any) -> None:
        key = self.source.row(self.index, message_id).id
        self.outside.acked[key] = self.outside.acked.get(key, 0) + 1
        self.outside.on_ack(key)


class QueueSpout(_SourceSpout):
    """Takes from a queue that delivers again, in order, what was not acked.

    With `replays_in_fail` it ends its input when all were emitted once, and emits again inside `fail`; otherwise it ends when
    everything is acked.
    """

    def __init__(self, outside: Beyond, source: Source, replays_in_fail: bool) -> None:
        super().__init__(outside, source)
        self.replays_in_fail = replays_in_fail

    def open(self, context: TaskContext, collector: SpoutCollector) -> None:
        super().open(context, collector)
        self.left = self.outside.broker.setdefault((self.source.name, self.index), dict.fromkeys(self.source.numbers(), 0))
        self.queue = list(self.left)

    def next_tuple(self) -> None:
        if self.queue:
            if self.is_quiet(self.queue[0]):
                self.collector.mark_idle()
            else:
                self.emit(self.queue.pop(0))
        elif self.replays_in_fail or not self.left:
            if self.is_quiet(self.source.total):
                self.collector.mark_idle()
            else:
                self.collector.end_of_input()

    def ack(self, message_id: Any) -> None:
        self.left.pop(message_id, None)
        key = self.source.row(self.index, message_id).id
        self.outside.acked[key] = self.outside.acked.get(key, 0) + 1
        self.outside.on_ack(key)

    def fail(self, message_id: Any) -> None:
        if self.replays_in_fail:
            self.emit(message_id)
        else:
            self.queue = sorted({*self.queue, message_id})
