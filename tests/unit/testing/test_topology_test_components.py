"""`TopologyTest` with components that fail, refuse or do not end, and the instances that it runs."""

from __future__ import annotations

from threading import Lock
from typing import Any

import pytest

from tests.unit.testing.kit_topologies import Count, Each, Forgets, Split, one_bolt
from topo import (
    BasicCollector,
    BlockingSpout,
    CustomGrouping,
    IterableSpout,
    RetryingSpout,
    Spout,
    SpoutCollector,
    TaskContext,
    Topology,
    TopologyBuilder,
    Tuple,
)
from topo.errors import UserError
from topo.master.outcome import OutcomeKind
from topo.testing import END, TopologyTest


def test_a_value_that_cannot_be_carried_raises_where_it_is_emitted() -> None:
    test = TopologyTest(one_bolt(Each(lambda tup, collector: collector.emit((object(),))), attempts=1))

    test.run()

    error = test.errors()[0]
    assert error.kind == "UnsupportedValueError"
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
    seen: list[Any] = []

    TopologyTest(one_bolt(Each(lambda tup, collector: seen.append(tup[0])), IterableSpout([shared]), workers=1)).run()

    assert seen == [(1,)]


def test_a_message_that_is_never_acked_times_out_and_is_given_up() -> None:
    test = TopologyTest(one_bolt(Forgets(), message_timeout="10s", attempts=2))

    test.run()

    why = "attempt 1: no verdict within 10 s; no verdict within 10 s"
    assert [dead_letter.why for dead_letter in test.dead_letters()] == [why] * 3
    assert test.clock() > 20


def test_a_plain_spouts_message_that_fails_is_finally_failed() -> None:
    """Promise of the README: at_least_once, a plain Spout."""

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

    once = Once()
    test = TopologyTest(one_bolt(Each(refuse), once))

    test.run()

    assert test.failed() == once.failed == ["seven"]
    assert test.outcome is not None and test.outcome.kind is OutcomeKind.FINALLY_FAILED
    with pytest.raises(
        AssertionError, match=r"numbers: message 'seven' failed\nerror in bolt: LookupError: no seven \(.*\.py:\d+\)"
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

    test = TopologyTest(one_bolt(Each(second_time), Replays()))

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


def test_a_spout_that_never_rests_is_reported_and_can_be_run_for_a_time() -> None:
    class Endless(RetryingSpout):
        outputs = ("value",)

        def open(self, context: TaskContext, collector: SpoutCollector) -> None:
            self.collector, self.number = collector, 0

        def next_tuple(self) -> None:
            self.number += 1
            self.collector.emit((self.number,), self.number)

    test = TopologyTest(one_bolt(Each(lambda tup, collector: None), Endless(), max_spout_pending=10))

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
        return one_bolt(Each(lambda tup, collector: None), Socket())

    with pytest.raises(AssertionError, match=r"give TopologyTest a script for it: sources=\{'numbers': \[...\]\}"):
        TopologyTest(topology).run()
    test = TopologyTest(topology, sources={"numbers": [1, END]})
    test.run()
    test.assert_all_acked()


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
        numbers = IterableSpout(range(3))
        numbers.lock = Lock()  # type: ignore[attr-defined]
        return one_bolt(Each(lambda tup, collector: None), numbers, tasks)

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


def test_a_builder_in_place_of_its_topology_is_refused_with_the_call_that_is_missing() -> None:
    builder = TopologyBuilder("counts")
    for given in (builder, lambda: builder):
        with pytest.raises(UserError, match=r"a TopologyBuilder, not a Topology: call its build\(\)"):
            TopologyTest(given)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="a NoneType, not a Topology: make it a Topology, or a function that returns one"):
        TopologyTest(None)  # type: ignore[arg-type]
