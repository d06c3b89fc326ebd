"""The topologies that this machine knows, and where each stands, whether its master runs or not."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from topo.errors import NotFoundError, TopoError
from topo.master_process.client import AnswerTimeout, Client, Unreachable
from topo.storage.state_folder import StateFolder, TopologyFolder

_LOOK_S = 0.05


def find_topology(name: str, home: Path) -> TopologyFolder:
    """Return the folder of the topology of that name, or of the only one whose name contains it.

    Raises:
        NotFoundError: there is none, or there are several; carries the candidates.
    """
    state = StateFolder(home)
    names = state.names()
    candidates = tuple(known for known in names if name in known)
    if name in names or not candidates:
        return state.find(name)
    if len(candidates) > 1:
        raise NotFoundError(f"{name!r} fits {len(candidates)} topologies.", candidates)
    return state.find(candidates[0])


def current_status(folder: TopologyFolder, deadline_s: float) -> dict[str, Any]:
    """Return the status of a topology: its master's answer, or how it ended.

    Raises:
        Unreachable: its master is gone without a word.
        AnswerTimeout: its master does not answer.
    """
    if folder.is_running():
        try:
            return dict(Client(folder.name, folder.path.parents[1]).request("status", deadline_s))
        except Unreachable:
            # It has ended meanwhile.
            if folder.is_running():
                raise
    summary = folder.last_summary()
    if summary is None:
        name = folder.name
        raise Unreachable(f"the master of {name!r} does not run and left no summary; `topo resume {name}` continues it")
    return summary


def list_row(folder: TopologyFolder, deadline_s: float) -> dict[str, Any]:
    """Return the row of a topology in `topo list`: LOST, when its master is gone; STALLED, when it does not answer."""
    row: dict[str, Any] = {
        "topology": folder.name,
        "status": "LOST",
        "reason": "",
        "pid": None,
        "tasks": None,
        "workers": None,
        "uptime_s": None,
        "ended_ms": None,
        "acked": None,
        "acked_per_s": None,
    }
    try:
        status = current_status(folder, deadline_s)
    except AnswerTimeout as error:
        return row | {"status": "STALLED", "reason": str(error), "pid": _pid_of(folder)}
    except TopoError as error:
        return row | {"reason": str(error)}
    is_over = status["ended_ms"] is not None
    return row | {
        "status": status["status"],
        "reason": status["reason"],
        "pid": None if is_over else status["master"]["pid"],
        "tasks": len(status["tasks"]),
        "workers": len(status["workers"]),
        "uptime_s": status["uptime_s"],
        "ended_ms": status["ended_ms"],
        "acked": status["totals"]["acked"],
        "acked_per_s": None if is_over else status["totals"]["acked_per_s"],
    }


def _pid_of(folder: TopologyFolder) -> int | None:
    owner = folder.owner()
    return int(owner) if owner.isdecimal() else None


def wait_until_over(folder: TopologyFolder, timeout_s: float) -> bool:
    """Wait until no master runs the topology; False when one still does after `timeout_s` seconds."""
    deadline = time.monotonic() + timeout_s
    while folder.is_running():
        if time.monotonic() >= deadline:
            return False
        time.sleep(_LOOK_S)
    return True
