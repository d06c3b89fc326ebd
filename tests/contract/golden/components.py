"""Components of each kind, written against the public API, which log every call; and topologies around one of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from topo import (
    AsyncBolt,
    BasicBolt,
    BatchBolt,
    Bolt,
    ProcessBolt,
    RetryingSpout,
    Spout,
    StatefulBolt,
    Topology,
    TopologyBuilder,
    TwoPhaseSink,
    WindowBolt,
    aggregates,
)
from topo.api.operator_bolts import OperatorBolt
from topo.api.watermarks import WatermarkStrategy
from topo.api.windows import EventTimeSessionWindows, ProcessWindowFunction, TumblingEventTimeWindows

Note = Callable[[str], None]
MODES = {"tracked": "at_least_once", "checkpointed": "exactly_once", "untracked": "at_most_once"}


class Source(Spout):
    """Emits the items of its list; "end" ends the input, "raise" raises."""

    outputs = ("value",)

    def __init__(self, note: Note, items: Sequence[Any]) -> None:
        self.note, self.items = note, list(items)

    def open(self, context: Any, collector: Any) -> None:
        self.collector = collector
        self.note(f"open, position {context.committed_position}")

    def next_tuple(self) -> None:
        if not self.items:
            return
        item = self.items.pop(0)
        self.note(f"next_tuple {item}")
        if item == "end":
            self.collector.end_of_input()
        elif item == "raise":
            raise ValueError("no")
        else:
            self.collector.emit((item,), item)

    def ack(self, message_id: Any) -> None:
        self.note(f"ack {message_id}")

    def fail(self, message_id: Any) -> None:
        self.note(f"fail {message_id}")

    def activate(self) -> None:
        self.note("activate")

    def deactivate(self) -> None:
        self.note("deactivate")

    def close(self) -> None:
        self.note("close")


class Replayed(Source, RetryingSpout):
    """The same, with replays by the engine."""


class Basic(BasicBolt):
    """Emits each input twice; raises at 13 after the first."""

    outputs = ("value",)

    def __init__(self, note: Note) -> None:
        self.note = note

    def prepare(self, context: Any) -> None:
        self.note("prepare")

    def execute(self, tup: Any, collector: Any) -> None:
        if tup.is_tick:
            self.note("execute a tick")
            return
        self.note(f"execute {tup['value']}")
        collector.emit((tup["value"],))
        if tup["value"] == 13:
            raise ValueError("no")
        collector.emit((-tup["value"],))

    def end_of_input(self, collector: Any) -> None:
        self.note("end_of_input")
        collector.emit((99,))

    def on_reset(self) -> None:
        self.note("on_reset")

    def cleanup(self) -> None:
        self.note("cleanup")


class Stateful(StatefulBolt):
    """Counts its inputs by key and emits the counts."""

    outputs = ("key", "count")
    key = "value"

    def __init__(self, note: Note) -> None:
        self.note = note

    def prepare(self, context: Any) -> None:
        self.note("prepare")
        self.counts: dict[Any, int] = {}

    def execute(self, tup: Any, collector: Any) -> None:
        self.note(f"execute {tup['value']}")
        if tup["value"] == 13:
            raise ValueError("no")
        self.counts[tup["value"]] = self.counts.get(tup["value"], 0) + 1
        collector.emit((tup["value"], self.counts[tup["value"]]))

    def end_of_input(self, collector: Any) -> None:
        self.note("end_of_input")
        for entry in sorted(self.counts.items()):
            collector.emit(entry)

    def snapshot(self) -> Any:
        self.note("snapshot")
        return self.counts

    def restore(self, state: Any) -> None:
        self.note(f"restore {state}")
        self.counts = dict(state or {})

    def on_reset(self) -> None:
        self.note("on_reset")
        self.counts.clear()

    def cleanup(self) -> None:
        self.note("cleanup")


class Manual(Bolt):
    """Keeps 1, joins it with the next input into one row of both; fails 7; raises at 13; acks the others."""

    outputs = ("value",)

    def __init__(self, note: Note) -> None:
        self.note = note
        self.kept: list[Any] = []

    def prepare(self, context: Any, collector: Any) -> None:
        self.collector = collector
        self.note("prepare")

    def execute(self, tup: Any) -> None:
        if tup.is_tick:
            self.note("execute a tick")
            return
        value = tup["value"]
        self.note(f"execute {value}")
        if value == 1:
            self.kept.append(tup)
        elif value == 7:
            self.collector.fail(tup)
        elif value == 13:
            raise ValueError("no")
        else:
            anchors = [*self.kept, tup]
            self.collector.emit((sum(one["value"] for one in anchors),), anchors)
            for one in anchors:
                self.collector.ack(one)
            self.kept.clear()

    def end_of_input(self) -> None:
        self.note("end_of_input")

    def on_reset(self) -> None:
        self.note("on_reset")
        self.kept.clear()

    def cleanup(self) -> None:
        self.note("cleanup")


class Sink(TwoPhaseSink):
    """Stages values; the token is the list of them."""

    def __init__(self, note: Note) -> None:
        super().__init__(max_batch=2, flush_interval="50ms")
        self.note = note

    def open(self, context: Any) -> None:
        self.note("open")

    def begin(self) -> None:
        self.note("begin")
        self.rows: list[Any] = []

    def write(self, tup: Any) -> None:
        self.note(f"write {tup['value']}")
        if tup["value"] == 13:
            raise ValueError("no")
        self.rows.append(tup["value"])

    def pre_commit(self) -> Any:
        self.note(f"pre_commit {self.rows}")
        return self.rows or None

    def commit(self, token: Any) -> None:
        self.note(f"commit {list(token)}")

    def abort(self, token: Any) -> None:
        self.note(f"abort {token}")

    def recover(self, tokens: Sequence[Any]) -> None:
        self.note(f"recover {[list(token) for token in tokens]}")

    def close(self) -> None:
        self.note("close")


class Sums(ProcessWindowFunction):
    """Emits the sum of a window and its bounds; raises for a sum of 13."""

    def __init__(self, note: Note) -> None:
        self.note = note

    def process(self, key: Any, elements: Any, context: Any, collector: Any) -> None:
        values = [row[1] for row in elements]
        self.note(f"process window {context.window.start} to {context.window.end} of {key}: {values}")
        if sum(values) == 13:
            raise ValueError("no")
        collector.emit((key, sum(values)))


class Alarm(ProcessBolt):
    """Counts by key, and emits the count 100 ms of event time after the last input."""

    outputs = ("key", "count")

    def __init__(self, note: Note) -> None:
        super().__init__("key")
        self.note = note

    def open(self, context: Any) -> None:
        self.note("open")
        self.count, self.values = context.state.value("count"), context.state.map("values")

    def process(self, tup: Any, context: Any, collector: Any) -> None:
        self.note(f"process {tup.values} of {context.key}")
        self.count.set((self.count.get() or 0) + 1)
        self.values.put(tup["value"], self.count.get())
        if tup["value"] == 13:
            collector.emit((context.key, -1))
            raise ValueError("no")
        context.register_event_time_timer(context.timestamp + 100)

    def on_timer(self, timestamp: int, context: Any, collector: Any) -> None:
        self.note(f"on_timer {timestamp} of {context.key}")
        collector.emit((context.key, self.count.get()))
        if self.count.get() == 2:
            raise ValueError("no")

    def close(self) -> None:
        self.note("close")


class Lookup(AsyncBolt):
    """Returns each value with its square; raises at 13."""

    outputs = ("key", "square")

    def __init__(self, note: Note) -> None:
        super().__init__(capacity=3, timeout="5s")
        self.note = note

    async def open(self, context: Any) -> None:
        self.note("open")

    async def call(self, tup: Any) -> Any:
        self.note(f"call {tup.values}")
        if tup["value"] == 13:
            raise ValueError("no")
        return (tup["key"], tup["value"] ** 2)

    def on_timeout(self, tup: Any) -> Any:
        self.note(f"on_timeout {tup.values}")
        return (tup["key"], -1)

    async def close(self) -> None:
        self.note("close")


class Batches(BatchBolt):
    """Emits the sum of each batch, anchored on all of it; raises if 13 is in it."""

    outputs = ("value",)

    def __init__(self, note: Note) -> None:
        super().__init__(3, "1s")
        self.note = note

    def prepare(self, context: Any) -> None:
        self.note("prepare")

    def execute_batch(self, tuples: Any, collector: Any) -> None:
        values = [tup["value"] for tup in tuples]
        self.note(f"execute_batch {values}")
        if 13 in values:
            raise ValueError("no")
        collector.emit((sum(values),), tuples)

    def end_of_input(self, collector: Any) -> None:
        self.note("end_of_input")
        collector.emit((99,), None)

    def on_reset(self) -> None:
        self.note("on_reset")

    def cleanup(self) -> None:
        self.note("cleanup")


class Drop(BasicBolt):
    """Takes everything and does nothing."""

    def execute(self, tup: Any, collector: Any) -> None:
        pass


class Keyed(Source):
    """A source of keys and values."""

    outputs = ("key", "value")


# -- topologies --------------------------------------------------------------------------------------------------------------


def spout(kind: type[Source], mode: str) -> Callable[[Note], Topology]:
    def build(note: Note) -> Topology:
        builder = TopologyBuilder("t").config(delivery=MODES[mode], attempts=3, backoff=("1s",), message_timeout="10s")
        builder.set_spout("a", kind(note, [1, 2, 3, "raise", 4]))
        builder.set_bolt("b", Drop(), parallelism=2).fields_grouping("a", "value")
        return builder.build()

    return build


def bolt(make: Callable[[Note], Any], mode: str, **settings: Any) -> Callable[[Note], Topology]:
    """A bolt b between two tasks of a source a and, unless it is a sink, a bolt c."""

    def build(note: Note) -> Topology:
        given = {"delivery": MODES[mode], "attempts": 2, "message_timeout": "10s", "backoff": ("1s",), **settings}
        tick = given.pop("tick_interval", None)
        made = make(note)
        key = getattr(made, "key", None)
        builder = TopologyBuilder("t").config(**given)
        builder.set_spout(
            "a",
            (Keyed if isinstance(made, OperatorBolt) and not isinstance(made, BatchBolt) else Source)(note, []),
            parallelism=2,
            watermarks=WatermarkStrategy.emitted(),
        )
        declarer = builder.set_bolt("b", made, **({"tick_interval": tick} if tick else {}))
        declarer.fields_grouping("a", *([key] if isinstance(key, str) else key)) if key else declarer.shuffle_grouping("a")
        if not isinstance(made, Sink):
            builder.set_bolt("c", Drop()).global_grouping("b")
        if isinstance(made, WindowBolt):
            builder.set_bolt("late", Drop()).global_grouping("b", stream="late")
        return builder.build()

    return build


def tumbling(note: Note) -> WindowBolt:
    return WindowBolt(
        key="key", window=TumblingEventTimeWindows.of("100ms"), process=Sums(note), outputs=("key", "sum"), late_stream="late"
    )


def session(note: Note) -> WindowBolt:
    return WindowBolt(
        key="key", window=EventTimeSessionWindows.with_gap("50ms"), aggregate=aggregates.Sum("value"), late_stream="late",
        allowed_lateness="20ms",
    )  # fmt: skip
