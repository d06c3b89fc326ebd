"""The worker's side of its conversation with the topology master. Pure: the loop brings bytes and the time.

Knows: messages of the master that have not been acted on, messages that wait to be sent, the counts on both sides, the last
sign of the master, the next heartbeat, the order of an end that was asked for. Does not know: tasks, sockets, files, clocks.

- Counts cover every message except Alive; `sent_count` of `Heartbeat` and `Alive` carries the sender's count. No message is
  repeated, so a lost one ends the process.
- Messages of the master wait while a call of user code yields, and for one heartbeat after a stall of the process. After a
  stall the oldest messages come first, and a newer one may say that another process has this one's place.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Mapping, Sequence

import msgspec

from topo.config import TopologyConfig
from topo.errors import FrameError
from topo.ids import Epoch, TaskId
from topo.transport.base import MAX_LINK_MESSAGE
from topo.wire import control
from topo.worker.core import EXIT_ORPHANED, WorkerExit

_LOG = logging.getLogger(__name__)

FINISH_S = 1.0
"""Time limit of an end that was asked for (SIGTERM), and after any end of sending the last messages to the master."""


class WorkerSession:
    """One worker's messages from and to the master.

    Args:
        components: the component of each task of the worker, for the text of errors.

    Attributes:
        outgoing: encoded messages to the master, in order. The loop removes each one when the transport has taken it.
        next_beat: when the next heartbeat is due.
    """

    def __init__(self, config: TopologyConfig, components: Mapping[TaskId, str], now: float) -> None:
        self._config = config
        self._components = components
        self.outgoing: deque[bytes] = deque()
        self.next_beat = now
        self._incoming: deque[bytes] = deque()
        self._sent_count = self._received_count = 0
        self._heard_at = now
        self._acts_from = now
        """When messages are acted on again after a stall."""
        self._lost = ""
        self._unencodable_metrics: set[TaskId] = set()
        """Tasks whose unencodable metrics have been reported."""

    # -- from the master -------------------------------------------------------------------------------------------------

    def received(self, data: Sequence[bytes], now: float) -> None:
        """Queue messages of the master; an empty sequence counts as a sign of it, too."""
        self._incoming += data
        self._heard_at = now

    @property
    def has_messages(self) -> bool:
        """Whether messages of the master have not been acted on."""
        return bool(self._incoming)

    def woke(self, now: float, last_seen: float) -> None:
        """The loop turns, and was alive at `last_seen`. A gap longer than `worker_timeout` is a stall of the process."""
        if now - last_seen > self._config.worker_timeout_s:
            self._acts_from = now + self._config.heartbeat_s

    def due_messages(self, now: float, *, is_in_call: bool = False) -> list[control.FromMaster]:
        """Return the messages to act on now, in order, without those that cannot be decoded."""
        if not self._incoming or is_in_call or now < self._acts_from:
            return []
        messages: list[control.FromMaster] = []
        for data in self._incoming:
            try:
                message = control.decode_from_master(data, MAX_LINK_MESSAGE)
            except FrameError as error:
                # Not counted, so it shows as lost, and its request is not dropped unnoticed. Bytes of strangers are in no count.
                _LOG.error("the master sent %s", error)
                continue
            if not isinstance(message, control.Alive):
                self._received_count += 1
            elif message.sent_count > self._received_count:
                self._lost = (
                    "the connection has lost messages: "
                    f"the master has sent {message.sent_count}, and {self._received_count} have arrived"
                )
            messages.append(message)
        self._incoming.clear()
        return messages

    def verdict(self, now: float) -> WorkerExit | None:
        """Return why the worker has to end: messages were lost, or the master has been silent for `master_timeout`."""
        if self._lost:
            return WorkerExit(EXIT_ORPHANED, self._lost)
        if now - self._heard_at > self._config.master_timeout_s:
            return WorkerExit(EXIT_ORPHANED, f"no master has sent a message for {self._config.master_timeout_s:g} s")
        return None

    # -- to the master ---------------------------------------------------------------------------------------------------

    def send(self, message: control.FromWorker) -> None:
        """Queue a message. If it is too long, it loses the metrics of user code, or its values.

        Raises:
            Exception: it cannot be encoded, and is no heartbeat. A heartbeat loses the metrics of users that cannot be, and an
                error is reported once for each task.
        """
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
        self.outgoing.append(data)
        self._sent_count += 1

    def send_beat(self, beat: control.Heartbeat, now: float) -> None:
        """Queue a heartbeat with the count of messages before it; the next one is due an interval later."""
        self.next_beat = now + self._config.heartbeat_s
        self.send(self._counted(beat))

    def _counted(self, beat: control.Heartbeat) -> control.Heartbeat:
        return msgspec.structs.replace(beat, sent_count=self._sent_count)

    def _report_metrics(self, errors: Mapping[TaskId, Exception]) -> None:
        for task, error in errors.items():
            if task not in self._unencodable_metrics:
                self._unencodable_metrics.add(task)
                component = self._components[task]
                why = f"metrics of component {component!r} cannot be sent, and are not shown: {error}"
                kind = type(error).__name__
                self.send(control.ComponentError(task=task, component=component, kind=kind, message=why, traceback=""))


class OrderlyEnd:
    """The messages of an end that a signal asks for: Deactivate, then Close once all that was read is worked off."""

    def __init__(self, now: float) -> None:
        self.until = now + FINISH_S
        self._is_deactivated = self._is_closing = False

    def next_message(self, epoch: Epoch, now: float, *, has_work: bool) -> control.Deactivate | control.Close | None:
        """Return the next order to the worker, once each."""
        if not self._is_deactivated:
            self._is_deactivated = True
            return control.Deactivate()
        if not self._is_closing and (not has_work or now >= self.until):
            self._is_closing = True
            return control.Close(epoch, drain=True)
        return None

    def is_over(self, now: float, *, is_closed: bool) -> bool:
        """Return whether the process may end: its components are closed, or the time is up."""
        return self._is_closing and (is_closed or now >= self.until)
