"""Workers on a Spark cluster: the driver's side, which performs the commands of the agent pool.

One thread, the topology master's, calls it; besides there is a thread for each job of Spark's, which waits for the job to end.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import select
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from topo.errors import FrameError, TopoEnvironmentError, UserError
from topo.ids import Incarnation, WorkerId
from topo.launch.spark.agent_link import AgentLink
from topo.launch.spark.agent_pool import AgentPool, CancelJob, PoolCommand, SendToAgent, SubmitJob, WorkerGone
from topo.launch.spark.agent_spec import AgentSpec
from topo.launch.spark.cluster import spark_settings
from topo.launch.spark.context import is_stopped, reason_of, spark_application, wait_for_slots
from topo.launch.spark.host_checks import check_findings, explain, foreign_package
from topo.launch.spark.host_probe import PACKAGES, HostFinding, probe_task
from topo.launch.spark.log_shipping import LogStore
from topo.launch.spark.messages import Beat, Hello, Leave, LogData, WorkerOver, decode_from_agent, encode
from topo.launch.spark.shipping import importable_file, topo_digest, zip_code, zip_topo
from topo.master.links import WorkerEnd
from topo.master_process.job import Job
from topo.master_process.launcher import marker_path
from topo.storage.submitted import SparkCluster
from topo.transport.bell import Bell
from topo.transport.zmq import new_key_pair
from topo.worker.spec import WorkerSpec

_LOG = logging.getLogger(__name__)

PROBE_S = 60.0
"""How long the probe's tasks may take in all; a cold executor starts its first Python process in some seconds."""
REACH_S = 5.0
"""How long a host may take to reach the driver."""
_LEAVE_S = 5.0
_LOOK_S = 0.1
_FRESH_BEATS = 2.5
_PATIENT_TIMEOUTS = 2.0
"""Number of timeouts that an agent waits for the driver before it ends; by then it has been replaced."""


@contextlib.contextmanager
def open_spark(job: Job, cluster: SparkCluster, is_asked: Callable[[], bool]) -> Iterator[SparkLauncher]:
    """Start a Spark application for a job, and check that the cluster can run it.

    Args:
        job: the topology to run; its `host` is this machine's address as the cluster sees it.
        is_asked: whether the end of the topology was requested; waits end then.

    Raises:
        TopoError: it cannot start; names the reason, and nothing runs then.
    """
    workers = len(job.plan.workers)
    slots = min(cluster.slots or workers, workers)
    address = job.plan.config.host
    settings = spark_settings(cluster, job.folder.name, slots, address)
    log = job.folder.logs / "spark.out"
    with contextlib.ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="topo-ship-")))
        shipped = [importable_file(Path(name), place) for name in cluster.py_files]
        context = stack.enter_context(spark_application(settings, cluster.master, log, is_asked))
        _LOG.info("Spark application %s is open at %s", context.applicationId, cluster.master)
        for path in shipped:
            context.addPyFile(str(path))
        link = AgentLink(address)
        stack.callback(link.close, 0.2)
        wait_for_slots(context, cluster, job.folder.name, slots, is_asked)
        _LOG.info("its executors offer the %s slots that are needed", slots)
        findings = probe(context, link, slots, is_asked, max(PROBE_S, job.plan.config.start_timeout_s))
        _LOG.info("its hosts can run the topology: %s", ", ".join(sorted({found["host"] for found in findings})))
        if any(found["topo"] != topo_digest() for found in findings):
            _LOG.info("hosts lack this version of topo: it is shipped")
            for warning in sorted({foreign_package(found) for found in findings if "foreign" in found}):
                _LOG.warning(warning)
            context.addPyFile(str(zip_topo(place)))
        code = zip_code(job.submitted.reference, job.folder.code, place)
        if code is not None:
            context.addFile(str(code))
        launcher = SparkLauncher(job, context, link, slots, code.name if code is not None else "")
        stack.callback(launcher.close)
        launcher.wait_for_agents(job.plan.config.start_timeout_s, is_asked)
        yield launcher


