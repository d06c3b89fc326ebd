"""Bolts for simulated topologies. The output for a path is pure; the outside world remembers which paths have failed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any
from zlib import crc32

from tests.simulator.external_world import FIELDS, ExternalWorld, Sleep, chosen
from topo.api.async_io import AsyncMode, FixedDelayRetry
from topo.api.bolt import BasicBolt, BasicCollector, Bolt, Collector
from topo.api.context import TaskContext
from topo.api.groupings import CustomGrouping
from topo.api.operator_bolts import AsyncBolt
from topo.api.streams import DEFAULT_STREAM, direct
from topo.api.tuples import Tuple

Outcomes = list[tuple[str, str]]
"""The outputs for a path: (stream, path) of each tuple."""


CALL_TIMEOUT_MS = 60
"""The timeout of asynchronous calls."""


class Trouble(Exception):
    """Raised by user code on purpose."""


class Stage:
    """Base of the bolts of simulated topologies.

    Attributes:
        keeps_key: output tuples keep the key of their input, so that two branches can be joined; else the key is the first path.
    """

    outputs: Any = FIELDS
    keeps_key = False

    def __init__(self, outside: ExternalWorld, name: str, work_s: float = 0.0) -> None:
        self.outside, self.name, self.work_s = outside, name, work_s

    def of_path(self, path: str) -> Outcomes:
        """Return the outputs for one path. Pure."""
        return [(DEFAULT_STREAM, f"{path}>{self.name}")]

    def is_first_time(self, tup: Tuple, one_in: int, what: str = "fails") -> bool:
        """Whether a path of the tuple is of such a share of all, and has not been asked about before."""
        name = f"{self.name} {what}"
        # Every path is asked about, so that none is left to fail alone next time.
        met = [self.outside.tried(name, path) for path in tup["paths"] if chosen(path, one_in, name)]
        return 0 in met

    def of_tuple(self, tup: Tuple) -> list[tuple[str, tuple[Any, ...]]]:
        """The tuples made of one, which is work."""
        self.outside.work(self.work_s)
        return self.ways_of(tup)

    def ways_of(self, tup: Tuple) -> list[tuple[str, tuple[Any, ...]]]:
        """The tuples made of one: paths that go the same way stay together."""
        ways: dict[tuple[str, int], list[str]] = {}
        for path in tup["paths"]:
            for place, (stream, made) in enumerate(self.of_path(path)):
                ways.setdefault((stream, place), []).append(made)
        return [(stream, (tup["key"] if self.keeps_key else paths[0], tuple(paths), None)) for (stream, _), paths in ways.items()]


class Map(Stage, BasicBolt):
    """One tuple for each. Of some it raises the first time, after it has emitted; some always fail, or take the process down."""

    def __init__(
        self,
        outside: ExternalWorld,
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

    def __init__(self, outside: ExternalWorld, name: str, work_s: float = 0.0, *, pieces: int = 2, **settings: Any) -> None:
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


class Call(Stage, AsyncBolt):
    """Asynchronous calls that take different times; a failure is called again at once, or fails its tuple.

    Args:
        is_ordered: results leave in the order of the inputs.
        capacity: how many calls are under way at most.
        fails_one_in: raises for such a share of all inputs, the first time.
        hangs_one_in: does not return for such a share, the first time, until the call has timed out.
        retries: a call that raises is made again.
    """

    def __init__(
        self,
        outside: ExternalWorld,
        name: str,
        work_s: float = 0.0,
        *,
        is_ordered: bool,
        capacity: int,
        fails_one_in: int = 0,
        hangs_one_in: int = 0,
        retries: bool = False,
        hopeless: Sequence[str] = (),
    ) -> None:
        Stage.__init__(self, outside, name, work_s)
        mode = AsyncMode.ORDERED if is_ordered else AsyncMode.UNORDERED
        retry = FixedDelayRetry(1, "2ms", if_error=lambda error: isinstance(error, Trouble)) if retries else None
        AsyncBolt.__init__(self, mode, capacity, f"{CALL_TIMEOUT_MS}ms", retry)
        self.fails_one_in, self.hangs_one_in, self.hopeless = fails_one_in, hangs_one_in, frozenset(hopeless)

    async def call(self, tup: Tuple) -> list[tuple[Any, ...]]:
        await Sleep(crc32(tup["key"].encode()) % 5 * 0.001)
        if not self.hopeless.isdisjoint(path.partition(">")[0] for path in tup["paths"]):
            raise Trouble(f"{tup['key']} is hopeless")
        if self.is_first_time(tup, self.fails_one_in):
            raise Trouble(f"{tup['key']} fails once")
        if self.is_first_time(tup, self.hangs_one_in, "hangs"):
            await Sleep(3 * CALL_TIMEOUT_MS / 1000)
        return [values for _, values in self.ways_of(tup)]


class Address(Stage, BasicBolt):
    """Names the task that gets each tuple."""

    outputs: Any = direct(*FIELDS)

    def __init__(self, outside: ExternalWorld, name: str, work_s: float, reader: str) -> None:
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


class HoldingBolt(Bolt):
    """Holds inputs back and lets them go together, the last ones at the end of its input.

    Attributes:
        keeps_held: those that it holds at a recovery it lets go after that, as it should not.
    """

    keeps_held = False

    def prepare(self, context: TaskContext, collector: Collector) -> None:
        self.collector, self.held = collector, list[Tuple]()

    def let_go(self) -> None:
        """Emit and ack the inputs that it holds."""
        raise NotImplementedError

    def end_of_input(self) -> None:
        self.let_go()

    def on_reset(self) -> None:
        if not self.keeps_held:
            self.held = []


class Forward(Stage, HoldingBolt):
    """Anchors and acks its inputs itself: at once, or when it holds several, or at the next tick.

    Args:
        holds: how many inputs it gathers.
        fails_one_in: fails such a share of all inputs, the first time.
        forgets_one_in: neither acks nor fails such a share, the first time.
        touches: resets the timeout of each input.
    """

    def __init__(
        self,
        outside: ExternalWorld,
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
    """Waits for both branches of a tuple, and emits a tuple that is anchored on both.

    Once both were seen, a replay of either is not held: two attempts of a message must not wait for each other.
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
        """Do nothing: inputs wait for their other branch."""


class Sink(Stage, BasicBolt):
    """Writes its inputs to the outside world."""

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


def write(outside: ExternalWorld, sink: str, paths: Iterable[str]) -> None:
    """Have an effect."""
    for path in paths:
        outside.effects[sink, path] = outside.effects.get((sink, path), 0) + 1


class Picky(CustomGrouping):
    """A user's own grouping. It sends some tuples, the first time, to a task that does not exist."""

    def __init__(self, outside: ExternalWorld, name: str, wrong_one_in: int) -> None:
        self.outside, self.name, self.wrong_one_in = outside, name, wrong_one_in

    def prepare(self, context: TaskContext, stream: str, target_tasks: Sequence[int]) -> None:
        self.targets = len(target_tasks)

    def choose(self, values: tuple[Any, ...]) -> Sequence[int]:
        key = values[0]
        if chosen(key, self.wrong_one_in, self.name) and not self.outside.tried(self.name, key):
            return [self.targets]
        return [crc32(key.encode()) % self.targets]
