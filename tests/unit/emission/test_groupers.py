from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tasks.components import Plain, Scripted, Sink, chain, fan
from tests.tasks.solo import RowIds, Solo
from topo.api.groupings import CustomGrouping
from topo.api.streams import direct
from topo.api.topology import Topology
from topo.builder import TopologyBuilder
from topo.emission.groupers import (
    CustomGrouper,
    EveryTarget,
    FieldsGrouper,
    Grouper,
    OneTarget,
    PartialKeyGrouper,
    Selection,
    ShuffleGrouper,
)
from topo.emission.shuffle_shares import INTERVAL_S, ShuffleShares
from topo.errors import EmitError
from topo.keys import route_of
from topo.wire.control import ComponentError
from topo.wire.frames import FrameKind


def rows_of(*values: Any) -> list[tuple[Any, ...]]:
    return [(value,) for value in values]


def chosen(selection: Selection, count: int) -> list[int]:
    return list(range(count)[selection]) if isinstance(selection, slice) else selection


def shares(grouper: Grouper, rows: Sequence[tuple[Any, ...]]) -> dict[int, list[int]]:
    """Row indexes by position."""
    return {position: chosen(selection, len(rows)) for position, selection in grouper.split(rows)}


class Tasks:
    """Target tasks of a shuffle.

    Attributes:
        full: positions without room.
        loads: of their workers, in percent.
    """

    def __init__(self, *full: int, loads: Sequence[int] = ()) -> None:
        self.full, self.loads, self.now = full, loads, 0.0

    def has_room(self, position: int) -> bool:
        return position not in self.full

    def load(self, position: int) -> int:
        return self.loads[position] if self.loads else 0


def shuffle(positions: Sequence[int], tasks: Tasks) -> ShuffleGrouper:
    """A shuffle to tasks that each have a worker to themselves."""
    return ShuffleGrouper(positions, tasks, ShuffleShares(positions))


# -- one and all


def test_a_single_target_gets_everything() -> None:
    assert shares(OneTarget(), rows_of(1, 2, 3)) == {0: [0, 1, 2]}


def test_all_grouping_gives_every_row_to_every_target() -> None:
    assert shares(EveryTarget(3), rows_of(1, 2)) == {0: [0, 1], 1: [0, 1], 2: [0, 1]}


# -- shuffle


@given(targets=st.integers(1, 7), batches=st.lists(st.integers(1, 40), max_size=20))
def test_a_shuffle_deals_every_row_once_and_evenly(targets: int, batches: list[int]) -> None:
    grouper = shuffle(range(targets), Tasks())
    dealt: Counter[int] = Counter()
    for count in batches:
        split = shares(grouper, rows_of(*range(count)))
        assert sorted(index for share in split.values() for index in share) == list(range(count))
        sizes = [len(split.get(position, ())) for position in range(targets)]
        assert max(sizes) - min(sizes) <= 1
        dealt.update({position: len(share) for position, share in split.items()})
    assert max(dealt.values(), default=0) - min((dealt[p] for p in range(targets)), default=0) <= len(batches)


def test_single_rows_go_round() -> None:
    grouper = shuffle(range(3), Tasks())
    assert [next(iter(shares(grouper, rows_of(0)))) for _ in range(6)] == [0, 1, 2, 0, 1, 2]


def test_many_small_batches_do_not_favour_a_target() -> None:
    grouper = shuffle(range(3), Tasks())
    dealt = Counter(position for _ in range(300) for position, share in shares(grouper, rows_of(1, 2)).items() for _ in share)
    assert max(dealt.values()) - min(dealt.values()) <= 1


def test_a_shuffle_passes_over_targets_without_room() -> None:
    grouper = shuffle(range(3), Tasks(1))
    assert set(shares(grouper, rows_of(*range(10)))) == {0, 2}


def test_a_shuffle_without_any_room_uses_all_targets() -> None:
    grouper = shuffle(range(3), Tasks(0, 1, 2))
    assert set(shares(grouper, rows_of(*range(9)))) == {0, 1, 2}


def learned(*loads: int, full: Sequence[int] = (), evaluations: int = 5) -> tuple[ShuffleGrouper, Tasks]:
    """A shuffle whose targets have had these loads for some evaluations."""
    tasks = Tasks(*full, loads=loads)
    grouper = shuffle(range(len(loads)), tasks)
    for _ in range(evaluations):
        grouper.split(rows_of(0))
        tasks.now += INTERVAL_S
    return grouper, tasks


@given(loads=st.lists(st.integers(0, 100), min_size=1, max_size=7), batches=st.lists(st.integers(1, 40), max_size=20))
def test_a_shuffle_by_load_deals_every_row_once_and_in_order(loads: list[int], batches: list[int]) -> None:
    grouper, _ = learned(*loads)
    for count in batches:
        assert [index for share in shares(grouper, rows_of(*range(count))).values() for index in share] == list(range(count))


