from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from topo import (
    BasicBolt,
    BasicCollector,
    BlockingSpout,
    Bolt,
    ConfigError,
    CustomGrouping,
    IterableSpout,
    NotFound,
    RetryingSpout,
    Spout,
    SpoutCollector,
    TaskContext,
    Topology,
    TopologyBuilder,
    Tuple,
    UserError,
    ValueNotCarried,
)
from topo.master.outcome import OutcomeKind
from topo.testing import ADVANCE, CRASH, END, FAIL_NEXT, PAUSE, TopologyTest, message

SEEDS = range(12)


class Split(BasicBolt):
    outputs = ("word",)

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        for word in tup["line"].split():
            collector.emit((word,))


class Count(BasicBolt):
    outputs = {"default": ("word", "count"), "totals": ("total",)}

    def prepare(self, context: TaskContext) -> None:
        self.counts: dict[str, int] = {}
        self.is_closed = False

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        if tup.is_tick:
            collector.emit((sum(self.counts.values()),), stream="totals")
            return
        word = tup["word"]
        self.counts[word] = self.counts.get(word, 0) + 1
        collector.emit((word, self.counts[word]))

    def cleanup(self) -> None:
        self.is_closed = True


class Each(BasicBolt):
    """Calls a function with each input."""

    outputs = ("value",)

    def __init__(self, action: Callable[[Tuple, BasicCollector], object]) -> None:
        self.action = action

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        self.action(tup, collector)


class Forgets(Bolt):
    """Acks nothing."""

    def execute(self, tup: Tuple) -> None:
        pass


def word_count(splits: int = 2, counts: int = 2, **settings: Any) -> Topology:
    builder = TopologyBuilder("word-count").config(**settings)
    builder.set_spout("lines", IterableSpout(["real input"], fields=("line",)))
    builder.set_bolt("split", Split(), splits).shuffle_grouping("lines")
    builder.set_bolt("count", Count(), counts, tick_interval="1s").fields_grouping("split", "word")
    return builder.build()


def one_bolt(bolt: BasicBolt | Bolt, **settings: Any) -> Topology:
    builder = TopologyBuilder("one-bolt").config(**settings)
    builder.set_spout("numbers", IterableSpout(range(3)))
    builder.set_bolt("bolt", bolt).shuffle_grouping("numbers")
    return builder.build()


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
    assert [error.kind for error in test.errors()] == ["RefusedInput"]


def test_a_message_that_fails_as_often_as_attempts_allow_is_a_dead_letter() -> None:
    test = TopologyTest(word_count(attempts=2), sources={"lines": ["a", FAIL_NEXT, FAIL_NEXT, "b", END]})

    test.run()

    assert test.acked() == [0]
    assert test.failed() == [1, 1]
    (letter,) = test.dead_letters()
    assert (letter.component, letter.message_id, letter.values, letter.attempts) == ("lines", 1, ("b",), 2)
    assert test.outcome is not None and test.outcome.kind is OutcomeKind.DEAD_LETTERS
    with pytest.raises(AssertionError, match=r"after 2 attempts: attempt 1: RefusedInput: .*; a task failed it; RefusedInput: "):
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


# -- what goes wrong -----------------------------------------------------------------------------------------------------


def test_a_value_that_cannot_be_carried_raises_where_it_is_emitted() -> None:
    test = TopologyTest(one_bolt(Each(lambda tup, collector: collector.emit((object(),))), attempts=1))

    test.run()

    error = test.errors()[0]
    assert error.kind == "ValueNotCarried"
    assert "component 'bolt', stream 'default', field 'value': a value of type object" in error.message
    assert error.file == __file__
    assert sum(error.count for error in test.errors()) == 3
    assert test.failed() == [0, 1, 2]
    assert test.emitted("bolt") == []


def test_what_a_call_emits_beyond_the_limit_is_discarded() -> None:
    def many(tup: Tuple, collector: BasicCollector) -> None:
        for number in range(tup[0] + 1):
            collector.emit((number,))

    test = TopologyTest(one_bolt(Each(many), attempts=1, max_task_emit=2))
    test.run()

    test.assert_emitted("bolt", [0, 0, 1])
    assert test.failed() == [2]


def test_a_bolt_gets_a_copy_of_what_was_emitted() -> None:
    shared: list[int] = [1]
    builder = TopologyBuilder("copies").config(workers=1)
    builder.set_spout("numbers", IterableSpout([shared]))
    seen: list[Any] = []
    builder.set_bolt("bolt", Each(lambda tup, collector: seen.append(tup[0]))).shuffle_grouping("numbers")

    TopologyTest(builder.build()).run()

    assert seen == [(1,)]


def test_a_message_that_nobody_acks_times_out_and_is_given_up() -> None:
    test = TopologyTest(one_bolt(Forgets(), message_timeout="10s", attempts=2))

    test.run()

    why = "attempt 1: no verdict within 10 s; no verdict within 10 s"
    assert [letter.why for letter in test.dead_letters()] == [why] * 3
    assert test.clock() > 20


