"""Chooses the launcher of a job."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from topo.launch.local import LocalLauncher
from topo.launch.spares import EarlySpares
from topo.master_process.job import Job
from topo.master_process.launcher import Launcher


@contextlib.contextmanager
def launcher_of(job: Job, is_asked: Callable[[], bool], early: EarlySpares | None = None) -> Iterator[Launcher]:
    """Make a job's launcher: of this machine, or of the Spark cluster that was named when it was submitted.

    Args:
        is_asked: whether the topology is asked to end; the launcher stops waiting then.
        early: spares for workers of this machine.

    Raises:
        TopoError: the cluster cannot run it.
    """
    cluster = job.submitted.spark
    if cluster is None:
        local = LocalLauncher(job.folder, spares=job.plan.config.spare_workers, early=early)
        try:
            yield local
        finally:
            local.close()
        return
    # PySpark is an extra.
    from topo.launch.spark.launcher import open_spark

    with open_spark(job, cluster, is_asked) as launcher:
        yield launcher