def probe(context: Any, link: AgentLink, slots: int, is_asked: Callable[[], bool], limit_s: float = PROBE_S) -> list[HostFinding]:
    """Run the probe in every slot, and return its findings; nothing when the end is requested meanwhile.

    It is a barrier job: the first task that fails ends it, with its reason, whereas an agent's job is tried again for as long as
    the topology lives.

    Raises:
        UserError: workers could not run there; names the reason for each host.
    """
    keys = new_key_pair()
    link.allow_list.replace([keys.public])
    task = probe_task(link.endpoint, link.public_key, keys.public, keys.secret, REACH_S)
    answer: queue.SimpleQueue[list[HostFinding] | Exception] = queue.SimpleQueue()

    def run() -> None:
        try:
            answer.put(context.parallelize(range(slots), slots).barrier().mapPartitions(task).collect())
        except Exception as error:
            answer.put(error)

    _spark_thread(context, f"probe of {slots} slots", "topo/probe", run)
    until = time.monotonic() + limit_s
    while answer.empty():
        if is_asked():
            return []
        if time.monotonic() >= until:
            why = f"no host of the cluster has run a Python task within {limit_s:g} s"
            raise UserError(f"{why}; see the executors' logs, or raise start_timeout")
        for identity, _ in link.receive():
            link.send(identity, b"")
        time.sleep(_LOOK_S / 5)
    found = answer.get()
    if isinstance(found, Exception):
        raise UserError(explain(str(getattr(found, "java_exception", None) or found))) from found
    here = {name: import_module(name).__version__ for name in PACKAGES}
    check_findings(found, link.endpoint, here)
    return found


