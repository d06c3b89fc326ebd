"""Scripted sources: what a spout emits in a test, and what happens meanwhile.

A script outlives the spout that plays it: after a crash the next one begins behind the committed position, as a real source
would, and markers that have happened do not happen a second time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, Final

from topo.api.column_batch import ColumnBatch, batch_of
from topo.api.context import TaskContext
from topo.api.spout import RetryingSpout, SpoutCollector
from topo.api.streams import DEFAULT_STREAM, StreamDeclaration
from topo.config import parse_duration
from topo.errors import UserError
from topo.hot import Row
from topo.testing.clock import ClockDuration, ManualClock
from topo.testing.wire_roundtrip import WireRoundtrip


@dataclass(frozen=True, slots=True)
class Message:
    """An item of a source in full; made by `message`."""

    values: Sequence[Any]
    message_id: Any = None
    stream: str = DEFAULT_STREAM
    timestamp: int | None = None
    task: int | None = None


def message(
    *values: Any, message_id: Any = None, stream: str = DEFAULT_STREAM, timestamp: int | None = None, task: int | None = None
) -> Message:
    """Return an item of a source: `message("a", 1, stream="odd")`.

    Args:
        values: one for each field.
        message_id: by default its number among the messages of the source, from 0.
        stream: the stream to emit on.
        timestamp: event time in milliseconds.
        task: the task to emit to, on a direct stream.
    """
    return Message(values, message_id, stream, timestamp, task)


@dataclass(frozen=True, slots=True)
class EndMarker:
    """The marker END: the input ends."""

    def __repr__(self) -> str:
        return "END"


@dataclass(frozen=True, slots=True)
class Crash:
    """The marker CRASH: the worker of a task is killed, at once and with all it holds.

    Attributes:
        component: whose task; None: the source's own.
        task_index: which task of the component.
    """

    component: str | None = None
    task_index: int = 0

    def __call__(self, component: str, task_index: int = 0) -> Crash:
        """Return the marker for the worker of another component's task: `CRASH("count")`."""
        return Crash(component, task_index)


@dataclass(frozen=True, slots=True)
class Pause:
    """The marker PAUSE: the source is silent for this time."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Advance:
    """The marker ADVANCE: so much time passes before any scripted source emits again."""

    seconds: float


@dataclass(frozen=True, slots=True)
class FailNext:
    """The marker FAIL_NEXT: the next message fails once, where it is first processed."""

    def __repr__(self) -> str:
        return "FAIL_NEXT"


@dataclass(frozen=True, slots=True)
class WatermarkAt:
    """The marker WATERMARK: the source promises that no message with a timestamp up to this one follows."""

    timestamp: int


@dataclass(frozen=True, slots=True)
class IdleMarker:
    """The marker IDLE: readers do not wait for watermarks of the source until its next message or watermark."""

    def __repr__(self) -> str:
        return "IDLE"


END: Final = EndMarker()
IDLE: Final = IdleMarker()
CRASH: Final = Crash()
FAIL_NEXT: Final = FailNext()


def PAUSE(duration: ClockDuration) -> Pause:
    """Return the marker: this source is silent for this time; the others continue."""
    return Pause(parse_duration(duration))


def ADVANCE(duration: ClockDuration) -> Advance:
    """Return the marker: so much time passes before any scripted source emits again."""
    return Advance(parse_duration(duration))


def WATERMARK(timestamp: int) -> WatermarkAt:
    """Return the marker: the source emits this watermark (milliseconds)."""
    return WatermarkAt(timestamp)


Marker = EndMarker | Crash | Pause | Advance | FailNext | WatermarkAt | IdleMarker


@dataclass(slots=True)
class Stage:
    """The state that the scripts of one topology share.

    Attributes:
        hold_until: no scripted source emits before, in seconds of the clock.
        crashes: component and task index of the workers that are to be killed now.
        refuse: makes an input fail once, by its source and values.
    """

    clock: ManualClock
    refuse: Callable[[str, Row], None]
    hold_until: float = -inf
    crashes: list[tuple[str, int]] = field(default_factory=list)


@dataclass(slots=True)
class Script:
    """The script of one task, and how far it has happened.

    Attributes:
        happened: places of the markers that are over.
        until: by place of a PAUSE or ADVANCE that has begun: when it is over.
    """

    component: str
    task_index: int
    entries: list[Message | Marker]
    happened: set[int] = field(default_factory=set)
    until: dict[int, float] = field(default_factory=dict)


class ScriptedSpout(RetryingSpout):
    """Plays a script in place of a topology's own spout."""

    def __init__(self, script: Script, stage: Stage) -> None:
        self._script = script
        self._stage = stage
        self._next = 0

    def open(self, context: TaskContext, collector: SpoutCollector) -> None:
        """Begin behind the committed position."""
        self._collector = collector
        done = context.committed_position
        self._next = 0
        if done is not None:
            entries = enumerate(self._script.entries)
            self._next = next(place + 1 for place, entry in entries if isinstance(entry, Message) and entry.message_id == done)

    def next_tuple(self) -> None:
        """Emit the next message, or let happen what comes before it."""
        script, stage = self._script, self._stage
        while self.quiet_until() <= stage.clock() and self._next < len(script.entries):
            place, entry = self._next, script.entries[self._next]
            if isinstance(entry, Message):
                self._next += 1
                self._emit(entry)
                return
            if isinstance(entry, WatermarkAt | IdleMarker):
                self._next += 1
                if isinstance(entry, WatermarkAt):
                    self._collector.emit_watermark(entry.timestamp)
                else:
                    self._collector.mark_idle()
                return
            if place not in script.happened and not self._happen(place, entry):
                return
            script.happened.add(place)
            self._next += 1
            if isinstance(entry, EndMarker):
                self._collector.end_of_input()
                return
            if isinstance(entry, Crash) and stage.crashes:
                return

    def _emit(self, entry: Message) -> None:
        if entry.task is None:
            self._collector.emit(entry.values, entry.message_id, entry.stream, entry.timestamp)
        else:
            self._collector.emit_direct(entry.task, entry.values, entry.message_id, entry.stream, entry.timestamp)

    def _happen(self, place: int, entry: Marker) -> bool:
        """Let a marker happen; False while it lasts."""
        script, stage = self._script, self._stage
        if isinstance(entry, Pause | Advance):
            until = script.until.setdefault(place, stage.clock() + entry.seconds)
            if isinstance(entry, Advance):
                stage.hold_until = max(stage.hold_until, until)
            return stage.clock() >= until
        if isinstance(entry, Crash):
            own = script.component, script.task_index
            stage.crashes.append(own if entry.component is None else (entry.component, entry.task_index))
        elif isinstance(entry, FailNext):
            following = next((e for e in script.entries[place:] if isinstance(e, Message)), None)
            if following is not None:
                stage.refuse(script.component, tuple(following.values))
        return True

    @property
    def is_dry(self) -> bool:
        """Whether nothing of the script is left."""
        return self._next >= len(self._script.entries)

    def quiet_until(self) -> float:
        """Return the time before which the spout does not emit; infinity when its script is over."""
        return inf if self.is_dry else max(self._stage.hold_until, self._script.until.get(self._next, -inf))


