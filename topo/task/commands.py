"""Commands of a task. The worker performs them in order."""

from __future__ import annotations

from dataclasses import dataclass

from topo.ids import TaskId
from topo.wire.control import FromTask
from topo.wire.frames import Frame


@dataclass(slots=True)
class SendFrame:
    """Hand the frame to the target; a Frame object only when the target lives in the same worker."""

    target: TaskId
    frame: bytes | Frame


@dataclass(slots=True)
class TellMaster:
    """Send a typed message to the topology master."""

    message: FromTask


TaskCommand = SendFrame | TellMaster
