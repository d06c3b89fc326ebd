"""The entry of a worker process: `python -m topo.worker.process START_FILE`."""

from __future__ import annotations

import gc
import logging
import os
import platform
import sys
import time
import traceback
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from topo.api.hooks import Hooks
from topo.api.topology import Topology
from topo.errors import TopoError
from topo.hot import KIND, PLAIN_BECAUSE, Ids
from topo.ids import TaskId
from topo.observability.logs import TaskLog, start_logging
from topo.observability.process_figures import ProcessFigures
from topo.plan.outline import outline
from topo.plan.parallelism import with_overrides
from topo.plan.physical import PhysicalPlan, physical_plan
from topo.storage.files import PartFiles, open_files
from topo.storage.snapshots import SnapshotWriter
from topo.task.context import make_context
from topo.task.environment import RunAsync, TaskEnvironment, TaskSpec
from topo.task.factory import make_task
from topo.task.runners.input_runner import InputRunner
from topo.task.task import Task
from topo.transport import descriptors
from topo.transport.base import Outlet, Transport
from topo.transport.part_client import MasterFiles
from topo.transport.security import AllowList, KeyPair
from topo.transport.zmq import IpcPlace, TcpPlace, ZmqTransport
from topo.user_code.copy import as_user_knows_it, origin_of_copy
from topo.user_code.load import load_topology, search_py_files, serializers_of
from topo.user_errors import refuse_breakpoint
from topo.wire import control
from topo.wire.codec import Codec
from topo.wire.frames import ROW_OVERHEAD
from topo.worker.connections import Connections, bind_inbox
from topo.worker.core import EXIT_DONE, InFlightTracker, Worker, WorkerExit, busy_component
from topo.worker.crash_marker import CrashMarkerFile
from topo.worker.end_signals import handle_end_signals
from topo.worker.helper_thread import HelperThread
from topo.worker.instances import NOTHING_GIVEN, TaskInstances
from topo.worker.load import WorkerLoad
from topo.worker.log_levels import LogLevels
from topo.worker.loop import LINK, Loop
from topo.worker.memory import is_memory_short
from topo.worker.observing import Observing, TaskTaps
from topo.worker.parent import die_with
from topo.worker.progress import Progress
from topo.worker.sampler import Sampler
from topo.worker.session import WorkerSession
from topo.worker.spec import STAND_BY, WorkerSpec, read_spec
from topo.worker.tracer import TaskTraces
from topo.worker.watchdog import Watchdog

if TYPE_CHECKING:
    from topo.worker.async_runner import AsyncRunner

_LOG = logging.getLogger("topo.worker")
_SWITCH_S = 0.001
"""How long the tasks' thread may run while another one waits for the interpreter. Writing a snapshot gives the interpreter away
hundreds of times: at Python's 5 ms the snapshot of 100,000 keys took 4 s beside a busy task, at 1 ms it takes 0.2 s."""
EXIT_BAD_START = 6
"""The worker could not build its topology."""
EXIT_BUG = 70
"""Something in topo itself raised. (`EX_SOFTWARE` of sysexits.h.)"""


def main(arguments: list[str]) -> int:
    """Run the worker that the start file describes; return the exit code."""
    if arguments[0] == STAND_BY:
        from topo.worker.stand_by import stand_by

        arguments = [stand_by()]
    spec = read_spec(Path(arguments[0]))
    if spec.parent:
        die_with(spec.parent)
    if not os.environ.get("PYTHONBREAKPOINT"):
        sys.breakpointhook = refuse_breakpoint
    log = start_logging(Path(spec.log), worker=spec.worker, topology=spec.topology)
    because = PLAIN_BECAUSE and f" ({PLAIN_BECAUSE})"
    _LOG.info("worker %s starts; its per-tuple path is %s%s", spec.worker, KIND, because)
    try:
        exit_ = run(spec, log, Path(arguments[0]))
    except TopoError as error:
        _LOG.error("worker %s cannot start: %s", spec.worker, error)
        _report(f"worker {spec.worker} cannot start: {error}")
        return EXIT_BAD_START
    except Exception:
        _LOG.exception("worker %s has crashed", spec.worker)
        traceback.print_exc(file=sys.__stderr__)
        return EXIT_BUG
    _LOG.info("worker %s ends: %s", spec.worker, exit_.why)
    if exit_.code:
        _report(exit_.why)
    log.close()
    return exit_.code