def scripts_of(
    component: str, items: Iterable[Any], streams: Sequence[StreamDeclaration], carrier: WireRoundtrip, tasks: int
) -> list[Script]:
    """Return the script of each task of a spout. Messages are dealt in turn, markers go with what follows them.

    Raises:
        UserError: an item is not what a source may hold; the message names it.
        UnsupportedValueError: it has a value that cannot be emitted.
    """
    if isinstance(items, str | bytes) or not isinstance(items, Iterable):
        raise UserError(f"source {component!r} was given {items!r:.60} ({type(items).__name__}); give a list of its items")
    widths = {stream.name: 1 if stream.columnar else len(stream.fields) for stream in streams}
    columnar = {stream.name: stream for stream in streams if stream.columnar}
    scripts = [Script(component, index, []) for index in range(tasks)]
    seen: set[Any] = set()
    dealt = 0
    has_ended = False
    for place, item in enumerate(items):
        where = f"source {component!r}, item {place}"
        if has_ended:
            raise UserError(f"{where}: {item!r} comes after END")
        if isinstance(item, Marker):
            has_ended = isinstance(item, EndMarker)
            # Markers about time are for every task.
            for script in scripts if isinstance(item, EndMarker | Pause | WatermarkAt | IdleMarker) else [scripts[dealt % tasks]]:
                script.entries.append(item)
            continue
        read = _message_of(item, widths, where)
        if (batches := columnar.get(read.stream)) is not None:
            read = _batch_message(read, batches, where)
        values = carrier.carried(read.values, read.stream)
        message_id = dealt if read.message_id is None else read.message_id
        if message_id in seen:
            raise UserError(f"{where}: message id {message_id!r} occurs twice; give every message its own id")
        seen.add(message_id)
        scripts[dealt % tasks].entries.append(Message(values, message_id, read.stream, read.timestamp, read.task))
        dealt += 1
    return scripts


def _batch_message(read: Message, stream: StreamDeclaration, where: str) -> Message:
    """Return the message of a spout of batches: its one value is the columns."""
    if len(read.values) != 1 or not isinstance(read.values[0], Mapping | ColumnBatch):
        raise UserError(f"{where}: stream {stream.name!r} has batches; give the columns, such as {{{stream.fields[0]!r}: [...]}}")
    batch = batch_of(read.values[0], stream.fields, None, where)
    return replace(read, values=(batch,))


def _message_of(item: Any, widths: dict[str, int], where: str) -> Message:
    if isinstance(item, Message):
        return item
    width = widths.get(DEFAULT_STREAM)
    if width is None:
        raise UserError(f"{where}: the spout has no stream {DEFAULT_STREAM!r}; name one with message(..., stream=...)")
    if not isinstance(item, tuple | list):
        item = (item,)
    is_pair = len(item) == 2 and isinstance(item[1], tuple | list) and len(item[1]) == width
    if is_pair and width == 2:
        raise UserError(f"{where}: {item!r} may be two values or an id with its values; write message(..., message_id=...)")
    if is_pair:
        return Message(item[1], item[0])
    if len(item) != width:
        raise UserError(f"{where}: {item!r} has {len(item)} values for {width} fields")
    return Message(tuple(item))