def test_a_plain_spouts_message_that_fails_is_finally_failed() -> None:
    class Once(Spout):
        outputs = ("value",)

        def open(self, context: TaskContext, collector: SpoutCollector) -> None:
            self.collector = collector
            self.failed: list[Any] = []

        def next_tuple(self) -> None:
            self.collector.emit((7,), message_id="seven")
            self.collector.end_of_input()

        def fail(self, message_id: Any) -> None:
            self.failed.append(message_id)

    def refuse(tup: Tuple, collector: BasicCollector) -> None:
        raise LookupError("no seven")

    builder = TopologyBuilder("plain")
    once = Once()
    builder.set_spout("once", once)
    builder.set_bolt("bolt", Each(refuse)).shuffle_grouping("once")
    test = TopologyTest(builder.build())

    test.run()

    assert test.failed() == once.failed == ["seven"]
    assert test.outcome is not None and test.outcome.kind is OutcomeKind.FINALLY_FAILED
    with pytest.raises(
        AssertionError, match=r"once: message 'seven' failed\nerror in bolt: LookupError: no seven \(.*\.py:\d+\)"
    ):
        test.assert_all_acked()


def test_a_plain_spout_that_replays_by_itself_is_waited_for() -> None:
    class Replays(Spout):
        outputs = ("value",)

        def open(self, context: TaskContext, collector: SpoutCollector) -> None:
            self.collector = collector
            self.waiting = [1, 2]

        def next_tuple(self) -> None:
            if self.waiting:
                number = self.waiting.pop()
                self.collector.emit((number,), message_id=number)

        def fail(self, message_id: Any) -> None:
            self.waiting.append(message_id)

    tried: set[int] = set()

    def second_time(tup: Tuple, collector: BasicCollector) -> None:
        if tup[0] not in tried:
            tried.add(tup[0])
            raise TimeoutError

    builder = TopologyBuilder("plain")
    builder.set_spout("replays", Replays())
    builder.set_bolt("bolt", Each(second_time)).shuffle_grouping("replays")
    test = TopologyTest(builder.build())

    test.run()

    test.assert_all_acked()
    assert sorted(test.failed()) == [1, 2]


def test_a_component_that_cannot_be_opened_fails_the_run_with_its_error() -> None:
    class Broken(Split):
        def prepare(self, context: TaskContext) -> None:
            raise OSError("no such table")

    test = TopologyTest(one_bolt(Broken()))

    with pytest.raises(AssertionError, match=r"could not be started(.|\n)*error in bolt: OSError: no such table"):
        test.run()


def test_an_exception_that_ends_the_process_is_followed_by_a_restart() -> None:
    struck: list[int] = []

    def once(tup: Tuple, collector: BasicCollector) -> None:
        if not struck:
            struck.append(tup[0])
            raise MemoryError

    test = TopologyTest(lambda: one_bolt(Each(once), on_error="crash"))

    test.run()

    test.assert_all_acked()
    assert test.status()["restarts"] == 1
    assert {error.kind for error in test.errors()} == {"MemoryError", "WorkerLost"}


def test_a_spout_that_never_rests_is_said_to_and_can_be_run_for_a_time() -> None:
    class Endless(RetryingSpout):
        outputs = ("value",)

        def open(self, context: TaskContext, collector: SpoutCollector) -> None:
            self.collector, self.number = collector, 0

        def next_tuple(self) -> None:
            self.number += 1
            self.collector.emit((self.number,), self.number)

    builder = TopologyBuilder("endless").config(max_spout_pending=10)
    builder.set_spout("numbers", Endless())
    builder.set_bolt("bolt", Each(lambda tup, collector: None)).shuffle_grouping("numbers")
    test = TopologyTest(builder.build())

    test.advance("200ms")
    assert len(test.acked()) > 10
    with pytest.raises(AssertionError, match=r"not at rest after 200ms of its clock:\nnumbers\[0\]"):
        test.run(limit="200ms")


def test_a_blocking_spout_needs_a_script() -> None:
    class Socket(BlockingSpout):
        outputs = ("value",)

        def run(self) -> None:
            raise AssertionError("not on a manual clock")

        def cancel(self) -> None:
            pass

        def next_tuple(self) -> None:
            pass

    def topology() -> Topology:
        builder = TopologyBuilder("socket")
        builder.set_spout("socket", Socket())
        builder.set_bolt("bolt", Each(lambda tup, collector: None)).shuffle_grouping("socket")
        return builder.build()

    with pytest.raises(AssertionError, match=r"give TopologyTest a script for it: sources=\{'socket': \[...\]\}"):
        TopologyTest(topology).run()
    test = TopologyTest(topology, sources={"socket": [1, END]})
    test.run()
    test.assert_all_acked()


# -- instances -----------------------------------------------------------------------------------------------------------


