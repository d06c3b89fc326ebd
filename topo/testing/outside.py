"""Components for simulated topologies, and the outside world that outlives their processes.

Every message is known by a *path*: its key, then what each component that it passed appended. What a component makes of a path is
a pure function, so what has to arrive at the sinks for each message can be computed without running anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

from topo.api.bolt import BasicBolt, BasicCollector, Bolt, Collector
from topo.api.component import Component
from topo.api.context import TaskContext
from topo.api.groupings import CustomGrouping
from topo.api.spout import RetryingSpout, Spout, SpoutCollector
from topo.api.streams import DEFAULT_STREAM, direct
from topo.api.tuples import Tuple

FIELDS = ("key", "paths", "extra")
Outcomes = list[tuple[str, str]]
"""What becomes of a path: (stream, path) for each tuple that is made of it."""


class Trouble(Exception):
    """What user code raises on purpose."""


@dataclass(slots=True)
class Outside:
    """What is not lost with a process.

    Attributes:
        effects: (sink, path) that were written, and how often.
        tries: (component, path) on which a component has failed already, and how often.
        broker: for spouts without positions: by (spout, index) the numbers that were not acked yet.
        acked: keys of messages whose spout was told `ack`, and how often.
        given_up: keys of messages whose spout was told that they are given up, or that gave them up itself.
        on_ack: called with the key when a spout is told `ack`.
        work: takes virtual seconds.
        kill: takes the calling process down.
    """

    effects: dict[tuple[str, str], int] = field(default_factory=dict)
    tries: dict[tuple[str, str], int] = field(default_factory=dict)
    broker: dict[tuple[str, int], dict[int, int]] = field(default_factory=dict)
    acked: dict[str, int] = field(default_factory=dict)
    given_up: dict[str, int] = field(default_factory=dict)
    on_ack: Callable[[str], None] = lambda _key: None
    work: Callable[[float], None] = lambda _seconds: None
    kill: Callable[[], None] = lambda: None

    def tried(self, component: str, path: str) -> int:
        """Count a failure of a component on a path; return how many there were before."""
        before = self.tries.get((component, path), 0)
        self.tries[component, path] = before + 1
        return before


def message_key(spout: str, index: int, number: int) -> str:
    """Return the key of a message."""
    return f"{spout}.{index}.{number}"


def chosen(path: str, one_in: int, salt: str) -> bool:
    """Whether a path belongs to a fixed share of all paths; always the same ones."""
    return one_in > 0 and crc32(f"{salt}{path}".encode()) % one_in == 0


# -- spouts --------------------------------------------------------------------------------------------------------------


class PositionedSpout(RetryingSpout):
    """Emits `total` messages, numbered by position, after the committed one."""

    outputs = FIELDS

    def __init__(self, outside: Outside, name: str, total: int, work_s: float) -> None:
        self.outside, self.name, self.total, self.work_s = outside, name, total, work_s

    def open(self, context: TaskContext, collector: SpoutCollector) -> None:
        self.index, self.collector = context.task_index, collector
        done = context.committed_position
        self.next = 0 if done is None else done + 1

    def next_tuple(self) -> None:
        if self.next >= self.total:
            self.collector.end_of_input()
            return
        self.outside.work(self.work_s)
        key = message_key(self.name, self.index, self.next)
        self.collector.emit((key, (key,), None), self.next)
        self.next += 1

    def ack(self, message_id: Any) -> None:
        key = message_key(self.name, self.index, message_id)
        self.outside.acked[key] = self.outside.acked.get(key, 0) + 1
        self.outside.on_ack(key)

    def fail(self, message_id: Any) -> None:
        key = message_key(self.name, self.index, message_id)
        self.outside.given_up[key] = self.outside.given_up.get(key, 0) + 1


class BrokerSpout(Spout):
    """Takes messages from a broker that delivers again what was not acked. Replays them by itself, a limited number of times.

    With `replays_in_fail` it ends its input when all were emitted once, and emits again inside `fail`; otherwise it queues replays
    for `next_tuple` and ends when nothing is left.
    """

    outputs = FIELDS

    def __init__(
        self, outside: Outside, name: str, total: int, work_s: float, attempts: int, replays_in_fail: bool, untracked: bool
    ) -> None:
        self.outside, self.name, self.total, self.work_s = outside, name, total, work_s
        self.attempts, self.replays_in_fail, self.untracked = attempts, replays_in_fail, untracked

    def open(self, context: TaskContext, collector: SpoutCollector) -> None:
        self.index, self.collector = context.task_index, collector
        left = self.outside.broker.setdefault((self.name, self.index), dict.fromkeys(range(self.total), 0))
        self.left = left
        self.queue = list(left)
        self.open_numbers = set(left)

    def next_tuple(self) -> None:
        if self.queue:
            self.outside.work(self.work_s)
            self._emit(self.queue.pop(0))
            if self.untracked:
                self.collector.emit(("untracked", (), None))
        elif self.replays_in_fail or not self.open_numbers:
            self.collector.end_of_input()

    def _emit(self, number: int) -> None:
        key = message_key(self.name, self.index, number)
        self.collector.emit((key, (key,), None), number)

    def ack(self, message_id: Any) -> None:
        key = message_key(self.name, self.index, message_id)
        self.outside.acked[key] = self.outside.acked.get(key, 0) + 1
        self.outside.on_ack(key)
        self.open_numbers.discard(message_id)
        self.left.pop(message_id, None)

    def fail(self, message_id: Any) -> None:
        if message_id not in self.left:
            return
        if self.outside.tried(self.name, f"{self.index}.{message_id}") >= self.attempts:
            self.left.pop(message_id)
            self.open_numbers.discard(message_id)
            key = message_key(self.name, self.index, message_id)
            self.outside.given_up[key] = 1
        elif self.replays_in_fail:
            self._emit(message_id)
        else:
            self.queue.append(message_id)


# -- bolts ---------------------------------------------------------------------------------------------------------------


class Stage(Component):
    """What bolts of simulated topologies share.

    Attributes:
        keeps_key: output tuples keep the key of their input, so that two branches can be joined; else the key is the first path.
    """

    outputs: Any = FIELDS
    keeps_key = False

    def __init__(self, outside: Outside, name: str, work_s: float = 0.0) -> None:
        self.outside, self.name, self.work_s = outside, name, work_s

    def of_path(self, path: str) -> Outcomes:
        """What becomes of one path. Pure."""
        return [(DEFAULT_STREAM, f"{path}>{self.name}")]

    def is_first_time(self, tup: Tuple, one_in: int, what: str = "fails") -> bool:
        """Whether a path of the tuple is of such a share of all, and has not been asked about before."""
        name = f"{self.name} {what}"
        return any([chosen(path, one_in, name) and not self.outside.tried(name, path) for path in tup["paths"]])

    def of_tuple(self, tup: Tuple) -> list[tuple[str, tuple[Any, ...]]]:
        """The tuples made of one: paths that go the same way stay together."""
        self.outside.work(self.work_s)
        ways: dict[tuple[str, int], list[str]] = {}
        for path in tup["paths"]:
            for place, (stream, made) in enumerate(self.of_path(path)):
                ways.setdefault((stream, place), []).append(made)
        return [
            (stream, (tup["key"] if self.keeps_key else paths[0], tuple(paths), None)) for (stream, _), paths in ways.items()
        ]


class Map(Stage, BasicBolt):
    """One tuple for each. Of some it raises the first time, after it has emitted; of some always, or it takes its process down."""

    def __init__(
        self,
        outside: Outside,
        name: str,
        work_s: float = 0.0,
        *,
        fails_one_in: int = 0,
        hopeless: Sequence[str] = (),
        poison: Sequence[str] = (),
        keeps_key: bool = False,
    ) -> None:
        super().__init__(outside, name, work_s)
        self.fails_one_in, self.hopeless, self.poison = fails_one_in, frozenset(hopeless), frozenset(poison)
        self.keeps_key = keeps_key

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        for stream, values in self.of_tuple(tup):
            collector.emit(values, stream=stream)
        for path in tup["paths"]:
            key = path.partition(">")[0]
            if key in self.poison:
                self.outside.kill()
            if key in self.hopeless:
                raise Trouble(f"{key} is hopeless")
        if self.is_first_time(tup, self.fails_one_in):
            raise Trouble(f"{tup['key']} fails once")


class Split(Map):
    """Several tuples for each."""

    def __init__(self, outside: Outside, name: str, work_s: float = 0.0, *, pieces: int = 2, **settings: Any) -> None:
        super().__init__(outside, name, work_s, **settings)
        self.pieces = pieces

    def of_path(self, path: str) -> Outcomes:
        return [(DEFAULT_STREAM, f"{path}>{self.name}.{piece}") for piece in range(self.pieces)]


class Filter(Map):
    """Lets two of three paths through."""

    def of_path(self, path: str) -> Outcomes:
        return [] if chosen(path, 3, self.name) else super().of_path(path)


class Fork(Map):
    """Sends some paths on one stream and some on another."""

    outputs: Any = {"even": FIELDS, "odd": FIELDS}

    def of_path(self, path: str) -> Outcomes:
        return [("even" if crc32(path.encode()) & 1 else "odd", f"{path}>{self.name}")]


class Address(Stage, BasicBolt):
    """Names the task that gets each tuple."""

    outputs: Any = direct(*FIELDS)

    def __init__(self, outside: Outside, name: str, work_s: float, reader: str) -> None:
        super().__init__(outside, name, work_s)
        self.reader = reader

    def prepare(self, context: TaskContext) -> None:
        self.readers = context.tasks_of(self.reader)

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        for _, values in self.of_tuple(tup):
            collector.emit_direct(self.readers[crc32(values[0].encode()) % len(self.readers)], values)


class Odd(Stage, BasicBolt):
    """Emits, now and then, a value that cannot leave the process. Its tuple fails, unless the reader is in the same one."""

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        for stream, (key, paths, _) in self.of_tuple(tup):
            collector.emit((key, paths, object() if self.is_first_time(tup, 20) else None), stream=stream)


class Forward(Stage, Bolt):
    """Anchors and acks by itself: at once, or when it holds several inputs, or at the next tick.

    Args:
        holds: how many inputs it gathers.
        fails_one_in: fails such a share of all inputs, the first time.
        forgets_one_in: neither acks nor fails such a share, the first time.
        touches: starts the timeout of each input anew.
        keeps_held: goes on with what it holds after a recovery, as it should not.
    """

    def __init__(
        self,
        outside: Outside,
        name: str,
        work_s: float = 0.0,
        *,
        holds: int = 1,
        fails_one_in: int = 0,
        forgets_one_in: int = 0,
        touches: bool = False,
        keeps_held: bool = False,
    ) -> None:
        super().__init__(outside, name, work_s)
        self.holds, self.touches, self.keeps_held = holds, touches, keeps_held
        self.fails_one_in, self.forgets_one_in = fails_one_in, forgets_one_in

    def prepare(self, context: TaskContext, collector: Collector) -> None:
        self.collector, self.held = collector, list[Tuple]()

    def execute(self, tup: Tuple) -> None:
        if not tup.is_tick:
            if self.touches:
                self.collector.reset_timeout(tup)
            if self.is_first_time(tup, self.forgets_one_in, "forgets"):
                return
            self.held.append(tup)
        if tup.is_tick or len(self.held) >= self.holds:
            self.let_go()

    def let_go(self) -> None:
        held, self.held = self.held, []
        for tup in held:
            if self.is_first_time(tup, self.fails_one_in):
                self.collector.fail(tup)
            else:
                for stream, values in self.of_tuple(tup):
                    self.collector.emit(values, anchors=tup, stream=stream)
                self.collector.ack(tup)

    def end_of_input(self) -> None:
        self.let_go()

    def on_reset(self) -> None:
        if not self.keeps_held:
            self.held = []


class Batch(Forward):
    """Makes one tuple of several, anchored on all of them."""

    def let_go(self) -> None:
        held, self.held = self.held, []
        paths = [made for tup in held for path in tup["paths"] for _, made in self.of_path(path)]
        if paths:
            self.outside.work(self.work_s)
            self.collector.emit((paths[0], tuple(paths), None), anchors=held)
        for tup in held:
            self.collector.ack(tup)


class Join(Forward):
    """Waits for both branches of a tuple, and emits one that is anchored on both.

    Once both were seen, what comes again is joined with what was seen: two attempts of a message must not wait for each other.
    """

    def prepare(self, context: TaskContext, collector: Collector) -> None:
        super().prepare(context, collector)
        self.seen: dict[str, set[str]] = {}

    def execute(self, tup: Tuple) -> None:
        if tup.is_tick:
            return
        key = tup["key"]
        seen = self.seen.setdefault(key, set())
        seen.add(tup.component)
        self.held.append(tup)
        if len(seen) == 2:
            mine = [held for held in self.held if held["key"] == key]
            self.held = [held for held in self.held if held["key"] != key]
            paths = tuple(f"{path.rpartition('>')[0]}>{self.name}" for path in tup["paths"])
            self.outside.work(self.work_s)
            self.collector.emit((paths[0] if paths else key, paths, None), anchors=mine)
            for held in mine:
                self.collector.ack(held)

    def let_go(self) -> None:
        """What waits for its other branch goes on waiting."""


class Sink(Stage, BasicBolt):
    """Writes what it gets to the outside."""

    outputs: Any = ()

    def of_path(self, path: str) -> Outcomes:
        return []

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        self.outside.work(self.work_s)
        write(self.outside, self.name, tup["paths"])


class BufferingSink(Forward):
    """Writes several inputs together, then acks them."""

    outputs: Any = ()

    def of_path(self, path: str) -> Outcomes:
        return []

    def let_go(self) -> None:
        held, self.held = self.held, []
        for tup in held:
            self.outside.work(self.work_s)
            write(self.outside, self.name, tup["paths"])
        for tup in held:
            self.collector.ack(tup)


def write(outside: Outside, sink: str, paths: Iterable[str]) -> None:
    """Have an effect."""
    for path in paths:
        outside.effects[sink, path] = outside.effects.get((sink, path), 0) + 1


class Picky(CustomGrouping):
    """A user's own grouping. Of some tuples it says, the first time, that they go to a task that does not exist."""

    def __init__(self, outside: Outside, name: str, wrong_one_in: int) -> None:
        self.outside, self.name, self.wrong_one_in = outside, name, wrong_one_in

    def prepare(self, context: TaskContext, stream: str, target_tasks: Sequence[int]) -> None:
        self.targets = len(target_tasks)

    def choose(self, values: tuple[Any, ...]) -> Sequence[int]:
        key = values[0]
        if chosen(key, self.wrong_one_in, self.name) and not self.outside.tried(self.name, key):
            return [self.targets]
        return [crc32(key.encode()) % self.targets]
