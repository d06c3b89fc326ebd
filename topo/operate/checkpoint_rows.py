"""The checkpoints that a topology can be restored from, and recent failures, as rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from topo.errors import TopoError
from topo.operate.topology_index import current_status
from topo.storage.checkpoint_store import StoredCheckpoint, open_store
from topo.storage.state_folder import TopologyFolder
from topo.storage.submitted import checkpoints_of


def checkpoint_report(folder: TopologyFolder, deadline_s: float) -> dict[str, Any]:
    """Return where the checkpoints of a topology are ("" where it takes none), a row for each, and the master's last report."""
    place = checkpoints_of(folder)
    stored = open_store(place, folder.name).checkpoints() if place else []
    status: dict[str, Any] = {}
    with suppress(TopoError):
        # A lost or stalled topology has its stored checkpoints alone.
        status = current_status(folder, deadline_s).get("checkpoints") or {}
    rows = merged(stored, status.get("latest", ()))
    return {"topology": folder.name, "folder": place, "checkpoints": rows, "status": status or None}


def merged(stored: Iterable[StoredCheckpoint], reported: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return a row by number for each checkpoint that is stored, or that the master reported as failed or aborted."""
    rows: dict[int, dict[str, Any]] = {}
    for row in reported:
        if row["state"] != "complete":
            rows[row["checkpoint"]] = _row(row["checkpoint"], row["state"], row["why"], duration_s=row["duration_s"])
    for one in stored:
        if one.manifest is None:
            rows[one.checkpoint] = _row(one.checkpoint, "damaged", one.problem)
            continue
        figures, state = one.manifest.figures, "savepoint" if one.manifest.is_savepoint else "complete"
        times = {f"{name}_s": getattr(figures, f"{name}_ms") / 1000 for name in ("duration", "alignment", "pause")}
        rows[one.checkpoint] = _row(
            one.checkpoint, state, created_ms=one.manifest.created_ms, bytes=figures.bytes, parts=len(one.manifest.parts), **times
        )
    return [rows[number] for number in sorted(rows)]


def _row(checkpoint: int, state: str, why: str = "", **figures: float) -> dict[str, Any]:
    unknown = dict.fromkeys(("created_ms", "bytes", "duration_s", "alignment_s", "pause_s", "parts"))
    return {"checkpoint": checkpoint, "state": state, "why": why, **unknown, **figures}
