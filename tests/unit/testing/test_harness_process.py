"""Process bolts through the harness: timestamps of output, streams, timers, snapshots."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.testing.window_harness import END, FIELDS
from topo import ProcessBolt, UserError
from topo.errors import EmitError, UnsupportedValueError
from topo.testing import Emitted, OperatorHarness, Watermark


class Probe(ProcessBolt):
    """Registers what a tuple asks for: ("event" | "clock" | "delete" | "echo" | "side", moment)."""

    outputs = {"default": ("key", "what", "moment"), "side": ("key",)}

    def __init__(self) -> None:
        super().__init__(key="key")

    def open(self, context: Any) -> None:
        self.count = context.state.value("count")

    def process(self, tup: Any, context: Any, collector: Any) -> None:
        what, moment = tup["value"]
        if what == "event":
            context.register_event_time_timer(moment)
        elif what == "clock":
            context.register_processing_time_timer(moment)
        elif what == "delete":
            context.delete_event_time_timer(moment)
            context.delete_processing_time_timer(moment)
        elif what == "side":
            collector.emit((context.key,), "side")
        else:
            self.count.set((self.count.get() or 0) + 1)
            collector.emit((tup["key"], what, self.count.get()))

    def on_timer(self, timestamp: int, context: Any, collector: Any) -> None:
        collector.emit((context.key, context.domain.value, timestamp))


def probe(*inputs: tuple[str, str, int]) -> OperatorHarness:
    harness = OperatorHarness(Probe(), FIELDS)
    for key, what, moment in inputs:
        harness.process((key, (what, moment)))
    return harness


def test_output_carries_the_timestamp_of_the_element_or_none() -> None:
    harness = probe(("a", "echo", 0))
    harness.process(("a", ("echo", 0)), 7)
    harness.process(("a", ("side", 0)), 8)
    assert harness.outputs == [(("a", "echo", 1), None), (("a", "echo", 2), 7)]
    assert harness.side("side") == [(("a",), 8)]


def test_an_event_timers_output_carries_its_moment_and_a_clock_timers_output_none() -> None:
    harness = probe(("a", "event", 5), ("b", "clock", 6))
    harness.watermark(9)
    harness.set_clock(9)
    assert harness.events == [
        Emitted(("a", "event time", 5), 5),
        Watermark(9),
        Emitted(("b", "processing time", 6), None),
    ]


def test_a_side_output_needs_a_stream_that_is_declared() -> None:
    class Wrong(Probe):
        def process(self, tup: Any, context: Any, collector: Any) -> None:
            collector.emit((1,), "sides")

    with pytest.raises(EmitError, match="did you mean 'side'"):
        OperatorHarness(Wrong(), FIELDS).process(("a", ("echo", 0)))


def test_the_default_stream_is_the_main_one_also_where_it_is_named() -> None:
    class Named(Probe):
        def process(self, tup: Any, context: Any, collector: Any) -> None:
            collector.emit(("a", "b", 1), "default")

    harness = OperatorHarness(Named(), FIELDS)
    harness.process(("a", None), 5)
    assert harness.outputs == [(("a", "b", 1), 5)]


def test_a_timer_between_two_milliseconds_is_refused() -> None:
    for domain in ("event", "clock"):
        with pytest.raises(UserError, match="64-bit number of milliseconds"):
            probe(("a", domain, 1.5))  # type: ignore[arg-type]


def test_a_timer_beyond_64_bits_is_refused_and_the_last_one_is_not() -> None:
    harness = probe(("a", "event", END))
    with pytest.raises(UserError, match="64-bit"):
        harness.process(("a", ("event", END + 1)))
    assert harness.restore(harness.snapshot()).timers == 1
    harness.end_of_input()
    assert harness.outputs == [(("a", "event time", END), END)]


def test_a_process_bolt_is_restored_with_state_and_timers_of_a_new_instance() -> None:
    harness = probe(("a", "echo", 0), ("a", "event", 10), ("a", "clock", 10))
    restored = harness.restore(harness.snapshot())
    assert restored.bolt is not harness.bolt
    restored.process(("a", ("echo", 0)))
    restored.watermark(10)
    restored.set_clock(11)
    assert restored.values == [("a", "echo", 2), ("a", "event time", 10), ("a", "processing time", 10)]


def test_state_that_could_not_be_stored_is_found_when_the_snapshot_is_taken() -> None:
    class Keeps(Probe):
        def process(self, tup: Any, context: Any, collector: Any) -> None:
            self.count.set(object())

    harness = OperatorHarness(Keeps(), FIELDS)
    harness.process(("a", ("echo", 0)))
    with pytest.raises(UnsupportedValueError):
        harness.snapshot()
