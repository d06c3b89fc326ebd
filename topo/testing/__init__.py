"""The test kit: one bolt on given tuples, a whole topology on a manual clock. docs/testing.md shows how.

The fixture for real processes is in `topo.testing.fixtures`, since it needs pytest.
"""

from topo.testing.bolt_run import TICK, BoltError, BoltRun, EmittedTuple, GivenTuple, run_bolt, tuple_of
from topo.testing.clock import ManualClock
from topo.testing.script import ADVANCE, CRASH, END, FAIL_NEXT, PAUSE, Message, message
from topo.testing.topology_test import DeadLetter, TopologyTest
from topo.testing.watched import RefusedInput

__all__ = [
    "ADVANCE",
    "CRASH",
    "END",
    "FAIL_NEXT",
    "PAUSE",
    "TICK",
    "BoltError",
    "BoltRun",
    "DeadLetter",
    "EmittedTuple",
    "GivenTuple",
    "ManualClock",
    "Message",
    "RefusedInput",
    "TopologyTest",
    "message",
    "run_bolt",
    "tuple_of",
]
