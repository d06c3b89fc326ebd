"""From what a user names to a job that a master can run: code copied, plan made, files in place.

A name stands for one topology of this machine. A run that has ended is forgotten when the name is used anew: positions, dead
letters and errors begin empty; its checkpoints stay until the next run is forgotten. One that has lost its master goes on when
the same is submitted again, and with `resume` any run goes on. What is kept in any case is the master's record, so that terms
and epochs go on rising and nothing that is left of an earlier run can take part in this one.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from topo.api.topology import Topology
from topo.errors import NotFound, TopologyError, UserError
from topo.launch.local import WORKER_MODULE
from topo.launch.resuming import (
    FIRST,
    NOTHING_STORED,
    FactsDamaged,
    check_restore,
    go_on_from_positions,
    last_run,
    newest_checkpoints,
    read_facts,
    text_of_beginning,
)
from topo.launch.spark.cluster import SparkCluster
from topo.launch.spark.context import check_here
from topo.master_process.job import Job
from topo.plan.parallelism import with_parallelism
from topo.plan.physical import PhysicalPlan, physical_plan
from topo.plan.validation import problems_of
from topo.storage import master_record
from topo.storage.state_folder import StateFolder, TopologyFolder, home_folder, remove_socket_folder, write_atomically
from topo.user_code.copy import check_importable, copy_code, copy_py_files, parse_reference, pickle_topology
from topo.user_code.load import LoadedTopology, load_topology, search_py_files, serializers_of

if TYPE_CHECKING:
    from psutil import Process

_KILL_TIMEOUT_S = 5.0
_WHAT_IS_RUN = ("given", "code_hash", "py_files", "parameters", "parallelism", "start_from")
_LOOK_S = 0.01


def open_home(home: Path | None) -> StateFolder:
    """Return the state folder: the one given, or that of the environment."""
    return StateFolder(home if home is not None else home_folder(os.environ))


def new_job(
    topology: str | Topology,
    name: str | None,
    parameters: Mapping[str, Any],
    settings: Mapping[str, Any],
    home: Path | None,
    *,
    foreground: bool,
    start_from: str = "",
    drop_state: Sequence[str] = (),
    cluster: SparkCluster | None = None,
    parallelism: Mapping[str, int] | None = None,
    py_files: Sequence[str] = (),
    resume: bool = False,
) -> Job:
    """Check a topology, copy its code, and write down what is to run.

    Args:
        topology: a reference as users write it, or a topology that was built in this process.
        name: to run under; by default the topology's own.
        parameters: of the topology function.
        settings: that replace the topology's own, by public name.
        start_from: path or URL of a savepoint, or of a folder of checkpoints, to go on from; "" for none.
        drop_state: components of the savepoint whose state nobody is to take.
        cluster: where it is to run, if not on this machine.
        parallelism: tasks by component, where they are not those that the code says.
        py_files: modules and archives that the topology imports from, besides the folder it lies in.
        resume: go on from the state of the last run of that name, however it ended, with the code of now.

    Raises:
        TopoError: anything that is wrong with it; nothing has been started.
        TopologyIsRunning: one of that name runs already.
    """
    py_files = [*py_files, *(cluster.py_files if cluster is not None else ())]
    for name_of_file in py_files:
        check_importable(Path(name_of_file))
    search_py_files(py_files)
    if cluster is not None:
        settings = {**settings, "transport": "tcp", "host": check_here(cluster)}
    reference = None if isinstance(topology, Topology) else parse_reference(topology)
    given = LoadedTopology(topology, "") if isinstance(topology, Topology) else load_topology(topology, parameters)
    original = given.topology
    config = original.config.with_settings(settings)
    varied = dict(parallelism or {})
    if problems := problems_of(with_parallelism(original, varied, config), config):
        raise TopologyError(problems)
    state = open_home(home)
    folder = state.create(original.name if name is None else name)
    with folder.lock(), _removed_unless_submitted(folder):
        copy = pickle_topology(original, folder.code) if reference is None else copy_code(reference, folder.code, given.imported)
        py_files = copy_py_files(py_files, folder.code)
        search_py_files(py_files)
        facts = {
            "name": folder.name,
            "given": original.name if reference is None else str(reference),
            "reference": copy.reference,
            "code_hash": copy.hash,
            "copied": list(copy.files),
            "py_files": py_files,
            "parameters": json.loads(json.dumps(dict(parameters), default=str)),
            "settings": {key: config.settings()[key] for name in settings if (key := name.partition(".")[0])},
            "parallelism": varied,
            "submitted_ms": int(time.time() * 1000),
            "run_ms": int(time.time() * 1000),
            "submitted_from": os.getcwd(),
            "foreground": foreground,
            "start_from": start_from if "://" in start_from or not start_from else os.path.abspath(start_from),
            "drop_state": list(drop_state),
            "spark": None if cluster is None else msgspec.to_builtins(msgspec.structs.replace(cluster, py_files=py_files)),
        }
        before = None
        if resume:
            before = _to_go_on_with(folder, start_from)
        elif cluster is not None or not foreground:
            before = _before(folder, facts)
        checkpoints = checkpoints_of(folder)
        facts["otherwise"] = text_of_beginning(folder, checkpoints)
        if before is not None:
            # It has the checkpoints of the run that it goes on with.
            facts |= {"run_ms": before["run_ms"], "otherwise": NOTHING_STORED}
            if not start_from:
                facts |= {"start_from": before["start_from"], "drop_state": before["drop_state"]}
        loaded = load_topology(copy.reference, facts["parameters"]).topology
        job = job_of(folder, facts, loaded)
        facts["plan"] = json.loads(job.plan.to_json())
        check_restore(job, loaded, goes_on=before is not None)
        if before is not None:
            go_on_from_positions(folder, before, job.plan)
        end_leftovers(folder)
        sweep_sockets(state)
        if before is None:
            _forget(folder, (job.start_from, checkpoints))
        write_atomically(folder.topology, json.dumps(facts).encode())
    return job


def stored_job(folder: TopologyFolder) -> Job:
    """Return the job that was written down, to run it or to go on with it.

    Raises:
        NotFound: nothing was ever submitted under this name.
    """
    facts = facts_of(folder)
    return job_of(folder, facts, load_topology(facts["reference"], facts["parameters"]).topology)


def facts_of(folder: TopologyFolder) -> dict[str, Any]:
    """Return what was written down of a topology, and let this process import its code. Raises as `stored_job`."""
    facts = read_facts(folder)
    search_py_files(facts.get("py_files", ()))
    cluster = cluster_of(folder)
    if cluster is not None:
        facts["settings"]["host"] = check_here(cluster)
    return facts


def cluster_of(folder: TopologyFolder) -> SparkCluster | None:
    """Return the cluster that a topology was submitted to; None for this machine."""
    facts = last_run(folder) or {}
    return msgspec.convert(facts["spark"], SparkCluster) if facts.get("spark") else None


def working_folder(folder: TopologyFolder) -> Path:
    """Return where the topology was submitted from: relative paths in user code start there. The root when that is gone."""
    path = Path((last_run(folder) or {}).get("submitted_from", "/"))
    return path if path.is_dir() else Path("/")


def checkpoints_of(folder: TopologyFolder) -> str:
    """Return the path or URL of the last run's checkpoints; "" when it takes none, or was never submitted.

    Where topology.json is damaged or gone, it is the newest of the topology's own folder.
    """
    facts = last_run(folder)
    if facts is None:
        return newest_checkpoints(folder)
    config = facts["plan"]["config"]
    return _checkpoints_url(folder, config["checkpoint_folder"], facts) if config["delivery"] == "exactly_once" else ""


def _to_go_on_with(folder: TopologyFolder, start_from: str) -> dict[str, Any] | None:
    """Return what was written down of the last run, if any. Raises FactsDamaged, unless `start_from` says where to begin."""
    try:
        return read_facts(folder)
    except NotFound:
        return None
    except FactsDamaged:
        if not start_from:
            raise
        return None


def _before(folder: TopologyFolder, facts: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return what was written down of the same topology before, if that run has lost its master or never begun; else None."""
    before = last_run(folder)
    try:
        if before is None or (has_ended(folder) and json.loads(folder.summary.read_bytes())["tasks"]):
            return None
    except (OSError, ValueError):
        return None
    return before if all(before.get(name) == facts[name] for name in _WHAT_IS_RUN) else None


