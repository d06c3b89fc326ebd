"""The topologies that this machine knows, and where each stands, whether its master runs or not."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from topo.errors import NotFoundError, TopoError
from topo.master_process.client import AnswerTimeout, Client, Unreachable
from topo.storage.state_folder import StateFolder, TopologyFolder
from topo.storage.submitted import newest_checkpoints

_FIGURES = ("pid", "tasks", "workers", "uptime_s", "ended_ms", "acked", "acked_per_s", "in_per_s", "pending", "p99_s", "lag_s")


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


def current_status(folder: TopologyFolder, deadline_s: float, verb: str = "status") -> dict[str, Any]:
    """Return the status of a topology: its master's answer to a verb, or how it ended.

    Raises:
        Unreachable: its master is gone without a word.
        AnswerTimeout: its master does not answer.
    """
    if folder.is_running():
        try:
            return dict(Client.of(folder).request(verb, deadline_s))
        except Unreachable:
            # It has ended meanwhile.
            if folder.is_running():
                raise
    if (summary := folder.last_summary()) is not None:
        return summary
    name = folder.name
    if not folder.topology.exists() and not newest_checkpoints(folder):
        # Such as by Ctrl-C while it imported the code: there is nothing to resume.
        raise Unreachable(f"{name!r} was never submitted: the command was ended before; `topo submit` under that name starts it")
    raise Unreachable(f"the master of {name!r} does not run and left no summary; `topo resume {name}` continues it")


def list_row(folder: TopologyFolder, deadline_s: float) -> dict[str, Any]:
    """Return the row of a topology in `topo list`.

    It is LOST without a master, STARTING without an address, STALLED when mute, and UNKNOWN when its files cannot be read.
    """
    try:
        return row_of(current_status(folder, deadline_s, "overview"))
    except AnswerTimeout as error:
        return stalled_row(folder, str(error))
    except TopoError as error:
        word = "UNKNOWN"
        with suppress(TopoError):
            word = "STARTING" if folder.is_running() else "LOST"
        return {"topology": folder.name, "status": word, "reason": str(error), **dict.fromkeys(_FIGURES)}


def stalled_row(folder: TopologyFolder, reason: str) -> dict[str, Any]:
    owner = folder.owner()
    known = {"pid": int(owner) if owner.isdecimal() else None}
    return {"topology": folder.name, "status": "STALLED", "reason": reason, **dict.fromkeys(_FIGURES), **known}


def row_of(shown: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row of a topology by its overview, or the summary of an ended one, without rates."""
    row = {name: shown[name] for name in ("topology", "status", "reason")} | dict.fromkeys(_FIGURES)
    row |= {"workers": len(shown["workers"]), "acked": shown["totals"]["acked"]}
    if shown["ended_ms"] is not None:
        return row | {"tasks": len(shown["tasks"]), "uptime_s": shown["uptime_s"], "ended_ms": shown["ended_ms"]}
    components, totals = shown["components"], shown["totals"]
    lags = [one["event_time"]["lag_s"] for one in components if one["event_time"] and one["event_time"]["lag_s"]]
    return row | {
        "pid": shown["master"]["pid"],
        "tasks": shown["tasks"],
        "uptime_s": shown["uptime_s"],
        "acked_per_s": totals["acked_per_s"],
        "pending": totals["pending"],
        "in_per_s": sum(one["out_per_s"] for one in components if one["kind"] == "spout"),
        "p99_s": max((one["complete_s"]["p99"] for one in components if one.get("complete_s")), default=None),
        "lag_s": max(lags, default=None),
    }
