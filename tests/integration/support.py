"""What tests with real processes share: topologies as files, faults, and waiting by conditions.

Every wait has a deadline. Every process that a test starts has the test's state folder on its command line, which is how the
leak check in conftest.py finds it.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from topo.errors import TopoEnvironmentError
from topo.launch.cluster import resume_background, run_foreground, submit_background
from topo.launch.leftovers import end_leftovers
from topo.launch.local import LocalLauncher
from topo.launch.local_cluster import LocalCluster
from topo.launch.request import RunRequest
from topo.launch.running import RunningTopology
from topo.launch.submission import new_job
from topo.launch.worker_command import WORKER_COMMAND
from topo.master.commands import RecordError
from topo.master.outcome import Outcome
from topo.master_process.client import AnswerTimeout, Unreachable
from topo.master_process.shell import MasterShell
from topo.storage.state_folder import read_json_lines

PATIENCE_S = 30.0
"""A busy machine must not fail a test; a test of speed measures it."""

FAST: Mapping[str, Any] = {
    "heartbeat": "100ms",
    "worker_timeout": "5s",
    "restart_backoff": "50ms",
    "master_timeout": "20s",
}
"""Settings that let a recovery be over in a moment."""

ENDLESS = """
class Endless(RetryingSpout):
    '''Counts until the file "stop" exists.'''
    outputs = ("value",)
    pause_s = 0.001

    def open(self, context, collector):
        self.collector = collector
        done = context.committed_position
        self.next = 0 if done is None else done + 1

    def next_tuple(self):
        if (HERE / "stop").exists():
            self.collector.end_of_input()
            return
        time.sleep(self.pause_s)
        self.collector.emit((self.next,), self.next)
        self.next += 1

"""
"""A spout for topologies that run until the test ends them. It pauses: the processors are for what happens meanwhile."""

FLOODING = ENDLESS + "Endless.pause_s = 0.0\n"
"""The same, which emits as fast as it can."""

_HEAD = """
import os, signal, sys, time
from pathlib import Path
from topo import *

HERE = Path({here!r})
HURRY = str(HERE / "hurry")

def take_time(seconds):
    '''Sleep, until the test has seen enough and wants the rest at once.'''
    if not os.path.exists(HURRY):
        time.sleep(seconds)

