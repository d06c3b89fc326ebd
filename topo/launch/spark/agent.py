"""The agent: the Python body of a Spark task. It runs workers as child processes and reports their ends to the driver.

It lives in a Python worker of Spark's, so it must hold nothing that matters: when Spark kills it, the workers die with it
(PR_SET_PDEATHSIG and a look at their parent), and Spark or the driver start another one. It ends when the driver asks
it to, or has been silent for too long.
"""

from __future__ import annotations

import logging
import os
import platform
import shutil
import sys
import sysconfig
import tempfile
import threading
import time
import zipfile
from collections import deque
from pathlib import Path

import msgspec

from topo.errors import TopoEnvironmentError
from topo.ids import Incarnation, WorkerId
from topo.launch.local import LocalLauncher
from topo.launch.spark.agent_spec import AgentSpec, address_towards, host_and_port
from topo.launch.spark.log_shipping import LogTails
from topo.launch.spark.messages import (
    Beat,
    BeatAnswer,
    End,
    FromAgent,
    FromDriver,
    Hello,
    Leave,
    LogData,
    Run,
    WorkerOver,
    decode_from_driver,
    encode,
)
from topo.master.links import WorkerEnd
from topo.master_process.launcher import marker_path, spec_path
from topo.storage.state_folder import StateFolder, TopologyFolder, write_atomically
from topo.transport.security import AllowList, KeyPair
from topo.transport.zmq import TcpPlace, ZmqTransport
from topo.worker.crash_marker import written_bytes
from topo.worker.spec import WorkerSpec

_LOG = logging.getLogger(__name__)
_LINK = "driver"
_TURN_S = 0.2
"""How often logs are looked at."""
_READ_AT_ONCE = 256
_GOODBYE_S = 1.0
_MOST_UNSENT = 16
"""Messages that wait for the driver before no more log lines are read."""
_SPARKS_OWN = ("PYTHON_WORKER_FACTORY_SECRET", "PYTHON_WORKER_FACTORY_SOCK_PATH", "PYTHON_WORKER_FACTORY_SOCK_DIR")


def run_agent(order: AgentSpec, attempt: int, files: Path) -> str:
    """Run workers until it is over, and return why it is.

    Args:
        order: of this submission.
        attempt: how often Spark has tried the task before.
        files: the folder of the shipped files.
    """
    place = Path(tempfile.mkdtemp(prefix="topo-agent-", dir=_scratch()))
    try:
        agent = Agent(order, attempt, prepare(order, place, files))
        try:
            return agent.run()
        finally:
            agent.close()
    finally:
        shutil.rmtree(place, ignore_errors=True)


def prepare(order: AgentSpec, place: Path, files: Path) -> TopologyFolder:
    """Lay out the private folder of an agent, with the user's code in it; give its workers its own import path."""
    folder = StateFolder(place).create(order.topology)
    if order.code:
        with zipfile.ZipFile(files / order.code) as archive:
            archive.extractall(folder.code)
        for path in folder.code.glob("*.pickle"):
            path.chmod(0o600)
    for name in _SPARKS_OWN:
        os.environ.pop(name, None)
    os.environ["PYTHONPATH"] = os.pathsep.join(_shipped_path())
    return folder


def _shipped_path() -> list[str]:
    """What Spark has put on the path of this process, in a form that holds in any working folder."""
    own = {sysconfig.get_path(kind) for kind in ("stdlib", "platstdlib", "purelib", "platlib")}
    found = [os.path.abspath(entry) for entry in sys.path if entry]
    return [entry for entry in found if entry not in own and os.path.exists(entry)]


def _scratch() -> str | None:
    """A folder that Spark removes together with the executor."""
    for variable in ("SPARK_EXECUTOR_DIRS", "LOCAL_DIRS", "SPARK_LOCAL_DIRS"):
        for folder in os.environ.get(variable, "").replace(",", os.pathsep).split(os.pathsep):
            if folder and os.access(folder, os.W_OK):
                return folder
    return None


