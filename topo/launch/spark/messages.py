"""What agents and the driver say to each other: one msgpack array each, built typed or not at all."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from topo.errors import FrameError
from topo.ids import Incarnation, WorkerId
from topo.worker.spec import WorkerSpec

T = TypeVar("T")


class AgentMessage(msgspec.Struct, frozen=True, array_like=True, tag=True, forbid_unknown_fields=True):
    """Base of all messages."""


# From an agent.


class Hello(AgentMessage, frozen=True):
    """An agent is there, and runs no worker yet. `submission` and `attempt` order the agents of a slot: the latest one counts."""

    slot: int
    submission: int
    attempt: int
    pid: int
    host: str
    address: str


class Beat(AgentMessage, frozen=True):
    """The agent lives. Answered by Heard."""


class WorkerOver(AgentMessage, frozen=True):
    """A worker has ended, or could not be started: how, in words, and what it had in hand (`crash_notes`)."""

    worker: WorkerId
    incarnation: Incarnation
    description: str
    note: bytes = b""


class LogData(AgentMessage, frozen=True):
    """What a worker has logged or written since the last such message: whole lines of the file `name`."""

    name: str
    data: bytes


# From the driver.


class Run(AgentMessage, frozen=True):
    """Start a worker. Answered, one day, by WorkerOver. What is the host's own in the spec, the agent fills in."""

    spec: WorkerSpec


class End(AgentMessage, frozen=True):
    """End a worker: by SIGKILL with `kill`, else by SIGTERM."""

    worker: WorkerId
    incarnation: Incarnation
    kill: bool


class Heard(AgentMessage, frozen=True):
    """The driver lives."""


class Leave(AgentMessage, frozen=True):
    """Kill all workers and end: the topology is over, or another agent has the slot."""

    reason: str


FromAgent = Hello | Beat | WorkerOver | LogData
FromDriver = Run | End | Heard | Leave

encode = msgspec.msgpack.Encoder().encode
_from_agent: msgspec.msgpack.Decoder[FromAgent] = msgspec.msgpack.Decoder(FromAgent)
_from_driver: msgspec.msgpack.Decoder[FromDriver] = msgspec.msgpack.Decoder(FromDriver)


def decode_from_agent(data: bytes) -> FromAgent:
    """Return what an agent says. Raises FrameError on anything else."""
    return _decode(_from_agent, data)


def decode_from_driver(data: bytes) -> FromDriver:
    """Return what the driver says. Raises FrameError on anything else."""
    return _decode(_from_driver, data)


def _decode(decoder: msgspec.msgpack.Decoder[T], data: bytes) -> T:
    try:
        return decoder.decode(data)
    except Exception as error:
        raise FrameError(f"not a message between agent and driver: {type(error).__name__}: {error}") from error
