"""Bolts under observation: what they emit is checked and written down.

A watched component stands for the user's own in a task. It behaves as that one does, exceptions included.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from topo.api.bolt import Anchors, BasicBolt, BasicCollector, Bolt, Collector, StatefulBolt
from topo.api.context import TaskContext
from topo.api.spout import SpoutCollector
from topo.api.streams import DEFAULT_STREAM
from topo.api.tuples import Tuple
from topo.api.two_phase import TwoPhaseSink
from topo.hot import Row
from topo.testing.wire_roundtrip import WireRoundtrip
from topo.user_errors import call_for_effect

Note = Callable[[Row, str], None]
"""Called with the values, as they arrive, and the stream of each tuple that was emitted."""


class Checked:
    """Sees to it that values can be carried, in the very call that emits them."""

    def __init__(
        self, inner: Collector | BasicCollector | SpoutCollector, carrier: WireRoundtrip, note: Note | None = None
    ) -> None:
        self._carrier = carrier
        self._note = note
        self.report_error = inner.report_error

    def emitted(self, emit: Callable[[], None], values: Any, stream: str) -> None:
        """Emit, and write the values down as they will arrive. Raises UnsupportedValueError before anything is emitted."""
        # The collector refuses values that are no tuple.
        carried = self._carrier.carried(values, stream) if isinstance(values, tuple | list) else None
        emit()
        if self._note is not None and carried is not None:
            self._note(carried, stream)


class CheckedCollector(Checked):
    """A `Collector` that refuses what cannot be carried."""

    def __init__(self, inner: Collector, carrier: WireRoundtrip, note: Note | None = None) -> None:
        super().__init__(inner, carrier, note)
        self._inner = inner
        self.ack = inner.ack
        self.fail = inner.fail
        self.reset_timeout = inner.reset_timeout

    def emit(
        self, values: Sequence[Any], anchors: Anchors = None, stream: str = DEFAULT_STREAM, timestamp: int | None = None
    ) -> None:
        self.emitted(lambda: self._inner.emit(values, anchors, stream, timestamp), values, stream)

    def emit_direct(
        self,
        task: int,
        values: Sequence[Any],
        anchors: Anchors = None,
        stream: str = DEFAULT_STREAM,
        timestamp: int | None = None,
    ) -> None:
        self.emitted(lambda: self._inner.emit_direct(task, values, anchors, stream, timestamp), values, stream)


class CheckedBasicCollector(Checked):
    """A `BasicCollector` that refuses what cannot be carried."""

    def __init__(self, inner: BasicCollector, carrier: WireRoundtrip, note: Note | None = None) -> None:
        super().__init__(inner, carrier, note)
        self._inner = inner

    def emit(self, values: Sequence[Any], stream: str = DEFAULT_STREAM, timestamp: int | None = None) -> None:
        self.emitted(lambda: self._inner.emit(values, stream, timestamp), values, stream)

    def emit_direct(self, task: int, values: Sequence[Any], stream: str = DEFAULT_STREAM, timestamp: int | None = None) -> None:
        self.emitted(lambda: self._inner.emit_direct(task, values, stream, timestamp), values, stream)


@dataclass(frozen=True, slots=True)
class RecordedEmission:
    """A tuple that was emitted: by which task, on which stream, its values as they arrive."""

    component: str
    task_index: int
    stream: str
    values: Row


@dataclass(slots=True)
class Record:
    """The queries of a test on a whole run.

    Attributes:
        emissions: in the order of their emission; those of a call that raised are taken back.
        messages: by spout: ids of the messages that were emitted.
        acked: by spout: what `ack` was called with.
        failed: by spout: ids of messages that failed, once for each time.
        refused: ids that cannot be used, with the spout that emitted them.
        refusals: inputs that are to fail once: the component they come from, and their values.
    """

    emissions: list[RecordedEmission] = field(default_factory=list)
    messages: dict[str, dict[Any, None]] = field(default_factory=dict)
    acked: dict[str, list[Any]] = field(default_factory=dict)
    failed: dict[str, list[Any]] = field(default_factory=dict)
    refused: list[tuple[str, Any]] = field(default_factory=list)
    refusals: list[tuple[str, Row]] = field(default_factory=list)


class RefusedInputError(Exception):
    """Raised in place of a bolt's `execute` by the marker FAIL_NEXT."""