def _report(why: str) -> None:
    """Print a last line, which the launcher reports with the exit code; a full disk takes none."""
    with suppress(OSError):
        print(" ".join(why.split()), file=sys.__stderr__)


def run(spec: WorkerSpec, log: TaskLog, start_file: Path | None = None) -> WorkerExit:
    """Build the tasks, register with the master, and work until it is time to leave."""
    search_py_files(spec.py_files)
    if copied := origin_of_copy(spec.reference):
        log.shown = lambda text: as_user_knows_it(text, *copied)
    topology, code_hash, _ = load_topology(spec.reference, spec.parameters)
    topology = with_overrides(topology, spec.settings, spec.parallelism, spec.topology)
    config = topology.config
    plan = physical_plan(topology, spec.cores)
    mine = plan.workers[spec.worker]
    descriptors.ensure(descriptors.of_worker(plan, mine), f"worker {spec.worker} of {spec.topology!r}, with {len(mine)} tasks,")
    transport = make_transport(spec)
    marker = CrashMarkerFile(Path(spec.note))
    tracker = InFlightTracker(marker)
    log.components.update({task.id: task.component for task in plan.tasks})
    tracker.on_change = log.enter

    def rebuild() -> Topology:
        return load_topology(spec.reference, spec.parameters).topology

    hooks = Hooks(topology.hooks)
    hooks.call("worker_starts", spec.topology, spec.worker)
    runners: list[AsyncRunner] = []
    registry = serializers_of(topology)
    snapshots = SnapshotWriter(spec.checkpoints, plan, registry, partial(files_for, spec)) if spec.checkpoints else None
    folder = Path(spec.folder) if spec.folder else None

    def attend() -> None:
        loop.attend()

    def run_async(call: Coroutine[Any, Any, Any], done: Callable[..., None], on_blocked: Callable[[Exception], None]) -> None:
        if not runners:
            # asyncio takes a tenth of the CPU time of a worker's start, and most workers need none.
            from topo.task.runners.async_calls import AsyncKind
            from topo.worker.async_runner import AsyncRunner

            runners.append(AsyncRunner(sum(kind.capacity for kind in kinds if isinstance(kind, AsyncKind))))
        runners[0].run(call, done, on_blocked)

    progress = Progress(time.monotonic, lambda: loop.turned_at)
    load = WorkerLoad(time.monotonic())
    wait = attend if len(mine) > 1 else None
    tasks = make_tasks(
        plan, mine, topology, rebuild, tracker, transport.wake, run_async, snapshots, folder, wait, hooks, progress, load
    )
    kinds = [task.runner.kind for task in tasks if isinstance(task, Task) and isinstance(task.runner, InputRunner)]
    worker = Worker(spec.worker, spec.incarnation, tasks, tracker)
    log.epoch = lambda: worker.epoch
    endpoint = bind_inbox(transport, config)
    master = transport.link(LINK, spec.master_endpoint, spec.identity(), spec.master_key or None)
    components = {task.id: task.component_id for task in tasks}
    figures = ProcessFigures()
    figures.start()
    observing = Observing(
        {
            "tap": TaskTaps(worker.tasks, plan, time.monotonic, lambda: int(time.time() * 1000)).begin,
            "log-level": LogLevels().begin,
            "trace": TaskTraces(worker.tasks, plan, time.monotonic, time.time, log).begin,
            "profile": Sampler(lambda: tracker.task).begin,
        }
    )
    loop: Loop = Loop(
        worker,
        WorkerSession(config, components, time.monotonic()),
        transport,
        master,
        Connections(transport, plan, frozenset(mine)),
        lambda: progress.shown() or busy_component(worker, tracker),
        start_file=start_file,
        process_figures=figures.read,
        observing=observing,
        load=load,
    )
    handle_end_signals(lambda: loop.stop(WorkerExit(EXIT_DONE, "asked to end")))
    digest = plan.digest(code_hash)
    loop.session.send(
        control.Register(
            worker=spec.worker,
            incarnation=spec.incarnation,
            pid=os.getpid(),
            host=platform.node(),
            python=platform.python_version(),
            digest=digest,
            tasks=list(mine),
            endpoint=endpoint,
            public_key=transport.public_key or "",
            outline=[] if digest == spec.digest else outline(plan),
        )
    )
    watchdog = Watchdog(loop, tracker, config, lambda: _second_link(spec), progress)
    watchdog.start()
    # Imported objects live as long as the process; collecting them repeatedly costs the hot path a few per cent.
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    sys.setswitchinterval(_SWITCH_S)
    try:
        return loop.run()
    finally:
        observing.close()
        watchdog.stop()
        for runner in runners:
            runner.close()
        hooks.call("worker_ends")
        if snapshots is not None:
            snapshots.close()
        transport.close(linger_s=2.0)
        marker.close()


