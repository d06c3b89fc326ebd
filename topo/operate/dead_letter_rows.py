"""The dead letters of a topology as its files have them, for the command line and the page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from topo.dead_letters.replays import latest_replays
from topo.storage.shapes import ReplayShape
from topo.storage.state_folder import TopologyFolder, json_lines

_SHOWN = ("at_ms", "state", "why")


def dead_letter_rows(folder: TopologyFolder, shape: type | None = None) -> Iterator[dict[str, Any]]:
    """Yield the rows of dead letters, oldest first, each with its `id` and its last `replay`: when, state, why; or None.

    Raises TopoEnvironmentError at a row of another shape.
    """
    replays = latest_replays(json_lines(folder.replays, ReplayShape))
    for number, row in enumerate(json_lines(folder.dead_letters, shape), 1):
        replay = replays.get(number)
        shown = {name: value for name, value in row.items() if name != "packed"}
        yield {"id": number, **shown, "replay": replay and {name: replay[name] for name in _SHOWN}}
