from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.unit.connectors.drive import drain, opened
from topo import IterableSpout, TopologyBuilder, UserError
from topo.api.context import TaskContext
from topo.api.streams import declared_streams
from topo.emission.message_collectors import MessageCollector
from topo.testing import TopologyTest


def test_items_are_values_of_the_one_field_and_their_index_is_the_position() -> None:
    collector = opened(spout := IterableSpout(["a", ("b", "c")]))
    assert drain(spout, collector) == [(("a",), 0), ((("b", "c"),), 1)]
    assert collector.ended


def test_with_several_fields_an_item_has_a_value_for_each() -> None:
    spout = IterableSpout([("a", 1), ["b", 2]], fields=("name", "number"))
    assert drain(spout, opened(spout)) == [(("a", 1), 0), (("b", 2), 1)]
    assert spout.outputs == ("name", "number")


@pytest.mark.parametrize("tasks", [1, 2, 3, 7])
def test_tasks_share_the_items(tasks: int) -> None:
    emitted = []
    for index in range(tasks):
        spout = IterableSpout(range(10))
        emitted += drain(spout, opened(spout, index=index, parallelism=tasks))
    assert sorted(emitted) == [((number,), number) for number in range(10)]


@pytest.mark.parametrize("tasks", [1, 3])
@pytest.mark.parametrize("done", range(10))
def test_it_continues_after_the_committed_position(tasks: int, done: int) -> None:
    spout = IterableSpout(range(10))
    again = drain(spout, opened(spout, index=done % tasks, parallelism=tasks, committed=done))
    assert [position for _, position in again] == list(range(done + tasks, 10, tasks))


def test_a_function_makes_the_items_anew() -> None:
    def items() -> Iterator[int]:
        yield from range(3)

    spout = IterableSpout(items)
    assert drain(spout, opened(spout)) == drain(spout, opened(spout))


def test_one_call_emits_one_item_so_that_an_endless_source_can_be_paused() -> None:
    def endless() -> Iterator[int]:
        number = 0
        while True:
            yield number
            number += 1

    spout = IterableSpout(endless)
    collector = opened(spout)
    for _ in range(5):
        spout.next_tuple()
    assert collector.streams[0].rows == [(0,), (1,), (2,), (3,), (4,)]


def raise_thrice(spout: IterableSpout) -> None:
    """Have a spout read until it has raised three times."""
    errors = 0
    while errors < 3:
        try:
            spout.next_tuple()
        except OSError:
            errors += 1


def test_a_source_that_raises_has_not_ended() -> None:
    def broken() -> Iterator[Any]:
        yield 1
        raise OSError("disk on fire")

    spout = IterableSpout(broken)
    collector = opened(spout)
    spout.next_tuple()
    raise_thrice(spout)
    assert not collector.ended
    assert collector.streams[0].rows == [(1,)]


@pytest.mark.parametrize("tasks", [1, 2])
@pytest.mark.parametrize("bad", [0, 1, 5, 6])
def test_an_iterable_that_has_raised_is_read_again_from_where_it_was(tasks: int, bad: int) -> None:
    """It was never read again: the same error followed for as long as the worker lived, however short the disk was away."""
    reads = []

    def items() -> Iterator[int]:
        reads.append(None)
        for number in range(7):
            if number == bad and len(reads) < 3:
                raise OSError("the disk is away")
            yield number

    emitted, errors = [], 0
    for index in range(tasks):
        reads.clear()
        spout = IterableSpout(items)
        collector = opened(spout, index=index, parallelism=tasks)
        while not collector.ended:
            try:
                spout.next_tuple()
            except OSError:
                errors += 1
        emitted += zip(collector.streams[0].rows, collector.messages[0], strict=True)
    assert sorted(emitted) == [((number,), number) for number in range(7)]
    assert errors == 2 * tasks


def test_a_function_that_raises_when_it_is_called_again_is_asked_again() -> None:
    reads = []

    def items() -> Iterator[int]:
        reads.append(None)
        if len(reads) == 2:
            raise ConnectionError("no server")
        return broken() if len(reads) == 1 else iter([1, 2])

    def broken() -> Iterator[int]:
        yield 1
        raise ConnectionError("reset")

    spout = IterableSpout(items)
    collector = opened(spout)
    errors = []
    while not collector.ended:
        try:
            spout.next_tuple()
        except ConnectionError as error:
            errors.append(str(error))
    assert (errors, collector.streams[0].rows) == (["reset", "no server"], [(1,), (2,)])


