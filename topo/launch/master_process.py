"""The entry of a background master: `python -P -m topo.launch.master_process HOME NAME [PARENT [SUBMITTED_MS]]`.

It ends with process PARENT unless that is 0, and runs no submission but that of SUBMITTED_MS. SIGTERM drains the topology; a
second one kills it. What goes wrong before the master runs is written to its log and to the summary, which the submitting process
reads.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from datetime import UTC, datetime
from logging.handlers import RotatingFileHandler
from pathlib import Path

from topo.errors import TopoError
from topo.launch.launchers import launcher_of
from topo.launch.leftovers import end_leftovers
from topo.launch.signals import ending_on_signals
from topo.launch.submission import stored_job
from topo.master.outcome import Outcome, OutcomeKind
from topo.master_process.shell import MasterShell
from topo.observability.logs import KEPT_LOGS, MAX_LOG_BYTES
from topo.observability.status import never_ran
from topo.storage.state_folder import StateFolder, StateFolderLost, TopologyFolder, TopologyIsRunning, write_atomically
from topo.storage.submitted import SubmittedTopology
from topo.worker.parent import die_with

_LOG = logging.getLogger("topo.master")


class _MasterLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        row = {"at": at, "level": record.levelname, "message": record.getMessage()}
        if record.exc_info:
            row["exception"] = self.formatException(record.exc_info)
        return json.dumps(row)


def main(arguments: list[str]) -> int:
    """Run the topology that is written down under a name; return its exit code."""
    folder = StateFolder(Path(arguments[0])).find(arguments[1])
    parent, submitted_ms = (int(argument) for argument in (*arguments[2:], "0", "0")[:2])
    if parent:
        die_with(parent)
    try:
        handler = RotatingFileHandler(folder.logs / "master.log", maxBytes=MAX_LOG_BYTES, backupCount=KEPT_LOGS)
        handler.setFormatter(_MasterLines())
        logging.basicConfig(level=logging.INFO, handlers=[handler])
    except FileNotFoundError as error:
        print(f"the master of {folder.name!r} cannot run: {error.filename} was removed", file=sys.stderr)
        return 1
    try:
        with folder.lock():
            if submitted_ms and SubmittedTopology.read(folder).submitted_ms != submitted_ms:
                # The process of that one comes for the lock, too.
                raise TopologyIsRunning(f"topology {folder.name!r} was submitted again at the same moment")
            return run_stored(folder, attached=bool(parent))
    except TopologyIsRunning as error:
        _LOG.error("%s", error)
        print(error, file=sys.stderr)
        return 1
    except StateFolderLost as error:
        # A file written there now would be another master's, or would restore a removed folder.
        _LOG.error("%s", error)
        print(error, file=sys.stderr)
        return 1
    except TopoError as error:
        _LOG.error("the master cannot run: %s", error)
        write_failure(folder, str(error))
        return 1


def run_stored(folder: TopologyFolder, *, attached: bool) -> int:
    """Run to the end; the caller holds the lock. Workers outlive this process unless it is `attached` to another one."""
    end_leftovers(folder)
    folder.summary.unlink(missing_ok=True)
    job = stored_job(folder, foreground=attached)
    with ending_on_signals(job.plan.config.drain_timeout_s) as asked, launcher_of(job, lambda: bool(asked)) as launcher:
        return MasterShell(job, launcher, asked=asked).run().exit_code


def write_failure(folder: TopologyFolder, reason: str) -> None:
    """Write a summary with the reason why the topology never ran."""
    status = never_ran(folder.name, Outcome(OutcomeKind.CRASHED, reason))
    of_master = {"start": {"goes_on": False, "text": ""}, "master": {"pid": None, "started_ms": None}}
    summary = {**status, **of_master, "ended_ms": int(time.time() * 1000)}
    write_atomically(folder.summary, json.dumps(summary).encode())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
