"""Window bolts in an operator harness, as several test files declare them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from topo import WindowBolt, aggregates
from topo.api.windows import CountWindows, EventTimeSessionWindows, GlobalWindows, ProcessWindowFunction, TumblingEventTimeWindows
from topo.testing import OperatorHarness

FIELDS = ("key", "value")


END = 2**63 - 1


def windows(window: Any, **options: Any) -> OperatorHarness:
    """A harness of a window bolt keyed by `key`; it sums `value` by default."""
    key = options.pop("key", "key")
    harness = {name: options.pop(name) for name in ("now_ms", "channels", "key_groups") if name in options}
    if not {"reduce", "aggregate", "process"} & set(options):
        options["aggregate"] = aggregates.Sum("value")
    return OperatorHarness(WindowBolt(key=key, window=window, **options), FIELDS, **harness)


def tumbling(size: str = "3s", **options: Any) -> OperatorHarness:
    return windows(TumblingEventTimeWindows.of(size), **options)


def sessions(gap: str = "3s", **options: Any) -> OperatorHarness:
    return windows(EventTimeSessionWindows.with_gap(gap), **options)


class Contents(ProcessWindowFunction):
    """Emits the values that the window holds."""

    def process(self, key: Any, elements: Sequence[Any], context: Any, collector: Any) -> None:
        collector.emit((key, *context.window, tuple(row[1] for row in elements)))


def contents(window: Any, **options: Any) -> OperatorHarness:
    """A harness whose windows emit the key, their bounds (none of a global one) and the values that they hold."""
    is_global = isinstance(window, GlobalWindows | CountWindows)
    outputs = ("key", "values") if is_global else ("key", "start", "end", "values")
    return windows(window, process=Contents(), outputs=outputs, **options)
