"""Programs of streams with windows and late records, times to live, timers, batches, running results, and changes of tables.

The results name the records that they were made of, and the moments of the clock that decided. From these follows, by a naive
model, whether they can be: nothing twice, nothing missing, and nothing else.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, ClassVar
from zlib import crc32

from tests.simulator.checkpointed_sources import JITTER_MS
from tests.simulator.checkpointed_stages import Beyond, Row, digest_of
from tests.simulator.external_world import Sleep, chosen
from tests.simulator.stream_scenarios import PROGRAM, Event, Program, at_of
from topo.streams import (
    AT_END,
    KeyedList,
    KeyedMap,
    KeyedProcess,
    KeyedValue,
    Rows,
    Session,
    SideOutput,
    Sliding,
    Stream,
    StreamBuilder,
    Tumbling,
    every,
)

TTL_MS, TIMER_MS, WINDOW_MS, SLIDE_MS, GAP_MS, BATCH = 30, 40, 100, 50, 35, 3
LATE = SideOutput("late", Event)
ODD = SideOutput("odd", Event)

Found = Mapping[str, Sequence[str]]  # the results by key


class KeyedProgram(Program):
    """A program that reads both streams as one, or its left side behind a step.

    Attributes:
        disorder_ms: how far records come out of order, as it is declared.
        has_one_key: the results of a call have one key.
        shape: the step between the sources and the operator.
        variant: a number that chooses among the forms of the operator.
    """

    disorder_ms = JITTER_MS
    has_one_key = True
    shape = "plain"
    variant = 0

    def draw(self, flow: StreamBuilder, left: Stream[Event], right: Stream[Event], tasks: int) -> Stream[Event]:
        records = SHAPES[self.shape][1](left).merge(right).tap(self._seen)
        return self.results(records, tasks).map(self._met, of=Event)

    @abstractmethod
    def results(self, records: Stream[Event], tasks: int) -> Stream[Event]:
        """Draw the operator; return its results, made by `made`."""

    @abstractmethod
    def problem(self, rows: Mapping[str, Sequence[Row]], found: Found) -> str:
        """Return why the results cannot be those of the rows, both by key; "" if they can."""

    def _seen(self, event: Event) -> None:
        # Some results come at the end, and faults strike by progress.
        self.outside.effects[PROGRAM, event.id] = 1

    def _met(self, event: Event) -> Event:
        # One failure for each key, since a call may have several results; or for all, where these have several keys.
        self.meet(event.key if self.has_one_key else "all")
        return event

    def shaped(self, inputs: Mapping[str, Sequence[Row]]) -> list[Row]:
        """Return the rows that come to the operator."""
        name = SHAPES[self.shape][0]
        return [row._replace(id=one) for row in inputs["left"] for one in name(row.id)] + list(inputs["right"])

    def model(self, inputs: Mapping[str, Sequence[Row]]) -> list[Row]:
        # The sinks have results; for the progress of a run as many of them count as records.
        return [one for row in self.shaped(inputs) for one in (row, self.renamed(row))]

    def judged(self, inputs: Mapping[str, Sequence[Row]], found: Sequence[tuple[str, str]]) -> str:
        """Return the problem of results, each with its key."""
        rows: dict[str, list[Row]] = {}
        results: dict[str, list[str]] = {}
        for row in self.shaped(inputs):
            rows.setdefault(row.key, []).append(row)
        for key, one in found:
            results.setdefault(key, []).append(one)
        return self.problem(rows, results)


def made(key: str, result: str) -> Event:
    """Return the record of a result. It begins with its key, where a sink has no other place for it."""
    return Event(key, f"{key}: {result}", 0, "")


def at_row(row: Row) -> int:
    """Return the event time of a row, also behind a step."""
    return at_of(row._replace(id=row.root))


def _id(event: Event | None) -> str:
    return event.id if event else "-"


def _names(records: Sequence[Event]) -> str:
    return " ".join(sorted(record.id for record in records))


# -- steps ahead of the operator ---------------------------------------------------------------------------------------


def _named(event: Event, more: str) -> Event:
    return Event(event.key, f"{event.id}+{more}", event.n, event.root)


def _parted(stream: Stream[Event]) -> Stream[Event]:
    ones, others = stream.branch(lambda event: chosen(event.id, 2, "parted"))
    others = others.map(lambda event: _named(event, "other"), of=Event)
    return ones.map(lambda event: _named(event, "one"), of=Event).merge(others)


async def _call(event: Event) -> Event:
    await Sleep(crc32(event.id.encode()) % 20 * 0.001)
    return event


SHAPES: dict[str, tuple[Callable[[str], list[str]], Callable[[Stream[Event]], Stream[Event]]]] = {
    "plain": (lambda name: [name], lambda stream: stream),
    "doubled": (
        lambda name: [f"{name}+a", f"{name}+b"],
        lambda stream: stream.flat_map(lambda event: [_named(event, "a"), _named(event, "b")], of=Event),
    ),
    "sieved": (
        lambda name: [name] if chosen(name, 2, "sieved") else [],
        lambda stream: stream.filter(lambda event: chosen(event.id, 2, "sieved")),
    ),
    "parted": (lambda name: [f"{name}+{'one' if chosen(name, 2, 'parted') else 'other'}"], _parted),
    "spread": (lambda name: [name], lambda stream: stream.rebalance(parallelism=2)),
    "called": (lambda name: [name], lambda stream: stream.async_map(_call, capacity=5, ordered=False, of=Event)),
}
"""The names that a record becomes, and how that is drawn."""


# -- operators ---------------------------------------------------------------------------------------------------------


class Ageing(KeyedProcess[str, Event, Event]):
    """For each record: its place among those of its key, the moment, and all state that is left. Then the timers."""

    serial = KeyedValue(int)
    value = KeyedValue(str, ttl=f"{TTL_MS}ms")
    items = KeyedList(str, ttl=f"{TTL_MS}ms")
    entries = KeyedMap(str, int, ttl=f"{TTL_MS}ms")

    def process(self, record: Event, context: Any, out: Any) -> None:
        serial = (self.serial.get() or 0) + 1
        self.serial.set(serial)
        left = (self.value.get() or "-", ",".join(self.items.get()), ",".join(self.entries.items()))
        result = made(
            record.key, f"{serial}@{context.current_processing_time} {record.id} {' '.join(one or '-' for one in left)}"
        )
        if serial % 3:
            self.value.set(record.id)
        self.items.add(record.id)
        self.entries.put(record.id, serial)
        if serial % 5 == 0:
            self.entries.remove(record.id)
        context.register_event_time_timer(context.timestamp // TIMER_MS * TIMER_MS + TIMER_MS)
        # Last: the operators behind it work, so that time passes.
        if serial % 2:
            out.side(ODD, result)
        else:
            out.emit(result)

    def on_timer(self, timestamp: int, context: Any, out: Any) -> None:
        out.emit(made(context.key, f"timer {timestamp}"))


class Aged(KeyedProgram):
    """State that expires by the clock, timers of event time, and a side output."""

    def results(self, records: Stream[Event], tasks: int) -> Stream[Event]:
        aged = records.key_by(lambda event: event.key, parallelism=tasks).process(Ageing(), of=Event, name=PROGRAM)
        return aged.values().merge(aged.side(ODD))

    def problem(self, rows: Mapping[str, Sequence[Row]], found: Found) -> str:
        for key, of in rows.items():
            expected = [f"timer {at_row(row) // TIMER_MS * TIMER_MS + TIMER_MS}" for row in of]
            results = found.get(key, ())
            if Counter(set(expected)) != Counter(one for one in results if one.startswith("timer ")):
                return f"timers of {key}"
            calls = sorted((int(one.partition("@")[0]), one) for one in results if not one.startswith("timer "))
            if [serial for serial, _ in calls] != list(range(1, len(of) + 1)):
                return f"calls of {key}"
            if sorted(one.split(" ")[1] for _, one in calls) != sorted(row.id for row in of):
                return f"records of {key}"
            value: tuple[str, int] = ("-", 0)
            items: list[tuple[str, int]] = []
            entries: dict[str, int] = {}
            for serial, one in calls:
                moment, name, *left = one.partition("@")[2].split(" ")
                now = int(moment)
                alive = [
                    value[0] if value[1] > now else "-",
                    ",".join(item for item, until in items if until > now) or "-",
                    ",".join(entry for entry, until in entries.items() if until > now) or "-",
                ]
                if left != alive:
                    return f"{key}: {one} should have {alive}"
                if serial % 3:
                    value = (name, now + TTL_MS)
                items.append((name, now + TTL_MS))
                if serial % 5:
                    entries[name] = now + TTL_MS
        return ""


class InWindows(KeyedProgram):
    """Windows of event time, with late records, a lateness, and early results; with few of these in one program."""

    kind: ClassVar[str] = "tumbling"

    def results(self, records: Stream[Event], tasks: int) -> Stream[Event]:
        windows: dict[str, Any] = {
            "tumbling": Tumbling(f"{WINDOW_MS}ms"),
            "sliding": Sliding(f"{WINDOW_MS}ms", f"{SLIDE_MS}ms"),
            "session": Session(f"{GAP_MS}ms"),
        }
        if isinstance(self, BehindDedupe):
            records = records.key_by(lambda event: event.id, parallelism=tasks).dedupe(within="1h", name="once").values()
        keyed = records.key_by(lambda event: event.key, parallelism=tasks)
        lateness, early = self._more
        inside = keyed.window(windows[self.kind], late=LATE, lateness=f"{lateness}ms", early=early)
        if self.variant % 2:
            reduced = inside.reduce(lambda one, other: Event(one.key, f"{one.id} {other.id}", 0, ""), name=PROGRAM)
            late = reduced.side(LATE)
            results = reduced.map_keyed(
                lambda key, window: made(key, f"{window.start}..{window.end} {' '.join(sorted(window.value.id.split()))}"),
                of=Event,
            )
        else:
            listed = inside.process(
                lambda key, window: [made(key, f"{window.start}..{window.end} {_names(window.value)}")], of=Event, name=PROGRAM
            )
            late, results = listed.side(LATE), listed.values()
        return results.merge(late.map(lambda event: made(event.key, f"late {event.id}"), of=Event))

    @property
    def _more(self) -> tuple[int, str | None]:
        return ((0, None), (0, None), (60, None), (0, "10ms"))[self.variant % 4]

    def problem(self, rows: Mapping[str, Sequence[Row]], found: Found) -> str:
        is_repeated = self._more != (0, None)
        for key, of in rows.items():
            at = {row.id: at_row(row) for row in of}
            late = [one.removeprefix("late ") for one in found.get(key, ()) if one.startswith("late ")]
            if len(set(late)) < len(late) or not at.keys() >= set(late):
                return f"late records of {key}: {late}"
            results: dict[tuple[int, int], list[set[str]]] = {}
            for one in found.get(key, ()):
                if not one.startswith("late "):
                    window, *names = one.split(" ")
                    start, end = map(int, window.split(".."))
                    if len(set(names)) < len(names):
                        return f"{key}: a record twice in {one}"
                    results.setdefault((start, end), []).append(set(names))
            taken = set().union(*(names for sets in results.values() for names in sets))
            if taken | set(late) != at.keys() or taken & set(late):
                return f"{key}: neither in a window nor late, or both: {sorted(at.keys() ^ (taken | set(late)))[:3]}"
            for (start, end), sets in results.items():
                if any(not start <= at[name] < end for names in sets for name in names):
                    return f"{key}: a record outside of its window {start}-{end}"
                if not is_repeated and len(sets) > 1:
                    return f"{key}: {start}-{end} has fired {len(sets)} times"
            # With less disorder than there is, a record may be late for one of its windows.
            if self.disorder_ms == JITTER_MS and not late and not is_repeated:
                expected, fired = self._windows(at), {window: names for window, (names,) in results.items()}
                if self._joined(fired) != expected:
                    return f"{key}: windows are {fired}, not {expected}"
            elif self.kind == "tumbling":
                whole = self._windows({name: moment for name, moment in at.items() if name not in late})
                if {window: max(sets, key=len) for window, sets in results.items()} != whole:
                    return f"{key}: last results are {results}, not {whole}"
        return ""

    def _joined(self, windows: dict[tuple[int, int], set[str]]) -> dict[tuple[int, int], set[str]]:
        """Return sessions with those joined that touch: the first may be over when the record at its end comes."""
        if self.kind != "session":
            return windows
        found: dict[tuple[int, int], set[str]] = {}
        for (start, end), names in sorted(windows.items()):
            last = next(reversed(found), None)
            if last is not None and start == last[1]:
                found[last[0], end] = found.pop(last) | names
            else:
                found[start, end] = names
        return found

    def _windows(self, at: Mapping[str, int]) -> dict[tuple[int, int], set[str]]:
        found: dict[tuple[int, int], set[str]] = {}
        if self.kind != "session":
            slide = WINDOW_MS if self.kind == "tumbling" else SLIDE_MS
            for name, moment in at.items():
                last = moment // slide * slide
                for start in range(last - WINDOW_MS + slide, last + 1, slide):
                    found.setdefault((start, start + WINDOW_MS), set()).add(name)
            return found
        held: list[tuple[int, str]] = []
        for moment, name in [*sorted((moment, name) for name, moment in at.items()), (1 << 60, "")]:
            if held and moment > held[-1][0] + GAP_MS:
                found[held[0][0], held[-1][0] + GAP_MS] = {name for _, name in held}
                held = []
            held.append((moment, name))
        return found


class InSliding(InWindows):
    """Windows that overlap."""

    kind = "sliding"


class InSessions(InWindows):
    """Sessions."""

    kind = "session"


class BehindDedupe(InWindows):
    """Windows behind another operator with state."""


class Running(KeyedProgram):
    """A running result, at the end or by the clock: the number and a digest of the records."""

    def results(self, records: Stream[Event], tasks: int) -> Stream[Event]:
        keyed = records.key_by(lambda event: event.key, parallelism=tasks)
        emit = AT_END if self.variant % 2 else every("20ms")
        totals = keyed.fold((0, 0), _added, of=tuple[int, int], emit=emit, name=PROGRAM)
        return totals.map_keyed(lambda key, total: made(key, f"{total[0]} {total[1]:x}"), of=Event)

    def problem(self, rows: Mapping[str, Sequence[Row]], found: Found) -> str:
        for key, of in rows.items():
            whole, results = f"{len(of)} {digest_of(row.id for row in of):x}", found.get(key, ())
            counts = [int(one.split(" ")[0]) for one in results]
            if whole not in results or max(counts) != len(of) or len(set(counts)) < len(counts):
                return f"{key}: {results} do not end with {whole}"
            if self.variant % 2 and len(results) > 1:
                return f"{key}: several results at the end: {results}"
        return ""


def _added(total: tuple[int, int], event: Event) -> tuple[int, int]:
    return total[0] + 1, total[1] ^ crc32(event.id.encode())


class Grouped(KeyedProgram):
    """Lists of records: of a task, by size or time; of a key, by number."""

    has_one_key = False

    def results(self, records: Stream[Event], tasks: int) -> Stream[Event]:
        if self.variant % 2:
            lists = records.rebalance(parallelism=tasks).batch(BATCH, within="30ms", name=PROGRAM)
            return lists.flat_map(lambda events: [made(event.key, f"{len(events)} {event.id}") for event in events], of=Event)
        keyed = records.key_by(lambda event: event.key, parallelism=tasks)
        return keyed.window(Rows(BATCH)).process(
            lambda key, window: [made(key, f"{window.start}..{window.end} {_names(window.value)}")], of=Event, name=PROGRAM
        ).values()  # fmt: skip

    def problem(self, rows: Mapping[str, Sequence[Row]], found: Found) -> str:
        for key, of in rows.items():
            names, results = {row.id for row in of}, [one.split(" ") for one in found.get(key, ())]
            taken = [name for _, *more in results for name in more]
            if len(set(taken)) < len(taken) or not names >= set(taken):
                return f"{key}: records twice, or unknown: {sorted(taken)}"
            if self.variant % 2:
                if set(taken) != names or any(not 1 <= int(size) <= BATCH for size, _ in results):
                    return f"{key}: missing are {sorted(names - set(taken))}"
                continue
            windows = {f"{start}..{start + BATCH}" for start in range(0, len(of) - BATCH + 1, BATCH)}
            if {window for window, *_ in results} != windows or any(len(more) != BATCH for _, *more in results):
                return f"{key}: {results} of {len(of)} records"
        return ""


class Changes(KeyedProgram):
    """The changes of a table: each begins where the one before it has ended."""

    def results(self, records: Stream[Event], tasks: int) -> Stream[Event]:
        table = records.key_by(lambda event: event.key, parallelism=tasks).latest(deleted=lambda event: event.n % 5 == 0)
        return table.changes(name=PROGRAM).map_keyed(
            lambda key, change: made(key, f"{_id(change.old)} {_id(change.new)}"), of=Event
        )

    def problem(self, rows: Mapping[str, Sequence[Row]], found: Found) -> str:
        for key, of in rows.items():
            pairs = [one.split(" ") for one in found.get(key, ())]
            olds, news = (Counter(side) for side in zip(*pairs, strict=True)) if pairs else (Counter(), Counter())
            kept = {row.id for row in of if row.n % 5}
            if {name for name in news if name != "-"} != kept or any(news[name] > 1 or olds[name] > 1 for name in kept):
                return f"{key}: changes are {pairs}"
            # The last row, if it is still there, is the old one of no change.
            ends = [name for name in kept if not olds[name]]
            if len(ends) + news["-"] != olds["-"] or len(ends) > 1:
                return f"{key}: {pairs} are no chain"
        return ""


class First(KeyedProgram):
    """`dedupe`: one record of each key, or another one after a time."""

    def results(self, records: Stream[Event], tasks: int) -> Stream[Event]:
        keyed = records.key_by(lambda event: event.key, parallelism=tasks)
        first = keyed.dedupe(within="20ms" if self.variant % 2 else None, name=PROGRAM)
        return first.map_keyed(lambda key, event: made(key, event.id), of=Event)

    def problem(self, rows: Mapping[str, Sequence[Row]], found: Found) -> str:
        for key, of in rows.items():
            results = found.get(key, ())
            is_once = len(results) == 1 if self.variant % 2 == 0 else len(set(results)) == len(results) > 0
            if not is_once or not {row.id for row in of}.issuperset(results):
                return f"{key}: {results}"
        return ""


KEYED_PROGRAMS: tuple[type[KeyedProgram], ...] = (
    *(Aged, InWindows, InSliding, InSessions, BehindDedupe, Running, Grouped, Changes, First),
)


def draw_program(random: Random, kind: type[KeyedProgram], **settings: Any) -> Callable[[Beyond], KeyedProgram]:
    """Draw the forms of a program; return what makes it."""
    shape, variant = random.choice(tuple(SHAPES)), random.randrange(4)
    disorder_ms = random.choice((JITTER_MS, JITTER_MS, 5, 0)) if issubclass(kind, InWindows) else JITTER_MS

    def make(outside: Beyond) -> KeyedProgram:
        program = kind(outside, PROGRAM, **settings)
        program.shape, program.variant, program.disorder_ms = shape, variant, disorder_ms
        return program

    return make
