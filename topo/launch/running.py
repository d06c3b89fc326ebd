"""A topology in the background: its master started, asked and waited for."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from topo.errors import TopoEnvironmentError, TopoError, UserError
from topo.launch.exits import bound_output
from topo.launch.rebalancing import Rebalancing, rebalancing_of, write_down
from topo.launch.savepoints import SAVEPOINT_S, end_with_drain, end_with_savepoint, take_savepoint
from topo.master.outcome import Outcome, OutcomeKind
from topo.master_process.client import AnswerTimeout, Client, Unreachable
from topo.observability.status import StatusReport
from topo.storage.state_folder import TopologyFolder, TopologyIsRunning, read_json_lines
from topo.storage.submitted import SubmittedTopology, checkpoints_of

_POLL_S = 0.02
MASTER_S = 30.0
"""How long a master may take to come up. On Spark, which may let it wait in a queue, it ends itself when it takes too long."""


class RunningTopology:
    """A topology in the background."""

    def __init__(self, folder: TopologyFolder, process: subprocess.Popen[bytes] | None = None, submitted_ms: int = 0) -> None:
        """Keep where it is; with `process` its master was started here, for the submission of `submitted_ms`."""
        self.folder = folder
        self.name = folder.name
        self._process, self._submitted_ms = process, submitted_ms
        self._client = Client.of(folder)

    def wait_for_master(self, timeout_s: float | None = MASTER_S) -> None:
        """Wait until the master answers, or has ended; for as long as that takes where `timeout_s` is None.

        Raises:
            TopologyIsRunning: somebody else has started one of that name at the same moment.
            TopoEnvironmentError: it ended without a word, or did not come up in time.
        """
        until = None if timeout_s is None else time.monotonic() + timeout_s
        while until is None or time.monotonic() < until:
            if self.folder.summary.exists():
                return
            with contextlib.suppress(Unreachable, AnswerTimeout):
                self._client.request("ping", timeout_s=1.0)
                if self._is_ours():
                    return
            if self._process is not None and self._process.poll() is not None and not self.folder.summary.exists():
                self.folder.lock().release()
                if SubmittedTopology.read(self.folder).submitted_ms != self._submitted_ms:
                    raise TopologyIsRunning(f"topology {self.name!r} was submitted again at the same moment, and that one runs")
                raise TopoEnvironmentError(f"the master of {self.name!r} ended at once; see {self.folder.logs / 'master.out'}")
            time.sleep(_POLL_S)
        raise TopoEnvironmentError(f"the master of {self.name!r} did not answer within {timeout_s:g} s")

    def _is_ours(self) -> bool:
        """Whether the running master was started here; it leads a session."""
        if self._process is None:
            return True
        with contextlib.suppress(OSError, ValueError):
            return os.getsid(int(self.folder.owner())) == self._process.pid
        return False

    def wait(self, timeout_s: float | None = None) -> Outcome:
        """Wait until the topology has ended, and return how.

        Raises:
            TimeoutError: it still runs.
            TopoEnvironmentError: its master is gone without an outcome.
        """
        until = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            if (outcome := self.outcome()) is not None and not self.folder.is_running():
                if self._process is not None:
                    self._process.wait()
                return outcome
            if self._process is not None and self._process.poll() is not None and self.outcome() is None:
                raise TopoEnvironmentError(f"the master of {self.name!r} is gone; `topo resume {self.name}` continues it")
            if until is not None and time.monotonic() >= until:
                raise TimeoutError(f"topology {self.name!r} still runs after {timeout_s:g} s")
            time.sleep(_POLL_S)

    def wait_until(
        self, condition: Callable[[StatusReport], bool], timeout_s: float = 30.0, what: str = "the condition"
    ) -> StatusReport:
        """Wait until the status meets a condition, and return it. Raises TimeoutError, at once when the topology has ended."""
        until = time.monotonic() + timeout_s
        status: StatusReport = {}
        while time.monotonic() < until:
            with contextlib.suppress(Unreachable, AnswerTimeout):
                status = self.status()
                if condition(status):
                    return status
            if (outcome := self.outcome()) is not None and not self.folder.is_running():
                raise TimeoutError(f"topology {self.name!r} ended before {what} came true: {outcome.reason}")
            time.sleep(_POLL_S)
        last = {name: status.get(name) for name in ("status", "reason", "epoch", "restarts", "totals")}
        raise TimeoutError(f"topology {self.name!r}: {what} did not come true within {timeout_s:g} s; at last: {last}")

    def outcome(self) -> Outcome | None:
        """Return how it ended; None while it runs. Raises TopoEnvironmentError where the summary is damaged."""
        kept = (self.folder.last_summary() or {}).get("outcome")
        if kept is None:
            return None
        counts = {name: kept.get(name, 0) for name in ("finally_failed", "dead_letters", "refused")}
        return Outcome(OutcomeKind(kept["kind"]), kept["reason"], **counts)

    def summary(self) -> StatusReport:
        """Return the figures of the run that has ended.

        Raises:
            UserError: it runs, or its master was lost.
            TopoEnvironmentError: the summary is damaged, or cannot be read.
        """
        found = self.folder.last_summary()
        if found is None:
            raise UserError(f"topology {self.name!r} has not ended")
        return found

    def status(self) -> StatusReport:
        """Return the figures of this moment."""
        found: StatusReport = self._client.request("status")
        return found

    def errors(self) -> list[dict[str, Any]]:
        """Return what went wrong, oldest first."""
        return list(self.folder.all_errors())

    def dead_letters(self) -> list[dict[str, Any]]:
        """Return the messages that were given up, oldest first."""
        return read_json_lines(self.folder.dead_letters)

    def activate(self) -> None:
        """Let the spouts emit again."""
        self._client.request("activate")

    def deactivate(self) -> None:
        """Pause the spouts."""
        self._client.request("deactivate")

    def drain(self, timeout_s: float) -> None:
        """Finish the tuples in flight, for at most that time, and end."""
        self._client.request("drain", within_s=timeout_s)

    def kill(self, *, savepoint: str | Path | bool = False, timeout_s: float = SAVEPOINT_S) -> str:
        """End at once; or, with `savepoint`, when the tuples in flight are done and a savepoint is written.

        Args:
            savepoint: where it goes; True: into a new folder of the topology's own.

        Returns:
            Where the savepoint is; "" without one. With one, the topology has ended.

        Raises:
            UserError: the topology takes no checkpoints, and still runs.
            AnswerTimeout: it has not ended in time.
            TopoEnvironmentError: the savepoint was not written; the topology continues, unless somebody else has ended it.
        """
        if savepoint is False:
            self._client.request("kill")
            return ""
        return end_with_savepoint(self.folder, "" if savepoint is True else str(savepoint), timeout_s)

    def savepoint(self, place: str | Path = "", timeout_s: float = SAVEPOINT_S) -> str:
        """Take a savepoint, wait until it is written, and return where it is. The topology keeps running. Raises as `kill`."""
        return take_savepoint(self.folder, str(place), timeout_s)

    def rebalance(
        self, parallelism: Mapping[str, int], timeout_s: float = SAVEPOINT_S, *, workers: int | None = None
    ) -> Rebalancing:
        """Give components other numbers of tasks, or the topology another number of workers: end it, and begin again.

        With checkpoints it begins from a savepoint; else it drains, and spouts continue behind their stored positions. Nothing
        happens when the numbers are so already.

        Raises:
            NotFoundError: there is no such component.
            UserError: it cannot be done, or it is ending already; nothing was changed.
            AnswerTimeout: it has not ended in time, and is not started again.
            TopoEnvironmentError: the savepoint was not written, and it continues unchanged; or somebody else has ended it.
            TopoEnvironmentError: it has ended and is not started again, as on a full disk; the message has the way on.
        """
        change = rebalancing_of(self.folder, parallelism, workers)
        attached = self._process is not None and change.was_foreground
        if change.was_foreground and not attached:
            raise UserError(f"{self.name} runs in the foreground of another process; end it with Ctrl-C and use `topo submit`")
        if change.changes_something:
            place = ""
            if change.takes_savepoint:
                place = end_with_savepoint(self.folder, "", timeout_s, restarts=True)
            else:
                end_with_drain(self.folder, timeout_s)
            if self._process is not None:
                self._process.wait()
            before = "its new numbers are not stored", "with those before"
            try:
                write_down(self.folder, change, place)
                before = "is not started again", "with its new numbers"
                self._process = start_master(self.folder, attached=attached)._process
            except TopoError as error:
                fault, numbers = before
                way_out = f"`topo resume {self.name}` continues it {numbers}"
                raise TopoEnvironmentError(f"{self.name} has ended, and {fault} ({error}); {way_out}") from error
        return change

    def restart(self, worker: int) -> None:
        """Replace one worker."""
        self._client.request("restart", worker=worker)


def start_master(folder: TopologyFolder, *, attached: bool, submitted_ms: int = 0) -> RunningTopology:
    """Start the master of a submitted topology as a process and wait until it answers.

    Args:
        submitted_ms: of the submission that it is to run; another one may take its place at the same moment. 0: the last.

    Raises:
        as `wait_for_master`.
    """
    submitted = SubmittedTopology.read(folder)
    folder.summary.unlink(missing_ok=True)
    home = folder.path.parent.parent
    command = [sys.executable, "-P", "-m", "topo.launch.master_process", str(home), folder.name]
    submitted_ms = submitted_ms or submitted.submitted_ms
    command += [str(os.getpid() if attached else 0), str(submitted_ms)]
    try:
        folder.make_parts()
        output = folder.logs / "master.out"
        bound_output(output)
        with open(output, "ab") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd=submitted.working_folder,
            )
    except OSError as error:
        raise TopoEnvironmentError(f"cannot start the master: {error}") from error
    running = RunningTopology(folder, process, submitted_ms)
    running.wait_for_master(MASTER_S if submitted.spark is None else None)
    return running


def is_done(folder: TopologyFolder) -> bool:
    """Whether the last run has published all that came of its input, with exactly_once: a resume could only repeat some of it."""
    outcome = RunningTopology(folder).outcome() if checkpoints_of(folder) else None
    return outcome is not None and outcome.has_ended_by_itself