@pytest.mark.parametrize(
    ("item", "problem"),
    [
        (7, r"item 1 is 7 \(int\), and the spout has the fields a, b: give a sequence of 2 values"),
        (
            {"a": 3, "b": 4},
            r"item 1 is \{'a': 3, 'b': 4\} \(dict\), and the spout has the fields a, b: give a sequence",
        ),
        ((3, 4, 5), "3 values on stream 'default', which has 2 fields"),
    ],
)
@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once", "at_most_once"])
def test_an_item_that_cannot_be_emitted_is_a_dead_letter(item: Any, problem: str, delivery: str) -> None:
    """The error was raised at every call, and the run never ended."""
    builder = TopologyBuilder("items").config(delivery=delivery)
    builder.set_spout("items", IterableSpout([(1, 2), item, item, (5, 6)], fields=("a", "b")))
    test = TopologyTest(builder.build())
    test.run()
    assert test.emitted("items") == [(1, 2), (5, 6)]
    assert [(dead.values, dead.message_id) for dead in test.dead_letters()] == [((item,), 1), ((item,), 2)]
    for dead in test.dead_letters():
        assert re.search(problem.replace("item 1", r"item \d"), dead.why)
    assert {error.kind for error in test.errors()} == {"UserError" if "item 1" in problem else "EmitError"}


def test_skipping_to_the_position_is_cut_and_reported_as_progress() -> None:
    seconds = iter(range(1_000_000))
    reports: list[str] = []

    def report(text: str) -> bool:
        reports.append(text)
        # Every third look finds that the call has lasted long.
        return next(seconds) % 3 == 2

    spout = IterableSpout(range(500))
    collector = MessageCollector("part", declared_streams(spout.outputs), lambda error: None)
    spout.open(TaskContext("test", "part", 1, committed_position=449, report_progress=report), collector)

    calls = 0
    while not collector.count():
        spout.next_tuple()
        calls += 1

    assert calls > 3
    assert [collector.streams[0].rows, collector.messages[0]] == [[(450,)], [450]]
    shown = [text for text in reports if text]
    assert len(shown) == calls - 1
    assert shown[0].startswith("skipping to item 450, where it left off; at ")


def test_iterable_that_has_become_shorter_than_the_position_ends() -> None:
    spout = IterableSpout(range(5))
    collector = opened(spout, committed=9)
    assert drain(spout, collector) == []


def test_error_while_skipping_is_raised_again_and_is_no_end() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise OSError("the disk is away")

    spout = IterableSpout(items)
    collector = opened(spout, committed=5)
    raise_thrice(spout)
    assert not collector.ended


@pytest.mark.parametrize(
    ("items", "problem"),
    [
        (iter([1, 2]), r"\(list_iterator\), an iterator, and items are read again after a crash; give a list"),
        ((number for number in (1, 2)), r"\(generator\), an iterator, and items"),
        ({"a", "b"}, r"\(set\), whose order is another one in each process; give a list in a fixed order, such as sorted"),
        (frozenset([1]), r"\(frozenset\), whose order is another one"),
        (5, r"given 5 \(int\); give an iterable, or a function that returns one"),
    ],
)
def test_items_that_could_not_be_read_again_are_refused(items: Any, problem: str) -> None:
    with pytest.raises(UserError, match=problem):
        IterableSpout(items)


def test_keys_of_a_dict_have_an_order() -> None:
    spout = IterableSpout({"b": 1, "a": 2}.keys())
    assert drain(spout, opened(spout)) == [(("b",), 0), (("a",), 1)]


def test_a_function_that_returns_a_set_is_refused() -> None:
    spout = IterableSpout(lambda: {"a", "b"})
    with pytest.raises(UserError, match=r"\(set\); return them in a fixed order, such as sorted"):
        opened(spout)


@pytest.mark.parametrize("made", [None, 5])
def test_a_function_that_returns_no_items_is_refused(made: Any) -> None:
    def forgets() -> Any:
        return made

    spout = IterableSpout(forgets)
    why = rf"^the function of the items returned {made} \({type(made).__name__}\); return a list"
    with pytest.raises(UserError, match=why):
        opened(spout)