def has_ended(folder: TopologyFolder) -> bool:
    """Whether the last run came to an end, rather than losing its master."""
    return folder.summary.exists()


def end_leftovers(folder: TopologyFolder) -> int:
    """End the workers of a master that is gone, wait until they are, and remove their files and sockets.

    The caller holds the lock.

    Returns:
        How many there were.
    """
    left = _workers_of(folder)
    for worker in left:
        # With the processes that it has started: a worker leads a session of its own.
        with contextlib.suppress(OSError):
            os.killpg(worker.pid, signal.SIGKILL)
    until = time.monotonic() + _KILL_TIMEOUT_S
    while any(map(_is_alive, left)) and time.monotonic() < until:
        time.sleep(_LOOK_S)
    for path in folder.workers.iterdir():
        with contextlib.suppress(OSError):
            path.unlink()
    if (sockets := _sockets_of(folder)) is not None:
        remove_socket_folder(sockets)
    return len(left)


def sweep_sockets(state: StateFolder) -> int:
    """Remove the socket folders of masters that were killed, of any topology that has neither a master nor workers any more.

    Returns:
        How many there were.
    """
    swept = 0
    for name in state.names():
        folder = state.find(name)
        sockets = _sockets_of(folder)
        # Read before the look at the lock: a master that starts meanwhile has a folder of another name.
        if sockets is None or not sockets.is_dir() or folder.is_running():
            continue
        if not _workers_of(folder):
            remove_socket_folder(sockets)
            swept += 1
    return swept


def _sockets_of(folder: TopologyFolder) -> Path | None:
    with contextlib.suppress(OSError, ValueError, KeyError):
        endpoint = json.loads(folder.master.read_bytes())["client_endpoint"]
        if endpoint.startswith("ipc://"):
            return Path(endpoint.removeprefix("ipc://")).parent
    return None


