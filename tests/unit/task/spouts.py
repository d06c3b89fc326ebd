"""A spout before a sink; the test plays the sink, the acker and the master."""

from __future__ import annotations

from typing import Any

from tests.tasks.components import Replaying, Scripted, Sink, chain
from tests.tasks.environment import CODEC
from tests.tasks.solo import Solo
from topo.wire.control import PositionReport

ACKER = 3


def spouting(*steps: Any, kind: Any = Scripted, ends: bool = False, **settings: Any) -> tuple[Any, Solo]:
    """A spout a that takes these steps, and its task; the sink b is task 2, the acker task 3."""
    spout = kind(steps, ends=ends)
    return spout, Solo(chain(spout, Sink(), **settings), "a")


def replaying(*steps: Any, **settings: Any) -> tuple[Any, Solo]:
    """The same with a spout whose messages the engine replays."""
    return spouting(*steps, kind=Replaying, **settings)


def positions(task: Solo) -> list[Any]:
    """The positions reported."""
    return [CODEC.unpack_value(report.position) for report in task.messages(PositionReport) if report.position]
