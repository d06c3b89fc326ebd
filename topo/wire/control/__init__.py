"""Control messages: between workers and the topology master, and between clients (the command line) and the master.

Each is one msgpack array that begins with the class name; msgspec builds it typed, or not at all. To add a field, append it with
a default. To add a message, write the class and name it in the union of who sends it. Both ends always run the same version, so
there is nothing to negotiate. Values of tuples and positions stay packed (`Codec.pack_value`).
"""

from __future__ import annotations

from topo.wire.control.client import Reply as Reply
from topo.wire.control.client import Request as Request
from topo.wire.control.client import decode_reply as decode_reply
from topo.wire.control.client import decode_request as decode_request
from topo.wire.control.common import MAX_CONTROL as MAX_CONTROL
from topo.wire.control.common import ControlMessage as ControlMessage
from topo.wire.control.common import encode as encode
from topo.wire.control.master import Activate as Activate
from topo.wire.control.master import Alive as Alive
from topo.wire.control.master import BeginCheckpoint as BeginCheckpoint
from topo.wire.control.master import CheckpointAborted as CheckpointAborted
from topo.wire.control.master import CheckpointComplete as CheckpointComplete
from topo.wire.control.master import Close as Close
from topo.wire.control.master import Deactivate as Deactivate
from topo.wire.control.master import DeadLettersStored as DeadLettersStored
from topo.wire.control.master import Drain as Drain
from topo.wire.control.master import FromMaster as FromMaster
from topo.wire.control.master import Go as Go
from topo.wire.control.master import LetterToReplay as LetterToReplay
from topo.wire.control.master import Observe as Observe
from topo.wire.control.master import PartToRead as PartToRead
from topo.wire.control.master import Probe as Probe
from topo.wire.control.master import ReplayLetters as ReplayLetters
from topo.wire.control.master import Routes as Routes
from topo.wire.control.master import Stop as Stop
from topo.wire.control.master import TaskRoute as TaskRoute
from topo.wire.control.master import Unobserve as Unobserve
from topo.wire.control.master import decode_from_master as decode_from_master
from topo.wire.control.worker import BarrierAcked as BarrierAcked
from topo.wire.control.worker import Cause as Cause
from topo.wire.control.worker import CheckpointPublished as CheckpointPublished
from topo.wire.control.worker import CheckpointWanted as CheckpointWanted
from topo.wire.control.worker import Closed as Closed
from topo.wire.control.worker import ComponentError as ComponentError
from topo.wire.control.worker import DeadLetter as DeadLetter
from topo.wire.control.worker import EdgeLost as EdgeLost
from topo.wire.control.worker import FromTask as FromTask
from topo.wire.control.worker import FromWorker as FromWorker
from topo.wire.control.worker import Heartbeat as Heartbeat
from topo.wire.control.worker import LettersReplayed as LettersReplayed
from topo.wire.control.worker import Observed as Observed
from topo.wire.control.worker import PositionReport as PositionReport
from topo.wire.control.worker import Quiet as Quiet
from topo.wire.control.worker import Register as Register
from topo.wire.control.worker import RestoreFailed as RestoreFailed
from topo.wire.control.worker import SnapshotFailed as SnapshotFailed
from topo.wire.control.worker import SnapshotTaken as SnapshotTaken
from topo.wire.control.worker import Statistics as Statistics
from topo.wire.control.worker import Stuck as Stuck
from topo.wire.control.worker import TaskReady as TaskReady
from topo.wire.control.worker import TuplesFailed as TuplesFailed
from topo.wire.control.worker import decode_from_worker as decode_from_worker
from topo.wire.control.worker import shortened as shortened
from topo.wire.control.worker import without_unencodable_metrics as without_unencodable_metrics
