"""Components for simulated topologies with checkpoints, each with a model: its output by its input, in whatever order.

A row is known by its id, to which every component appends. Which rows a topology makes, and what state it ends with, follows from
the rows of its spouts alone: timestamps are such that nothing is late by chance, and whatever is emitted depends on no order.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import xor
from typing import Any, NamedTuple
from zlib import crc32

from tests.simulator.external_world import ExternalWorld, Sleep, chosen
from tests.simulator.stages import HoldingBolt, Trouble
from topo.api.async_io import AsyncMode
from topo.api.bolt import BasicBolt, BasicCollector, Bolt, Collector, StatefulBolt
from topo.api.context import TaskContext
from topo.api.operator_bolts import AsyncBolt
from topo.api.tuples import Tuple

FIELDS = ("key", "id", "n", "root")
KEYS = 5

Token = tuple[str, int, int]
"""Names staged rows of a sink: its name, the index of its task, a number."""


class Row(NamedTuple):
    """One tuple of the model. `at` is its event time; None where that depends on the order of things."""

    key: str
    id: str
    n: int
    root: str
    at: int | None

    @property
    def values(self) -> tuple[Any, ...]:
        """The values of the tuple."""
        return self[:4]


def row_of(values: Sequence[Any]) -> Row:
    """Return the row of which the values arrived."""
    key, row_id, n, root = values
    return Row(key, row_id, n, root, None)


@dataclass(slots=True)
class Beyond(ExternalWorld):
    """The outside world of a topology with checkpoints; it outlives all processes.

    Attributes:
        staged: by token: ids of rows that are durable and not visible.
        published: by token, in the order of their commits: ids of rows that are visible.
        on_stage, on_commit: called with each token.
    """

    staged: dict[Token, list[str]] = field(default_factory=dict)
    published: dict[Token, list[str]] = field(default_factory=dict)
    on_stage: Callable[[Token], None] = lambda _token: None
    on_commit: Callable[[Token], None] = lambda _token: None


@dataclass(frozen=True, slots=True)
class Mishaps:
    """Failures of user code, each at one in a number of rows; 0 for none.

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


class CheckpointedStage:
    """Base of the components. A subclass is a bolt of some kind, too.

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
        """Return its output, given its input from each source. Pure."""

    def is_hopeless(self, row_id: str) -> bool:
        """Whether the row always fails."""
        return chosen(row_id, self.mishaps.hopeless, f"{self.name} hopeless")

    def survivors(self, inputs: Mapping[str, Sequence[Row]]) -> list[Row]:
        """Return the input that is not given up."""
        return [row for rows in inputs.values() for row in rows if not self.is_hopeless(row.id)]

    def dead_letters(self, inputs: Mapping[str, Sequence[Row]]) -> list[Row]:
        """Return the input that is given up."""
        return [row for rows in inputs.values() for row in rows if self.is_hopeless(row.id)]

    def meet(self, row_id: str) -> None:
        """Work on a row; end the process or raise at a fixed share of rows."""
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
        """The rows made of one."""
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


class NotCarried:
    """A value that no process can send. Its repr is the same in every run."""

    def __repr__(self) -> str:
        return "NotCarried()"


class Odd(Relay):
    """As `Relay`, but some of its rows cannot be carried: each of its readers, which are in other processes, loses those."""

    def is_refused(self, row: Row) -> bool:
        """Whether the row that is made of one cannot be carried."""
        return chosen(row.id, 12, f"{self.name} odd")

    def refused(self, inputs: Mapping[str, Sequence[Row]]) -> list[Row]:
        """Return the rows that cannot be carried."""
        return [self.renamed(row) for row in self.survivors(inputs) if self.is_refused(row)]

    def model(self, inputs: Mapping[str, Sequence[Row]]) -> list[Row]:
        return [self.renamed(row) for row in self.survivors(inputs) if not self.is_refused(row)]

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        row = row_of(tup.values)
        key, row_id, n, root = self.renamed(row).values
        collector.emit((key, row_id, NotCarried() if self.is_refused(row) else n, root))
        self.meet(tup["id"])


class Hand(CheckpointedStage, Bolt):
    """Anchors and acks its inputs itself; it fails those that are hopeless."""

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


class Hoard(CheckpointedStage, HoldingBolt):
    """Holds several rows before it emits and acks them, over barriers.

    Args:
        holds: how many rows.
    """

    def __init__(
        self,
        outside: Beyond,
        name: str,
        work_s: float = 0.0,
        mishaps: Mishaps | None = None,
        *,
        holds: int = 1,
        keeps_held: bool = False,
    ) -> None:
        super().__init__(outside, name, work_s, mishaps)
        self.holds, self.keeps_held = holds, keeps_held

    def model(self, inputs: Mapping[str, Sequence[Row]]) -> list[Row]:
        return [self.renamed(row) for row in self.survivors(inputs)]

    def execute(self, tup: Tuple) -> None:
        self.outside.work(self.work_s)
        self.held.append(tup)
        if len(self.held) >= self.holds:
            self.let_go()

    def let_go(self) -> None:
        held, self.held = self.held, []
        for tup in held:
            self.collector.emit(self.renamed(row_of(tup.values)).values, tup)
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
