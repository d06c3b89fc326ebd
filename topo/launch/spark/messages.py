"""The messages between agents and the driver: one msgpack array each, decoded into its type or refused."""

from __future__ import annotations

import msgspec

from topo.ids import Incarnation, WorkerId
from topo.wire.decoding import decode_typed
from topo.worker.spec import WorkerSpec

_WHAT = "a message between agent and driver"


class AgentMessage(msgspec.Struct, frozen=True, array_like=True, tag=True, forbid_unknown_fields=True):
    """Base of all messages."""


# From an agent.


class Hello(AgentMessage, frozen=True):
    """An agent has started without workers. `submission` and `attempt` order the agents of a slot: the latest one counts."""

    slot: int
    submission: int
    attempt: int
    pid: int
    host: str
    address: str


class Beat(AgentMessage, frozen=True):
    """The agent lives. Answered by BeatAnswer."""


class WorkerOver(AgentMessage, frozen=True):
    """A worker has ended, or could not be started: how, in words, and the tuples that it was processing (`crash_marker`)."""

    worker: WorkerId
    incarnation: Incarnation
    description: str
    marker: bytes = b""


class LogData(AgentMessage, frozen=True):
    """New output of a worker since the last such message: whole lines of the file `name`."""

    name: str
    data: bytes


# From the driver.


class Run(AgentMessage, frozen=True):
    """Start a worker. Its end is reported by WorkerOver. The agent fills in the host's own fields of the spec."""

    spec: WorkerSpec


class End(AgentMessage, frozen=True):
    """End a worker: by SIGKILL with `kill`, else by SIGTERM."""

    worker: WorkerId
    incarnation: Incarnation
    kill: bool


class BeatAnswer(AgentMessage, frozen=True, tag="Heard"):
    """The driver lives."""


class Leave(AgentMessage, frozen=True):
    """Kill all workers and end: the topology is over, or another agent has the slot."""

    reason: str


FromAgent = Hello | Beat | WorkerOver | LogData
FromDriver = Run | End | BeatAnswer | Leave

encode = msgspec.msgpack.Encoder().encode
_from_agent: msgspec.msgpack.Decoder[FromAgent] = msgspec.msgpack.Decoder(FromAgent)
_from_driver: msgspec.msgpack.Decoder[FromDriver] = msgspec.msgpack.Decoder(FromDriver)


def decode_from_agent(data: bytes) -> FromAgent:
    """Return an agent's message. Raises FrameError on anything else."""
    return decode_typed(_from_agent, data, _WHAT)


def decode_from_driver(data: bytes) -> FromDriver:
    """Return the driver's message. Raises FrameError on anything else."""
    return decode_typed(_from_driver, data, _WHAT)
