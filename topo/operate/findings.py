"""The findings about a topology of this machine: asks its master, and diagnoses."""

from __future__ import annotations

from topo.errors import TopoError
from topo.master_process.client import Client
from topo.operate.diagnosis import diagnose
from topo.operate.view import FindingRow
from topo.storage.state_folder import TopologyFolder


def findings(folder: TopologyFolder, deadline_s: float) -> list[FindingRow]:
    """Return the findings about a topology; none when it does not run, or its master does not answer in time."""
    if not folder.is_running():
        return []
    client = Client(folder.name, folder.path.parents[1])
    try:
        overviews = [client.request("overview", deadline_s, window=window) for window in ("10s", "1m")]
    except TopoError:
        # It has ended meanwhile, or is a master of an earlier version: its status is shown without them.
        return []
    return diagnose(*overviews)