def once(name):
    '''Whether this is the first call, in any life of any process.'''
    try:
        os.close(os.open(HERE / name, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True

def die():
    os.kill(os.getpid(), signal.SIGKILL)

"""

Status = dict[str, Any]

SINK = 'builder.set_bolt("sink", JsonLinesSink(HERE / "out.jsonl", flush_interval="10ms"))'
"""Declares a sink, but for its grouping."""


def flow(*declarations: str) -> str:
    """Return the function of a topology, made of calls of its builder."""
    lines = "\n".join(f"    {declaration}" for declaration in declarations)
    return f"\ndef topology():\n    builder = TopologyBuilder('flow')\n{lines}\n    return builder.build()\n"


def eventually(condition: Callable[[], object], timeout_s: float = PATIENCE_S, what: str = "") -> None:
    """Wait until a condition holds."""
    until = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < until, f"gave up waiting for {what or condition}"
        time.sleep(0.01)


@dataclass
class Run:
    """A topology that has run to its end in this process."""

    outcome: Outcome
    summary: Status
    errors: list[dict[str, Any]]
    dead_letters: list[dict[str, Any]]
    incidents: list[RecordError] = field(default_factory=list)

    @property
    def totals(self) -> Status:
        found: Status = self.summary["totals"]
        return found


class Scene:
    """One test's files and topologies.

    Args:
        folder: for topology files and what they write.
        home: the state folder.
    """

    def __init__(self, folder: Path, home: Path) -> None:
        self.folder = folder
        self.home = home
        self.cluster = LocalCluster(home)
        self._background: list[RunningTopology] = []

    def file(self, body: str, name: str = "flow") -> str:
        """Write a topology: its body follows imports of topo's names and of helpers. Return the path."""
        path = self.folder / f"{name}.py"
        path.write_text(_HEAD.format(here=str(self.folder)) + textwrap.dedent(body))
        return str(path)

    def run(self, topology: str, on_status: Callable[[Status], None] | None = None, **settings: Any) -> Run:
        """Run a topology in the foreground, its master in this process."""
        incidents: list[RecordError] = []
        request = RunRequest(topology, settings={**FAST, **settings}, home=self.home)
        outcome = run_foreground(request, on_status, incidents.append)
        return self._ended(outcome, incidents)

    def run_with(
        self,
        topology: str,
        command: Sequence[str] = WORKER_COMMAND,
        launcher: type[LocalLauncher] = LocalLauncher,
        on_status: Callable[[Status], None] | None = None,
        **settings: Any,
    ) -> Run:
        """Run a topology in the foreground, with workers that are started by another command or in another way."""
        job = new_job(RunRequest(topology, settings={**FAST, **settings}, home=self.home, foreground=True))
        incidents: list[RecordError] = []
        with job.folder.lock():
            outcome = MasterShell(job, launcher(job.folder, command), on_status, incidents.append).run()
        return self._ended(outcome, incidents)

    def _ended(self, outcome: Outcome, incidents: list[RecordError]) -> Run:
        (folder,) = (self.home / "topologies").iterdir()
        return Run(
            outcome,
            json.loads((folder / "summary.json").read_bytes()),
            read_json_lines(folder / "errors.jsonl"),
            read_json_lines(folder / "dead_letters.jsonl"),
            incidents,
        )

    def submit(self, topology: str, name: str | None = None, **settings: Any) -> RunningTopology:
        """Start a topology in the background; it ends with the test."""
        return self.cluster.submit(topology, name, settings={**FAST, **settings})

    def submit_background(
        self,
        topology: str,
        name: str | None = None,
        parallelism: Mapping[str, int] | None = None,
        resume: bool = False,
        **settings: Any,
    ) -> RunningTopology:
        """Start a topology that would outlive this process; it ends with the test all the same."""
        request = RunRequest(
            topology, name, settings={**FAST, **settings}, home=self.home, parallelism=parallelism or {}, resume=resume
        )
        running = submit_background(request)
        self._background.append(running)
        return running

    def resume(self, name: str) -> RunningTopology:
        """Start a new master for a topology whose master is gone."""
        running = resume_background(name, self.home)
        self._background.append(running)
        return running

    def lines(self, name: str = "out") -> list[Any]:
        """Return the values that a JsonLinesSink of one field has written to a file of that name, or its tasks' files."""
        files = sorted(self.folder.glob(f"{name}*.jsonl*"))
        rows = [json.loads(line) for file in files for line in _whole_lines(file)]
        return [next(iter(row.values())) if len(row) == 1 else tuple(row.values()) for row in rows]

    def touch(self, name: str) -> None:
        """Make a file that the topology waits for."""
        (self.folder / name).touch()

    def hurry(self) -> None:
        """Have spouts that take their time emit the rest of their input at once: nothing is to happen to it any more."""
        self.touch("hurry")

    def has(self, name: str) -> bool:
        """Whether the topology has made a file."""
        return (self.folder / name).exists()

    def close(self) -> None:
        """End what still runs."""
        self.cluster.close()
        for running in self._background:
            with contextlib.suppress(Unreachable, AnswerTimeout):
                running.kill()
            with contextlib.suppress(TopoEnvironmentError):
                running.wait(timeout_s=PATIENCE_S)
            end_leftovers(running.folder)


def _whole_lines(file: Path) -> list[bytes]:
    """Return the lines of a file, the last of which may be half written at first."""
    until = time.monotonic() + 1
    while not (content := file.read_bytes()).endswith(b"\n") and content and time.monotonic() < until:
        time.sleep(0.01)
    return content.splitlines()


def let_pass(running: RunningTopology, seconds: float) -> None:
    """Wait until the topology's own clock has gone on by that."""
    begun = running.status()["uptime_s"]
    running.wait_until(lambda status: status["uptime_s"] >= begun + seconds)


def worker_of(status: Status, component: str, index: int = 0) -> Status:
    """Return the row of a status about the worker that hosts a task."""
    number = next(t["worker"] for t in status["tasks"] if t["component"] == component and t["index"] == index)
    found: Status = next(worker for worker in status["workers"] if worker["worker"] == number)
    return found


def pid_of(status: Status, component: str, index: int = 0) -> int:
    """Return the process that hosts a task; 0 while there is none."""
    return int(worker_of(status, component, index)["pid"] or 0)


def component_of(status: Status, component: str) -> Status:
    """Return the figures of a component."""
    found: Status = next(entry for entry in status["components"] if entry["component"] == component)
    return found


def counter(status: Status, component: str, name: str) -> int:
    """Return a counter of a component."""
    return int(component_of(status, component)["counters"].get(name, 0))


def acked(status: Status) -> int:
    """Return the messages acked so far."""
    return int(status["totals"]["acked"])


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    """Send a signal to a process that the test has started."""
    assert pid > 1
    os.kill(pid, number)


def is_gone(pid: int) -> bool:
    """Whether a process has ended, reaped or not."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def text_of(path: Path) -> str:
    """Return what a file holds; nothing when it is not there yet."""
    try:
        return path.read_text()
    except FileNotFoundError:
        return ""


def repeated(values: list[Any]) -> list[Any]:
    """Return the values that occur more than once."""
    return [value for value, times in Counter(values).items() if times > 1]


def processes_of(home: Path) -> list[psutil.Process]:
    """Return the processes, but this one, that have the folder on their command line."""
    return [
        process
        for process in psutil.process_iter()
        if process.pid != os.getpid() and any(str(home) in word for word in words_of(process))
    ]


def words_of(process: psutil.Process) -> list[str]:
    """Return a process's command line; nothing when it is gone."""
    try:
        return list(process.cmdline())
    except psutil.Error:
        return []


@contextlib.contextmanager
def foreground_process(scene: Scene, topology: str, **settings: Any) -> Iterator[subprocess.Popen[bytes]]:
    """A separate process that runs a topology in the foreground; its exit code is the outcome's."""
    code = (
        "import json, sys; from pathlib import Path; from topo.launch.cluster import run_foreground\n"
        "from topo.launch.request import RunRequest\n"
        "home, topology, settings = sys.argv[1:]\n"
        "outcome = run_foreground(RunRequest(topology, settings=json.loads(settings), home=Path(home)))\n"
        "print(outcome.kind.value, outcome.reason, sep=': ', flush=True)\n"
        "sys.exit(outcome.exit_code)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(scene.home), topology, json.dumps({**FAST, **settings})],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()
