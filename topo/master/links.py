"""The master's side of its sessions with workers, and commands that wait for the disk. Pure: the loop brings the time.

Knows: messages that wait for a connection, the counts of both sides, processes that have ended, the commands that are not
performed yet. Does not know: sockets, files, clocks, what a message or a command means.

- Messages to one life of a worker keep their order. A message that cannot be sent waits for the connection, and later messages
  wait behind it, as long as that life is current; to any other life each is tried once.
- Counts cover every message except Alive. No message is repeated, so a life whose messages were lost is replaced.
- The end of a process is handled a moment after it was detected: its last messages may still be under way.
- A command that has to be on disk and cannot be written holds up those behind it.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable

from msgspec import Struct

from topo.ids import Incarnation, WorkerId
from topo.master.commands import MasterCommand, RecordError, SendTo
from topo.wire import control

LAST_WORDS_S = 0.05
"""Delay between the end of a process and its handling, for messages and final figures that have not been read."""
LATE_WORDS_S = 2.0
"""The same delay where a message is known to be missing, long enough for a busy machine."""
RETRY_S = 0.5
"""Interval between two attempts to write something that could not be written."""
ENDED_WELL = "exited"
"""The description of a process that has exited with 0."""

Life = tuple[WorkerId, Incarnation]


class WorkerEnd(Struct, frozen=True):
    """A worker's process is gone: which life, and how, in words."""

    worker: WorkerId
    incarnation: Incarnation
    description: str


class WorkerLinks:
    """Connections to the workers of one topology.

    Args:
        is_current: whether a life is that of its slot.
        is_closing: whether a worker has yet to report that its components are closed, and is about to.
    """

    def __init__(self, is_current: Callable[[WorkerId, Incarnation], bool], is_closing: Callable[[WorkerId], bool]) -> None:
        self._is_current = is_current
        self._is_closing = is_closing
        self._unsent: dict[Life, deque[bytes]] = {}
        """Short queues: a worker that does not reconnect is declared lost."""
        self._sent_count: Counter[Life] = Counter()
        self._received_count: Counter[tuple[Life, bytes]] = Counter()
        self._ended: list[tuple[WorkerEnd, float]] = []

    # -- to workers ------------------------------------------------------------------------------------------------------

    def send(self, life: Life, data: bytes, transmit: Callable[[Life, bytes], bool]) -> None:
        """Send a message behind those that wait; `transmit` returns False where there is no connection."""
        waiting = self._unsent.setdefault(life, deque())
        waiting.append(data)
        self._flush(life, waiting, transmit)

    def send_again(self, transmit: Callable[[Life, bytes], bool]) -> None:
        """Send messages that wait for connections; drop those for lives that are not current."""
        for life, waiting in list(self._unsent.items()):
            if self._is_current(*life):
                self._flush(life, waiting, transmit)
            else:
                del self._unsent[life]

    def alive(self, life: Life) -> control.Alive:
        """Return the sign of life for a worker, with the count of messages before it."""
        return control.Alive(self._sent_count[life])

    def _flush(self, life: Life, waiting: deque[bytes], transmit: Callable[[Life, bytes], bool]) -> None:
        while waiting and transmit(life, waiting[0]):
            waiting.popleft()
            self._sent_count[life] += 1
        # A replaced life gets one attempt, for the order to leave; a queue for it would never empty.
        if not waiting or not self._is_current(*life):
            del self._unsent[life]

    # -- from workers ----------------------------------------------------------------------------------------------------

    def received(self, life: Life, connection: bytes, message: control.FromWorker) -> str:
        """Count a message of one connection of a worker. A damaged message is not counted, so it shows as lost.

        Returns:
            Why messages before it are missing, in words; "" when none is.
        """
        # By connection: a worker's watchdog has a second one, and a Stuck on it may overtake the loop's messages.
        before = self._received_count[life, connection]
        self._received_count[life, connection] += 1
        if isinstance(message, control.Heartbeat) and message.sent_count > before:
            return f"the connection has lost messages: it has sent {message.sent_count}, and {before} have arrived"
        return ""

    # -- ends of workers -------------------------------------------------------------------------------------------------

    def ended(self, ends: Iterable[WorkerEnd], now: float) -> None:
        """Keep the ends of processes until their last messages must have been read."""
        self._ended += [(end, now) for end in ends]

    def due_ends(self, now: float) -> list[WorkerEnd]:
        """Return the ends to act on now; the counts of these lives are forgotten."""
        due = [end for end, seen_at in self._ended if self._due_at(end, seen_at) <= now]
        self._ended = [kept for kept in self._ended if kept[0] not in due]
        for end in due:
            life = end.worker, end.incarnation
            del self._sent_count[life]
            for counted in [counted for counted in self._received_count if counted[0] == life]:
                del self._received_count[counted]
        return due

    def next_deadline(self) -> float | None:
        """When an end becomes due; None while no process has ended."""
        return min((self._due_at(*ended) for ended in self._ended), default=None)

    def _due_at(self, end: WorkerEnd, seen_at: float) -> float:
        # A worker that ended well has reported that it has closed, so the report must be under way.
        has_more = end.description == ENDED_WELL and self._is_closing(end.worker)
        return seen_at + (LATE_WORDS_S if has_more else LAST_WORDS_S)


class HeldCommands:
    """The master's commands, in order, each until it was performed.

    A Stop rests on no record and goes ahead, since the replaced worker that it is for acts on old orders until it arrives.

    Attributes:
        problem: why the next command cannot be performed yet; "" while it can.
    """

    def __init__(self) -> None:
        self.problem = ""
        self._stops: deque[MasterCommand] = deque()
        self._commands: deque[MasterCommand] = deque()
        self._current = self._commands
        """The queue that `next` has taken its command from; `add` may be called before `done`."""
        self._retry_at = 0.0

    def add(self, commands: Iterable[MasterCommand]) -> None:
        for command in commands:
            is_stop = isinstance(command, SendTo) and isinstance(command.message, control.Stop)
            (self._stops if is_stop else self._commands).append(command)

    def next(self, now: float) -> MasterCommand | None:
        """Return the command to perform now; None when there is none, or it waits to be tried again."""
        self._current = self._stops or self._commands
        is_due = self._current is self._stops or now >= self._retry_at
        return self._current[0] if self._current and is_due else None

    def next_deadline(self) -> float | None:
        """When a command that could not be written is tried again; None while there is none."""
        return self._retry_at if self.problem else None

    def done(self) -> None:
        """The command that `next` has returned was performed."""
        self._current.popleft()
        if self._current is self._commands:
            self.problem = ""

    def failed(self, error: Exception, now: float, *, is_serving: bool) -> RecordError:
        """Keep a command that could not be written, to be tried again, while the topology is served; return the row about it.

        A topology that is ending starts nothing that relies on the command, which is dropped then.
        """
        if not is_serving:
            self.done()
            return RecordError("StateNotStored", str(error))
        # It stays at the head: the commands behind it rely on it, and may be sent only when it is on disk.
        self._retry_at = now + RETRY_S
        self.problem = f"{error}; the topology stands still until it can be written"
        return RecordError("StateNotStored", self.problem)
