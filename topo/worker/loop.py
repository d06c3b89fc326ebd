"""The loop of a worker process: read, let the tasks work, perform their commands, sleep. One thread, no decisions.

Decisions about the master are in `session`, those about tasks in `core`. `turn` does everything but sleep; `run` sleeps between
turns. The inbox is read before any task works, so that a verdict or confirmation that has arrived counts before a timeout of the
same moment. The frames of a turn leave together, one message for each worker (`connections`). When nothing was read and no task
has work, the tasks send what they have buffered, and the loop sleeps until something arrives or the earliest deadline.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from topo.errors import TopoEnvironmentError
from topo.storage.state_folder import is_gone
from topo.task.commands import SendFrame
from topo.transport.base import Outlet, Transport
from topo.wire import control
from topo.worker.connections import INBOX, Connections
from topo.worker.core import EXIT_ORPHANED, Worker, WorkerExit
from topo.worker.load import WorkerLoad
from topo.worker.observing import Observing
from topo.worker.session import FINISH_S, OrderlyEnd, WorkerSession

_LOG = logging.getLogger(__name__)

LINK = "link"
"""The inbox of messages from the master."""
READ_AT_ONCE = 128
"""Messages taken from one inbox before the tasks work."""
STINT_S = 0.001
"""Time that the tasks work on frames that were read before the sockets are polled again."""
_BEHIND_FIGURES = (control.ComponentError, control.Closed)
"""Messages that the figures go before: the exit code rests on them, and the process may die before its next heartbeat. Of a task
that has closed no more is expected."""


class Loop:
    """Runs the tasks of one worker until it has to exit.

    Args:
        session: the conversation with the master.
        transport: with the worker's inbox bound (`bind_inbox`) and linked to the master as `LINK`.
        master: the outlet of that link.
        busy_in: returns the component whose user code runs.
        start_file: removed by the master when it has seen this process end; gone before, the state folder was removed.
        stint_s: how long a turn may work before it ends; 0 on a clock that stands still meanwhile.
        process_figures: reads the figures of the process, for heartbeats; None where tasks share it with the master.
        observing: the observations of its tasks; without it there are none.
        load: measures how busy the loop is.
    """

    def __init__(
        self,
        worker: Worker,
        session: WorkerSession,
        transport: Transport,
        master: Outlet,
        connections: Connections,
        busy_in: Callable[[], str],
        clock: Callable[[], float] = time.monotonic,
        start_file: Path | None = None,
        stint_s: float = STINT_S,
        process_figures: Callable[[], Mapping[str, float]] | None = None,
        observing: Observing | None = None,
        load: WorkerLoad | None = None,
    ) -> None:
        self.worker = worker
        self.session = session
        self.turned_at = clock()
        """When the loop last turned; the watchdog reads it."""
        self.alive_at = self.turned_at
        """When the watchdog was last seen to be on time: a process that stands still has neither."""
        self._transport = transport
        self._master = master
        self._connections = connections
        self._busy_in = busy_in
        self._clock = clock
        self._start_file = start_file
        self._stint_s = stint_s
        self._process_figures = process_figures
        self._observing = observing or Observing({})
        self._load = load or WorkerLoad(self.turned_at)
        self._is_busy = True
        self._is_to_finish = False
        self._end: OrderlyEnd | None = None
        self._leaves_at: float | None = None
        """When the worker leaves although the connection to the master takes no more; None until it has ended."""

    def run(self) -> WorkerExit:
        """Work until the worker has to exit; return why."""
        transport, clock = self._transport, self._clock
        rest_s = min((task.rest_s for task in self.worker.tasks.values()), default=0.0)
        ready, now = transport.wait(0.0), clock()
        while (at := self.turn(ready, now)) is not None:
            ended = clock()
            if rest_s and not self._is_busy:
                time.sleep(min(rest_s, max(0.0, at - ended)))
            ready = transport.wait(0.0 if self._is_busy else max(0.0, at - clock()))
            now = clock()
            self._load.turned(now, 0.0 if self._is_busy else now - ended)
        assert self.worker.exit is not None
        return self.worker.exit

    def turn(self, ready: list[str], now: float) -> float | None:
        """Turn once, without sleeping.

        Args:
            ready: the inboxes that the transport's `wait` has named.

        Returns:
            When the next turn is due if nothing arrives before; None when the worker has ended.
        """
        worker = self.worker
        if worker.exit is not None:
            return self._leave(ready, now)
        has_rested = not self._is_busy
        self.session.woke(now, max(self.turned_at, self.alive_at))
        self.turned_at = now
        has_done, has_work = self._work(ready, now, self._stint_s)
        # After a rest the results of the arrival that woke the loop leave at once, without another look at the inboxes.
        self._is_busy = has_work or (not has_rested and has_done)
        if not self._is_busy:
            worker.idle(self._clock())
            self._is_busy = worker.has_work
        # Once in a turn, so that all frames for one worker leave together.
        self._perform()
        return now if self._is_busy or worker.exit is not None else self._next_turn()

    def attend(self) -> None:
        """Turn once for the other tasks while a call of user code yields; sleeps when there is nothing to do for them.

        Messages of the master wait until the call is over.

        Raises:
            SystemExit: the worker has to end, and the call has to be left.
        """
        worker = self.worker
        began = self._clock()
        ready = self._transport.wait(0.0 if worker.has_work else max(0.0, self._next_turn() - began))
        now = self._clock()
        self._load.turned(now, now - began)
        _, has_work = self._work(ready, now, 0.0)
        if not has_work:
            worker.idle(self._clock())
        self._perform()
        if worker.exit is not None and worker.has_failed():
            raise SystemExit(worker.exit.why)

    def now(self) -> float:
        """Return the loop's clock; any thread may ask."""
        return self._clock()

    def stop(self, exit_: WorkerExit) -> None:
        """Ask the loop to work off its input and to end; for signal handlers."""
        self._is_to_finish = self.worker.exit is None
        self._exit(exit_)
        self._transport.wake()

    def _exit(self, exit_: WorkerExit | None) -> None:
        self.worker.exit = self.worker.exit or exit_

    def _next_turn(self) -> float:
        deadlines = (self.worker.next_deadline(self._clock()), self._observing.next_deadline(), self.session.next_beat)
        return min(at for at in deadlines if at is not None)

    def _work(self, ready: list[str], now: float, stint_s: float) -> tuple[bool, bool]:
        """Read, and let the tasks work.

        Returns:
            Whether anything was read or any task had work; and whether any has more.
        """
        worker = self.worker
        self._read(ready, now)
        has_run = worker.run(now)
        while (has_work := worker.has_work) and stint_s and (at := self._clock()) < now + stint_s:
            worker.run(at)
        if now >= self.session.next_beat:
            self._beat(now)
        return has_run or bool(ready), has_work

    def _read(self, ready: list[str], now: float) -> None:
        """Read messages of the master, then those of other workers."""
        if LINK in ready:
            self.session.received(self._transport.receive(LINK, READ_AT_ONCE), now)
        if self.session.has_messages:
            self._obey(now)
        if INBOX in ready:
            for message in self._transport.receive(INBOX, READ_AT_ONCE):
                self.worker.arrived(message, now)

    def _obey(self, now: float) -> None:
        """Act on the messages of the master that are due."""
        messages = self.session.due_messages(now, is_in_call=self.worker.is_in_call)
        if not messages:
            return
        self._exit(self.session.verdict(now))
        for message in messages:
            if isinstance(message, control.Routes) and message.term >= self.worker.term and message.epoch > self.worker.epoch:
                self._connections.adopt(message)
            self._observing.take(message, now)
        self.worker.on_messages(messages, now)

    def _perform(self) -> None:
        messages: list[control.FromTask] = []
        for command in self.worker.take_commands():
            if isinstance(command, SendFrame):
                self._connections.add(command)
            else:
                messages.append(command.message)
        self._connections.send()
        if not self._observing.is_idle:
            for report in self._observing.due(self._clock()):
                self.session.send(report)
        if messages:
            if any(isinstance(message, _BEHIND_FIGURES) for message in messages):
                self._send_beat(self._clock())
            for message in messages:
                self.session.send(message)
        outgoing = self.session.outgoing
        while outgoing and self._transport.send(self._master, outgoing[0]):
            outgoing.popleft()

    def _send_beat(self, now: float) -> None:
        process = None if self._process_figures is None else self._process_figures()
        self.session.send_beat(self.worker.heartbeat(self._busy_in(), process), now)

    def _beat(self, now: float) -> None:
        self._send_beat(now)
        self._look_at_files()
        self._exit(self.session.verdict(now))

    def _look_at_files(self) -> None:
        """Notice files that were removed under the running process."""
        if self._start_file is not None and is_gone(self._start_file):
            why = f"the state folder was removed while the topology ran: {self._start_file} is gone"
            self._exit(WorkerExit(EXIT_ORPHANED, why))
        try:
            if self._transport.listen_again():
                _LOG.warning("the sockets of this worker were removed; they are bound again")
        except TopoEnvironmentError as error:
            # The master has sockets in the same folder, and decides.
            _LOG.error("%s", error)

    def _leave(self, ready: list[str], now: float) -> float | None:
        """Finish if a signal asked for that, then send the last figures and all that is queued.

        A full connection has FINISH_S to take it, unless the worker ends because it has lost the master.
        """
        worker_exit = self.worker.exit
        assert worker_exit is not None
        if self._is_to_finish:
            self._end = self._end or OrderlyEnd(now)
            if not self._finish(self._end, now):
                return now if self.worker.has_work else min(self._next_turn(), self._end.until)
        if self._leaves_at is None:
            self._leaves_at = now if worker_exit.code == EXIT_ORPHANED else now + FINISH_S
            self._is_busy = False
            self._beat(now)
        for inbox in ready:
            # Messages left unread would keep the loop awake.
            self._transport.receive(inbox, READ_AT_ONCE)
        self._perform()
        if self.session.outgoing and now < self._leaves_at:
            return self._leaves_at
        done = self._transport.statistics()
        _LOG.info("frames: %d sent, %d received, %d refused at first", done.frames_sent, done.frames_received, done.refused)
        return None

    def _finish(self, end: OrderlyEnd, now: float) -> bool:
        """Work off all input that was read, so that it need not be replayed, and close the components; return True when done."""
        worker = self.worker
        message = end.next_message(worker.epoch, now, has_work=worker.has_work)
        if message is not None:
            worker.idle(now, ids_may_wait=False)
            worker.on_messages([message], now)
        worker.run(now)
        self._perform()
        self._is_busy = worker.has_work
        return end.is_over(now, is_closed=worker.is_closed)
