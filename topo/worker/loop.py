"""The loop of a worker process: wait, read, let the tasks work, perform what they ask for. One thread, no decisions.

Control inboxes are read before data inboxes and both before any task works, so that a verdict or confirmation that is here
counts before a timeout of the same moment. When nothing was read and nothing is left to do, the tasks let out what they have
buffered, and the loop sleeps until something arrives or the earliest deadline.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from topo.config import TopologyConfig
from topo.errors import EnvironmentFault, FrameError
from topo.ids import TaskId
from topo.plan.physical import PhysicalPlan
from topo.storage.state_folder import is_gone
from topo.task.commands import SendFrame
from topo.task.events import Inbox
from topo.transport.base import MAX_LINK_MESSAGE, Outlet, Transport
from topo.wire import control
from topo.worker.core import EXIT_ORPHANED, Exit, Worker

_LOG = logging.getLogger(__name__)

LINK = "link"
"""The inbox of messages from the master."""
READ_AT_ONCE = 32
"""Frames taken from one inbox before the others have their turn."""
FINISH_S = 1.0
"""Time that a worker which is asked to end has for what it has read."""
STINT_S = 0.001
"""How long the tasks work on what has been read before the sockets are asked for more."""
HELD_PAUSE_S = 0.005
"""Sleep while a data inbox is full of frames of an epoch that this worker has yet to adopt."""

Target = tuple[TaskId, Inbox]


def frame_limits(config: TopologyConfig) -> dict[Inbox, int]:
    """Return the most bytes that a frame in each kind of inbox may have."""
    return {Inbox.DATA: config.max_frame_bytes, Inbox.CONTROL: config.max_control_frame_bytes}


class Connections:
    """The outlets to the inboxes of other workers' tasks, as the routes name them."""

    def __init__(self, transport: Transport, plan: PhysicalPlan, tasks: frozenset[TaskId]) -> None:
        self._transport = transport
        self._limits = frame_limits(plan.config)
        self._outlets: dict[Target, Outlet] = {}
        self._endpoints: dict[Target, str] = {}
        self._waiting: dict[Outlet, deque[bytes]] = {}
        self._wanted: set[Target] = set()
        for task in tasks:
            data = plan.downstream_tasks(task)
            control_of = [*plan.upstream_tasks(task)]
            if task in plan.ackers:
                control_of += plan.origins
            elif task in plan.origins:
                control_of += plan.ackers
            self._wanted.update((target, Inbox.DATA) for target in data if target not in tasks)
            self._wanted.update((target, Inbox.CONTROL) for target in control_of if target not in tasks)

    def adopt(self, routes: control.Routes) -> None:
        """Connect to where the tasks are now, and leave where they are no more. What waited for an old epoch is dropped."""
        self._transport.allow(route.public_key for route in routes.routes if route.public_key)
        for route in routes.routes:
            for inbox, endpoint in ((Inbox.DATA, route.data_endpoint), (Inbox.CONTROL, route.control_endpoint)):
                target = (route.task, inbox)
                if target not in self._wanted or self._endpoints.get(target) == endpoint:
                    continue
                old = self._outlets.pop(target, None)
                if old is not None:
                    self._transport.disconnect(old)
                    self._waiting.pop(old, None)
                self._outlets[target] = self._transport.connect(endpoint, route.public_key or None, max_frame=self._limits[inbox])
                self._endpoints[target] = endpoint
        for waiting in self._waiting.values():
            waiting.clear()

    def send(self, command: SendFrame) -> None:
        """Send a frame; one that is refused waits here until its outlet has recovered, and so do those behind it."""
        outlet = self._outlets.get((command.target, command.inbox))
        if outlet is None or not isinstance(command.frame, bytes):
            _LOG.error("no way to task %s; frame dropped", command.target)
            return
        waiting = self._waiting.get(outlet)
        if waiting or not self._transport.send(outlet, command.frame):
            self._waiting.setdefault(outlet, deque()).append(command.frame)

    def send_again(self) -> None:
        """Send what waits for outlets that have recovered."""
        for outlet in self._transport.recovered():
            waiting = self._waiting.get(outlet)
            while waiting and self._transport.send(outlet, waiting[0]):
                waiting.popleft()


