"""What users do with hooks, and the answer that they get."""

from __future__ import annotations

from typing import Any

import pytest

from topo import BasicBolt, Hook, IterableSpout, Topology, TopologyBuilder, TopologyError
from topo.testing import END, TopologyTest


class Upper(BasicBolt):
    outputs = ("word",)

    def __init__(self, events: list[Any]) -> None:
        self.events = events

    def prepare(self, context: Any) -> None:
        self.events.append("prepare")

    def execute(self, tup: Any, collector: Any) -> None:
        if tup["word"] == "bad":
            raise ValueError("no such word")
        collector.emit((tup["word"].upper(),))

    def cleanup(self) -> None:
        self.events.append("cleanup")


class Recorder(Hook):
    """Records the calls about the component `upper`."""

    def __init__(self, events: list[Any]) -> None:
        self.events = events

    def note(self, context: Any, what: str) -> None:
        if context.component == "upper":
            self.events.append(what)

    def task_opens(self, context: Any) -> None:
        self.note(context, "task_opens")

    def error(self, context: Any, error: BaseException) -> None:
        self.note(context, f"error: {error}")

    def task_closes(self, context: Any) -> None:
        self.note(context, "task_closes")


class Raises(Hook):
    def task_opens(self, context: Any) -> None:
        raise OSError("the alarm service does not answer")


def topology(events: list[Any], *hooks: Any) -> Topology:
    builder = TopologyBuilder("hooked").config(attempts=1)
    for hook in hooks:
        builder.add_hook(hook)
    builder.set_spout("words", IterableSpout([""], fields=("word",)))
    builder.set_bolt("upper", Upper(events)).shuffle_grouping("words")
    return builder.build()


def test_a_hook_is_told_of_a_tasks_life_and_of_its_errors() -> None:
    """The user ports an `ITaskHook` that sends errors to an alarm service."""
    events: list[Any] = []
    test = TopologyTest(lambda: topology(events, Recorder(events)), sources={"words": ["a", "bad", END]})
    test.run()
    assert events == ["task_opens", "prepare", "error: no such word", "cleanup", "task_closes"]


def test_a_hook_that_raises_is_shown_and_fails_nothing() -> None:
    """The user's alarm service is down when the topology starts."""
    events: list[Any] = []
    test = TopologyTest(lambda: topology(events, Raises(), Recorder(events)), sources={"words": ["a", END]})
    test.run()
    test.assert_all_acked()
    assert events[0] == "task_opens"
    assert any("the alarm service does not answer" in row.message for row in test.errors())


def test_a_hook_that_is_none_is_refused() -> None:
    """The user gives the class, not an object of it."""
    with pytest.raises(TopologyError, match=r"add_hook: <class .*Recorder'> is no instance of a Hook"):
        topology([], Recorder)
