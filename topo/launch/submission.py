"""From what a user names to a job that a master can run: code copied, plan made, files in place.

A name stands for one topology of this machine. A new run under a name forgets the run before it: positions, dead letters and
errors begin empty, and checkpoints stay until the run after. A run that has lost its master continues when the same topology is
submitted again; with `resume` any run continues. The master's record is always kept, so that terms and epochs keep rising and
no process that is left of an earlier run can take part in this one.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from topo.api.topology import Topology, TopologySource
from topo.checkpoint.manifest import Manifest
from topo.config import current_names
from topo.durable import local_path
from topo.errors import NotFoundError, TopoEnvironmentError, TopologyError, UserError
from topo.launch.cores import usable_cores
from topo.launch.leftovers import end_leftovers, sweep_sockets
from topo.launch.request import RunRequest
from topo.launch.resuming import NOTHING_STORED, check_restore, go_on_from_positions, text_of_beginning
from topo.launch.spark.context import check_here
from topo.master_process.job import Job
from topo.plan.parallelism import with_overrides
from topo.plan.physical import PhysicalPlan, physical_plan
from topo.plan.validation import problems_of
from topo.storage import master_record
from topo.storage.state_folder import StateFolder, StateFolderLost, TopologyFolder, TopologyLock, home_folder
from topo.storage.submitted import SubmittedTopology, checkpoints_of, last_run, newest_checkpoints
from topo.user_code.copy import check_importable, copy_code, copy_py_files, parse_reference, pickle_topology
from topo.user_code.load import LoadedTopology, load_topology, search_py_files, serializers_of

_WHAT_IS_RUN = ("given", "code_hash", "py_files", "parameters", "parallelism", "start_from")


def open_home(home: Path | None) -> StateFolder:
    """Return the state folder: the one given, or that of the environment."""
    return StateFolder(home if home is not None else home_folder(os.environ))


def _text_of(reference: object) -> str:
    """Return a reference to a topology, which may be a path, as text."""
    if not isinstance(reference, str | os.PathLike):
        raise UserError(
            f"a {type(reference).__name__} is no topology: give a Topology, as build() returns, path/to/file.py or package.module"
        )
    return os.fspath(reference)


def new_job(request: RunRequest) -> Job:
    """Check a topology, copy its code, and store the submission.

    Raises:
        TopoError: anything that is wrong with it; nothing has been started.
        TopologyIsRunning: one of that name runs already.
    """
    topology, cluster, settings, start_from = request.topology, request.cluster, request.settings, request.start_from
    held: Iterable[tuple[str, object]] = ()
    if isinstance(topology, TopologySource):
        held, topology = topology.held_values(), topology.build_for_workers()
    if not isinstance(topology, Topology):
        topology = _text_of(topology)
    py_files = [*request.py_files, *(cluster.py_files if cluster is not None else ())]
    for name_of_file in py_files:
        check_importable(Path(name_of_file))
    search_py_files(py_files)
    if cluster is not None:
        settings = {**settings, "transport": "tcp", "host": check_here(cluster)}
    reference = None if isinstance(topology, Topology) else parse_reference(topology)
    given = LoadedTopology(topology, "") if isinstance(topology, Topology) else load_topology(topology, request.parameters)
    original = given.topology
    wanted = with_overrides(original, settings, request.parallelism)
    if problems := problems_of(wanted):
        raise TopologyError(problems)
    state = open_home(request.home)
    folder = state.create(original.name if request.name is None else request.name)
    with folder.lock() as lock, _removed_unless_submitted(folder, lock):
        # A submit that was refused at the same moment may have removed them.
        folder.make_parts()
        copy = (
            pickle_topology(original, folder.code, held)
            if reference is None
            else copy_code(reference, folder.code, given.imported)
        )
        py_files = copy_py_files(py_files, folder.code)
        search_py_files(py_files)
        parameters = json.loads(json.dumps(dict(request.parameters), default=str))
        kept_settings = _in_force(wanted, settings)
        loaded = load_topology(copy.reference, parameters).topology
        now_ms = int(time.time() * 1000)
        cores = usable_cores() if cluster is None else None
        submitted = SubmittedTopology(
            name=folder.name,
            given=original.name if reference is None else str(reference),
            reference=copy.reference,
            code_hash=copy.hash,
            copied=list(copy.files),
            py_files=py_files,
            parameters=parameters,
            settings=kept_settings,
            parallelism=dict(request.parallelism),
            submitted_ms=now_ms,
            run_ms=now_ms,
            submitted_from=os.getcwd(),
            foreground=request.foreground,
            start_from=start_from if "://" in start_from or not start_from else os.path.abspath(os.path.expanduser(start_from)),
            drop_state=list(request.drop_state),
            spark=None if cluster is None else replace(cluster, py_files=py_files),
            cores=cores,
            plan=physical_plan(with_overrides(loaded, kept_settings, request.parallelism, folder.name), cores),
        )
        before = _run_before(folder, submitted, request)
        checkpoints = checkpoints_of(folder)
        if before is None:
            submitted = replace(submitted, otherwise=text_of_beginning(folder, checkpoints))
        else:
            submitted = _continuing(submitted, before)
        job = Job(folder, submitted, serializers_of(loaded))
        manifest = check_restore(job, loaded, goes_on=before is not None)
        # User code has run: the folder can be another submission's now.
        lock.check()
        if before is not None:
            submitted = replace(submitted, moved=go_on_from_positions(folder, before.plan, job.plan))
        end_leftovers(folder)
        sweep_sockets(state)
        if before is None:
            last = last_run(folder)
            # Where the record of the last run is damaged, it is not known whose files they are.
            keeps_files = manifest is not None and (last is None or _counts_files(manifest, last))
            files_ms = last.files_ms if last is not None else 0
            submitted = replace(submitted, files_ms=files_ms if keeps_files else now_ms)
            _forget(folder, submitted, checkpoints, keeps_files=keeps_files)
        submitted.save(folder)
    return job


def _in_force(topology: Topology, given: Mapping[str, object]) -> dict[str, object]:
    """Return the values that the settings given with a submission have in its topology."""
    in_force = topology.config.settings()
    return {key: in_force[key] for name in current_names(given) if (key := name.partition(".")[0])}


def _continuing(submitted: SubmittedTopology, before: SubmittedTopology) -> SubmittedTopology:
    """Return a submission that shares the checkpoints of the run that it continues."""
    submitted = replace(submitted, run_ms=before.run_ms, files_ms=before.files_ms, otherwise=NOTHING_STORED)
    if not submitted.start_from:
        submitted = replace(submitted, start_from=before.start_from, drop_state=before.drop_state)
    return submitted


def stored_job(folder: TopologyFolder, *, foreground: bool = False) -> Job:
    """Return the job that was submitted last, to run it or to continue it.

    Args:
        foreground: its workers end with this process.

    Raises:
        NotFoundError: nothing was ever submitted under this name.
        SubmissionDamaged: the submission cannot be read.
    """
    submitted = load_submitted(folder)
    topology = load_topology(submitted.reference, submitted.parameters).topology
    plan = physical_plan(with_overrides(topology, submitted.settings, submitted.parallelism, folder.name), submitted.cores)
    return Job(folder, replace(submitted, plan=plan, foreground=foreground), serializers_of(topology))


def load_submitted(folder: TopologyFolder) -> SubmittedTopology:
    """Return the last submission, and let this process import its code. Raises as `stored_job`."""
    submitted = SubmittedTopology.read(folder)
    copy = Path(parse_reference(submitted.reference).target)
    if copy.is_relative_to(folder.code) and not copy.exists():
        way_out = f"`topo resume {folder.name} --code FILE` continues with code of yours"
        raise NotFoundError(f"{copy}, the copy of {submitted.given}, is gone; {way_out}")
    search_py_files(submitted.py_files)
    if submitted.spark is None:
        return submitted
    return replace(submitted, settings={**submitted.settings, "host": check_here(submitted.spark)})


def _run_before(folder: TopologyFolder, submitted: SubmittedTopology, request: RunRequest) -> SubmittedTopology | None:
    """Return the run that a submit continues; None where it begins from the start.

    With `resume` it is the last run. In the background it is the same topology when it has lost its master or has never begun.

    Raises:
        SubmissionDamaged: with `resume`, the last run cannot be read, and `start_from` names no other state.
    """
    if request.resume and not request.start_from:
        with contextlib.suppress(NotFoundError):
            return SubmittedTopology.read(folder)
    before = last_run(folder)
    if request.resume or before is None:
        return before
    if (request.foreground and request.cluster is None) or _has_run_and_ended(folder):
        return None
    return before if all(getattr(before, name) == getattr(submitted, name) for name in _WHAT_IS_RUN) else None


def _has_run_and_ended(folder: TopologyFolder) -> bool:
    """Whether the last run came to an end, rather than losing its master or never beginning. True when that cannot be read."""
    try:
        return bool((folder.last_summary() or {}).get("tasks"))
    except TopoEnvironmentError:
        return True


@contextlib.contextmanager
def _removed_unless_submitted(folder: TopologyFolder, lock: TopologyLock) -> Iterator[None]:
    """Remove the folder of a topology that is refused and was never submitted: no command could do anything with it."""
    try:
        yield
    except BaseException:
        with contextlib.suppress(StateFolderLost):
            lock.check()
            if not folder.topology.exists() and not newest_checkpoints(folder):
                folder.remove()
                lock.release()
        raise


def _counts_files(manifest: Manifest, last: SubmittedTopology) -> bool:
    """Whether positions of a savepoint may count the files that components of the last run keep.

    Not those of a savepoint of another topology, or from before the last start from the beginning.
    """
    return manifest.topology == last.name and manifest.created_ms >= last.files_ms


def _forget(folder: TopologyFolder, submitted: SubmittedTopology, checkpoints: str, *, keeps_files: bool) -> None:
    """Remove what earlier runs under this name have left, except for the master's record and what `submitted` begins from.

    Args:
        checkpoints: where those of the earlier runs are.
        keeps_files: whether the files of its components still count.
    """
    of_users = (folder.errors, folder.older_errors, folder.history, folder.older_history, folder.summary)
    for path in (folder.positions, folder.dead_letters, folder.replays, *of_users):
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
    _remove_checkpoints(folder, (submitted.start_from, checkpoints))
    dropped = [folder.components / known.id for known in submitted.plan.components if known.id in submitted.drop_state]
    for left in dropped if keeps_files else [folder.components]:
        shutil.rmtree(left, ignore_errors=True)
    for path in folder.logs.iterdir():
        with contextlib.suppress(OSError):
            path.unlink()
    master_record.reset_run(folder.master, active=True)


def _remove_checkpoints(folder: TopologyFolder, kept: Sequence[str]) -> None:
    """Remove the checkpoints in the topology's own folder, but for those of the runs that a path in `kept` leads to."""
    # Users may write them through a symbolic link, or as a URL.
    places = [local_path(path).resolve() for path in kept if path]
    with contextlib.suppress(FileNotFoundError):
        for run in folder.checkpoints.iterdir():
            if not any(place.is_relative_to(run.resolve()) for place in places):
                shutil.rmtree(run, ignore_errors=True)


