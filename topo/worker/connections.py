"""Frames to other workers: one outlet to each of them, and the frames that leave through it with the next message."""

from __future__ import annotations

import logging

from topo.config import TopologyConfig
from topo.ids import TaskId
from topo.plan.physical import PhysicalPlan
from topo.task.commands import SendFrame
from topo.transport.base import Outlet, Transport
from topo.wire import control
from topo.wire.envelope import Addressed, longest_message, pack
from topo.wire.frames import Frame

_LOG = logging.getLogger(__name__)

INBOX = "inbox"
"""The name of the inbox of a worker, in which the frames for all its tasks arrive."""


def bind_inbox(transport: Transport, config: TopologyConfig) -> str:
    """Open the inbox of a worker; return the endpoint for its registration."""
    return transport.bind(INBOX, max_frame=longest_message(config.max_frame_bytes))


class Connections:
    """The outlets to the workers of the tasks that this worker's tasks send to, as the routes name them.

    Frames gather here during a turn. `send` sends those for one worker together, in the order of `add`. Frames that an outlet
    refuses stay here, with those added behind them, until it has recovered.
    """

    def __init__(self, transport: Transport, plan: PhysicalPlan, tasks: frozenset[TaskId]) -> None:
        self._transport = transport
        self._longest = longest_message(plan.config.max_frame_bytes)
        self._outlets: dict[tuple[str, str], Outlet] = {}
        """By endpoint and public key: a port that a worker has had may be another one's now."""
        self._of_task: dict[TaskId, Outlet] = {}
        self._gathered: dict[Outlet, list[Addressed]] = {}
        self._refused: set[Outlet] = set()
        self._wanted: set[TaskId] = set()
        for task in tasks:
            self._wanted.update(plan.peers(task))
        self._wanted -= tasks

    def adopt(self, routes: control.Routes) -> None:
        """Connect to where the tasks are now, and disconnect from where they are no more. Frames of an old epoch are dropped."""
        self._transport.allow(route.public_key for route in routes.routes if route.public_key)
        wanted = [route for route in routes.routes if route.task in self._wanted]
        inboxes = dict.fromkeys((route.endpoint, route.public_key) for route in wanted)
        for inbox in [inbox for inbox in self._outlets if inbox not in inboxes]:
            gone = self._outlets.pop(inbox)
            self._transport.disconnect(gone)
            self._refused.discard(gone)
        for endpoint, key in inboxes:
            if (endpoint, key) not in self._outlets:
                self._outlets[endpoint, key] = self._transport.connect(endpoint, key or None, max_frame=self._longest)
        self._of_task = {route.task: self._outlets[route.endpoint, route.public_key] for route in wanted}
        self._gathered = {outlet: [] for outlet in self._outlets.values()}

    def add(self, command: SendFrame) -> None:
        """Have a frame leave with the next `send`."""
        outlet = self._of_task.get(command.target)
        if outlet is None or isinstance(command.frame, Frame):
            _LOG.error("no way to task %s; frame dropped", command.target)
            return
        self._gathered[outlet].append((command.target, command.frame))

    def send(self) -> None:
        """Send all frames whose outlets take them: one message for each outlet, or several if the frames have many bytes."""
        if self._refused:
            self._refused.difference_update(self._transport.recovered())
        for outlet, frames in self._gathered.items():
            while frames and outlet not in self._refused:
                count, message = pack(frames)
                if self._transport.send(outlet, message):
                    del frames[:count]
                else:
                    self._refused.add(outlet)
