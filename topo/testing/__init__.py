"""The test kit: one bolt on given tuples, a whole topology on a manual clock, real processes. docs/testing.md shows how.

`LocalCluster` is imported on first use, since it brings the sockets. The fixture `local_cluster` is in `topo.testing.fixtures`,
since it needs pytest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from topo.deprecation import old_names
from topo.testing.bolt_run import BoltError, BoltRun, EmittedTuple, run_bolt
from topo.testing.clock import ManualClock
from topo.testing.given_tuples import TICK, GivenTuple, tuple_of
from topo.testing.operator_harness import OperatorHarness
from topo.testing.operator_output import Emitted, OnStream, Status, Watermark
from topo.testing.recording import RefusedInputError
from topo.testing.script import ADVANCE, CRASH, END, FAIL_NEXT, IDLE, PAUSE, WATERMARK, Message, message
from topo.testing.stream_test import Seen, StreamInput, StreamTest
from topo.testing.timer_harness import Fired, TimerHarness
from topo.testing.topology_test import DeadLetter, TopologyTest
from topo.testing.trigger_harness import Asked, TriggerHarness

if TYPE_CHECKING:
    from topo.launch.local_cluster import LocalCluster

__all__ = [
    "ADVANCE",
    "CRASH",
    "END",
    "FAIL_NEXT",
    "IDLE",
    "PAUSE",
    "TICK",
    "WATERMARK",
    "Asked",
    "BoltError",
    "BoltRun",
    "DeadLetter",
    "Emitted",
    "EmittedTuple",
    "Fired",
    "GivenTuple",
    "LocalCluster",
    "ManualClock",
    "Message",
    "OnStream",
    "OperatorHarness",
    "RefusedInputError",
    "Seen",
    "Status",
    "StreamInput",
    "StreamTest",
    "TimerHarness",
    "TopologyTest",
    "TriggerHarness",
    "Watermark",
    "message",
    "run_bolt",
    "tuple_of",
]


_old_name = old_names(__name__, {"RefusedInput": "RefusedInputError"})


def __getattr__(name: str) -> Any:
    """Import what needs sockets when it is first asked for; give what an old name stands for."""
    if name != "LocalCluster":
        return _old_name(name)
    from topo.launch.local_cluster import LocalCluster

    return LocalCluster