def reset_run(
    folder: TopologyFolder,
    *,
    start_from: str = "",
    parallelism: Mapping[str, int] | None = None,
    plan: PhysicalPlan | None = None,
    settings: Mapping[str, object] | None = None,
) -> None:
    """Have the next master of a topology start from the beginning, or from a savepoint.

    Its checkpoints are no longer restored. They stay when it starts from the beginning; a savepoint replaces them.

    Args:
        parallelism: tasks by component from now on; None: as before.
        plan: that goes with it.
        settings: from now on; None: as before.
    """
    with folder.lock():
        submitted = SubmittedTopology.read(folder)
        otherwise = text_of_beginning(folder, submitted.checkpoints(folder))
        folder.positions.unlink(missing_ok=True)
        master_record.reset_run(folder.master)
        now_ms = int(time.time() * 1000)
        submitted = replace(submitted, run_ms=now_ms, start_from=start_from, drop_state=[], otherwise=otherwise)
        if parallelism is not None and plan is not None:
            submitted = replace(submitted, parallelism=dict(parallelism), plan=plan)
        if settings is not None:
            submitted = replace(submitted, settings=dict(settings))
        submitted.save(folder)
        if start_from:
            _remove_checkpoints(folder, (start_from,))


def note_resumed(folder: TopologyFolder) -> None:
    """Have the next master report that it continues: its first start has reported the discarded state."""
    with folder.lock():
        replace(load_submitted(folder), otherwise=NOTHING_STORED).save(folder)
