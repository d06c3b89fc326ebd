"""The overviews of topologies at one moment, and the last status of those that have ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from threading import Thread
from typing import Any

from topo.errors import TopoError
from topo.master_process.client import Client
from topo.operate.diagnosis import diagnose
from topo.operate.view import FindingRow, Overview
from topo.storage.state_folder import StateFolder, TopologyFolder

DEADLINE_S = 2.0
"""A master that takes longer to answer is not up for this look."""

AskOverview = Callable[[TopologyFolder], Overview | None]


def look_at(state: StateFolder, names: Iterable[str], ask: AskOverview) -> tuple[dict[str, Overview], dict[str, str]]:
    """Return the overviews of the topologies that answer, and the last status of the others: "" when lost or stalled.

    Args:
        names: none: all that there are.
    """
    folders = []
    for name in names or state.names():
        # A topology may be removed at any moment.
        with suppress(TopoError):
            folders.append(state.find(name))
    running = {name: found for name, found in overviews(folders, ask).items() if found is not None}
    return running, {folder.name: _last_status(folder) for folder in folders if folder.name not in running}


def overviews(folders: Sequence[TopologyFolder], ask: AskOverview, deadline_s: float = DEADLINE_S) -> dict[str, Overview | None]:
    """Ask all masters at once; None for those without an answer in time, which take no time from the others."""
    answers: dict[str, Overview | None] = {folder.name: None for folder in folders}

    def put(folder: TopologyFolder) -> None:
        with suppress(TopoError):
            answers[folder.name] = ask(folder) if folder.is_running() else None

    threads = [Thread(target=put, args=(folder,), daemon=True) for folder in folders]
    for thread in threads:
        thread.start()
    until = time.monotonic() + deadline_s
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    # A copy: an answer after the deadline is for no scrape.
    return dict(answers)


def ask_overview(folder: TopologyFolder, deadline_s: float = DEADLINE_S, **arguments: Any) -> Overview | None:
    """Return the overview of a topology; None where no master answers."""
    with suppress(TopoError):
        return dict(Client.of(folder).request("overview", deadline_s, **arguments))
    return None


def findings(folder: TopologyFolder, deadline_s: float) -> list[FindingRow]:
    """Return the findings about a topology; none when it does not run, or its master does not answer in time."""
    overview = ask_overview(folder, deadline_s) if folder.is_running() else None
    return [] if overview is None else diagnose(overview)


def _last_status(folder: TopologyFolder) -> str:
    with suppress(TopoError):
        if not folder.is_running() and (summary := folder.last_summary()) is not None:
            return str(summary["status"])
    return ""