def make_transport(spec: WorkerSpec) -> ZmqTransport:
    if spec.sockets:
        return ZmqTransport(IpcPlace(Path(spec.sockets)))
    # The master may always connect; the routes name all others that may.
    keys = KeyPair(spec.public_key, spec.secret_key)
    return ZmqTransport(TcpPlace(spec.host), keys, AllowList([spec.master_key]))


def files_for(spec: WorkerSpec, url: str) -> PartFiles:
    """Return the files at a path or URL as a worker reaches them. Raises TopoEnvironmentError when it cannot."""
    if url not in spec.served:
        return open_files(url, makes_root=False)
    return MasterFiles(url, spec.parts_endpoint, spec.master_key, KeyPair(spec.public_key, spec.secret_key))


def _second_link(spec: WorkerSpec) -> tuple[Transport, Outlet]:
    transport = make_transport(spec)
    return transport, transport.link(LINK, spec.master_endpoint, spec.identity(":w"), spec.master_key or None)


def make_tasks(
    plan: PhysicalPlan,
    mine: tuple[TaskId, ...],
    topology: Topology,
    rebuild: Callable[[], Topology],
    tracker: InFlightTracker,
    wake: Callable[[], None],
    run_async: RunAsync | None = None,
    snapshots: SnapshotWriter | None = None,
    folder: Path | None = None,
    wait: Callable[[], None] | None = None,
    hooks: Hooks | None = None,
    progress: Progress | None = None,
    load: WorkerLoad | None = None,
) -> list[Task]:
    """Make the tasks of a worker.

    Raises:
        UserError: a component that two tasks need cannot be copied.
    """
    registry = serializers_of(topology)
    instances = TaskInstances(topology, rebuild)
    tasks: list[Task] = []
    for task_id in mine:
        spec = plan.task(task_id)
        is_acker = task_id in plan.ackers
        component, watermarks, groupings, chain = NOTHING_GIVEN if is_acker else instances.take(spec.component)
        config = plan.config_of(spec.component)
        setup = TaskSpec(
            task=task_id,
            plan=plan,
            config=config,
            component=component,
            context=make_context(plan, task_id, folder, None if progress is None else progress.of(spec.component)),
            watermarks=watermarks,
            groupings=groupings,
            hooks=Hooks() if hooks is None or is_acker else hooks,
            chain=chain,
        )
        codec = Codec(registry, config.max_frame_bytes - ROW_OVERHEAD)
        ports = TaskEnvironment(
            Ids(),
            time.monotonic,
            codec,
            tracker,
            lambda: int(time.time() * 1000),
            wake,
            run_async,
            None if snapshots is None else snapshots.of(task_id),
            is_memory_short,
            wait,
            load=(lambda: 0) if load is None else lambda: load.percent,
            run_beside=HelperThread().run,
        )
        tasks.append(make_task(setup, ports))
    return tasks


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
