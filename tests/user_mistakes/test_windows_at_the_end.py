"""Windows of the clock over an input that ends: the end does not wait for the clock, and no row is missing."""

from __future__ import annotations

from typing import Any

import pytest

from topo import BasicBolt, IterableSpout, Topology, TopologyBuilder, WindowBolt, aggregates, windows
from topo.testing import END, TopologyTest

MODES = ["at_most_once", "at_least_once", "exactly_once"]
MINUTE = windows.TumblingProcessingTimeWindows.of("1m")


def run_of(delivery: str, window: WindowBolt, before: BasicBolt | None = None) -> TopologyTest:
    def topology() -> Topology:
        builder = TopologyBuilder("clock").config(delivery=delivery, message_timeout="2h")
        builder.set_spout("words", IterableSpout([], fields=("word",)))
        if before is not None:
            builder.set_bolt("before", before).shuffle_grouping("words")
        builder.set_bolt("window", window).fields_grouping("words" if before is None else "before", "word")
        return builder.build()

    test = TopologyTest(topology, sources={"words": ["tea", "oil", "tea", END]})
    test.run()
    return test


def counted(test: TopologyTest) -> dict[str, int]:
    return {row[0]: row[-1] for row in test.emitted("window")}


def window_of(window: Any, **options: Any) -> WindowBolt:
    return WindowBolt(key="word", window=window, aggregate=aggregates.Count(), **options)


@pytest.mark.parametrize("delivery", MODES)
@pytest.mark.parametrize(
    "window",
    [
        window_of(MINUTE),
        window_of(windows.ProcessingTimeSessionWindows.with_gap("10m")),
        window_of(windows.SlidingProcessingTimeWindows.of("10m", "5m")),
        window_of(windows.GlobalWindows(), trigger=windows.ContinuousProcessingTimeTrigger.of("1h")),
    ],
)
def test_a_file_is_shorter_than_the_window(delivery: str, window: WindowBolt) -> None:
    """A bounded input ends before the window does: the window fires at the end, and the run does not wait for it."""
    test = run_of(delivery, window)
    test.assert_all_acked()
    assert counted(test) == {"tea": 2, "oil": 1}
    assert test.clock() < 60


class FailsOnce(BasicBolt):
    """Raises at the first word, which is replayed after the end of the input."""

    outputs = ("word",)

    def prepare(self, context: Any) -> None:
        self.has_failed = False

    def execute(self, tup: Any, collector: Any) -> None:
        if not self.has_failed:
            self.has_failed = True
            raise ConnectionResetError
        collector.emit(tup.values)


@pytest.mark.parametrize("delivery", MODES[1:])
@pytest.mark.parametrize("window", [MINUTE, windows.GlobalWindows.at_end_of_stream(), windows.CountWindows.of(1)])
def test_a_message_comes_again_behind_the_end(delivery: str, window: Any) -> None:
    """A message fails and is replayed when its input has ended: it is in a window as well."""
    test = run_of(delivery, window_of(window), FailsOnce())
    test.assert_all_acked()
    # A global window keeps its contents, so that it counts the first one of the key again.
    again = delivery == "at_least_once" and isinstance(window, windows.GlobalWindows)
    assert sum(row[-1] for row in test.emitted("window")) == 3 + again


class Broken(windows.ProcessWindowFunction):
    def process(self, key: Any, elements: Any, context: Any, collector: Any) -> None:
        if key == "tea":
            raise LookupError("no price for tea")
        collector.emit((key, len(elements)))


@pytest.mark.parametrize(("delivery", "reason"), [
    ("at_most_once",
     "every source has ended; nothing was tracked (ackers=0), and 2 tuples failed and were lost; see `topo errors`"),
    ("at_least_once", "2 messages were given up; see `topo dead-letters`"),
    ("exactly_once", "1 message was given up; see `topo dead-letters`"),
])  # fmt: skip
@pytest.mark.parametrize("window", [MINUTE, windows.GlobalWindows.at_end_of_stream(), windows.CountWindows.of(1)])
def test_a_window_function_raises(delivery: str, reason: str, window: Any) -> None:
    """A window's function raises for one key: the other has its row, and the outcome counts the failed tuples."""
    test = run_of(delivery, WindowBolt(key="word", window=window, process=Broken(), outputs=("word", "count")))
    assert test.outcome is not None and counted(test) == {"oil": 1}
    if delivery == "exactly_once" and window == windows.CountWindows.of(1):
        reason = "2 messages were given up; see `topo dead-letters`"
    assert test.outcome.reason == reason
    assert test.outcome.exit_code == (delivery != "at_most_once")
    assert {row.kind for row in test.errors()} == {"LookupError"}
