from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.plan.parts import diamond
from topo.ids import TaskId
from topo.plan.physical import physical_plan
from topo.plan.placement import placement


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
