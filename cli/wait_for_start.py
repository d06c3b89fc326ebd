"""The end of `topo submit` and `topo resume`: wait for the master in the background, and report the start."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from topo.master.restarts import CRASH_LOOP
from topo.master_process.client import AnswerTimeout, Unreachable
from topo.operate.topology_index import current_status
from topo.storage.state_folder import TopologyFolder
from topo_cli.exits import Failed, TimedOut
from topo_cli.options import DEADLINE_S
from topo_cli.output import print_json, talk

if TYPE_CHECKING:
    from topo.storage.submitted import SparkCluster

_LOOK_S = 0.1
_MOST_NAMED = 6
"""Copied files that a start names one by one."""


def talk_of_spark(cluster: SparkCluster) -> None:
    """Report that Spark is starting, which takes a while."""
    talk(f"starting Spark at {cluster.master}; its log is spark.out in the topology's folder of logs")


def talk_of_done(name: str) -> None:
    """Report that a topology was not started, since its last run has processed all its input."""
    talk(
        f"{name} has processed all its input: there is nothing to resume, and nothing was started; "
        f"`topo resume {name} --from-beginning` starts it from the beginning"
    )


@contextmanager
def naming_the_background() -> Iterator[None]:
    """Within this, Ctrl-C ends the command alone, which it states: a master has a session to itself."""
    try:
        yield
    except KeyboardInterrupt:
        talk("a topology that was started keeps running in the background: `topo list` shows it, `topo kill NAME` ends it")
        raise


def report_started(folder: TopologyFolder, *, wait_s: float | None, as_json: bool, is_new: bool = True) -> None:
    """Report that the topology was started, or with `wait_s` that all its tasks run.

    Args:
        wait_s: None: do not wait for its tasks.
        as_json: print JSON instead.
        is_new: false when nothing was started, since the last run is done.

    Raises:
        Failed: it has ended already, and not well.
        TimedOut: its tasks do not run after `wait_s` seconds.
    """
    status = current_status(folder, DEADLINE_S) if wait_s is None else wait_until_running(folder, wait_s)
    name, word = folder.name, status["status"]
    _check(status)
    pid = None if status["ended_ms"] is not None else status["master"]["pid"]
    if as_json:
        print_json({"topology": name, "pid": pid, "status": word, "start": status["start"]})
        return
    for line in lines_of_start(folder, status["start"]["text"]) if is_new else ():
        talk(line)
    click.echo(f"{name} is {word.lower()}" + (f" under process {pid}" if pid else ""))
    if pid is None:
        talk(f"next: topo status {name}, topo logs {name}")
    else:
        talk(f"next: topo status {name} --watch, topo logs {name} -f, topo kill {name}")


def lines_of_start(folder: TopologyFolder, start: str) -> list[str]:
    """Return the first lines about a topology that starts: its state, its workers, and the code that runs."""
    from topo.plan.describe import placement_text
    from topo.storage.submitted import last_run

    submitted = last_run(folder)
    copied = [] if submitted is None else [*submitted.copied, *(Path(path).name for path in submitted.py_files)]
    lines = [f"{folder.name} {start}"]
    if submitted is not None and submitted.plan.is_packed_by_default:
        lines.append(placement_text(submitted.plan))
    if copied:
        names = ", ".join(copied[:_MOST_NAMED]) + (f" and {len(copied) - _MOST_NAMED} more" if len(copied) > _MOST_NAMED else "")
        lines.append(f"code: a copy of {names}")
    return lines


def wait_until_running(folder: TopologyFolder, timeout_s: float) -> dict[str, Any]:
    """Wait until all tasks run, and return the status. Raises as `report_started`."""
    deadline = time.monotonic() + timeout_s
    reason = "its master has not answered yet"
    while (left_s := deadline - time.monotonic()) > 0:
        try:
            status = current_status(folder, left_s)
            _check(status)
            are_live = all(worker["state"] == "live" for worker in status["workers"])
            # A topology whose workers are being closed has an outcome within moments, which may be that it could not be started.
            is_closing = status["status"] == "DRAINING" and not are_live
            if status["status"] not in ("STARTING", "DEGRADED") and not is_closing:
                return status
            reason = status["reason"]
            if not is_closing and any(worker["losses"] >= CRASH_LOOP for worker in status["workers"]):
                # A topology that has run before is not given up: its master tries again for as long as it takes.
                name = folder.name
                raise Failed(f"{name} does not start, and its master keeps trying: {reason}; see topo errors {name}")
        except (Unreachable, AnswerTimeout) as error:
            reason = str(error)
        time.sleep(_LOOK_S)
    raise TimedOut(f"{folder.name} does not run after {timeout_s:g} s: {reason}")


def _check(status: dict[str, Any]) -> None:
    if status["status"] == "FAILED":
        raise Failed(f"{status['topology']} has failed: {status['reason']}")
