"""Workers that share no disk with the master, played by local ones that act so: checkpoints go through it, both ways."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.integration.support import FAST, Scene, kill, pid_of
from tests.integration.test_exactly_once import QUICK, complete, counting, expected_counts
from tests.integration.test_operator_bolts import rows_of
from topo.ids import Incarnation, WorkerId
from topo.launch.local import LocalLauncher
from topo.launch.request import RunRequest
from topo.launch.submission import new_job
from topo.master.outcome import OutcomeKind
from topo.master_process.job import Job
from topo.master_process.shell import MasterShell
from topo.storage.part_service import Bytes, PartAnswer, PartService, Refused
from topo.worker.spec import WorkerSpec

pytestmark = pytest.mark.integration


class SpreadJob(Job):
    """A job whose workers run as if they were on other machines."""

    @property
    def is_spread(self) -> bool:
        return True


class Elsewhere(LocalLauncher):
    """Starts workers here, and remembers their settings."""

    def __init__(self, job: Job) -> None:
        super().__init__(job.folder)
        self.specs: list[WorkerSpec] = []

    def start(self, worker: WorkerId, incarnation: Incarnation, spec: WorkerSpec) -> None:
        self.specs.append(spec)
        super().start(worker, incarnation, spec)


class FailsOnce(PartService):
    """A disk that cannot be read the first time."""

    has_failed = False

    def answer(self, connection: bytes, data: bytes, now: float) -> PartAnswer:
        answer = super().answer(connection, data, now)
        if isinstance(answer, Bytes) and not FailsOnce.has_failed:
            FailsOnce.has_failed = True
            return Refused("the disk is away")
        return answer


def run(
    scene: Scene, count: int, on_status: Callable[[dict[str, Any]], None] | None = None, **of_the_job: Any
) -> list[WorkerSpec]:
    """Run a count to its end; return the settings of its workers."""
    settings = {**FAST, **QUICK, "transport": "tcp", "workers": 2, **of_the_job.pop("settings", {})}
    request = RunRequest(scene.file(counting(count)), settings=settings, home=scene.home, foreground=True, **of_the_job)
    made = new_job(request)
    job = SpreadJob(made.folder, made.submitted, made.serializers)
    launcher = Elsewhere(job)
    with job.folder.lock():
        outcome = MasterShell(job, launcher, on_status).run()
    assert outcome.kind is OutcomeKind.DONE, outcome.reason
    assert {row["key"]: row["count"] for row in rows_of(scene.folder, "out")} == expected_counts(count)
    return launcher.specs


def test_a_killed_worker_and_a_later_run_go_on_from_what_the_master_keeps(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("topo.master_process.shell.PartService", FailsOnce)
    killed: list[int] = []

    def kill_once(status: dict[str, Any]) -> None:
        if complete(status) >= 2 and not killed:
            killed.append(pid_of(status, "count"))
            kill(killed[0])

    specs = run(scene, 4000, kill_once)
    # Two: of the killed worker, and of the worker that could not read.
    assert killed and FailsOnce.has_failed and len(specs) >= 4
    kept = specs[0].checkpoints
    assert all(spec.served == [kept] for spec in specs)
    # A path names a place on the master's machine, and so does that of a savepoint; keys move to other tasks.
    specs = run(scene, 5000, start_from=kept, parallelism={"count": 3})
    assert [spec.served for spec in specs] == [[specs[0].checkpoints, kept]] * 2


def test_workers_reach_a_shared_folder_by_themselves(scene: Scene) -> None:
    specs = run(scene, 200, settings={"checkpoint_folder": str(scene.folder / "shared")})
    assert [(spec.served, spec.parts_endpoint) for spec in specs] == [([], "")] * 2
