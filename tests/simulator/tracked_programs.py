"""Programs of streams for topologies with `at_least_once`, and the names that each message has to bring to the sink.

A record names the messages that it was made of, and the sink writes these names. State lives in the memory of its task. So only
those names are expected which the loss of a task cannot take: a running result has the record for which it was emitted, a window
has each record once it fires, or the late stream has it. Joins, whose records wait in state, have no deaths.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar
from zlib import crc32

from msgspec import Struct

from tests.simulator.checkpointed_sources import event_time
from tests.simulator.checkpointed_stages import key_of
from tests.simulator.external_world import ExternalWorld, Sleep, chosen
from tests.simulator.stages import Trouble
from topo.api.bolt import BasicBolt, BasicCollector
from topo.api.tuples import Tuple
from topo.streams import KeyedList, KeyedProcess, KeyedStream, Session, SideOutput, Sliding, Stream, Tumbling
from topo.streams.stream import WindowedStream

SINK, OPERATOR = "sink", "operator"
NEAR_MS, WINDOW_MS, SLIDE_MS, GAP_MS = 30, 100, 50, 35
_GROUPS = 12
"""How many keys `dedupe` meets."""


class Note(Struct, frozen=True):
    """A record. `names`: the messages that it was made of, and how, apart by spaces."""

    key: str
    names: str
    at: int


LATE = SideOutput("late", Note)


def note_of(message: str) -> Note:
    """Return the record that is made of a message."""
    return Note(key_of(message), message, event_time(message, int(message.rpartition(".")[2])))


def together(first: Note, second: Note) -> Note:
    """Return a record with the names of two."""
    return Note(first.key, f"{first.names} {second.names}", max(first.at, second.at))


class Flaky:
    """Raises the first time, for a share of records."""

    def __init__(self, outside: ExternalWorld, name: str, one_in: int) -> None:
        self._outside, self._name, self._one_in = outside, name, one_in

    def __call__(self, note: Note) -> Note:
        path = note.names.partition(" ")[0]
        if chosen(path, self._one_in, self._name) and not self._outside.tried(self._name, path):
            raise Trouble(f"{self._name}: {path} fails once")
        return note

    def __deepcopy__(self, memo: object) -> Flaky:
        return self


class Landing(BasicBolt):
    """The sink."""

    def __init__(self, outside: ExternalWorld) -> None:
        self.outside = outside

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        effects = self.outside.effects
        for name in tup["names"].split():
            effects[SINK, name] = effects.get((SINK, name), 0) + 1


class TrackedProgram(ABC):
    """An operator of a program, and the names that have to reach the sink.

    Attributes:
        sources: how many streams it reads.
        has_time: it needs event time.
        holds: it holds records until others come.
        is_done_at_once: an ack means that the names of the message have reached the sink.
        keeps_tasks: later records depend on its state, so nothing may take it.
        is_in_order: nor may a new epoch make replays of records that it has.
        may_give_up: a replay that comes too late is a dead letter.
        is_followed: a component behind it may raise, which brings its inputs back.
    """

    sources: ClassVar[int] = 1
    has_time: ClassVar[bool] = False
    holds: ClassVar[bool] = False
    is_done_at_once: ClassVar[bool] = True
    keeps_tasks: ClassVar[bool] = False
    is_in_order: ClassVar[bool] = False
    may_give_up: ClassVar[bool] = False
    is_followed: ClassVar[bool] = True

    def __init__(self, tasks: int, flaky: Callable[[Note], Note]) -> None:
        self.tasks, self.flaky = tasks, flaky

    @abstractmethod
    def draw(self, streams: Sequence[Stream[Note]]) -> Stream[Note]:
        """Draw the operator."""

    def names(self, made: Mapping[str, Sequence[str]]) -> dict[str, set[str]]:
        """Return for each message the names that are expected, given those of the records that it becomes."""
        return {message: set(names) for message, names in made.items()}

    def times(self, name: str) -> set[int]:
        """Return how often a name may come where nothing goes wrong."""
        return {1}

    def keyed(self, stream: Stream[Note]) -> KeyedStream[str, Note]:
        """Return a stream by key."""
        return stream.key_by(lambda note: note.key, parallelism=self.tasks)


class Nothing(TrackedProgram):
    """No operator with state."""

    def draw(self, streams: Sequence[Stream[Note]]) -> Stream[Note]:
        return streams[0].rebalance(parallelism=self.tasks).map(self.flaky)


class Last(TrackedProgram):
    """A running result, which has the last record."""

    def draw(self, streams: Sequence[Stream[Note]]) -> Stream[Note]:
        function = lambda _before, note: self.flaky(note)  # noqa: E731
        return self.keyed(streams[0]).reduce(function, name=OPERATOR).values()


class Sorted(KeyedProcess[str, Note, Note]):
    """Some records on a side output; the state of a key is its last records."""

    kept = KeyedList(str, ttl="20ms")

    def __init__(self, flaky: Callable[[Note], Note]) -> None:
        self._flaky = flaky

    def process(self, record: Note, context: Any, out: Any) -> None:
        self.kept.add(record.names)
        if len(self.kept.get()) % 2:
            out.side(LATE, record)
        else:
            out.emit(record)
        self._flaky(record)


class Apart(TrackedProgram):
    """A process function with a side output."""

    def draw(self, streams: Sequence[Stream[Note]]) -> Stream[Note]:
        sorted_ = self.keyed(streams[0]).process(Sorted(self.flaky), of=Note, name=OPERATOR)
        return sorted_.values().merge(sorted_.side(LATE))


class Deduped(TrackedProgram):
    """The first record of each key. Which one depends on the order, and a second one is done before the first."""

    is_done_at_once = False
    within: ClassVar[str | None] = None

    def draw(self, streams: Sequence[Stream[Note]]) -> Stream[Note]:
        keyed = streams[0].key_by(lambda note: _group(note.names), parallelism=self.tasks)
        first = keyed.dedupe(within=self.within, name=OPERATOR).values()
        return first.map(lambda note: Note(note.key, _group(note.names), note.at), of=Note).map(self.flaky)

    def names(self, made: Mapping[str, Sequence[str]]) -> dict[str, set[str]]:
        return {message: {_group(name) for name in names} for message, names in made.items()}


class DedupedForAWhile(Deduped):
    """Likewise, and again after a time."""

    within = "40ms"

    def times(self, name: str) -> set[int]:
        return set(range(1, 1_000))


class Batched(TrackedProgram):
    """Lists of records."""

    holds = True

    def draw(self, streams: Sequence[Stream[Note]]) -> Stream[Note]:
        lists = streams[0].rebalance(parallelism=self.tasks).batch(4, within="50ms", name=OPERATOR)
        return lists.map(_all_of, of=Note).map(self.flaky)


class InWindows(TrackedProgram):
    """Windows of event time."""

    has_time = holds = True
    window: ClassVar[Any] = Tumbling(f"{WINDOW_MS}ms")
    more: ClassVar[dict[str, str]] = {}

    def draw(self, streams: Sequence[Stream[Note]]) -> Stream[Note]:
        results, late = self.results(self.keyed(streams[0]).window(self.window, late=LATE, **self.more))
        return results.map(self.flaky).merge(late)

    def results(self, windows: WindowedStream[str, Note]) -> tuple[Stream[Note], Stream[Note]]:
        """Return the results of the windows, and the late records."""
        results = windows.process(lambda _key, window: [_all_of(window.value)], of=Note, name=OPERATOR)
        return results.values(), results.side(LATE)


class InSessions(InWindows):
    """Sessions, whose records are added up."""

    window = Session(f"{GAP_MS}ms")

    def results(self, windows: WindowedStream[str, Note]) -> tuple[Stream[Note], Stream[Note]]:
        results = windows.reduce(together, name=OPERATOR)
        return results.values().map(lambda window: window.value, of=Note), results.side(LATE)


class InSliding(InWindows):
    """Windows that overlap. A replay that is too late for one of them is not on the late stream while another takes it."""

    may_give_up = True
    window = Sliding(f"{WINDOW_MS}ms", f"{SLIDE_MS}ms")

    def times(self, name: str) -> set[int]:
        return {2}


class Alone(InWindows):
    """Windows without a side output, for which a replay may be too late."""

    may_give_up = True

    def draw(self, streams: Sequence[Stream[Note]]) -> Stream[Note]:
        windows = self.keyed(streams[0]).window(self.window)
        results = windows.process(lambda _key, window: [_all_of(window.value)], of=Note, name=OPERATOR)
        return results.values().map(self.flaky)


class Early(InWindows):
    """Windows that take late records for a while, and have early results."""

    more: ClassVar[dict[str, str]] = {"lateness": "60ms", "early": "10ms"}

    def times(self, name: str) -> set[int]:
        return set(range(1, 1_000))


class ByTheClock(InWindows):
    """Sessions of the clock."""

    has_time = False

    def draw(self, streams: Sequence[Stream[Note]]) -> Stream[Note]:
        windows = self.keyed(streams[0]).window(Session(f"{SLIDE_MS}ms", clock="processing"))
        return windows.reduce(together, name=OPERATOR).values().map(lambda window: window.value, of=Note).map(self.flaky)


class BehindDedupe(InWindows):
    """Windows behind another operator with state."""

    def keyed(self, stream: Stream[Note]) -> KeyedStream[str, Note]:
        once = stream.key_by(lambda note: note.names, parallelism=self.tasks).dedupe(name="once")
        return super().keyed(once.values())


class Paired(TrackedProgram):
    """A join by window."""

    sources = 2
    has_time = holds = True

    def draw(self, streams: Sequence[Stream[Note]]) -> Stream[Note]:
        left, right = map(self.keyed, streams)
        window = Tumbling(f"{WINDOW_MS}ms")
        joined = left.outer_join(right, _of_two, window=window, late=(LATE, LATE), of=Note, name=OPERATOR)
        return joined.values().map(self.flaky).merge(joined.side(LATE))

    def times(self, name: str) -> set[int]:
        return set(range(1, 1_000))


def _of_two(left: Note | None, right: Note | None) -> Note:
    if left is None or right is None:
        (one,) = (one for one in (left, right) if one is not None)
        return one
    return together(left, right)


class Rows(TrackedProgram):
    """The changes of a table."""

    def draw(self, streams: Sequence[Stream[Note]]) -> Stream[Note]:
        changes = self.keyed(streams[0]).latest().changes(name=OPERATOR)
        return changes.values().map(lambda change: change.new or note_of(""), of=Note).map(self.flaky)


class WithRow(TrackedProgram):
    """Each record with the row of a table, if there is one."""

    sources = 2

    def draw(self, streams: Sequence[Stream[Note]]) -> Stream[Note]:
        left, right = map(self.keyed, streams)
        function = lambda note, _row: self.flaky(note)  # noqa: E731
        return left.left_join_table(right.latest(), function, of=Note, name=OPERATOR).values()

    def names(self, made: Mapping[str, Sequence[str]]) -> dict[str, set[str]]:
        return {message: set(names) if message.startswith("one") else set() for message, names in made.items()}


class WithTable(WithRow):
    """Each record with a table that all tasks have."""

    def draw(self, streams: Sequence[Stream[Note]]) -> Stream[Note]:
        table = streams[1].broadcast(lambda note: note.key)
        left = streams[0].rebalance(parallelism=self.tasks)
        return left.enrich(table, lambda note, _table: self.flaky(note), of=Note, name=OPERATOR)


class Near(TrackedProgram):
    """Pairs of records that are near, or late ones. A replay that comes too late for its partner may not be lost in silence."""

    sources = 2
    has_time = keeps_tasks = True
    is_done_at_once = False

    def draw(self, streams: Sequence[Stream[Note]]) -> Stream[Note]:
        left, right = map(self.keyed, streams)
        joined = left.interval_join(
            right, _pair, before=f"{NEAR_MS}ms", after=f"{NEAR_MS}ms", late=(LATE, LATE), of=Note, name=OPERATOR
        )
        late = joined.side(LATE).map(lambda note: Note(note.key, f"late:{note.names}", note.at), of=Note)
        return joined.values().map(self.flaky).merge(late)

    def names(self, made: Mapping[str, Sequence[str]]) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {message: set() for message in made}
        notes = [(message, note_of(message), name) for message, names in made.items() for name in names]
        for message, one, name in notes:
            if not message.startswith("one"):
                continue
            for other_message, other, other_name in notes:
                if not other_message.startswith("one") and one.key == other.key and abs(one.at - other.at) <= NEAR_MS:
                    found[message].add(f"({name}&{other_name})")
        return found


class NearAlone(Near):
    """Likewise, without a side output for late records."""

    is_in_order = may_give_up = True

    def draw(self, streams: Sequence[Stream[Note]]) -> Stream[Note]:
        left, right = map(self.keyed, streams)
        joined = left.interval_join(right, _pair, before=f"{NEAR_MS}ms", after=f"{NEAR_MS}ms", of=Note, name=OPERATOR)
        return joined.values().map(self.flaky)


class AsOf(TrackedProgram):
    """Each record with the row of a table at its time: it waits in state until event time has passed it."""

    sources = 2
    has_time = keeps_tasks = is_in_order = may_give_up = True
    is_done_at_once = is_followed = False

    def draw(self, streams: Sequence[Stream[Note]]) -> Stream[Note]:
        left, right = map(self.keyed, streams)
        return left.left_join_table(right.latest(), lambda note, _row: note, as_of=True, of=Note, name=OPERATOR).values()

    def names(self, made: Mapping[str, Sequence[str]]) -> dict[str, set[str]]:
        return {message: set(names) if message.startswith("one") else set() for message, names in made.items()}


def _pair(left: Note, right: Note) -> Note:
    return Note(left.key, f"({left.names}&{right.names})", left.at)


def _group(names: str) -> str:
    return f"g{crc32(names.encode()) % _GROUPS}"


def _all_of(notes: Sequence[Note]) -> Note:
    return Note(notes[0].key, " ".join(note.names for note in notes), notes[0].at)


Shape = tuple[Callable[[str], list[str]], Callable[[Stream[Note], Callable[[Note], Note]], Stream[Note]]]
"""The names of the records that a message becomes, and how that is drawn."""


def _named(note: Note, more: str) -> Note:
    return Note(note.key, f"{note.names}+{more}", note.at)


def _parted(stream: Stream[Note], flaky: Callable[[Note], Note]) -> Stream[Note]:
    ones, others = stream.branch(lambda note: chosen(note.names, 2, "parted"))
    others = others.map(flaky).map(lambda note: _named(note, "other"), of=Note)
    return ones.map(lambda note: _named(note, "one"), of=Note).merge(others)


def _called(stream: Stream[Note], flaky: Callable[[Note], Note]) -> Stream[Note]:
    async def call(note: Note) -> Note:
        await Sleep(crc32(note.names.encode()) % 20 * 0.001)
        return flaky(note)

    return stream.async_map(call, capacity=5, ordered=False, of=Note)


SHAPES: dict[str, Shape] = {
    "plain": (lambda name: [name], lambda stream, flaky: stream.map(flaky)),
    "doubled": (
        lambda name: [f"{name}+a", f"{name}+b"],
        lambda stream, flaky: stream.map(flaky).flat_map(lambda note: [_named(note, "a"), _named(note, "b")], of=Note),
    ),
    "sieved": (
        lambda name: [name] if chosen(name, 2, "sieved") else [],
        lambda stream, flaky: stream.filter(lambda note: chosen(note.names, 2, "sieved")).map(flaky),
    ),
    "parted": (lambda name: [f"{name}+{'one' if chosen(name, 2, 'parted') else 'other'}"], _parted),
    "spread": (lambda name: [name], lambda stream, flaky: stream.rebalance(parallelism=2).map(flaky)),
    "called": (lambda name: [name], _called),
}
PROGRAMS: tuple[type[TrackedProgram], ...] = (
    *(Nothing, Last, Apart, Deduped, DedupedForAWhile, Batched, InWindows, InSessions, InSliding),
    *(Alone, Early, ByTheClock, BehindDedupe, Paired, Rows, WithRow, WithTable, Near, NearAlone, AsOf),
)
