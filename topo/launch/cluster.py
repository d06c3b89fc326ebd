"""Topologies started: in the foreground, in the background, and again after their master is gone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec.structs import replace

from topo.errors import TopoError, UserError
from topo.launch.launchers import launcher_of
from topo.launch.leftovers import end_leftovers
from topo.launch.request import RunRequest
from topo.launch.running import RunningTopology, is_done, start_master
from topo.launch.signals import ending_on_signals
from topo.launch.spares import EarlySpares
from topo.launch.submission import load_submitted, new_job, note_resumed, open_home, reset_run, stored_job
from topo.master.commands import RecordError
from topo.master.outcome import Outcome
from topo.master_process.restore_point import Start
from topo.master_process.shell import MasterShell
from topo.observability.status import StatusReport
from topo.storage.state_folder import StateFolderLost, TopologyFolder, TopologyIsRunning
from topo.user_code.load import load_topology

ANSWER_S = 2.0
"""How long a master that runs may take to answer."""


class AlreadyDone(UserError):
    """A run is not resumed, since the last one has processed all its input."""

    def __init__(self, folder: TopologyFolder) -> None:
        super().__init__(f"{folder.name} has processed all its input; without `resume` it starts from the beginning")
        self.folder = folder


def run_foreground(
    request: RunRequest,
    on_progress: Callable[[StatusReport], None] | None = None,
    on_incident: Callable[[RecordError], None] | None = None,
    on_start: Callable[[TopologyFolder, Start], None] | None = None,
    early: EarlySpares | None = None,
) -> Outcome:
    """Run a topology in worker processes and wait until it has ended; its master runs in this thread, the main one.

    The first Ctrl-C or SIGTERM drains it, the second kills it. The workers end with this process, however it ends.

    Args:
        early: spares for workers of this machine.

    Raises:
        AlreadyDone: with `resume`, the last run has processed all its input.
        TopoError: it cannot be started; the message has the reason.
    """
    job = new_job(replace(request, foreground=True))
    if request.resume and is_done(job.folder):
        raise AlreadyDone(job.folder)
    with job.folder.lock(), _refusal_stored(job.folder):
        end_leftovers(job.folder)
        job.folder.summary.unlink(missing_ok=True)
        with (
            ending_on_signals(job.plan.config.drain_timeout_s) as asked,
            launcher_of(job, lambda: bool(asked), early) as launcher,
        ):
            master = MasterShell(job, launcher, on_progress, on_incident, asked)
            if on_start is not None:
                on_start(job.folder, master.start)
            return master.run()


@contextmanager
def _refusal_stored(folder: TopologyFolder) -> Iterator[None]:
    """Leave a summary of a run that cannot be started, as a background master does: without one it would count as lost."""
    try:
        yield
    except (StateFolderLost, TopologyIsRunning):
        # The folder is another master's, or was removed.
        raise
    except TopoError as error:
        # Imported late: most runs start.
        from topo.launch.master_process import write_failure

        write_failure(folder, str(error))
        raise


def submit_background(request: RunRequest) -> RunningTopology:
    """Start a topology whose master runs in the background; with `foreground` it ends with this process.

    With `resume`, a topology that `is_done` is left as it is.

    Raises:
        TopoError: it cannot be started; nothing runs then.
    """
    job = new_job(request)
    if request.resume and is_done(job.folder):
        return RunningTopology(job.folder)
    return start_master(job.folder, attached=request.foreground, submitted_ms=job.submitted.submitted_ms)


def resume_with_code(name: str, code: str, home: Path | None = None) -> RunningTopology:
    """Continue a topology with other code, and the parameters, settings and numbers of tasks of its last start.

    With checkpoints it continues from the last one; else spouts continue behind their stored positions. A topology that `is_done`
    is left as it is.

    Args:
        code: a reference to the topology, as for a submit.

    Raises:
        NotFoundError: no topology of that name is known.
        TopologyIsRunning: it has a master.
        TopoError: the code is wrong, or the state does not fit it; nothing was changed.
    """
    folder = open_home(home).find(name)
    folder.lock().release()
    if is_done(folder):
        return RunningTopology(folder)
    last = load_submitted(folder)
    components = {spec.id for spec in load_topology(code, last.parameters).topology.components}
    request = RunRequest(
        topology=code,
        name=folder.name,
        parameters=last.parameters,
        settings=last.settings,
        home=home,
        cluster=last.spark,
        parallelism={component: tasks for component, tasks in last.parallelism.items() if component in components},
        py_files=last.py_files,
        resume=True,
    )
    return submit_background(request)


def resume_background(name: str, home: Path | None = None, *, from_beginning: bool = False) -> RunningTopology:
    """Start a new master for a topology that has none, where the old one left off or at the beginning.

    A topology that `is_done` is left as it is.

    Raises:
        NotFoundError: no topology of that name is known.
        TopologyIsRunning: it has a master.
        AnswerTimeout: its master does not answer.
    """
    folder = open_home(home).find(name)
    try:
        folder.lock().release()
    except TopologyIsRunning:
        # A master that does not answer is reported as such.
        RunningTopology(folder)._client.request("ping", timeout_s=ANSWER_S)
        raise
    submitted_ms = stored_job(folder).submitted.submitted_ms
    if from_beginning:
        reset_run(folder)
    elif is_done(folder):
        return RunningTopology(folder)
    else:
        note_resumed(folder)
    return start_master(folder, attached=False, submitted_ms=submitted_ms)
