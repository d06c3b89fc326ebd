"""State on a Spark cluster whose hosts share no folder: checkpoints pass through the driver."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.support import FAST, PATIENCE_S, Scene, eventually, kill, pid_of
from tests.integration.test_exactly_once import QUICK, after_checkpoints, counting, counts, expected_counts
from tests.spark.standalone import LIGHT, StandaloneCluster
from topo.launch.cluster import submit_background
from topo.launch.spark.cluster import SparkCluster
from topo.runtime.worker_spec import read_spec

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.timeout(240)]

LONG_S = 120.0


def test_a_killed_worker_goes_on_from_a_checkpoint_that_the_driver_keeps(scene: Scene, standalone: StandaloneCluster) -> None:
    running = submit_background(
        scene.file(counting(6000)),
        settings={**FAST, **QUICK, "workers": 2},
        home=scene.home,
        attached=True,
        cluster=SparkCluster(master=standalone.url, conf=LIGHT),
    )
    try:
        status = running.wait_until(after_checkpoints(2), LONG_S, "checkpoints")
        specs = [read_spec(Path(process.cmdline()[-1])) for process in standalone.topology_workers()]
        assert [spec.served for spec in specs] == [[status["checkpoints"]["folder"]]] * 2
        kill(pid_of(status, "count"))
        outcome = running.wait(LONG_S)
    finally:
        if running.folder.is_running():
            running.kill()
            running.wait(PATIENCE_S)
        eventually(lambda: not standalone.topology_workers(), what="workers to be gone")
    assert (outcome.exit_code, outcome.reason) == (0, "every message was processed")
    assert running.summary()["checkpoints"]["restores"] >= 1
    assert counts(scene) == expected_counts(6000)
    # All of it is in the topology's folder, and nothing half written.
    (run,) = running.folder.checkpoints.iterdir()
    assert {path.suffix for path in run.rglob("*") if path.is_file()} == {".part", ".json"}
