"""The tasks of one worker and the master's messages to them: everything of a worker process that needs no I/O.

The shell (`topo.worker.process`) reads sockets and clocks and calls this; the simulator does the same with virtual ones. Frames
between two tasks of the worker are handed over here, as objects; all others come out as commands.

A call of user code may yield, and then the shell has the other tasks run meanwhile: `run`, `idle` and the like leave out the
tasks that are in a call, and what arrives for these waits until they are back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from topo.errors import FrameError, TopoInternalError
from topo.hot import distinct_words
from topo.ids import Epoch, Incarnation, TaskId, WorkerId
from topo.task.commands import SendFrame, TaskCommand
from topo.task.events import FrameArrived, Idle, RoutesChanged, TaskEvent, Turn
from topo.task.guarantees.tracked_source import TrackedSource
from topo.task.task import Task
from topo.user_errors import kind_and_message
from topo.wire import control
from topo.wire.envelope import unpack

_IDLE = Idle(ids_may_wait=True)
_LEAVING = Idle()
_TURN = Turn()


class WorkerExit(Struct, frozen=True):
    """The worker has to end.

    Attributes:
        code: 0 for an orderly end.
        why: for the log.
    """

    code: int
    why: str


EXIT_DONE = 0
EXIT_CRASHED = 3
"""User code raised where that ends the process: in `open` or `prepare`, or with `on_error="crash"`."""
EXIT_REPLACED = 4
"""Another worker has taken this one's place."""
EXIT_ORPHANED = 5
"""No master sent a message for `master_timeout`, or messages of it were lost."""


_NOT_FOR_TASKS = control.Alive | control.CheckpointAborted | control.Stop | control.Observe | control.Unobserve

LONGEST_BUSY_S = 0.25
"""Upper bound between two flushes in a worker that is never idle."""


class CrashMarker(Protocol):
    """The shell's record of the tuples in processing, which outlives the process."""

    def write(self, task: TaskId, roots: bytes, positions: list[tuple[TaskId, bytes]]) -> None:
        """Write a batch: packed roots, and, by spout of this worker, the packed array of the positions of those it emitted."""

    def clear(self) -> None:
        """Mark that no tuple is in processing."""


class InFlightTracker:
    """The tasks' `InFlightMarker`: adds the positions that roots stand for, which die with a spout in the same process."""

    def __init__(self, marker: CrashMarker) -> None:
        self._marker = marker
        self._held: list[tuple[TaskId, bytes, list[tuple[TaskId, bytes]]]] = []
        self._is_final = False
        self.sources: list[TrackedSource] = []
        self.task: TaskId | None = None
        """The task that is at work; read by the watchdog."""
        self.on_change: Callable[[TaskId | None], None] = lambda _task: None
        """Called with the task that works next; the worker's log names it."""

    def hold(self, task: TaskId, roots: bytes) -> None:
        """The task runs user code on tuples of these roots (packed words)."""
        if not self._is_final:
            distinct = distinct_words(roots) if self.sources else ()
            positions = [(source.task, packed) for source in self.sources if (packed := source.positions_of(distinct))]
            self._held.append((task, roots, positions))
            self._marker.write(task, roots, positions)

    def release(self) -> None:
        """The call is over: mark its tuples as done; in a nested call those of the outer call are in processing again."""
        if not self._is_final:
            self._held.pop()
            if self._held:
                self._marker.write(*self._held[-1])
            else:
                self._marker.clear()

    def keep(self) -> None:
        """A call has ended the worker: the marker stays as it is."""
        self._is_final = True

    def enter(self, task: TaskId | None) -> None:
        if task != self.task:
            self.task = task
            self.on_change(task)


