"""Work of the master and of workers for each task does not grow with the number of tasks."""

from __future__ import annotations

import pytest

from benchmarks.many_tasks import PHASES, measure
from benchmarks.many_tasks_cluster import Phase


@pytest.fixture(scope="module")
def sizes() -> dict[int, dict[str, Phase]]:
    return {tasks: measure(tasks, tasks // 10)[0] for tasks in (40, 160)}


@pytest.mark.parametrize("phase", PHASES)
def test_messages_to_and_from_the_master_grow_no_faster_than_tasks(sizes: dict[int, dict[str, Phase]], phase: str) -> None:
    few, many = ((tasks, figures[phase]) for tasks, figures in sizes.items())
    assert many[1].messages / many[0] <= 1.2 * few[1].messages / few[0]