class Agent:
    """See the module.

    Args:
        order: of this submission.
        attempt: how often Spark has tried the task before.
        folder: private, laid out by `prepare`.
    """

    def __init__(self, order: AgentSpec, attempt: int, folder: TopologyFolder) -> None:
        self._order = order
        self._attempt = attempt
        self._folder = folder
        self._address = address_towards(*host_and_port(order.endpoint))
        keys = KeyPair(order.public_key, order.secret_key)
        self._transport = ZmqTransport(TcpPlace(self._address), keys, AllowList())
        identity = f"{order.slot}:{order.submission}:{attempt}:{os.getpid()}:{time.time_ns()}".encode()
        self._link = self._transport.link(_LINK, order.endpoint, identity, order.driver_key)
        self._launcher = LocalLauncher(folder)
        self._workers: set[tuple[WorkerId, Incarnation]] = set()
        self._tails = LogTails(folder.logs)
        self._unsent: deque[bytes] = deque()
        self._why = ""

    def run(self) -> str:
        """Serve until the end; return why it has come."""
        order = self._order
        self._say(Hello(order.slot, order.submission, self._attempt, os.getpid(), platform.node(), self._address))
        last_beat_at = time.monotonic()
        beat_at = last_beat_at + order.heartbeat_s
        while not self._why:
            self._transport.wait(_TURN_S)
            now = time.monotonic()
            for data in self._transport.receive(_LINK, _READ_AT_ONCE):
                last_beat_at = now
                self._told(decode_from_driver(data))
            for end in self._launcher.poll():
                self._worker_ended(end)
            if now >= beat_at:
                beat_at = now + order.heartbeat_s
                self._say(Beat())
            if now - last_beat_at >= order.timeout_s:
                self._why = f"the driver was silent for {now - last_beat_at:.1f} s"
            if len(self._unsent) < _MOST_UNSENT:
                self._ship_logs()
            self._send()
        return self._why

    def close(self) -> None:
        """Kill the workers and report their ends."""
        self._launcher.close()
        until = time.monotonic() + _GOODBYE_S
        while self._ship_logs() and time.monotonic() < until:
            pass
        self._send()
        while self._unsent and time.monotonic() < until:
            self._transport.wait(_TURN_S)
            self._send()
        self._transport.close(linger_s=_GOODBYE_S)

    def _told(self, message: FromDriver) -> None:
        match message:
            case Run(spec):
                self._start(spec)
            case End(worker, incarnation, kill) if (worker, incarnation) in self._workers:
                self._launcher.stop(worker, incarnation, kill=kill)
            case End(worker, incarnation):
                # The order to start it, or the report of its end, was lost with a connection.
                self._say(WorkerOver(worker, incarnation, "its agent does not have it"))
            case Leave(reason):
                self._why = reason
            case BeatAnswer():
                pass

    def _start(self, given: WorkerSpec) -> None:
        worker, incarnation = given.worker, given.incarnation
        spec = msgspec.structs.replace(
            given,
            reference=given.reference.replace(self._order.code_folder, str(self._folder.code), 1),
            host=self._address,
            note=str(marker_path(self._folder, worker, incarnation)),
            log=str(self._folder.logs / f"worker-{worker}.log"),
            # Agents of other machines do not see it.
            folder="",
            parent=os.getpid(),
        )
        try:
            write_atomically(spec_path(self._folder, worker, incarnation), msgspec.json.encode(spec))
            self._launcher.start(worker, incarnation, spec)
        except TopoEnvironmentError as error:
            self._say(WorkerOver(worker, incarnation, str(error)))
            return
        self._workers.add((worker, incarnation))
        pid = self._launcher.pids()[worker]
        threading.Thread(target=self._watch, args=(pid,), name=f"watch-{pid}", daemon=True).start()

    def _watch(self, pid: int) -> None:
        """Wake the loop when a child ends; it is left to be reaped."""
        try:
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        except ChildProcessError:
            return
        self._transport.wake()

    def _worker_ended(self, end: WorkerEnd) -> None:
        self._workers.discard((end.worker, end.incarnation))
        self._ship_logs()
        marker = marker_path(self._folder, end.worker, end.incarnation)
        self._say(WorkerOver(end.worker, end.incarnation, end.description, written_bytes(marker)))
        for path in (marker, spec_path(self._folder, end.worker, end.incarnation)):
            path.unlink(missing_ok=True)

    def _ship_logs(self) -> bool:
        """Take over what logs have grown by, to a limit; return whether they have grown."""
        found = list(self._tails.read(self._launcher.pids()))
        for name, data in found:
            self._say(LogData(name, data))
        return bool(found)

    def _say(self, message: FromAgent) -> None:
        self._unsent.append(encode(message))

    def _send(self) -> None:
        while self._unsent and self._transport.send(self._link, self._unsent[0]):
            self._unsent.popleft()