class Loop:
    """Runs the tasks of one worker until it has to exit.

    Args:
        transport: with the tasks' inboxes bound and linked to the master as `LINK`.
        master: the outlet of that link.
        inboxes: the name of each inbox in the transport.
        busy_in: tells the component whose user code runs.
        start_file: removed by the master when it has seen this process end; gone before, the state folder was removed.
    """

    def __init__(
        self,
        worker: Worker,
        transport: Transport,
        master: Outlet,
        inboxes: dict[str, Target],
        connections: Connections,
        config: TopologyConfig,
        busy_in: Callable[[], str],
        clock: Callable[[], float] = time.monotonic,
        start_file: Path | None = None,
    ) -> None:
        self.worker = worker
        self.turned_at = clock()
        """When the loop last turned; the watchdog reads it."""
        self.alive_at = self.turned_at
        """When the watchdog was last seen to be on time: a process that stands still has neither."""
        self._transport = transport
        self._master = master
        self._inboxes = inboxes
        self._control = [name for name, (_, inbox) in inboxes.items() if inbox is Inbox.CONTROL]
        self._data = [name for name, (_, inbox) in inboxes.items() if inbox is Inbox.DATA]
        self._connections = connections
        self._config = config
        self._busy_in = busy_in
        self._clock = clock
        self._start_file = start_file
        self._to_master: deque[bytes] = deque()
        self._sent_count = self._received_count = 0
        """How many messages the master was sent, and how many it has sent, but for Alive."""
        self._pending_messages: deque[bytes] = deque()
        """What the master has said while a call yielded, or just after the process had stood still."""
        self._listens_until = self.turned_at
        self._beat_at = self.turned_at
        self._heard_at = self.turned_at
        self._is_to_finish = False
        self._unencodable_metrics: set[TaskId] = set()
        """Tasks of whose metrics it has been said that they cannot be sent."""

    def tell(self, message: control.FromWorker) -> None:
        """Send a message to the master as soon as it can be reached."""
        try:
            data = control.encode(message)
        except Exception:
            if not isinstance(message, control.Heartbeat):
                raise
            message, errors = control.without_unencodable_metrics(message)
            self._report_metrics(errors)
            data = control.encode(self._counted(message))
        if len(data) > MAX_LINK_MESSAGE:
            _LOG.error("a %s of %d bytes is too long for the master; shortened", type(message).__name__, len(data))
            data = control.encode(control.shortened(message))
        self._to_master.append(data)
        self._sent_count += 1

    def _counted(self, beat: control.Heartbeat) -> control.Heartbeat:
        return msgspec.structs.replace(beat, said=self._sent_count)

    def _report_metrics(self, errors: Mapping[TaskId, Exception]) -> None:
        for task, error in errors.items():
            if task not in self._unencodable_metrics:
                self._unencodable_metrics.add(task)
                component = self.worker.tasks[task].component_id
                why = f"metrics of component {component!r} cannot be sent, and are not shown: {error}"
                kind = type(error).__name__
                self.tell(control.ComponentError(task=task, component=component, kind=kind, message=why, traceback=""))

    def run(self) -> Exit:
        """Work until the worker has to exit; return why."""
        worker, transport, clock = self.worker, self._transport, self._clock
        rest_s = min((task.REST_S for task in worker.tasks.values()), default=0.0)
        is_busy = True
        while worker.exit is None:
            if rest_s and not is_busy:
                time.sleep(min(rest_s, self._sleep_s()))
            ready = transport.wait(0.0 if is_busy else self._sleep_s())
            now = clock()
            if now - max(self.turned_at, self.alive_at) > self._config.worker_timeout_s:
                # Others may have taken its place: that news comes last.
                self._listens_until = now + self._config.heartbeat_s
            self.turned_at = now
            if self._pending_messages:
                self._take_messages(now)
            self._connections.send_again()
            has_read = self._read(ready, now)
            has_run = worker.run(now)
            while worker.has_work and (at := clock()) < now + STINT_S:
                worker.run(at)
            if now >= self._beat_at:
                self._beat(now)
            self._perform()
            # Whoever was woken by a deadline need not ask for input again: the sockets were silent up to it.
            is_busy = has_read or worker.has_work or (has_run and is_busy)
            if not is_busy:
                worker.idle(clock())
                self._perform()
                is_busy = worker.has_work
        return self._leave(worker.exit)

    def attend(self) -> None:
        """Turn once for the other tasks while a call of user code yields; sleeps when there is nothing to do for them.

        What the master says waits until the call is over.

        Raises:
            SystemExit: the worker cannot go on, and the call is to be left.
        """
        worker = self.worker
        ready = self._transport.wait(0.0 if worker.has_work else self._sleep_s())
        now = self._clock()
        self._connections.send_again()
        self._read(ready, now)
        worker.run(now)
        if now >= self._beat_at:
            self._beat(now)
        self._perform()
        if not worker.has_work:
            worker.idle(self._clock())
            self._perform()
        if worker.exit is not None and worker.has_failed():
            raise SystemExit(worker.exit.why)

    def now(self) -> float:
        """Return the loop's clock; any thread may ask."""
        return self._clock()

    def stop(self, exit_: Exit) -> None:
        """Ask the loop to finish what it has read and to end; for signal handlers."""
        self._is_to_finish = self.worker.exit is None
        self.worker.exit = self.worker.exit or exit_
        self._transport.wake()

    def _sleep_s(self) -> float:
        now = self._clock()
        deadline = self.worker.next_deadline(now)
        until = self._beat_at if deadline is None else min(deadline, self._beat_at)
        return max(0.0, until - now)

    def _read(self, ready: list[str], now: float) -> bool:
        """Read control inboxes, then the data inboxes of tasks that want data."""
        if not ready:
            return False
        if LINK in ready:
            self._pending_messages += self._transport.receive(LINK, READ_AT_ONCE)
            self._heard_at = now
            self._take_messages(now)
        has_read = LINK in ready
        is_held = False
        for name in ready:
            target = self._inboxes.get(name)
            if target is None or target[1] is not Inbox.CONTROL:
                continue
            for frame in self._transport.receive(name, READ_AT_ONCE):
                self.worker.arrived(target[0], Inbox.CONTROL, frame, now)
            has_read = True
        for name in ready:
            target = self._inboxes.get(name)
            if target is None or target[1] is not Inbox.DATA:
                continue
            if not self.worker.tasks[target[0]].wants_data:
                is_held = True
                continue
            for frame in self._transport.receive(name, READ_AT_ONCE):
                self.worker.arrived(target[0], Inbox.DATA, frame, now)
            has_read = True
        if is_held and not has_read:
            time.sleep(HELD_PAUSE_S)
        return has_read

    def _take_messages(self, now: float) -> None:
        if self.worker.is_in_call or now < self._listens_until:
            return
        messages: list[control.FromMaster] = []
        for data in self._pending_messages:
            try:
                message = control.decode_from_master(data, MAX_LINK_MESSAGE)
            except FrameError as error:
                _LOG.error("the master sent %s", error)
                self._received_count += 1
            else:
                self._count(message)
                messages.append(message)
        self._pending_messages.clear()
        for message in messages:
            if isinstance(message, control.Routes) and message.term >= self.worker.term and message.epoch > self.worker.epoch:
                self._connections.adopt(message)
        self.worker.on_messages(messages, now)

    def _count(self, message: control.FromMaster) -> None:
        """Notice that a message is missing: nobody would say again what it has said."""
        if not isinstance(message, control.Alive):
            self._received_count += 1
        elif message.said > self._received_count:
            why = f"the connection has lost messages: the master has sent {message.said}, and {self._received_count} have arrived"
            self.worker.exit = self.worker.exit or Exit(EXIT_ORPHANED, why)

    def _perform(self) -> None:
        for command in self.worker.take_commands():
            if isinstance(command, SendFrame):
                self._connections.send(command)
            else:
                self.tell(command.message)
        to_master = self._to_master
        while to_master and self._transport.send(self._master, to_master[0]):
            to_master.popleft()

    def _beat(self, now: float) -> None:
        self._beat_at = now + self._config.heartbeat_s
        self.tell(self._counted(self.worker.heartbeat(self._busy_in())))
        self._look_at_files()
        if now - self._heard_at > self._config.master_timeout_s:
            why = f"no master was heard of for {self._config.master_timeout_s:g} s"
            self.worker.exit = self.worker.exit or Exit(EXIT_ORPHANED, why)

    def _look_at_files(self) -> None:
        """Notice files that were removed under the running process."""
        if self._start_file is not None and is_gone(self._start_file):
            why = f"the state folder was removed while the topology ran: {self._start_file} is gone"
            self.worker.exit = self.worker.exit or Exit(EXIT_ORPHANED, why)
        try:
            if self._transport.listen_again():
                _LOG.warning("the sockets of this worker were removed; they are made anew")
        except EnvironmentFault as error:
            # The master has sockets in the same folder, and decides.
            _LOG.error("%s", error)

    def _leave(self, exit_: Exit) -> Exit:
        """Send the last figures, and what is still to be said."""
        if self._is_to_finish:
            self._finish()
        self._beat(self._clock())
        self._perform()
        done = self._transport.statistics()
        _LOG.info("frames: %d sent, %d received, %d refused at first", done.frames_sent, done.frames_received, done.refused)
        return exit_

    def _finish(self) -> None:
        """Work off what has been read, close the components, and let everything out: whoever gets it need not get it again."""
        worker, now = self.worker, self._clock()
        until = now + FINISH_S
        worker.on_messages([control.Deactivate()], now)
        while worker.has_work and now < until:
            worker.run(now)
            self._perform()
            self._transport.wait(0.0)
            self._connections.send_again()
            now = self._clock()
        worker.idle(now)
        worker.on_messages([control.Close(worker.epoch, drain=True)], now)
        while not worker.is_closed and now < until:
            self._transport.wait(min(self._sleep_s(), until - now))
            now = self._clock()
            worker.run(now)
        self._perform()
