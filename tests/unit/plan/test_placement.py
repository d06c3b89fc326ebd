from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.plan.parts import diamond
from topo.ids import TaskId
from topo.plan.parallelism import with_overrides
from topo.plan.physical import physical_plan
from topo.plan.placement import default_placement, most_workers, placement


def ids(*numbers: int) -> list[TaskId]:
    return [TaskId(number) for number in numbers]


def test_without_a_number_of_workers_every_task_has_its_own() -> None:
    assert placement([ids(1), ids(2, 3)], ids(4), None) == ((1,), (2,), (3,), (4,))


def test_there_are_never_more_workers_than_tasks() -> None:
    assert placement([ids(1), ids(2)], ids(3), 9) == ((1,), (2,), (3,))


def test_one_worker_hosts_everything() -> None:
    assert placement([ids(1), ids(2, 3)], ids(4), 1) == ((1, 2, 3, 4),)


def test_tasks_of_a_component_lie_on_different_workers() -> None:
    assert placement([ids(1), ids(2, 3), ids(4, 5)], [], 2) == ((1, 3, 5), (2, 4))


def test_ackers_go_where_there_is_least_and_not_beside_the_first_spout() -> None:
    assert placement([ids(1), ids(2), ids(3)], ids(4), 2) == ((1, 3), (2, 4))
    assert placement([ids(1), ids(2)], ids(3, 4), 2) == ((1, 4), (2, 3))


@given(st.lists(st.integers(1, 6), min_size=1, max_size=6), st.integers(0, 4), st.integers(1, 30) | st.none())
def test_every_task_is_placed_once_and_the_load_is_even(sizes: list[int], ackers: int, workers: int | None) -> None:
    components, next_id = [], 1
    for size in [*sizes, ackers]:
        components.append(ids(*range(next_id, next_id + size)))
        next_id += size
    *components, acker_ids = components
    slots = placement(components, acker_ids, workers)
    assert sorted(task for slot in slots for task in slot) == list(range(1, next_id))
    assert len(slots) == min(workers or next_id, next_id - 1)
    assert max(map(len, slots)) - min(map(len, slots)) <= 1
    for component in components:
        hosted = [len(set(slot) & set(component)) for slot in slots]
        assert max(hosted) - min(hosted) <= 1


def test_a_plan_knows_the_worker_of_each_task() -> None:
    plan = physical_plan(diamond(workers=3))
    assert [plan.worker_of(task) for task in plan.workers[2]] == [2] * len(plan.workers[2])
    assert {plan.worker_of(task.id) for task in plan.tasks} == {0, 1, 2}


def consecutive(*sizes: int) -> list[list[TaskId]]:
    begins = [1 + sum(sizes[:place]) for place in range(len(sizes))]
    return [ids(*range(begin, begin + size)) for begin, size in zip(begins, sizes, strict=True)]


@pytest.mark.parametrize(
    ("cores", "tasks", "workers"),
    [
        # Spouts, bolts and ackers: first how many tasks, then in how many workers.
        (2, (1, 3, 1), (1, 3, 1)),
        (1, (1, 14, 1), (1, 14, 1)),
        (1, (1, 15, 1), (1, 14, 1)),
        (2, (1, 15, 1), (1, 14, 1)),
        (3, (1, 15, 1), (1, 15, 1)),
        (2, (20, 5, 1), (10, 5, 1)),
        (2, (100, 290, 10), (4, 10, 2)),
        (8, (100, 290, 10), (16, 40, 8)),
        (64, (100, 290, 10), (100, 290, 10)),
        (2, (1, 1, 300), (1, 1, 14)),
        (2, (1, 63, 0), (1, 15, 0)),
        (2, (64, 0, 1), (15, 0, 1)),
    ],
)
def test_by_default_many_tasks_share_workers_with_their_kind(
    cores: int, tasks: tuple[int, int, int], workers: tuple[int, int, int]
) -> None:
    kinds = consecutive(*tasks)
    slots = default_placement(kinds[:1], kinds[1:2], kinds[2], cores)
    assert tuple(sum(slot[0] in kind for slot in slots) for kind in kinds) == workers
    assert all(set(slot) <= set(kind) for slot in slots for kind in kinds if slot[0] in kind)


@given(st.lists(st.integers(1, 40), max_size=4), st.lists(st.integers(1, 40), max_size=4), st.integers(0, 40), st.integers(1, 12))
def test_by_default_every_task_is_placed_once_and_no_worker_is_empty(
    spouts: list[int], bolts: list[int], ackers: int, cores: int
) -> None:
    components = consecutive(*spouts, *bolts, ackers)
    slots = default_placement(components[: len(spouts)], components[len(spouts) : -1], components[-1], cores)
    count = sum(map(len, components))
    assert sorted(task for slot in slots for task in slot) == list(range(1, count + 1))
    assert len(slots) == min(count, most_workers(cores)) and all(slots)


@pytest.mark.parametrize(
    ("tasks", "workers", "cores", "count"),
    [(3, "auto", 1, 9), (20, "auto", 1, 16), (20, "auto", 4, 26), (20, "auto", None, 26), (20, "off", 1, 26), (20, 3, 1, 3)],
)
def test_a_plan_packs_by_default_where_its_workers_share_a_machine(
    tasks: int, workers: str | int, cores: int | None, count: int
) -> None:
    plan = physical_plan(with_overrides(diamond(), {"workers": workers}, {"count": tasks}), cores)
    assert len(plan.workers) == count
    assert plan.is_packed_by_default == (count == 16)
