"""Savepoints of a topology that runs on this machine: asked of its master, and waited for."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from topo.errors import TopoEnvironmentError
from topo.master.ending import STOP_TIMEOUT_S
from topo.master.outcome import OutcomeKind
from topo.master_process.client import AnswerTimeout, Client, Unreachable
from topo.observability.status import StatusReport, TopologyStatus
from topo.storage.state_folder import TopologyFolder
from topo.storage.submitted import last_run

SAVEPOINT_S = 60.0
"""How long a savepoint may take unless the caller sets another time."""
_LOOK_S = 0.05
_MASTER_S = 10.0
"""How long a master may take between these steps, and to write its summary."""


def place_of(folder: TopologyFolder, given: str = "") -> str:
    """Return where a savepoint goes: a path or URL that the user gives, else a new folder of the topology's own."""
    if given:
        return given if "://" in given else str(Path(os.path.expanduser(given)).absolute())
    moment = time.time()
    return str(folder.savepoints / f"{time.strftime('%Y%m%d-%H%M%S', time.localtime(moment))}-{int(moment * 1000) % 1000:03}")


def take_savepoint(folder: TopologyFolder, given: str = "", timeout_s: float = SAVEPOINT_S) -> str:
    """Take a savepoint of a topology, which keeps running, and return where it is.

    Raises:
        Unreachable: it does not run.
        UserError: it takes no checkpoints.
        AnswerTimeout: the savepoint was not there in time.
        TopoEnvironmentError: it was not written; the message has the reason.
    """
    client = Client.of(folder)
    place = place_of(folder, given)
    client.request("savepoint", folder=place)
    until = time.monotonic() + timeout_s
    while time.monotonic() < until:
        try:
            status: StatusReport | None = client.request("status")
        except Unreachable:
            status = folder.last_summary()
        if status is None or status["ended_ms"] is not None or _savepoint_in(status, place).get("state") in ("written", "failed"):
            return _written(folder, place, status)
        time.sleep(_LOOK_S)
    raise AnswerTimeout(
        f"the savepoint is not written after {timeout_s:g} s; `topo checkpoints {folder.name}` shows its progress"
    )


def end_with_savepoint(folder: TopologyFolder, given: str = "", timeout_s: float = SAVEPOINT_S, *, restarts: bool = False) -> str:
    """Let the tuples in flight finish, take a last checkpoint, end the topology, and return where the savepoint is.

    Spouts stop as in any drain: that is no end of the input, so windows that are not due do not fire.

    Args:
        restarts: the caller starts it again.

    Raises:
        Unreachable: it does not run.
        UserError: it takes no checkpoints, and still runs.
        AnswerTimeout: it has not ended in time.
        TopoEnvironmentError: the savepoint was not written, and the topology continues as before, unless somebody else has ended
            it; or with `restarts` somebody else has. The message has the reason.
    """
    place = place_of(folder, given)
    client = Client.of(folder)
    client.request("drain", within_s=timeout_s, savepoint=place, restarts=restarts)
    wait_for_drained(client, timeout_s, place)
    written = _written(folder, place, folder.last_summary())
    if restarts:
        _check_may_start(folder)
    return written


def end_with_drain(folder: TopologyFolder, timeout_s: float = SAVEPOINT_S) -> None:
    """Let the tuples in flight finish, for at most that time, and end the topology, which the caller starts again.

    Messages that are not done then lie behind the stored positions, and are read again.

    Raises:
        Unreachable: it does not run.
        AnswerTimeout: it has not ended in time.
        TopoEnvironmentError: it has ended otherwise, such as by the end of its sources, or by `topo kill`.
    """
    client = Client.of(folder)
    client.request("drain", within_s=timeout_s, restarts=True)
    wait_for_drained(client, timeout_s)
    _check_may_start(folder)
    ending = (folder.last_summary() or {}).get("outcome") or {"kind": "lost", "reason": "the master is gone"}
    if ending["kind"] not in (OutcomeKind.DRAINED.value, OutcomeKind.CUT_SHORT.value):
        raise TopoEnvironmentError(
            f"{folder.name} has ended meanwhile ({ending['reason']}), so it was not started again; `topo resume {folder.name}` "
            "continues it unchanged"
        )


def _check_may_start(folder: TopologyFolder) -> None:
    """Refuse to start a topology again whose end somebody else has asked for meanwhile. Raises TopoEnvironmentError."""
    if ((folder.last_summary() or {}).get("outcome") or {}).get("stays_ended"):
        raise TopoEnvironmentError(
            f"{folder.name} was ended meanwhile, as by `topo kill`, so it was not started again; `topo resume {folder.name}` "
            "continues it unchanged"
        )


def wait_for_drained(client: Client, timeout_s: float, place: str = "") -> None:
    """Wait until a drain of at most `timeout_s` seconds is over, and components have closed.

    Raises:
        AnswerTimeout: it has not ended in time.
        TopoEnvironmentError: the savepoint at `place` was not written, so the topology continues.
    """
    folder = client.folder
    submitted = last_run(folder)
    closing_s = timeout_s if submitted is None else submitted.plan.config.drain_timeout_s
    until = time.monotonic() + timeout_s + closing_s + STOP_TIMEOUT_S + _MASTER_S
    while place and folder.is_running() and time.monotonic() < until:
        try:
            status: StatusReport = client.request("status")
        except Unreachable:
            break
        savepoint = _savepoint_in(status, place)
        if savepoint.get("state") == "failed" and status["status"] != TopologyStatus.DRAINING.value:
            raise TopoEnvironmentError(
                f"the savepoint of {folder.name} was not written: {savepoint['why']}; {folder.name} continues as before, "
                "so the same command can be given again when that is mended"
            )
        time.sleep(_LOOK_S)
    wait_until_ended(folder, until - time.monotonic())


def wait_until_ended(folder: TopologyFolder, timeout_s: float) -> None:
    """Wait until no master runs the topology. Raises AnswerTimeout."""
    until = time.monotonic() + timeout_s
    while folder.is_running():
        if time.monotonic() >= until:
            raise AnswerTimeout(f"{folder.name} is still ending; `topo status {folder.name}` shows the reason")
        time.sleep(_LOOK_S)


def _written(folder: TopologyFolder, place: str, status: StatusReport | None) -> str:
    savepoint = _savepoint_in(status or {}, place)
    if savepoint.get("state") == "written":
        return place
    if status is None:
        why = "the master is gone, and left no summary, as after `kill -9` or on a full disk"
    else:
        why = savepoint.get("why") or f"the topology ended before ({(status.get('outcome') or {}).get('reason', '')})"
    rest = "" if folder.is_running() else f"; `topo resume {folder.name}` continues from the last checkpoint, if there is one"
    raise TopoEnvironmentError(f"the savepoint of {folder.name} was not written: {why}{rest}")


def _savepoint_in(status: StatusReport, place: str) -> Mapping[str, Any]:
    savepoints = (status.get("checkpoints") or {}).get("savepoints", ())
    found: Mapping[str, Any] = next((one for one in savepoints if one["folder"] == place), {})
    return found