class SparkLauncher:
    """A launcher, as `runtime.master` knows it.

    Args:
        job: what runs.
        link: where agents connect to.
        slots: how many agents there are to be.
        code: name of the shipped file with the user's code.
    """

    def __init__(self, job: Job, context: Any, link: AgentLink, slots: int, code: str) -> None:
        config = job.plan.config
        self._job = job
        self._context = context
        self._link = link
        self._slots = slots
        self._code = code
        self._crew = AgentPool(slots, len(job.plan.workers), config.worker_timeout_s, _FRESH_BEATS * config.heartbeat_s)
        self._logs = LogStore(job.folder.logs)
        self._keys: dict[int, list[str]] = {}
        self._over: queue.SimpleQueue[tuple[int, int, str]] = queue.SimpleQueue()
        self._running = 0
        self._incoming: list[tuple[bytes, bytes]] = []
        self._ended: list[WorkerEnd] = []
        self._is_closed = False
        self._bell = Bell()
        self._perform(self._crew.tick(time.monotonic()))

    def wait_for_agents(self, timeout_s: float, is_asked: Callable[[], bool]) -> None:
        """Wait until every slot has an agent, or until somebody asks for the end.

        Raises:
            TopoEnvironmentError: some have none after `timeout_s`.
        """
        until = time.monotonic() + timeout_s
        while not self._crew.is_complete and not is_asked():
            if time.monotonic() >= until:
                missing = self._crew.missing()
                why = next((why for _, why in missing if why), "Spark has not started their tasks")
                there = self._slots - len(missing)
                raise TopoEnvironmentError(f"only {there} of {self._slots} agents came up within {timeout_s:g} s: {why}")
            select.select(list(self.descriptors()), [], [], _LOOK_S)
            self.poll()

    def start(self, worker: WorkerId, incarnation: Incarnation, spec: WorkerSpec) -> None:
        """Start a worker at an agent, as soon as there is one for it."""
        self._perform(self._crew.start(spec, time.monotonic()))

    def poll(self) -> list[WorkerEnd]:
        """Return the workers that have ended since the last call.

        Raises:
            TopoEnvironmentError: Spark has ended the application.
        """
        self._bell.clear()
        now = time.monotonic()
        while arrived := self._incoming or self._link.receive():
            self._incoming = []
            for identity, data in arrived:
                self._perform(self._heard(identity, data, now))
        while not self._over.empty():
            slot, submission, why = self._over.get()
            self._running -= 1
            _LOG.info("job %s of slot %s is over: %s", submission, slot, why)
            if not self._is_closed:
                if is_stopped(self._context):
                    raise TopoEnvironmentError(f"Spark has ended the application: {why}")
                self._perform(self._crew.job_ended(slot, submission, why, now))
        if not self._is_closed:
            self._perform(self._crew.tick(now))
        ended, self._ended = self._ended, []
        return ended

    def stop(self, worker: WorkerId, incarnation: Incarnation, *, kill: bool) -> None:
        self._perform(self._crew.stop(worker, incarnation, kill))

    def descriptors(self) -> Iterable[int]:
        """Return descriptors that become readable when there is something for `poll` to do."""
        # What came in while something was sent is not announced again.
        self._incoming += self._link.receive()
        if self._incoming or self._ended:
            self._bell.ring()
        return self._bell.descriptor, self._link.descriptor

    def close(self) -> None:
        """End all agents, and their workers with them. Idempotent."""
        if self._is_closed:
            return
        self._is_closed = True
        for agent in self._crew.agents:
            self._link.send(agent.identity, encode(Leave("the topology is over")))
        until = time.monotonic() + _LEAVE_S
        while self._running and time.monotonic() < until:
            select.select(list(self.descriptors()), [], [], _LOOK_S)
            self.poll()
        # The last lines of logs may have come with the end of the last job.
        self.poll()
        self._bell.close()

    # -- what arrives ----------------------------------------------------------------------------------------------------

    def _heard(self, identity: bytes, data: bytes, now: float) -> list[PoolCommand]:
        try:
            message = decode_from_agent(data)
        except FrameError as error:
            _LOG.warning("dropped: %s", error)
            return []
        match message:
            case LogData(name, lines):
                self._logs.append(name, lines)
                return []
            case _ if self._is_closed:
                return []
            case Hello():
                _LOG.info("agent of slot %s, submission %s, attempt %s: process %s on %s (%s)", *_told(message))
                return self._crew.hello(identity, message, now)
            case Beat():
                return self._crew.beat(identity, now)
            case WorkerOver():
                return self._crew.worker_over(identity, message)

    # -- commands of the pool ----------------------------------------------------------------------------------------------

    def _perform(self, commands: list[PoolCommand]) -> None:
        for command in commands:
            match command:
                case SendToAgent(identity, message):
                    self._link.send(identity, encode(message))
                case WorkerGone(worker, incarnation, description, marker):
                    if marker:
                        with contextlib.suppress(OSError):
                            marker_path(self._job.folder, worker, incarnation).write_bytes(marker)
                    self._ended.append(WorkerEnd(worker, incarnation, description))
                case SubmitJob(slot, submission):
                    self._submit(slot, submission)
                case CancelJob(slot, submission):
                    group = self._group(slot, submission)
                    threading.Thread(target=self._cancel, args=(group,), name=f"cancel {group}", daemon=True).start()

    def _submit(self, slot: int, submission: int) -> None:
        config = self._job.plan.config
        keys = new_key_pair()
        # The former agent may still send messages, and gets Leave as its answer.
        self._keys[slot] = [*self._keys.get(slot, [])[-1:], keys.public]
        self._link.allow_list.replace(key for pair in self._keys.values() for key in pair)
        order = AgentSpec(
            topology=self._job.folder.name,
            slot=slot,
            submission=submission,
            endpoint=self._link.endpoint,
            driver_key=self._link.public_key,
            public_key=keys.public,
            secret_key=keys.secret,
            heartbeat_s=config.heartbeat_s,
            timeout_s=_PATIENT_TIMEOUTS * config.worker_timeout_s,
            code=self._code,
            code_folder=str(self._job.folder.code),
        )

        def body(_: Iterable[Any]) -> Iterator[str]:
            import traceback
            from pathlib import Path

            from pyspark import SparkFiles, TaskContext

            try:
                from topo.launch.spark.agent import run_agent

                task = TaskContext.get()
                assert task is not None
                why = run_agent(order, task.attemptNumber(), Path(SparkFiles.getRootDirectory()))
            except Exception as error:  # Spark would try again at once, and again; the crew takes its time
                traceback.print_exc()
                why = f"the agent failed: {type(error).__name__}: {error}"
            yield why

        def run() -> None:
            try:
                (why,) = self._context.parallelize([slot], 1).mapPartitions(body).collect()
            except Exception as error:  # the slot is filled again after any failure
                why = reason_of(error)
            self._over.put((slot, submission, why))
            self._bell.ring()

        self._running += 1
        _spark_thread(self._context, f"slot {slot} of {self._job.folder.name}", self._group(slot, submission), run)

    def _cancel(self, group: str) -> None:
        with contextlib.suppress(Exception):
            self._context.cancelJobGroup(group)

    def _group(self, slot: int, submission: int) -> str:
        return f"topo/{self._job.folder.name}/{slot}/{submission}"


def _told(hello: Hello) -> tuple[object, ...]:
    return hello.slot, hello.submission, hello.attempt, hello.pid, hello.host, hello.address


def _spark_thread(context: Any, description: str, group: str, run: Callable[[], None]) -> None:
    """Run in a thread whose Spark jobs are a group that can be cancelled."""
    from pyspark import InheritableThread

    def grouped() -> None:
        context.setJobGroup(group, description, interruptOnCancel=True)
        run()

    InheritableThread(target=grouped, name=group, daemon=True).start()
