"""`TopologyTest`: runs, markers in scripts, wrong calls, assertions."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.testing.kit_topologies import Each, Forgets, one_bolt, word_count
from topo import (
    BasicCollector,
    ConfigError,
    IterableSpout,
    NotFoundError,
    RetryingSpout,
    Spout,
    SpoutCollector,
    TaskContext,
    Topology,
    TopologyBuilder,
    Tuple,
    UnsupportedValueError,
    UserError,
)
from topo.master.outcome import OutcomeKind
from topo.testing import ADVANCE, CRASH, END, FAIL_NEXT, PAUSE, TopologyTest, message

SEEDS = range(12)


# -- a run ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_a_source_that_ends_ends_the_topology_with_every_message_acked(seed: int) -> None:
    test = TopologyTest(word_count(), sources={"lines": ["a b a", "b", END]}, seed=seed)

    test.run()

    test.assert_all_acked()
    test.assert_emitted("split", ["a", "b", "a", "b"])
    test.assert_emitted("count", [("a", 1), ("b", 1), ("a", 2), ("b", 2)])
    assert sorted(test.acked()) == [0, 1]
    assert test.outcome is not None and test.outcome.kind is OutcomeKind.DONE
    assert all(test.bolt("count", task_index=index).is_closed for index in (0, 1))


def test_a_spout_without_a_script_runs_as_it_is() -> None:
    test = TopologyTest(word_count())

    test.run()

    test.assert_emitted("lines", ["real input"])
    test.assert_emitted("split", ["real", "input"])
    assert test.acked("lines") == [0]


def test_a_spout_that_names_its_next_message_is_called_when_it_is_due() -> None:
    class Scheduled(Spout):
        outputs = ("at",)

        def open(self, context: TaskContext, collector: SpoutCollector) -> None:
            self.collector, self.due = collector, 0.0

        def next_tuple(self) -> None:
            called.append(now := test.clock())
            if now >= self.due:
                self.collector.emit((self.due,), message_id=self.due)
                self.due += 10.0
            self.collector.nothing_before(self.due - now)

    called: list[float] = []
    builder = TopologyBuilder("scheduled")
    builder.set_spout("a", Scheduled)
    test = TopologyTest(builder.build())

    test.advance("35s")

    test.assert_emitted("a", [0.0, 10.0, 20.0, 30.0])
    assert [round(at, 1) for at in called] == [0.0, 10.0, 20.0, 30.0]


def test_the_same_seed_gives_the_same_run_and_another_seed_another_order() -> None:
    def order(seed: int) -> tuple[Any, ...]:
        lines = [f"w{number} x{number}" for number in range(40)]
        test = TopologyTest(word_count, sources={"lines": [*lines, CRASH("split"), *lines[:5], END]}, seed=seed)
        test.run()
        return test.emitted("count"), test.acked(), test.clock()

    orders = [order(seed) for seed in (1, 1, 2, 3)]

    assert orders[0] == orders[1]
    assert len({str(found) for found in orders}) == 3


def test_a_source_that_runs_out_stays_open_and_time_goes_on_for_the_bolts() -> None:
    test = TopologyTest(word_count(counts=1), sources={"lines": ["a b"]})
    test.run()
    assert test.outcome is None
    assert test.emitted("count", "totals") == []

    test.advance("3s")

    test.assert_all_acked()
    assert test.emitted("count", "totals") == [(2,), (2,), (2,)]
    test.drain()
    assert test.outcome is not None and test.outcome.kind is OutcomeKind.DRAINED
    assert test.bolt("count").is_closed


def test_minutes_of_the_clock_pass_in_no_time_and_end_on_the_second() -> None:
    test = TopologyTest(word_count(counts=1), sources={"lines": ["a"]})
    test.run()
    before = test.clock()

    test.advance("5m")

    assert test.clock() == before + 300
    assert len(test.emitted("count", "totals")) == 300


def test_advance_alone_starts_the_topology_first() -> None:
    test = TopologyTest(word_count(counts=1), sources={"lines": [PAUSE("5s"), "a"]})

    test.advance("2s")

    assert test.emitted("lines") == []
    assert test.emitted("count", "totals") == [(0,), (0,)]
    test.advance("4s")
    test.assert_emitted("split", ["a"])


def test_the_status_is_that_of_topo_status() -> None:
    test = TopologyTest(word_count(), sources={"lines": ["a b", FAIL_NEXT, "c"]})
    test.run()

    status = test.status()

    assert status["status"] == "RUNNING"
    totals = status["totals"]
    assert (totals["acked"], totals["failed"], totals["replayed"], totals["pending"]) == (2, 1, 1, 0)
    assert {row["component"] for row in status["components"]} == {"lines", "split", "count", "__acker"}


# -- markers -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_a_message_that_is_to_fail_fails_once_and_is_retried(seed: int) -> None:
    test = TopologyTest(word_count(), sources={"lines": ["a", FAIL_NEXT, "b", "c", END]}, seed=seed)

    test.run()

    test.assert_all_acked()
    assert test.failed() == [1]
    assert test.dead_letters() == []
    assert [error.kind for error in test.errors()] == ["RefusedInputError"]


def test_a_message_that_fails_as_often_as_attempts_allow_is_a_dead_letter() -> None:
    test = TopologyTest(word_count(attempts=2), sources={"lines": ["a", FAIL_NEXT, FAIL_NEXT, "b", END]})

    test.run()

    assert test.acked() == [0]
    assert test.failed() == [1, 1]
    (dead_letter,) = test.dead_letters()
    assert (dead_letter.component, dead_letter.message_id, dead_letter.values, dead_letter.attempts) == ("lines", 1, ("b",), 2)
    assert test.outcome is not None and test.outcome.kind is OutcomeKind.DEAD_LETTERS
    with pytest.raises(AssertionError, match=r"after 2 attempts: attempt 1: RefusedInputError: .*; RefusedInputError: "):
        test.assert_all_acked()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("crash", [CRASH, CRASH("split", 1), CRASH("count"), CRASH("__acker")])
def test_whatever_is_killed_no_message_is_lost(crash: object, seed: int) -> None:
    lines = [f"w{number}" for number in range(30)]
    test = TopologyTest(word_count(), sources={"lines": [*lines[:20], crash, *lines[20:], END]}, seed=seed)

    test.run()

    test.assert_all_acked()
    assert set(test.emitted("split")) == {(line,) for line in lines}
    assert test.status()["restarts"] == 1
    assert [error.kind for error in test.errors()] == ["WorkerLost"]
    assert test.dead_letters() == []


def test_a_killed_bolt_begins_again_with_a_fresh_instance() -> None:
    test = TopologyTest(word_count(counts=1), sources={"lines": ["a", PAUSE("1s"), CRASH("count"), "a", END]})

    test.run()

    assert test.emitted("count") == [("a", 1), ("a", 1)]
    assert test.bolt("count").counts == {"a": 1}


def test_a_killed_source_goes_on_behind_its_committed_position() -> None:
    test = TopologyTest(word_count(), sources={"lines": ["a", "b", PAUSE("2s"), "c", CRASH, "d", END]})

    test.run()

    assert test.emitted("lines")[:2] == [("a",), ("b",)]
    assert test.emitted("lines").count(("a",)) == test.emitted("lines").count(("b",)) == 1
    assert set(test.acked()) == {0, 1, 2, 3}


def test_a_worker_can_be_killed_between_two_steps() -> None:
    test = TopologyTest(word_count(), sources={"lines": ["a", PAUSE("5s"), "b", END]})
    test.advance("1s")

    test.crash("split", task_index=0)
    test.run()

    test.assert_all_acked()
    assert test.status()["restarts"] == 1


class Epochs(Spout):
    """Emits one message, and keeps the epochs of its calls."""

    outputs = ("n",)

    def open(self, context: TaskContext, collector: SpoutCollector) -> None:
        self.context, self.collector, self.calls = context, collector, [("open", context.epoch)]
        self.wanted = 1

    def next_tuple(self) -> None:
        if self.wanted:
            self.wanted = 0
            self.calls.append(("emit", self.context.epoch))
            self.collector.emit((1,), 1)

    def fail(self, message_id: object) -> None:
        self.calls.append(("fail", self.context.epoch))
        self.wanted = 1


def test_a_spout_sees_by_the_epoch_that_a_message_failed_in_a_recovery() -> None:
    spouts = list[Epochs]()

    class Kept(Epochs):
        def open(self, context: TaskContext, collector: SpoutCollector) -> None:
            super().open(context, collector)
            spouts.append(self)

    def build() -> Topology:
        builder = TopologyBuilder("epochs")
        builder.set_spout("one", Kept())
        builder.set_bolt("held", Forgets()).shuffle_grouping("one")
        return builder.build()

    test = TopologyTest(build)
    test.advance("1s")
    test.crash("held")
    test.advance("10s")

    (spout,) = spouts
    names, epochs = zip(*spout.calls, strict=True)
    assert names == ("open", "emit", "fail", "emit")
    assert epochs[0] == epochs[1] < epochs[2] == epochs[3]


def test_a_pause_silences_one_source_and_an_advance_all() -> None:
    def two_sources() -> Topology:
        builder = TopologyBuilder("two")
        builder.set_spout("left", IterableSpout(()))
        builder.set_spout("right", IterableSpout(()))
        builder.set_bolt("both", Each(lambda tup, c: c.emit(tup.values))).shuffle_grouping("left").shuffle_grouping("right")
        return builder.build()

    right = [PAUSE("1s"), "r1"]
    paused = TopologyTest(two_sources, sources={"left": ["l1", PAUSE("5m"), "l2"], "right": right})
    advanced = TopologyTest(two_sources, sources={"left": ["l1", ADVANCE("5m"), "l2"], "right": right})
    for test in (paused, advanced):
        test.advance("1m")

    assert paused.emitted("both") == [("l1",), ("r1",)]
    assert advanced.emitted("both") == [("l1",)]
    advanced.run()
    advanced.assert_emitted("both", ["l1", "l2", "r1"])
    assert advanced.clock() >= 300


def test_an_item_may_name_stream_id_and_timestamp() -> None:
    class TwoStreams(RetryingSpout):
        outputs = {"default": ("value",), "odd": ("value",)}

        def next_tuple(self) -> None:
            raise AssertionError("the script is played instead")

    seen = []
    builder = TopologyBuilder("streams")
    builder.set_spout("numbers", TwoStreams())
    look = Each(lambda tup, collector: seen.append((tup.stream, tup["value"], tup.timestamp)))
    builder.set_bolt("look", look).global_grouping("numbers").global_grouping("numbers", stream="odd")
    source = [message(1, stream="odd", timestamp=77, message_id="one"), message(2, message_id="two"), END]

    test = TopologyTest(builder.build(), sources={"numbers": source})
    test.run()

    assert sorted(seen) == [("default", 2, None), ("odd", 1, 77)]
    assert sorted(test.acked("numbers")) == ["one", "two"]
    assert test.emitted("numbers", "odd") == [(1,)]


# -- wrong calls ---------------------------------------------------------------------------------------------------------


def test_names_that_do_not_exist_are_refused_with_near_ones() -> None:
    test = TopologyTest(word_count(), sources={"lines": ["a"]})
    test.run()

    with pytest.raises(NotFoundError, match="Did you mean 'lines'"):
        TopologyTest(word_count(), sources={"line": ["a"]})
    with pytest.raises(NotFoundError, match="no spout 'split'"):
        TopologyTest(word_count(), sources={"split": ["a"]})
    with pytest.raises(NotFoundError, match="Did you mean 'count'"):
        test.emitted("coumt")
    with pytest.raises(NotFoundError, match="Did you mean 'totals'"):
        test.emitted("count", "total")
    with pytest.raises(NotFoundError, match="has 2 tasks, and no task 2"):
        test.bolt("count", 2)
    with pytest.raises(NotFoundError, match="no component 'counts'"):
        TopologyTest(word_count(), sources={"lines": ["a", CRASH("counts")]})
    with pytest.raises(NotFoundError, match="no component"):
        test.acked("spout")


def test_a_wrong_setting_and_a_value_that_cannot_be_carried_are_refused() -> None:
    with pytest.raises(ConfigError, match="message_timeout"):
        TopologyTest(word_count(), mesage_timeout="1s")
    with pytest.raises(UnsupportedValueError, match="component 'lines', stream 'default', field 'line'"):
        TopologyTest(word_count(), sources={"lines": [object()]})


def test_a_bolt_can_be_looked_at_when_something_has_run() -> None:
    test = TopologyTest(word_count())

    with pytest.raises(UserError, match="has not been started"):
        test.bolt("count")
    test.run()
    with pytest.raises(UserError, match="is no bolt"):
        test.bolt("lines")


# -- assertions ----------------------------------------------------------------------------------------------------------


def test_a_difference_is_reported_with_the_errors_behind_it() -> None:
    def shout(tup: Tuple, collector: BasicCollector) -> None:
        collector.emit((10 // tup[0],))

    test = TopologyTest(one_bolt(Each(shout), attempts=1))
    test.run()

    with pytest.raises(AssertionError) as raised:
        test.assert_emitted("bolt", [10, 5, 3])
    assert str(raised.value).splitlines()[:3] == [
        "'bolt' emitted 2 tuples, 3 were expected (- expected, + emitted)",
        "missing, 1:",
        "- (3,)",
    ]
    assert "error in bolt: ZeroDivisionError" in str(raised.value)


def test_the_order_matters_only_if_it_is_asked_for() -> None:
    test = TopologyTest(one_bolt(Each(lambda tup, collector: collector.emit(tup.values))))
    test.run()

    test.assert_emitted("bolt", [(2,), (0,), (1,)])
    test.assert_emitted("bolt", [0, 1, 2], ordered=True)
    with pytest.raises(AssertionError, match="first difference at 0"):
        test.assert_emitted("bolt", [(2,), (0,), (1,)], ordered=True)


def test_expected_values_are_compared_as_they_would_arrive() -> None:
    test = TopologyTest(one_bolt(Each(lambda tup, collector: collector.emit(([tup[0], [1]],)))), {"numbers": [5]})
    test.run()

    test.assert_emitted("bolt", [([5, [1]],)])


def test_assert_all_acked_fails_when_nothing_was_emitted() -> None:
    test = TopologyTest(one_bolt(Each(lambda tup, collector: None)), sources={"numbers": []})
    test.run()

    with pytest.raises(AssertionError, match="no message was emitted"):
        test.assert_all_acked()


def test_a_message_in_flight_is_not_acked() -> None:
    test = TopologyTest(one_bolt(Forgets()), sources={"numbers": [5]})
    test.advance("1s")

    with pytest.raises(AssertionError, match="numbers: message 0 is pending"):
        test.assert_all_acked()


def test_what_is_not_tracked_runs_too() -> None:
    test = TopologyTest(word_count(), sources={"lines": ["a b", "c", END]}, ackers=0)

    test.run()

    test.assert_emitted("split", ["a", "b", "c"])
    assert sorted(test.acked()) == [0, 1]