def test_the_instance_that_was_given_runs_as_the_first_task_and_others_are_copies() -> None:
    given = Count()
    builder = TopologyBuilder("given")
    builder.set_spout("words", IterableSpout(["a", "b", "c", "d"], fields=("word",)))
    builder.set_bolt("count", given, 2).fields_grouping("words", "word")
    test = TopologyTest(builder.build())

    test.run()

    assert test.bolt("count", 0) is given
    assert test.bolt("count", 1) is not given
    assert {**given.counts, **test.bolt("count", 1).counts} == dict.fromkeys("abcd", 1)


def test_a_component_that_cannot_be_copied_says_what_to_do_when_it_would_have_to_be() -> None:
    def topology(tasks: int) -> Topology:
        numbers = (number for number in range(3))
        builder = TopologyBuilder("generator")
        builder.set_spout("numbers", IterableSpout(numbers), tasks)
        builder.set_bolt("bolt", Each(lambda tup, collector: None)).shuffle_grouping("numbers")
        return builder.build()

    single = TopologyTest(topology(1))
    single.run()
    single.assert_all_acked()
    with pytest.raises(AssertionError, match=r"cannot be copied .*; give TopologyTest a function that makes the component"):
        TopologyTest(topology(2)).run()


def test_a_custom_grouping_is_prepared_by_each_sender() -> None:
    class Third(CustomGrouping):
        def prepare(self, context: TaskContext, stream: str, targets: Any) -> None:
            assert not hasattr(self, "targets"), "prepared twice"
            self.targets = targets

        def choose(self, values: tuple[Any, ...]) -> list[int]:
            return [2]

    builder = TopologyBuilder("custom")
    builder.set_spout("words", IterableSpout(["a", "b"], fields=("word",)), 2)
    builder.set_bolt("count", Count(), 3).custom_grouping("words", Third())
    test = TopologyTest(builder.build())

    test.run()

    assert test.bolt("count", 2).counts == {"a": 1, "b": 1}


def test_tasks_of_one_shared_builder_share_no_component() -> None:
    builder = TopologyBuilder("shared-builder")
    builder.set_spout("words", IterableSpout((), fields=("word",)))
    builder.set_bolt("count", Count(), 2).fields_grouping("words", "word")
    test = TopologyTest(builder.build, sources={"words": [*"abcabc", END]})

    test.run()

    counts = [test.bolt("count", index).counts for index in range(2)]
    assert counts[0] and counts[1] and not counts[0].keys() & counts[1].keys()
    assert counts[0] | counts[1] == {"a": 2, "b": 2, "c": 2}


def test_several_tasks_of_a_source_share_its_script() -> None:
    builder = TopologyBuilder("shared")
    builder.set_spout("words", IterableSpout((), fields=("word",)), 3)
    builder.set_bolt("count", Count()).global_grouping("words")
    test = TopologyTest(builder.build(), sources={"words": [*"abcdefg", END]})

    test.run()

    test.assert_all_acked()
    assert test.bolt("count").counts == dict.fromkeys("abcdefg", 1)


# -- wrong calls ---------------------------------------------------------------------------------------------------------


def test_names_that_do_not_exist_are_refused_with_near_ones() -> None:
    test = TopologyTest(word_count(), sources={"lines": ["a"]})
    test.run()

    with pytest.raises(NotFound, match="Did you mean 'lines'"):
        TopologyTest(word_count(), sources={"line": ["a"]})
    with pytest.raises(NotFound, match="no spout 'split'"):
        TopologyTest(word_count(), sources={"split": ["a"]})
    with pytest.raises(NotFound, match="Did you mean 'count'"):
        test.emitted("coumt")
    with pytest.raises(NotFound, match="Did you mean 'totals'"):
        test.emitted("count", "total")
    with pytest.raises(NotFound, match="has 2 tasks, and no task 2"):
        test.bolt("count", 2)
    with pytest.raises(NotFound, match="no component 'counts'"):
        TopologyTest(word_count(), sources={"lines": ["a", CRASH("counts")]})
    with pytest.raises(NotFound, match="no component"):
        test.acked("spout")


def test_a_setting_that_is_wrong_and_a_value_that_cannot_be_emitted_are_refused_at_once() -> None:
    with pytest.raises(ConfigError, match="message_timeout"):
        TopologyTest(word_count(), mesage_timeout="1s")
    with pytest.raises(ValueNotCarried, match="component 'lines', stream 'default', field 'line'"):
        TopologyTest(word_count(), sources={"lines": [object()]})


def test_a_bolt_can_be_looked_at_when_something_has_run() -> None:
    test = TopologyTest(word_count())

    with pytest.raises(UserError, match="has not been started"):
        test.bolt("count")
    test.run()
    with pytest.raises(UserError, match="is no bolt"):
        test.bolt("lines")


# -- assertions ----------------------------------------------------------------------------------------------------------


def test_a_difference_is_told_with_the_errors_behind_it() -> None:
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


def test_that_all_is_acked_is_not_said_of_nothing() -> None:
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