@pytest.mark.parametrize("rows", [1, 2, 3, 50, 1000])
def test_tasks_of_a_busy_worker_get_fewer_rows_whatever_the_size_of_a_batch(rows: int) -> None:
    grouper, _ = learned(100, 60, 100, 60)
    dealt: Counter[int] = Counter()
    for _ in range(max(10, 2000 // rows)):
        for position, share in shares(grouper, rows_of(*range(rows))).items():
            dealt[position] += len(share)
    part = {position: count / dealt.total() for position, count in dealt.items()}
    # Six evaluations: each moves a tenth.
    busy = 0.9**6 / (0.9**6 + 1.1**6) / 2
    assert part == pytest.approx({0: busy, 1: 0.5 - busy, 2: busy, 3: 0.5 - busy}, abs=0.02)


def test_a_shuffle_by_load_passes_over_targets_without_room() -> None:
    grouper, tasks = learned(100, 60, 60, full=[1])
    assert set(shares(grouper, rows_of(*range(100)))) == {0, 2}
    tasks.full = (0, 1, 2)
    assert set(shares(grouper, rows_of(*range(100)))) == {0, 1, 2}


def test_local_or_shuffle_knows_only_its_own_positions() -> None:
    assert shares(shuffle([2], Tasks()), rows_of(1, 2)) == {2: [0, 1]}


# -- keys


@given(keys=st.lists(st.one_of(st.text(), st.integers(), st.floats(allow_nan=False), st.booleans(), st.none()), max_size=50))
def test_rows_go_where_their_key_group_lives(keys: list[Any]) -> None:
    grouper = FieldsGrouper([0], 3, 128)
    for _ in range(2):
        split = shares(grouper, rows_of(*keys))
        assert {index: position for position, share in split.items() for index in share} == {
            index: route_of(key, 128, 3) for index, key in enumerate(keys)
        }


def test_several_fields_make_a_tuple_key() -> None:
    rows = [("x", 1, "a"), ("x", 2, "b"), ("y", 1, "c")]
    split = shares(FieldsGrouper([2, 1], 5, 128), rows)
    assert {index: position for position, share in split.items() for index in share} == {
        index: route_of((row[2], row[1]), 128, 5) for index, row in enumerate(rows)
    }


def test_the_memory_of_routes_is_bounded() -> None:
    for grouper in (FieldsGrouper([0], 3, 128, remembered_keys=10), PartialKeyGrouper([0], 3, 128, remembered_keys=10)):
        for key in range(100):
            grouper.split(rows_of(key))
            assert len(grouper._routes) <= 10


class UnnamedKey:
    """A key that cannot be shown."""

    def __repr__(self) -> str:
        raise ValueError("not ready")


@pytest.mark.parametrize("grouper", [FieldsGrouper([0], 3, 128), PartialKeyGrouper([0], 3, 128)])
@pytest.mark.parametrize(
    ("key", "why"),
    [
        (float("nan"), "NaN cannot be a key"),
        ([1], "list"),
        (("a", {}), "dict"),
        (object(), "keys of type object are not carried"),
        (UnnamedKey(), "key (ValueError in repr): keys of type UnnamedKey are not carried"),
    ],
)
def test_an_unusable_key_is_an_error_that_names_it(grouper: Grouper, key: Any, why: str) -> None:
    with pytest.raises(EmitError, match="cannot use the key") as caught:
        grouper.split(rows_of("fine", key))
    assert why in str(caught.value)


def test_a_partial_key_goes_to_two_tasks_at_most_and_the_first_is_its_owner() -> None:
    grouper = PartialKeyGrouper([0], 8, 128)
    for key in range(200):
        assert len(shares(grouper, rows_of(*[key] * 20))) <= 2
        assert set(shares(PartialKeyGrouper([0], 8, 128), rows_of(key))) == {route_of(key, 128, 8)}


def test_a_partial_key_balances_one_hot_key_over_its_two_tasks() -> None:
    grouper = PartialKeyGrouper([0], 4, 128)
    split = shares(grouper, rows_of(*["hot"] * 1000))
    assert sorted(map(len, split.values())) == [500, 500]


def test_partial_keys_are_balanced_better_than_keys() -> None:
    rows = rows_of(*[key for key in range(100) for _ in range(1000 // (key + 1))])
    partial, plain = shares(PartialKeyGrouper([0], 4, 128), rows), shares(FieldsGrouper([0], 4, 128), rows)
    assert max(map(len, partial.values())) < len(rows) * 0.27 < max(map(len, plain.values()))


# -- custom


def test_a_custom_grouping_may_name_one_several_or_no_targets() -> None:
    grouper = CustomGrouper(lambda values: values[0], 3)
    assert shares(grouper, rows_of((0,), (1, 2), (), (2, 2))) == {0: [0], 1: [1], 2: [1, 3]}


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ([3], "chose task 3; the subscriber's tasks are 0 to 2"),
        ([-1], "chose task -1"),
        (1, "returned 1; return a sequence of task indexes"),
        (None, "returned None"),
        (["a"], "returned ['a']"),
        ([0.0], "returned [0.0]"),
    ],
)
def test_a_custom_grouping_that_answers_nonsense_is_told_so(answer: Any, why: str) -> None:
    with pytest.raises(EmitError) as caught:
        CustomGrouper(lambda values: answer, 3).split(rows_of(1))
    assert why in str(caught.value)


def test_what_a_custom_grouping_raises_is_the_cause_of_the_error() -> None:
    def choose(values: tuple[Any, ...]) -> Sequence[int]:
        raise KeyError("unknown")

    with pytest.raises(EmitError, match="KeyError: 'unknown'") as caught:
        CustomGrouper(choose, 3).split(rows_of(1))
    assert isinstance(caught.value.__cause__, KeyError)


def test_so_is_what_a_custom_grouping_raises_as_a_generator() -> None:
    def choose(values: tuple[Any, ...]) -> Iterator[int]:
        yield {"known": 0}[values[0]]

    with pytest.raises(EmitError, match="a custom grouping raised KeyError: 'new'"):
        CustomGrouper(choose, 3).split(rows_of("new"))  # type: ignore[arg-type]


# -- in a task


class EvenOdd(CustomGrouping):
    def prepare(self, context: Any, stream: str, target_tasks: Sequence[int]) -> None:
        self.prepared = (context.component, stream, tuple(target_tasks))

    def choose(self, values: tuple[Any, ...]) -> Sequence[int]:
        return [values[0] % 2]


def _custom(grouping: CustomGrouping) -> Topology:
    builder = TopologyBuilder("custom")
    builder.set_spout("a", Scripted())
    builder.set_bolt("b", Plain()).shuffle_grouping("a")
    builder.set_bolt("c", Sink, parallelism=2).custom_grouping("b", grouping)
    return builder.build()


class NoText(Exception):
    def __str__(self) -> str:
        return self.detail  # type: ignore[attr-defined, no-any-return]


@pytest.mark.parametrize(
    ("error", "text"),
    [(TypeError("unhashable"), "TypeError: unhashable"), (NoText(), r"NoText: \(its text cannot be read: AttributeError\)")],
)
def test_neither_a_type_error_of_a_generator_nor_an_error_without_a_text_hides_the_cause(error: Exception, text: str) -> None:
    def choose(values: tuple[Any, ...]) -> Any:
        raise error

    def generate(values: tuple[Any, ...]) -> Any:
        yield 0
        raise error

    for function in (choose, generate):
        with pytest.raises(EmitError, match=f"a custom grouping raised {text}") as caught:
            CustomGrouper(function, 3).split(rows_of(1))
        assert caught.value.__cause__ is error


def test_a_custom_grouping_is_prepared_by_the_sending_task() -> None:
    grouping = EvenOdd()
    task = Solo(_custom(grouping), "b")
    assert grouping.prepared == ("b", "default", task.plan.tasks_of("c"))
    task.feed(1, 2, 3)
    task.run()
    even, odd = task.plan.tasks_of("c")
    assert (task.values(to=even), task.values(to=odd)) == ([2], [1, 3])


def test_a_row_that_a_custom_grouping_cannot_place_fails_its_own_root_only() -> None:
    task = Solo(_custom(EvenOdd()), "b")
    ids = task.feed(1, "a", 2)
    task.run()
    assert sorted(task.values()) == [1, 2]
    assert task.roots(FrameKind.FAIL) == [ids.roots[1]]
    assert "not all arguments converted" in task.errors()[0]
    (error,) = task.messages(ComponentError)
    assert error.file == __file__


@pytest.mark.parametrize("grouping", ["fields", "partial_key"])
@pytest.mark.parametrize("bad", [float("nan"), {"a": 1}])
def test_an_unusable_key_fails_only_the_roots_of_its_own_row(grouping: str, bad: Any) -> None:
    task = Solo(fan(Sink, 3, grouping=grouping, by=("value",)), "b")
    ids = task.feed("x", bad, "y")
    task.run()
    assert sorted(task.values()) == ["x", "y"]
    assert task.roots(FrameKind.FAIL) == [ids.roots[1]]
    assert task.errors()[0].startswith("EmitError: a fields grouping cannot use the key")


@pytest.mark.parametrize("grouping", ["fields", "partial_key"])
@pytest.mark.parametrize("bad", [{1}, {"a": 1}])
def test_a_single_target_refuses_keys_until_one_can_be_used(grouping: str, bad: Any) -> None:
    task = Solo(fan(Sink, 1, grouping=grouping, by=("value",)), "b")
    first = task.feed(bad, bad)
    task.run()
    assert task.values() == []
    assert task.roots(FrameKind.FAIL) == list(first.roots)
    assert task.errors()[0].startswith("EmitError: a fields grouping cannot use the key")
    mixed = task.feed(bad, "x")
    task.run()
    assert task.values() == ["x"]
    assert task.roots(FrameKind.FAIL) == [*first.roots, mixed.roots[0]]


def test_a_single_target_looks_at_no_key_behind_one_that_can_be_used() -> None:
    task = Solo(fan(Sink, 1, grouping="fields", by=("value",)), "b")
    task.feed("x", {"a": 1})
    task.run()
    assert task.values() == ["x", {"a": 1}]


def test_an_unusable_key_of_an_untracked_row_is_reported() -> None:
    task = Solo(fan(Sink, 3, grouping="fields", by=("value",)), "b")
    task.feed("x", {"a": 1}, tracked=False)
    task.run()
    assert task.values() == ["x"]
    assert len(task.errors()) == 1


def test_each_row_of_a_direct_stream_goes_to_the_task_it_names() -> None:
    task = Solo(_direct(readers=1), "b")
    first, second = task.plan.tasks_of("c")
    task.feed(first, second, first)
    task.run()
    assert (task.values(to=first), task.values(to=second)) == ([first, first], [second])


def test_two_readers_of_a_direct_stream_get_their_rows_and_every_edge_counts() -> None:
    task = Solo(_direct(readers=2), "b")
    targets = [*task.plan.tasks_of("c"), *task.plan.tasks_of("d")]
    ids = task.feed(*targets)
    task.run()
    sent = {root: edge for frame in task.frames(FrameKind.DATA) for root, edge in zip(*_ids(frame), strict=True)}
    assert [task.values(to=target) for target in targets] == [[target] for target in targets]
    assert task.acks() == {root: edge ^ sent[root] for root, edge in zip(ids.roots, ids.edges, strict=True)}


def _ids(frame: Any) -> tuple[list[int], list[int]]:
    return frame.root_list(), frame.edge_list()


def _direct(readers: int) -> Topology:
    builder = TopologyBuilder("direct")
    builder.set_spout("a", Scripted())
    bolt = Plain(lambda tup, c: c.emit_direct(tup.values[0], tup.values, stream="to"), outputs={"to": direct("value")})
    builder.set_bolt("b", bolt).shuffle_grouping("a")
    for reader in "cd"[:readers]:
        builder.set_bolt(reader, Sink, parallelism=2).direct_grouping("b", "to")
    return builder.build()


def test_local_or_shuffle_stays_in_the_worker_where_it_can() -> None:
    task = Solo(fan(Sink, 3, grouping="local_or_shuffle", workers=2), "b")
    here = task.plan.worker_of(task.id)
    mine = [target for target in task.plan.tasks_of("c") if task.plan.worker_of(target) == here]
    assert 0 < len(mine) < 3
    task.feed(*range(12))
    task.run()
    assert {frame.target for frame in task.frames(FrameKind.DATA)} == set(mine)


def test_local_or_shuffle_without_a_target_here_is_a_shuffle() -> None:
    task = Solo(fan(Sink, 3, grouping="local_or_shuffle"), "b")
    task.feed(*range(12))
    task.run()
    assert {frame.target for frame in task.frames(FrameKind.DATA)} == set(task.plan.tasks_of("c"))


@pytest.mark.parametrize(("grouping", "readers"), [("global", 1), ("none", 3), ("shuffle", 3), ("all", 3)])
def test_each_grouping_reaches_as_many_tasks_as_it_should(grouping: str, readers: int) -> None:
    task = Solo(fan(Sink, 3, grouping=grouping), "b")
    task.feed(*range(12))
    task.run()
    assert len({frame.target for frame in task.frames(FrameKind.DATA)}) == readers
    assert len(task.values()) == (36 if grouping == "all" else 12)


def test_a_row_that_a_custom_grouping_drops_adds_no_edge_to_its_input() -> None:
    class NoTask(CustomGrouping):
        def choose(self, values: tuple[Any, ...]) -> Sequence[int]:
            return []

    task = Solo(_custom(NoTask()), "b")
    ids: RowIds = task.feed(1, 2)
    task.run()
    assert task.values() == []
    assert task.acks() == dict(zip(ids.roots, ids.edges, strict=True))


def test_single_targets_need_no_key() -> None:
    task = Solo(chain(Scripted(), Plain(), Sink(), groupings=("shuffle", "global")), "b")
    task.feed({"a": 1})
    task.run()
    assert task.values() == [{"a": 1}]
