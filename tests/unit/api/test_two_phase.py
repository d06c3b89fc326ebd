from __future__ import annotations

from typing import Any

import pytest

from tests.unit.connectors.drive import TICK, prepared, tracked
from topo import ConfigError, Tuple, TwoPhaseSink


class Ledger(TwoPhaseSink):
    """Publishes to a list, and fails on demand."""

    def __init__(self, fails: str = "", kind: type[Exception] = OSError) -> None:
        self.fails, self.kind = fails, kind
        self.calls: list[str] = []
        self.published: list[int] = []

    def _call(self, name: str) -> None:
        self.calls.append(name)
        if name == self.fails:
            raise self.kind(name)

    def begin(self) -> None:
        """Start with nothing."""
        self.rows: list[int] = []

    def write(self, tup: Tuple) -> None:
        """Keep the number."""
        self.rows.append(tup["n"])

    def pre_commit(self) -> Any:
        """The token is the rows themselves."""
        self._call("pre_commit")
        return list(self.rows)

    def commit(self, token: Any) -> None:
        """Publish."""
        self._call("commit")
        self.published += token

    def abort(self, token: Any) -> None:
        """Say so."""
        self._call("abort begun" if token is None else f"abort {token}")

    def close(self) -> None:
        """Say so."""
        self._call("close")


def test_the_settings_of_a_class_hold_without_a_constructor() -> None:
    class Slow(Ledger):
        max_batch = 1
        flush_interval = "5s"

    assert TwoPhaseSink.component_settings == {"tick_interval": "100ms"}
    assert Ledger.component_settings == {"tick_interval": "100ms"}
    assert Slow.component_settings == {"tick_interval": "5s"}
    collector = prepared(sink := Slow())
    sink.execute(tracked(n=1))
    assert (sink.published, len(collector.acked)) == ([1], 1)


def test_other_settings_of_a_class_are_kept() -> None:
    class Small(Ledger):
        component_settings = {"batch_size": 10}
        flush_interval = "5s"

    assert Small.component_settings == {"batch_size": 10, "tick_interval": "5s"}


def test_the_settings_of_an_instance_come_before_those_of_its_class() -> None:
    class Chosen(Ledger):
        def __init__(self) -> None:
            TwoPhaseSink.__init__(self, max_batch=7, flush_interval="1s")

    sink = Chosen()
    assert (sink.max_batch, sink.component_settings) == (7, {"tick_interval": "1s"})
    assert Chosen.component_settings == {"tick_interval": "100ms"}
    with pytest.raises(ConfigError, match="max_batch=0"):
        TwoPhaseSink.__init__(sink, max_batch=0)


def test_a_batch_that_is_at_fault_is_undone_and_fails() -> None:
    collector = prepared(sink := Ledger("pre_commit", ValueError))
    sink.execute(first := tracked(n=1))
    sink.execute(second := tracked(n=2))
    with pytest.raises(ValueError, match="pre_commit"):
        sink.execute(TICK)
    assert sink.calls == ["pre_commit", "abort begun"]
    assert (collector.acked, collector.failed) == ([], [first, second])
    sink.fails = ""
    sink.execute(third := tracked(n=3))
    sink.execute(TICK)
    assert (collector.acked, sink.published) == ([third], [3])


def test_while_nothing_can_be_staged_no_tuple_fails_and_each_tick_tries_again() -> None:
    collector = prepared(sink := Ledger("pre_commit"))
    sink.max_batch, errors = 2, list[BaseException]()
    collector.report_error = errors.append  # type: ignore[method-assign]
    sink.execute(first := tracked(n=1))
    sink.execute(second := tracked(n=2))
    sink.execute(TICK)
    assert not sink.has_room and sink.calls == ["pre_commit"] * 2 and list(map(str, errors)) == ["pre_commit"]
    sink.fails = ""
    sink.execute(TICK)
    assert sink.has_room and (collector.acked, collector.failed, sink.published) == ([first, second], [], [1, 2])


class HalfWay(Ledger):
    """Publishes one row in each commit, and raises while some are left."""

    def commit(self, token: Any) -> None:
        """A repetition continues where the last one has stopped."""
        self._call("commit")
        done = len([row for row in token if row in self.published])
        self.published += token[done : done + 1]
        if done + 1 < len(token):
            raise ConnectionError("the reply is lost")


def test_a_commit_that_raises_half_way_is_repeated_and_never_aborted() -> None:
    collector = prepared(sink := HalfWay())
    collector.report_error = [].append  # type: ignore[method-assign]
    for tup in (first := tracked(n=1), second := tracked(n=2)):
        sink.execute(tup)
    sink.execute(TICK)
    sink.execute(third := tracked(n=3))
    assert (collector.acked, collector.failed, sink.published) == ([], [], [1])
    sink.execute(TICK)
    assert (collector.acked, sink.published) == ([first, second], [1, 2])
    sink.execute(TICK)
    assert (collector.acked, sink.published) == ([first, second, third], [1, 2, 3])
    assert "abort [1, 2]" not in sink.calls and sink.calls.count("pre_commit") == 2


def test_a_commit_under_way_in_a_recovery_is_completed_and_acks_nothing() -> None:
    collector = prepared(sink := HalfWay())
    collector.report_error = [].append  # type: ignore[method-assign]
    for tup in (tracked(n=1), tracked(n=2)):
        sink.execute(tup)
    sink.execute(TICK)
    sink.on_reset()
    sink.execute(TICK)
    assert (collector.acked, sink.published) == ([], [1, 2])


def test_a_tick_without_tuples_publishes_nothing() -> None:
    prepared(sink := Ledger())
    sink.execute(TICK)
    sink.end_of_input()
    assert sink.calls == []


def test_a_sink_is_closed_also_when_undoing_fails() -> None:
    prepared(sink := Ledger("abort begun"))
    with pytest.raises(OSError, match="abort begun"):
        sink.cleanup()
    assert sink.calls == ["abort begun", "close"]
