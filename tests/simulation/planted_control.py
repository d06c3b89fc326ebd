"""Faults planted into the messages between workers and the master, to see whether the oracles catch them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from tests.simulation.planted import Plant
from topo.master.commands import MasterCommand, Persist, RecordError
from topo.master.links import HeldCommands, WorkerLinks
from topo.master.master import TopologyMaster
from topo.wire import control
from topo.worker.loop import Connections
from topo.worker.session import WorkerSession


def lost_orders_are_not_missed(patch: pytest.MonkeyPatch) -> None:
    """A worker does not compare the master's count of messages with its own: a Go that was lost never comes."""
    due = WorkerSession.due_messages

    def trusting(self: WorkerSession, now: float, **options: bool) -> list[control.FromMaster]:
        messages = due(self, now, **options)
        self._lost = ""
        return messages

    patch.setattr(WorkerSession, "due_messages", trusting)


def lost_reports_are_not_missed(patch: pytest.MonkeyPatch) -> None:
    """The master does not compare the count in a heartbeat with its own."""
    patch.setattr(WorkerLinks, "received", lambda *_: "")


def signs_of_life_are_counted(patch: pytest.MonkeyPatch) -> None:
    """A worker counts signs of life as messages, so that its count is too high to miss any."""
    received = WorkerSession.received

    def counting(self: WorkerSession, data: Sequence[bytes], now: float) -> None:
        received(self, data, now)
        self._received_count += sum(isinstance(control.decode_from_master(one), control.Alive) for one in data)

    patch.setattr(WorkerSession, "received", counting)


def stale_orders_are_obeyed(patch: pytest.MonkeyPatch) -> None:
    """A process that stood still acts at once on the orders that it finds."""
    patch.setattr(WorkerSession, "woke", lambda *_: None)


def dead_lives_are_believed(patch: pytest.MonkeyPatch) -> None:
    """The master takes messages of a replaced life of a worker for those of its successor."""
    on_message = TopologyMaster._on_message

    def believe(self: TopologyMaster, event: Any, now: float) -> None:
        slot = self.membership.slots[event.worker]
        if slot.incarnation is not None:
            event = type(event)(event.worker, slot.incarnation, event.message)
        on_message(self, event, now)

    patch.setattr(TopologyMaster, "_on_message", believe)


def held_commands_are_performed(patch: pytest.MonkeyPatch) -> None:
    """What follows a record that cannot be written is done all the same."""

    def drop(self: HeldCommands, error: Exception, now: float, *, is_serving: bool) -> RecordError:
        self.done()
        return RecordError("StateNotStored", str(error))

    patch.setattr(HeldCommands, "failed", drop)


def record_is_written_last(patch: pytest.MonkeyPatch) -> None:
    """The record is written after the commands that rest on it."""
    add = HeldCommands.add

    def late(self: HeldCommands, commands: Iterable[MasterCommand]) -> None:
        add(self, sorted(commands, key=lambda command: isinstance(command, Persist)))

    patch.setattr(HeldCommands, "add", late)


def refused_frames_are_dropped(patch: pytest.MonkeyPatch) -> None:
    """A frame for a connection that does not stand yet is never sent again."""
    send = Connections.send

    def dropping(self: Connections) -> None:
        send(self)
        for outlet in self._refused:
            self._gathered[outlet].clear()

    patch.setattr(Connections, "send", dropping)


PLANTS: dict[Plant, tuple[set[int], tuple[int, ...]]] = {
    lost_orders_are_not_missed: ({10, 11}, (71,)),
    lost_reports_are_not_missed: ({10, 11}, (47,)),
    held_commands_are_performed: ({15}, (1,)),
    record_is_written_last: ({15}, (0,)),
    signs_of_life_are_counted: ({10, 11}, (71,)),
    refused_frames_are_dropped: ({10, 11}, (5,)),
}
"""Each planted fault with the oracles that may catch it, and seeds that have: they are tried first, then all the others."""

CHECKPOINT_PLANTS: dict[Plant, tuple[set[int], tuple[int, ...]]] = {
    stale_orders_are_obeyed: ({9}, (302,)),
    dead_lives_are_believed: ({9}, (302,)),
}
"""Likewise, caught by the seeds of topologies with checkpoints."""
