from __future__ import annotations

import os

import pytest

from topo.launch.cores import usable_cores, within_quota


@pytest.mark.parametrize(
    ("quota", "cores"),
    [
        ("max 100000\n", 8),
        ("200000 100000\n", 2),
        ("250000 100000\n", 3),
        ("50000 100000\n", 1),
        ("1600000 100000\n", 8),
        ("", 8),
    ],
)
def test_a_containers_share_of_cpu_time_counts_as_cores(quota: str, cores: int) -> None:
    assert within_quota(8, quota) == cores


def test_there_is_at_least_one_core_and_no_more_than_the_machine_has() -> None:
    assert 1 <= usable_cores() <= (os.cpu_count() or 1)