def _workers_of(folder: TopologyFolder) -> list[Process]:
    """Return the workers of a topology: their command line has a start file of it, or the folder if they have been spares."""
    places = {str(path) for path in folder.workers.glob("*.json")}
    if not places:
        return []
    places.add(str(folder.workers))
    # Needed after a crash only, and slow to import.
    import psutil

    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            words = process.cmdline()
            if WORKER_MODULE in words and not places.isdisjoint(words):
                found.append(process)
    return found


def _is_alive(process: Process) -> bool:
    return bool(process.is_running() and process.status() != "zombie")


def job_of(folder: TopologyFolder, facts: Mapping[str, Any], topology: Topology) -> Job:
    """Return what a master runs, of what was written down and the code as it was loaded."""
    config = topology.config.with_settings(facts["settings"])
    parallelism = facts.get("parallelism", {})
    varied = with_parallelism(topology, parallelism, config)
    plan = physical_plan(Topology(folder.name, varied.components, config, topology.carried_types), config)
    return Job(
        folder=folder,
        plan=plan,
        reference=facts["reference"],
        code_hash=facts["code_hash"],
        py_files=tuple(facts.get("py_files", ())),
        parameters=facts["parameters"],
        settings=facts["settings"],
        parallelism=parallelism,
        foreground=facts["foreground"],
        checkpoints=_checkpoints_url(folder, config.checkpoint_folder, facts) if plan.config.delivery == "exactly_once" else "",
        start_from=facts.get("start_from", ""),
        drop_state=tuple(facts.get("drop_state", ())),
        otherwise=facts.get("otherwise", FIRST),
        is_spread=bool(facts.get("spark")),
        serializers=serializers_of(topology),
    )


def _checkpoints_url(folder: TopologyFolder, place: str | None, facts: Mapping[str, Any]) -> str:
    """Return where a run has its checkpoints: a folder of its own, so that it never takes those of an earlier run for its own."""
    run = str(facts["run_ms"])
    if not place:
        return str(folder.checkpoints / run)
    own = f"{folder.name}/{run}"
    return f"{place.rstrip('/')}/{own}" if "://" in place else str(Path(facts["submitted_from"], place, own))


@contextlib.contextmanager
def _removed_unless_submitted(folder: TopologyFolder) -> Iterator[None]:
    """Remove the folder of a topology that is refused and was never submitted: no command could do anything with it."""
    try:
        yield
    except BaseException:
        if not folder.topology.exists() and not newest_checkpoints(folder):
            folder.remove()
        raise


def _forget(folder: TopologyFolder, kept_checkpoints: Sequence[str]) -> None:
    """Remove what earlier runs under this name have left, except for the master's record and some checkpoints."""
    for path in (folder.positions, folder.dead_letters, folder.errors, folder.older_errors, folder.summary):
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
    _remove_checkpoints(folder, kept_checkpoints)
    shutil.rmtree(folder.components, ignore_errors=True)
    for path in folder.logs.iterdir():
        with contextlib.suppress(OSError):
            path.unlink()
    master_record.reset_run(folder.master, active=True)


def _remove_checkpoints(folder: TopologyFolder, kept: Sequence[str]) -> None:
    """Remove the checkpoints in the topology's own folder, but for those of the runs that a path in `kept` leads to."""
    with contextlib.suppress(FileNotFoundError):
        for run in folder.checkpoints.iterdir():
            if not any(Path(path).is_relative_to(run) for path in kept):
                shutil.rmtree(run, ignore_errors=True)


def reset_run(
    folder: TopologyFolder,
    *,
    start_from: str = "",
    parallelism: Mapping[str, int] | None = None,
    plan: PhysicalPlan | None = None,
) -> None:
    """Have the next master of a topology start from the beginning, or from a savepoint.

    Nobody looks for its checkpoints any more. They stay when it starts from the beginning; a savepoint stands for them.

    Args:
        parallelism: tasks by component from now on; None: as before.
        plan: that goes with it.
    """
    facts = read_facts(folder)
    with folder.lock():
        otherwise = text_of_beginning(folder, checkpoints_of(folder))
        folder.positions.unlink(missing_ok=True)
        master_record.reset_run(folder.master)
        facts |= {"run_ms": int(time.time() * 1000), "start_from": start_from, "drop_state": [], "otherwise": otherwise}
        if parallelism is not None and plan is not None:
            facts |= {"parallelism": dict(parallelism), "plan": json.loads(plan.to_json())}
        write_atomically(folder.topology, json.dumps(facts).encode())
        if start_from:
            _remove_checkpoints(folder, (start_from,))


def note_resumed(folder: TopologyFolder) -> None:
    """Have the next master say that it goes on: what the submit has discarded is no longer news."""
    facts = facts_of(folder)
    with folder.lock():
        write_atomically(folder.topology, json.dumps(facts | {"otherwise": NOTHING_STORED}).encode())


def remove(folder: TopologyFolder) -> None:
    """Forget a topology that does not run. Raises UserError when it does."""
    if folder.is_running():
        raise UserError(f"topology {folder.name!r} is running; kill it first")
    shutil.rmtree(folder.path)