class Worker:
    """The tasks of one worker process.

    Attributes:
        exit: set when the process has to end.
        epoch: the epoch that its tasks have adopted.
        term: the highest term of a master so far.
    """

    def __init__(self, worker: WorkerId, incarnation: Incarnation, tasks: Iterable[Task], tracker: InFlightTracker) -> None:
        self.id = worker
        self.incarnation = incarnation
        self.tasks: Mapping[TaskId, Task] = {task.id: task for task in tasks}
        self.exit: WorkerExit | None = None
        self.epoch = Epoch(0)
        self.term = 0
        self._tracker = tracker
        self._local = frozenset(self.tasks)
        self._hand_over: deque[tuple[Task, FrameArrived]] = deque()
        self._in_call: list[TaskId] = []
        """The tasks that are in a call, the outermost first; more than one while they yield."""
        self._deadlines: dict[TaskId, float | None] = {}
        """Of the tasks to which nothing has happened since they were asked."""
        self._without_work: set[TaskId] = set()
        """The tasks that had none when they were asked, and to which nothing has happened since."""
        self._flushed: set[TaskId] = set()
        """The tasks to which nothing has happened since they were idle."""
        self._kept: list[tuple[Task, FrameArrived]] = []
        """Frames for these tasks, in order of arrival."""
        self._bug: TopoInternalError | None = None
        self._out: list[TaskCommand] = []
        self._busy_since: float | None = None
        self._is_closing = False
        sources = [task.guarantee for task in self.tasks.values() if isinstance(task, Task)]
        tracker.sources = [source for source in sources if isinstance(source, TrackedSource) and source.is_retrying]

    def arrived(self, message: bytes, now: float) -> None:
        """Hand the frames of a message of another worker to their tasks.

        A message that cannot be split, and a frame for a task that is not here, count as malformed with the worker's first task.
        """
        try:
            frames = unpack(message)
        except FrameError:
            self._count_malformed()
            return
        for target, frame in frames:
            task = self.tasks.get(target)
            if task is None:
                self._count_malformed()
            elif target in self._in_call:
                self._kept.append((task, FrameArrived(frame)))
            else:
                self._handle(task, FrameArrived(frame), now)

    def _count_malformed(self) -> None:
        next(iter(self.tasks.values())).counters.malformed_frames += 1

    def on_messages(self, messages: Sequence[control.FromMaster], now: float) -> None:
        """Handle the topology master's messages, in order. Not while a task is in a call.

        None is handled when one of them is a Stop, or names another process for this one's tasks. A process that was stopped for
        long finds its old orders first; a restore by old orders could undo output that the replacement has staged.
        """
        assert not self._in_call, "messages within a call"
        for message in messages:
            if isinstance(message, control.Routes) and not self._is_in(message):
                self.exit = self.exit or WorkerExit(EXIT_REPLACED, "the routes name another incarnation of this worker")
                return
            if isinstance(message, control.Stop):
                self.exit = self.exit or WorkerExit(EXIT_DONE, f"stopped by the master: {message.reason}")
                return
        for message in messages:
            self._on_message(message, now)

    def run(self, now: float) -> bool:
        """Give every task that has work one turn. Returns whether any had, so that more may be left."""
        any_work = bool(self._hand_over)
        for task in self._at_hand():
            if not self._has_work(task):
                deadline = self._deadline(task, now)
                if deadline is None or deadline > now:
                    continue
            any_work = True
            self._handle(task, _TURN, now)
        if self._is_closing:
            self._leave_when_closed()
        if not any_work or self._busy_since is None:
            self._busy_since = now
        elif now - self._busy_since >= LONGEST_BUSY_S:
            self.idle(now)
        return any_work

    def idle(self, now: float, *, ids_may_wait: bool = True) -> None:
        """Flush buffers, as there is no work or input left. May make work for tasks of the same worker.

        Nothing is left to flush in tasks to which nothing has happened since, but for rows that wait for a deadline.
        """
        self._busy_since = now
        for task in self._at_hand():
            if not ids_may_wait:
                self._handle(task, _LEAVING, now)
            elif task.id not in self._flushed:
                self._handle(task, _IDLE, now)

    def cut_short(self) -> None:
        """Have the task at work leave the rest of its slice for later; any thread may call it.

        A slice is sized by how long tuples took before it. One whose tuples have become slow would last as long as all of them.
        """
        task = self._tracker.task
        if task is not None:
            self.tasks[task].cut_short()

    @property
    def has_work(self) -> bool:
        """Whether `run` would do something at once."""
        return any(map(self._has_work, self._at_hand()))

    @property
    def is_in_call(self) -> bool:
        """True inside user code; a caller then runs within a nested `yield_`."""
        return bool(self._in_call)

    def next_deadline(self, now: float) -> float | None:
        """When `run` is wanted if nothing arrives before, in monotonic seconds."""
        deadlines = [at for task in self._at_hand() if (at := self._deadline(task, now)) is not None]
        return min(deadlines) if deadlines else None

    def _has_work(self, task: Task) -> bool:
        """Whether a task has work. Only events, mails and its deadline change that, and at its deadline it has a turn anyway."""
        if task.id in self._without_work and not task.mailbox.may_have_mail:
            return False
        if task.has_work:
            return True
        self._without_work.add(task.id)
        return False

    def _deadline(self, task: Task, now: float) -> float | None:
        """Return the next deadline of a task, which only events change."""
        if task.id not in self._deadlines:
            self._deadlines[task.id] = task.next_deadline(now)
        return self._deadlines[task.id]

    def take_commands(self) -> list[TaskCommand]:
        """Return the commands to perform outside this worker, in order."""
        out, self._out = self._out, []
        return out

    def heartbeat(self, busy_in: str, process: Mapping[str, float] | None = None) -> control.Heartbeat:
        """Return the sign of life, with every task's statistics, and the figures of the process where there are any."""
        return control.Heartbeat(
            worker=self.id,
            incarnation=self.incarnation,
            term=self.term,
            epoch=self.epoch,
            busy_in=busy_in,
            tasks={task.id: task.statistics().as_dict() for task in self.tasks.values()},
            process=dict(process or {}),
        )

    def validate(self) -> None:
        """Assert the tasks' invariants."""
        for task in self.tasks.values():
            task.validate()
        assert not self._hand_over and not self._kept, "a frame was not handed over"
        assert not self._in_call

    def _on_message(self, message: control.FromMaster, now: float) -> None:
        if isinstance(message, control.Routes):
            self._adopt(message, now)
        elif isinstance(message, control.DeadLettersStored | control.ReplayLetters):
            if message.task in self.tasks:
                self._handle(self.tasks[message.task], message, now)
        elif isinstance(message, control.Probe):
            if message.epoch == self.epoch:
                self._each(message, now)
        elif isinstance(message, control.Close):
            self._is_closing = True
            self._each(message, now)
            self._leave_when_closed()
        elif not isinstance(message, _NOT_FOR_TASKS):
            self._each(message, now)

    @property
    def is_closed(self) -> bool:
        return all(task.is_closed for task in self.tasks.values())

    def _leave_when_closed(self) -> None:
        if self.is_closed:
            self.exit = self.exit or WorkerExit(EXIT_DONE, "closed")

    def _adopt(self, routes: control.Routes, now: float) -> None:
        if routes.term < self.term:
            return
        self.term = routes.term
        if routes.epoch <= self.epoch:
            return
        self.epoch = routes.epoch
        # What one task has handed to another belongs to the old epoch; so it goes first.
        for task in self.tasks.values():
            event = RoutesChanged(routes, self._local, routes.positions.get(task.id), routes.attempts.get(task.id))
            self._handle(task, event, now)

    def _is_in(self, routes: control.Routes) -> bool:
        """Whether routes name this process for its tasks; also when they are those of a master that was replaced."""
        mine = [route.incarnation for route in routes.routes if route.task in self.tasks]
        return routes.term < self.term or mine == [self.incarnation] * len(self.tasks)

    def _at_hand(self) -> Iterable[Task]:
        if not self._in_call:
            return self.tasks.values()
        return [task for task in self.tasks.values() if task.id not in self._in_call]

    def _each(self, event: TaskEvent, now: float) -> None:
        for task in self.tasks.values():
            self._handle(task, event, now)

    def _handle(self, task: Task, event: TaskEvent, now: float) -> None:
        self._perform(task, event, now)
        while self._hand_over:
            target, arrival = self._hand_over.popleft()
            if target.id in self._in_call:
                self._kept.append((target, arrival))
            else:
                self._perform(target, arrival, now)
        self._tracker.enter(self._in_call[-1] if self._in_call else None)

    def has_failed(self) -> bool:
        """Whether it has to exit for another reason than that the work is done: nothing runs any more."""
        return self.exit is not None and self.exit.code != EXIT_DONE

    def _perform(self, task: Task, event: TaskEvent, now: float) -> None:
        if self.exit is not None and self.has_failed():
            return
        self._tracker.enter(task.id)
        self._in_call.append(task.id)
        try:
            commands = task.handle(event, now)
        except TopoInternalError as bug:
            self._bug = bug
            raise
        except BaseException as error:
            # Also a SystemExit or a KeyboardInterrupt of user code; a Ctrl-C of the operator reaches no worker.
            if self._bug is not None:
                raise self._bug from error
            if self.has_failed():
                return
            # The task has not survived: say why, then end, so that the master starts a new one.
            self._tracker.keep()
            for command in task.crashed(error, now):
                self._dispatch(command)
            what = kind_and_message(error)
            self.exit = WorkerExit(EXIT_CRASHED, f"component {task.component_id!r} raised {what}")
            return
        finally:
            self._in_call.pop()
            self._deadlines.pop(task.id, None)
            self._without_work.discard(task.id)
            if event is _IDLE:
                self._flushed.add(task.id)
            else:
                self._flushed.discard(task.id)
        if self._bug is not None:
            # It came out of a task that ran while this one yielded; user code cannot have handled it.
            raise self._bug
        if self.exit is not None and self.has_failed():
            return
        if self._kept:
            self._hand_over.extendleft(reversed(self._kept))
            self._kept.clear()
        for command in commands:
            self._dispatch(command)

    def _dispatch(self, command: TaskCommand) -> None:
        if isinstance(command, SendFrame) and command.target in self.tasks:
            self._hand_over.append((self.tasks[command.target], FrameArrived(command.frame)))
        else:
            self._out.append(command)


def busy_component(worker: Worker, tracker: InFlightTracker) -> str:
    """Return the component whose user code is running, "" when none is."""
    task = tracker.task
    return worker.tasks[task].component_id if task is not None else ""