class Watch:
    """The watch over one task in one life.

    Args:
        most: tuples that one call may emit; the engine discards those of a call that has emitted more.
    """

    def __init__(self, record: Record, carrier: WireRoundtrip, component: str, task_index: int, most: int) -> None:
        self.record = record
        self.carrier = carrier
        self.component = component
        self._task_index = task_index
        self._most = most

    def note(self, values: Row, stream: str) -> None:
        self.record.emissions.append(RecordedEmission(self.component, self._task_index, stream, values))

    def call(self, function: Callable[..., object], *arguments: Any) -> None:
        """Call user code; its emits are forgotten if it raises, or returns a value, which the engine refuses."""
        mark = len(self.record.emissions)
        try:
            call_for_effect(function, *arguments)
        except BaseException:
            del self.record.emissions[mark:]
            raise
        if len(self.record.emissions) - mark > self._most:
            del self.record.emissions[mark:]

    def execute(self, tup: Tuple, execute: Callable[..., None], *arguments: Any) -> None:
        """Call a bolt's `execute`, unless the input is to fail."""
        refused = (tup.component, tup.values)
        if refused in self.record.refusals:
            self.record.refusals.remove(refused)
            raise RefusedInputError(f"FAIL_NEXT in the source {tup.component!r} made {tup!r} fail")
        self.call(execute, tup, *arguments)


class WatchedBolt(Bolt):
    """A `Bolt` under observation."""

    def __init__(self, inner: Bolt, watch: Watch) -> None:
        self._inner = inner
        self._watch = watch

    def prepare(self, context: TaskContext, collector: Collector) -> None:
        self._watch.call(self._inner.prepare, context, CheckedCollector(collector, self._watch.carrier, self._watch.note))

    def execute(self, tup: Tuple) -> None:
        self._watch.execute(tup, self._inner.execute)

    def end_of_input(self) -> None:
        self._watch.call(self._inner.end_of_input)

    def on_reset(self) -> None:
        self._watch.call(self._inner.on_reset)

    def cleanup(self) -> None:
        self._inner.cleanup()


class WatchedTwoPhaseSink(WatchedBolt, TwoPhaseSink):
    """A `TwoPhaseSink` under observation: as a bolt it is the user's own, and so are its transactions."""

    def __init__(self, inner: TwoPhaseSink, watch: Watch) -> None:
        super().__init__(inner, watch)
        self.takes_batches = inner.takes_batches
        self._sink = inner

    @property
    def has_room(self) -> bool:
        return self._sink.has_room

    def begin(self) -> None:
        self._sink.begin()

    def write(self, tup: Tuple) -> None:
        self._sink.write(tup)

    def pre_commit(self) -> Any:
        return self._sink.pre_commit()

    def commit(self, token: Any) -> None:
        self._sink.commit(token)

    def abort(self, token: Any) -> None:
        self._sink.abort(token)

    def recover(self, tokens: Sequence[Any]) -> None:
        self._sink.recover(tokens)


class WatchedBasicBolt(BasicBolt):
    """A `BasicBolt` under observation."""

    def __init__(self, inner: BasicBolt, watch: Watch) -> None:
        self._inner = inner
        self._watch = watch
        self.counted_streams: frozenset[str] = getattr(inner, "counted_streams", frozenset())
        self.gets_nothing = getattr(inner, "gets_nothing", None)

    def prepare(self, context: TaskContext) -> None:
        self._inner.prepare(context)

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        self._watch.execute(tup, self._inner.execute, self._checked(collector))

    def end_of_input(self, collector: BasicCollector) -> None:
        self._watch.call(self._inner.end_of_input, self._checked(collector))

    def on_reset(self) -> None:
        self._inner.on_reset()

    def cleanup(self) -> None:
        self._inner.cleanup()

    def _checked(self, collector: BasicCollector) -> BasicCollector:
        return CheckedBasicCollector(collector, self._watch.carrier, self._watch.note)


class WatchedStatefulBolt(WatchedBasicBolt, StatefulBolt):
    """A `StatefulBolt` under observation."""

    def __init__(self, inner: StatefulBolt, watch: Watch) -> None:
        super().__init__(inner, watch)
        self._stateful = inner
        # Errors of state name the line of the user's own `snapshot`.
        vars(self).update(key=inner.key, snapshot=inner.snapshot)

    def snapshot(self) -> Any:
        return self._stateful.snapshot()

    def restore(self, state: Any) -> None:
        self._stateful.restore(state)
