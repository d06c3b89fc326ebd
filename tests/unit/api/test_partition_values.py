from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from topo.api.partition_values import Partition, as_partitions, check_positions, owned
from topo.errors import EmitError


@pytest.mark.parametrize(("partitions", "tasks"), [(12, 4), (5, 4), (3, 4), (100, 7)])
def test_partitions_of_a_group_are_spread_evenly(partitions: int, tasks: int) -> None:
    owners = Counter(Partition(f"orders-{n}", "orders", n).owner(tasks) for n in range(partitions))
    counts = [owners[task] for task in range(tasks)]
    assert max(counts) - min(counts) <= 1


def test_an_owner_is_the_same_in_every_process() -> None:
    # Stored positions are found again by these numbers.
    assert [Partition(f"orders-{n}", "orders", n).owner(4) for n in range(4)] == [2, 3, 0, 1]
    assert [Partition(name).owner(4) for name in ("a.log", "b.log", "c.log")] == [0, 1, 3]


@pytest.mark.parametrize("tasks", [1, 2, 3, 7])
def test_each_stored_partition_has_one_owner(tasks: int) -> None:
    stored: dict[str, tuple[Any, ...]] = {f"t-{n}": ("t", n, n) for n in range(10)} | {f"f{n}": ("", None, n) for n in range(10)}
    shares = [owned(stored, index, tasks) for index in range(tasks)]
    assert sorted(name for share in shares for name in share) == sorted(stored)
    assert all(share[name].position == stored[name][2] for share in shares for name in share)


@pytest.mark.parametrize(
    ("found", "why"),
    [([3], "returned 3"), ([""], "returned Partition"), (["a", "b", "a"], "'a' twice"), ([("a", "", None)], "returned")],
)
def test_partitions_that_cannot_be_are_refused(found: list[Any], why: str) -> None:
    with pytest.raises(EmitError, match=why):
        as_partitions(found)


@pytest.mark.parametrize(
    ("positions", "last"),
    [([1, 2], None), ([1, 2], 0), (["a", "b"], "A"), ([(1, "x"), (2, "a")], (1, "w")), ([], 7), (range(3), None)],
)
def test_positions_that_rise_are_taken(positions: Any, last: Any) -> None:
    check_positions("p", positions, last)


@pytest.mark.parametrize(
    ("positions", "last", "why"),
    [
        ([2, 1], None, "position 1 after 2"),
        ([1, 1], None, "position 1 after 1"),
        ([5], 5, "position 5 after 5"),
        (["a"], 5, "position 'a' after 5"),
        ([1.5], None, "holds float"),
        ([(1, None)], None, "holds NoneType"),
        ([True], None, "holds bool"),
    ],
)
def test_other_positions_are_refused(positions: Any, last: Any, why: str) -> None:
    with pytest.raises(EmitError, match=why):
        check_positions("p", positions, last)
