"""A window operator of the core under test: builds it on a rig, and looks into its timers and state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.unit.operators.rig import Rig
from topo.api.triggers import Trigger, TriggerContext, TriggerResult
from topo.api.windows import EventTimeSessionWindows, ProcessWindowFunction, TumblingEventTimeWindows, TumblingWindows
from topo.operators.windows.builder import build_window_operator
from topo.operators.windows.operator import WindowOperator

TEN = TumblingWindows(10, 0, TumblingEventTimeWindows.of("1s").stagger, is_event_time=True)


GAP_3S = EventTimeSessionWindows.with_gap("3s")


class Together(ProcessWindowFunction):
    """Gives (key, bounds, elements) of each firing."""

    def process(self, key: Any, elements: Sequence[Any], context: Any, collector: Any) -> None:
        collector.emit((key, tuple(context.window), list(elements)))


def with_bounds(key: Any, window: Any, result: Any) -> Any:
    return key, window.start, window.end, result


def rig(window: Any, **options: Any) -> Rig:
    if not {"reduce", "aggregate", "process"} & set(options):
        options["process"] = Together()
    return Rig(build_window_operator(window, **options))


def operator_of(rig: Rig) -> WindowOperator:
    assert isinstance(rig.operator, WindowOperator)
    return rig.operator


def timers(rig: Rig) -> tuple[int, int]:
    service = operator_of(rig).timer_service
    return service.event_timers + len(operator_of(rig).ends), service.processing_timers


def entries(rig: Rig) -> int:
    return operator_of(rig).state.entries


both_ways = pytest.mark.parametrize("direct", [True, False], ids=["direct", "general"])


class Scripted(Trigger):
    """Answers elements and timers with fixed results, and notes every call."""

    can_merge = True

    def __init__(
        self, on_element: TriggerResult = TriggerResult.CONTINUE, on_time: TriggerResult = TriggerResult.CONTINUE
    ) -> None:
        self.on_element_result, self.on_time_result = on_element, on_time
        self.calls: list[tuple[Any, ...]] = []

    def on_element(self, value: Any, timestamp: int, window: Any, context: TriggerContext) -> TriggerResult:
        self.calls.append(("element", value, window))
        context.put("seen", True)
        return self.on_element_result

    def on_event_time(self, time: int, window: Any, context: TriggerContext) -> TriggerResult:
        self.calls.append(("event time", time, window))
        return self.on_time_result

    def on_processing_time(self, time: int, window: Any, context: TriggerContext) -> TriggerResult:
        self.calls.append(("processing time", time, window))
        return self.on_time_result

    def on_merge(self, window: Any, context: Any) -> None:
        self.calls.append(("merge", window))

    def clear(self, window: Any, context: TriggerContext) -> None:
        self.calls.append(("clear", window))
        context.forget("seen")
