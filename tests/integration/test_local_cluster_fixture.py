"""The fixture that users take for tests with real processes: it works, and leaves nothing behind."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from topo.launch.local_cluster import LocalCluster
from topo.master.outcome import OutcomeKind
from topo.testing.fixtures import cluster_of_its_own, local_cluster, processes_of

__all__ = ["local_cluster"]

pytestmark = pytest.mark.integration
DIAMOND = str(Path(__file__).parents[2] / "topologies" / "diamond.py")


def test_a_topology_of_a_file_runs_to_its_end(local_cluster: LocalCluster) -> None:
    running = local_cluster.submit(DIAMOND, parameters={"orders": 200}, settings={"workers": 2})

    outcome = running.wait(timeout_s=60)

    assert outcome.kind is OutcomeKind.DONE, running.errors()
    assert running.summary()["totals"]["acked"] == 200


def test_when_the_block_ends_so_does_all_that_still_runs() -> None:
    with cluster_of_its_own() as cluster:
        home = cluster.home
        assert home is not None
        running = cluster.submit(DIAMOND, parameters={"orders": 100_000_000}, settings={"workers": 1, "spare_workers": 0})
        running.wait_until(lambda status: status["totals"]["acked"] > 0, what="the first ack")
        ours = processes_of(home)
        assert len(ours) == 2, "a master and a worker"

    assert not any(process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in ours)
    assert not home.exists()


def test_a_failing_test_leaves_no_process_either() -> None:
    with pytest.raises(ZeroDivisionError), cluster_of_its_own() as cluster:
        cluster.submit(DIAMOND, parameters={"orders": 100_000_000}, settings={"workers": 1})
        home = cluster.home
        raise ZeroDivisionError

    assert home is not None
    assert processes_of(home) == []
