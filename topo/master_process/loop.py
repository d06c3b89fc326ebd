"""The shell around the topology master's decisions: sockets, files, child processes, the clock.

It turns what arrives into events, calls `TopologyMaster.handle`, and performs the commands in order; a Persist is on disk before
anything behind it is performed. One thread.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import msgspec

from topo.checkpoint.store_messages import StoreCommand
from topo.dead_letters.records import known_letters, letter_row
from topo.errors import EnvironmentFault, FrameError, TopoError, UserError
from topo.ids import Incarnation, TaskId, WorkerId, new_incarnation
from topo.master.commands import (
    Finished,
    MasterCommand,
    MasterRecord,
    Persist,
    RecordError,
    SendTo,
    StartWorker,
    StopWorker,
    StoreDeadLetters,
    StorePositions,
)
from topo.master.ending import EndingStage
from topo.master.events import (
    ActivateAsked,
    DeactivateAsked,
    DeadLettersWritten,
    DrainAsked,
    InFlightTuples,
    KillAsked,
    LaunchFailed,
    MasterEvent,
    MessagesLost,
    RestartAsked,
    SavepointAsked,
    Started,
    Tick,
    WorkerExited,
    WorkerLaunched,
    WorkerMessage,
)
from topo.master.master import TopologyMaster
from topo.master.outcome import Outcome
from topo.master.positions import SpoutProgress
from topo.master_process.checkpoint_thread import CheckpointWriterThread
from topo.master_process.control_link import ControlLink
from topo.master_process.part_server import PartServer
from topo.master_process.restore_point import Restored, checkpoint_to_restore, start_of
from topo.observability.status import Status, describe
from topo.plan.physical import PhysicalPlan
from topo.storage.checkpoint_store import open_store
from topo.storage.master_record import RecordDamaged, read_record, record_by_clock, write_record
from topo.storage.part_service import PartService
from topo.storage.state_folder import (
    StateFolderLost,
    TopologyFolder,
    append_lines,
    json_lines,
    make_socket_folder,
    remove_socket_folder,
    rotate,
    write_atomically,
)
from topo.transport import descriptors
from topo.transport.base import MAX_LINK_MESSAGE
from topo.transport.security import KeyPair
from topo.transport.zmq import new_key_pair
from topo.user_code.copy import as_user_knows_it, origin_of_copy
from topo.wire import control
from topo.wire.codec import Codec
from topo.wire.serializers import SerializerRegistry
from topo.worker.crash_marker import read_note
from topo.worker.spec import WorkerSpec, parse_identity

_LOG = logging.getLogger(__name__)

LONGEST_SLEEP_S = 0.5
LAST_WORDS_S = 0.05
"""The end of a process may be seen before what it said last, its final figures among it, has been read."""
LATE_WORDS_S = 2.0
"""So long on a busy machine, where it is known that something is still to come."""
ENDED_WELL = "exited"
"""The end of a process that has ended by itself, with 0."""
LOOK_S = 0.5
"""Interval between two looks at whether the state folder and the sockets are still there."""
RETRY_S = 0.5
"""Wait before something that could not be written is tried again."""
PROGRESS_S = 0.25
"""How often whoever watches is told how it goes."""
_MOST_UNSAVED = 100
MAX_ERRORS_BYTES = 16 << 20
"""Size at which the file of errors is rotated; one older file is kept."""


@dataclass(frozen=True, slots=True)
class WorkerEnd:
    """A worker's process is gone: which life, and how, in words."""

    worker: WorkerId
    incarnation: Incarnation
    description: str


class Launcher(Protocol):
    """Where worker processes come from."""

    def start(self, worker: WorkerId, incarnation: Incarnation, spec: WorkerSpec) -> None:
        """Start a worker. Raises EnvironmentFault when it cannot be."""

    def poll(self) -> list[WorkerEnd]:
        """Return the workers that have ended since the last call."""

    def stop(self, worker: WorkerId, incarnation: Incarnation, *, kill: bool) -> None:
        """End a worker: by SIGKILL, or by SIGTERM. One that is gone is fine."""

    def descriptors(self) -> Iterable[int]:
        """Return descriptors that become readable when a worker ends."""

    def close(self) -> None:
        """Kill what is left."""


@dataclass(frozen=True, slots=True)
class Job:
    """What a master runs.

    Attributes:
        folder: the topology's files.
        reference: the copied code, `path[:attribute]`, as workers import it.
        py_files: copied modules and archives that it imports from, besides its own folder.
        parameters: of the topology function.
        settings: that replace the topology's own, by public name.
        parallelism: tasks by component, where they are not those that the code says.
        foreground: workers end with this process.
        checkpoints: path or URL of this run's own folder of checkpoints; empty where none are taken.
        start_from: path or URL of a savepoint that it begins from, while it has no checkpoint of its own.
        drop_state: components of that savepoint whose state nobody takes.
        otherwise: what the start says when there is nothing to go on from, such as "starts from the beginning".
        is_spread: workers are on other machines, which may share no disk with this one.
        serializers: of the types that tuples carry.
    """

    folder: TopologyFolder
    plan: PhysicalPlan
    reference: str
    code_hash: str
    py_files: tuple[str, ...] = ()
    parameters: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    parallelism: Mapping[str, int] = field(default_factory=dict)
    foreground: bool = True
    checkpoints: str = ""
    start_from: str = ""
    drop_state: tuple[str, ...] = ()
    otherwise: str = "starts from the beginning"
    is_spread: bool = False
    serializers: SerializerRegistry = field(default_factory=SerializerRegistry)


Watcher = Callable[[dict[str, Any]], None]
Incident = Callable[[RecordError], None]


class MasterShell:
    """Runs one topology to its end.

    Args:
        job: what to run. The caller holds the folder's lock.
        launcher: where workers come from.
        on_progress: called now and then with the status, in this thread.
        on_incident: called with each error as it is recorded.
        asked: where signal handlers put what they want; read in each turn.
    """

    def __init__(
        self,
        job: Job,
        launcher: Launcher,
        on_progress: Watcher | None = None,
        on_incident: Incident | None = None,
        asked: list[MasterEvent] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        descriptors.ensure(descriptors.of_master(job.plan), f"the master of {job.plan.name!r}")
        self._job = job
        self._launcher = launcher
        self._on_progress = on_progress
        self._on_incident = on_incident
        self._clock = clock
        self._codec = Codec(job.serializers)
        self._sockets = make_socket_folder(os.environ)
        config = job.plan.config
        self._keys = new_key_pair() if config.transport == "tcp" else None
        self._worker_keys: dict[tuple[WorkerId, Incarnation], KeyPair] = {}
        self.link = ControlLink(self._sockets, self._keys, config.host)
        self._progress: dict[TaskId, SpoutProgress] = _read_progress(job.folder.positions)
        self.digest = job.plan.digest(job.code_hash)
        record, damage = _last_record(job.folder.master)
        self._keeper: CheckpointWriterThread | None = None
        self._restored = Restored(None)
        self._served: list[str] = []
        self._parts: PartServer | None = None
        if job.checkpoints:
            store = open_store(job.checkpoints, job.plan.name, config.checkpoint_keep)
            expected = 0 if record is None else record.completed
            self._restored = checkpoint_to_restore(
                store, job.plan, expected=expected, start_from=job.start_from, drop=job.drop_state
            )
            if damage:
                _check_whole(self._restored, damage, store.url, job.plan.name)
                record = record_by_clock(store.highest())
            store.abandon(self._restored.passed_over)
            self._keeper = CheckpointWriterThread(store, job.plan.name)
        has_positions = any(kept.position for kept in self._progress.values()) and not job.checkpoints
        positions_ms = int(job.folder.positions.stat().st_mtime * 1000) if has_positions else None
        self.start = start_of(self._restored, job.start_from, positions_ms, job.otherwise)
        """Where the run starts, for users."""
        if job.is_spread and self._keeper is not None:
            own = [] if config.checkpoint_folder else [job.checkpoints]
            self._served = own + [folder for folder in [self._restored.folder] if folder and "://" not in folder]
        if self._served:
            # Each worker writes one part at a time; its predecessor may have left one.
            self._parts = PartServer(self.link, config.host, PartService(self._served, 2 * len(job.plan.workers)))
        self.master = TopologyMaster(
            job.plan,
            self.digest,
            new_incarnation,
            record,
            self._progress,
            self._codec,
            known_letters(json_lines(job.folder.dead_letters)),
            self._restored.manifest,
            self._restored.folder,
        )
        self._damage = damage
        self._asked: list[MasterEvent] = [] if asked is None else asked
        self._outcome: Outcome | None = None
        self._started_ms = int(time.time() * 1000)
        self._alive_at = 0.0
        self._told_at = 0.0
        self._ended: list[tuple[WorkerEnd, float]] = []
        self._to_do: deque[MasterCommand] = deque()
        self._unsent: dict[tuple[WorkerId, Incarnation], deque[bytes]] = {}
        """What workers are to be told whose connection is not there for the moment. Few: one that stays away counts as lost."""
        self._sent_count: Counter[tuple[WorkerId, Incarnation]] = Counter()
        """How many messages each life was sent, but for Alive."""
        self._received_count: Counter[bytes] = Counter()
        """How many messages have come on each connection."""
        self._retry_at = 0.0
        self._held_up = ""
        """Why the next command cannot be performed yet: its state cannot be written."""
        self._unsaved: deque[bytes] = deque(maxlen=_MOST_UNSAVED)
        """Rows of errors that the disk had no room for."""
        self._save_at = 0.0
        self._copied_from = origin_of_copy(job.reference, job.folder.code)
        self._lock = job.folder.lock_identity()
        self._is_folder_lost = False
        self._look_at = 0.0

    def run(self) -> Outcome:
        """Run the topology to its end, and return how it ended.

        Raises:
            StateFolderLost: the state folder or its lock is not this master's any more. Its workers are killed, nothing is
                written: another master may run under the name.
            EnvironmentFault: the folder of the sockets was removed and cannot be made again. The workers are killed.
        """
        _LOG.info("%s %s", self._job.plan.name, self.start.text)
        try:
            if self._damage:
                self._record(RecordError("RecordDamaged", f"{self._damage}; going on from what else is stored, and not paused"))
            for problem in self._restored.problems:
                self._record(RecordError("CheckpointDamaged", f"{problem}; going on from an earlier one"))
            self._handle(Started())
            while self._outcome is None:
                self._turn()
            self._write_summary(self._outcome)
            if self._on_progress is not None:
                self._on_progress(self.status())
            return self._outcome
        finally:
            self._launcher.close()
            if self._keeper is not None:
                self._keeper.close()
            if self._parts is not None:
                self._parts.close()
            self.link.close()
            remove_socket_folder(self._sockets)
            if self._is_folder_lost:
                # Checkpoints that were under way have made folders again.
                self._job.folder.remove_remains()

    def ask(self, event: MasterEvent) -> None:
        """Have an operator's wish handled in the next turn; for signal handlers and callers of the same process."""
        self._asked.append(event)

    def status(self) -> dict[str, Any]:
        """Return what `topo status` shows."""
        status = describe(self.master, self._clock())
        status |= {
            "start": {"goes_on": self.start.goes_on, "text": self.start.text},
            "master": {"pid": os.getpid(), "started_ms": self._started_ms},
            "ended_ms": None,
        }
        if status["checkpoints"] is not None:
            status["checkpoints"]["folder"] = self._job.checkpoints
        # On a full disk `topo errors` has no row of it, so the status itself has to say why nothing moves.
        if self._outcome is None and (problem := self._held_up or self._latest_unsaved()):
            status["reason"] = "; ".join(filter(None, (status["reason"], problem)))
            if status["status"] == Status.RUNNING.value:
                status["status"] = Status.DEGRADED.value
        return status

    def _latest_unsaved(self) -> str:
        """Return kind and message of the latest error that `topo errors` lacks because it cannot be written; "" for none."""
        if not self._unsaved:
            return ""
        row = json.loads(self._unsaved[-1])
        return f"{row['kind']}: {row['message']}"

    def _turn(self) -> None:
        now = self._clock()
        deadline = self.master.next_deadline()
        deadlines = [self._alive_at, *(self._heard_by(*ended) for ended in self._ended)]
        deadlines += [deadline] if deadline is not None else []
        until = min(now + LONGEST_SLEEP_S, *deadlines)
        self.link.wait(0 if self._asked else max(0.0, until - now), self._descriptors())
        self._look_at_files(self._clock())
        self._work_off(self._clock())
        if self._unsaved and self._clock() >= self._save_at:
            self._save_errors()
        if self._keeper is not None:
            self._asked += self._keeper.answers()
        while self._asked:
            self._handle(self._asked.pop(0))
        for identity, data in self.link.from_workers():
            self._from_worker(identity, data)
        self._send_again()
        now = self._clock()
        self._ended += [(end, now) for end in self._launcher.poll()]
        for end, seen_at in self._ended[:]:
            if self._heard_by(end, seen_at) <= now:
                self._ended.remove((end, seen_at))
                self._worker_ended(end)
        for identity, data in self.link.from_clients():
            self._from_client(identity, data)
        now = self._clock()
        if (deadline := self.master.next_deadline()) is not None and now >= deadline:
            self._handle(Tick())
        if now >= self._alive_at:
            self._alive_at = now + self._job.plan.config.heartbeat_s
            for slot in self.master.membership.live():
                if slot.incarnation is not None:
                    alive = control.Alive(self._sent_count[slot.worker, slot.incarnation])
                    self.link.to_worker(_address(slot.worker, slot.incarnation), control.encode(alive))
        if self._on_progress is not None and now >= self._told_at + PROGRESS_S:
            self._told_at = now
            self._on_progress(self.status())

    def _look_at_files(self, now: float) -> None:
        """Notice now and then that files were removed or replaced under the running topology."""
        if now < self._look_at:
            return
        self._look_at = now + LOOK_S
        with contextlib.suppress(OSError):
            self._is_folder_lost = self._job.folder.lock_identity() != self._lock
            if self._is_folder_lost:
                raise StateFolderLost(
                    f"the state folder {self._job.folder.path} or its lock was removed or replaced while {self._job.plan.name!r} "
                    "ran; the topology has ended with its workers, since another one may be started under its name now"
                )
        self._listen_again()

    def _listen_again(self) -> None:
        if self.link.listen_again():
            self._record(RecordError("SocketsRemoved", f"{self._sockets} was removed while the topology ran; it is made anew"))

    def _descriptors(self) -> list[int]:
        own = [] if self._keeper is None else [self._keeper.descriptor]
        return [*self._launcher.descriptors(), *own]

    def _handle(self, event: MasterEvent) -> None:
        now = self._clock()
        self._to_do.extend(self.master.handle(event, now))
        self._work_off(now)

    def _work_off(self, now: float) -> None:
        """Perform commands in order. One that must be on disk and cannot be written holds up those behind it."""
        while self._to_do and now >= self._retry_at:
            try:
                self._perform(self._to_do[0])
            except EnvironmentFault as error:
                if self.master.ending.stage is EndingStage.SERVING:
                    self._retry_at = now + RETRY_S
                    self._held_up = f"{error}; the topology stands still until it can be written"
                    self._record(RecordError("StateNotStored", self._held_up))
                    return
                # Nobody begins anything on the strength of it any more.
                self._record(RecordError("StateNotStored", str(error)))
            self._held_up = ""
            self._to_do.popleft()

    # -- what arrives ----------------------------------------------------------------------------------------------------

    def _from_worker(self, identity: bytes, data: bytes) -> None:
        who = parse_identity(identity)
        if who is None:
            _LOG.warning("dropped a message of %r, which is no worker", identity)
            return
        before = self._received_count[identity]
        self._received_count[identity] += 1
        try:
            message = control.decode_from_worker(data, MAX_LINK_MESSAGE)
        except FrameError as error:
            _LOG.warning("worker %s sent %s", who[0], error)
            return
        if isinstance(message, control.Heartbeat) and message.said > before:
            # Nobody would say again what they have said.
            why = f"the connection has lost messages: it has sent {message.said}, and {before} have arrived"
            self._handle(MessagesLost(*who, why))
        self._handle(WorkerMessage(*who, message))

    def _heard_by(self, end: WorkerEnd, seen_at: float) -> float:
        """Return when the last words of a worker will have been read. One that ended well has said that it has closed."""
        is_closing = self.master.ending.stage is EndingStage.CLOSING and end.description == ENDED_WELL
        has_more = is_closing and not self.master.ending.has_closed(self._job.plan.workers[end.worker])
        return seen_at + (LATE_WORDS_S if has_more else LAST_WORDS_S)

    def _worker_ended(self, end: WorkerEnd) -> None:
        note = self._note(end.worker, end.incarnation)
        in_hand = None
        if (found := read_note(note)) is not None:
            in_hand = InFlightTuples(tuple(found.roots), tuple((TaskId(task), position) for task, position in found.positions))
        for path in (note, self._spec_path(end.worker, end.incarnation)):
            with contextlib.suppress(OSError):
                path.unlink()
        self._worker_keys.pop((end.worker, end.incarnation), None)
        del self._sent_count[end.worker, end.incarnation]
        del self._received_count[_address(end.worker, end.incarnation)]
        self._handle(WorkerExited(end.worker, end.incarnation, end.description, in_hand))

    def _from_client(self, identity: bytes, data: bytes) -> None:
        try:
            request = control.decode_request(data)
            answer = control.encode(control.Reply(ok=True, result=self._answer(request.verb, request.arguments)))
        except TopoError as error:
            answer = control.encode(control.Reply(ok=False, error=str(error)))
        except Exception as error:  # odd arguments, or a sum of users' counters that cannot be sent, must not end the topology
            _LOG.exception("a client's request failed")
            answer = control.encode(control.Reply(ok=False, error=f"{type(error).__name__}: {error}"))
        self.link.to_client(identity, answer)

    def _answer(self, verb: str, arguments: Mapping[str, Any]) -> Any:
        if verb == "ping":
            return {"pid": os.getpid(), "term": self.master.term}
        if verb == "status":
            return self.status()
        wishes: dict[str, Callable[[], MasterEvent]] = {
            "activate": ActivateAsked,
            "deactivate": DeactivateAsked,
            "kill": KillAsked,
            "drain": lambda: DrainAsked(
                float(arguments.get("within_s", self._job.plan.config.drain_timeout_s)), str(arguments.get("savepoint", ""))
            ),
            "savepoint": lambda: SavepointAsked(str(arguments["folder"])),
            "restart": lambda: RestartAsked(WorkerId(int(arguments["worker"]))),
        }
        if verb not in wishes:
            raise FrameError(f"the master does not know the verb {verb!r}")
        if self._keeper is None and (verb == "savepoint" or arguments.get("savepoint")):
            raise UserError(f"{self._job.plan.name} takes no checkpoints; run it with -s delivery=exactly_once")
        if arguments.get("savepoint") and not self.master.recovery.epochs.has_run:
            raise UserError(f"{self._job.plan.name} has not begun yet, so there is nothing to save; try again when it runs")
        self._handle(wishes[verb]())
        return {}

    # -- what is to be done ----------------------------------------------------------------------------------------------

    def _perform(self, command: MasterCommand) -> None:
        if isinstance(command, SendTo):
            self._send(command)
        elif isinstance(command, RecordError):
            self._record(command)
        elif isinstance(command, Persist):
            self._persist(command.record)
        elif isinstance(command, StartWorker):
            self._start(command.worker, command.incarnation)
        elif isinstance(command, StopWorker):
            self._launcher.stop(command.worker, command.incarnation, kill=command.kill)
        elif isinstance(command, StorePositions):
            self._store_positions(command.progress)
        elif isinstance(command, StoreDeadLetters):
            self._store_letters(command)
        elif isinstance(command, StoreCommand):
            if self._keeper is not None:
                self._keeper.do(command)
        elif isinstance(command, Finished):
            self._outcome = command.outcome

    def _send(self, command: SendTo) -> None:
        """Tell a worker something. While its connection is being made again it waits, and so does what follows."""
        life = command.worker, command.incarnation
        data = control.encode(command.message)
        is_sent = life not in self._unsent and self._send_now(life, data)
        if not is_sent and self.master.membership.is_current(*life):
            self._unsent.setdefault(life, deque()).append(data)

    def _send_now(self, life: tuple[WorkerId, Incarnation], data: bytes) -> bool:
        is_sent = self.link.to_worker(_address(*life), data)
        self._sent_count[life] += is_sent
        return is_sent

    def _send_again(self) -> None:
        """Send what waits for workers that are back; forget what waits for those that are gone."""
        for life, waiting in list(self._unsent.items()):
            is_current = self.master.membership.is_current(*life)
            while is_current and waiting and self._send_now(life, waiting[0]):
                waiting.popleft()
            if not (is_current and waiting):
                del self._unsent[life]

    def _start(self, worker: WorkerId, incarnation: Incarnation) -> None:
        job, config = self._job, self._job.plan.config
        keys = KeyPair("", "")
        if self._keys is not None:
            keys = self._worker_keys[worker, incarnation] = new_key_pair()
            self.link.allow_list.replace(pair.public for pair in self._worker_keys.values())
        spec = WorkerSpec(
            topology=job.plan.name,
            worker=worker,
            incarnation=incarnation,
            term=self.master.term,
            reference=job.reference,
            # On a cluster Spark puts them on the path of its executors.
            py_files=[] if job.is_spread else list(job.py_files),
            parameters=dict(job.parameters),
            settings=dict(job.settings),
            parallelism=dict(job.parallelism),
            digest=self.digest,
            master_endpoint=self.link.worker_endpoint,
            master_key=self._keys.public if self._keys is not None else "",
            public_key=keys.public,
            secret_key=keys.secret,
            sockets="" if config.transport == "tcp" else str(self._sockets),
            host=config.host,
            note=str(self._note(worker, incarnation)),
            log=str(job.folder.logs / f"worker-{worker}.log"),
            checkpoints=job.checkpoints,
            served=self._served,
            parts_endpoint=self._parts.endpoint if self._parts is not None else "",
            folder=str(job.folder.components),
            parent=os.getpid() if job.foreground else 0,
        )
        try:
            self._listen_again()
            write_atomically(self._spec_path(worker, incarnation), msgspec.json.encode(spec))
            self._launcher.start(worker, incarnation, spec)
        except EnvironmentFault as error:
            self._asked.append(LaunchFailed(worker, incarnation, str(error)))
        else:
            self._asked.append(WorkerLaunched(worker, incarnation))

    def _spec_path(self, worker: WorkerId, incarnation: Incarnation) -> Path:
        return spec_path(self._job.folder, worker, incarnation)

    def _note(self, worker: WorkerId, incarnation: Incarnation) -> Path:
        return note_path(self._job.folder, worker, incarnation)

    def _persist(self, record: MasterRecord) -> None:
        write_record(
            self._job.folder.master,
            record,
            pid=os.getpid(),
            client_endpoint=self.link.client_endpoint,
            started_ms=self._started_ms,
        )

    def _store_positions(self, progress: Mapping[TaskId, SpoutProgress]) -> None:
        self._progress.update(progress)
        rows = {task: (kept.position, kept.attempts) for task, kept in self._progress.items()}
        try:
            write_atomically(self._job.folder.positions, msgspec.msgpack.encode(rows))
        except EnvironmentFault as error:
            self._record(RecordError("PositionsNotStored", str(error)))

    def _store_letters(self, command: StoreDeadLetters) -> None:
        try:
            append_lines(self._job.folder.dead_letters, map(self._letter_row, command.letters))
        except Exception as error:
            # Not confirmed, so the task keeps the messages, and it is tried again.
            why = str(error) if isinstance(error, EnvironmentFault) else f"{type(error).__name__}: {error}"
            self._record(RecordError("DeadLettersNotStored", why))
            return
        self._asked.append(DeadLettersWritten(command.worker, command.incarnation, command.letters))

    def _letter_row(self, letter: control.DeadLetter) -> bytes:
        component = self._job.plan.task(letter.task).component
        return letter_row(letter, component, self._codec, int(time.time() * 1000), self._of_the_original)

    def _of_the_original(self, text: str) -> str:
        """Say of the user's own file what is said of the copy that runs."""
        return text if self._copied_from is None else as_user_knows_it(text, *self._copied_from)

    def _record(self, error: RecordError) -> None:
        error = replace(
            error,
            file=self._of_the_original(error.file),
            message=self._of_the_original(error.message),
            traceback=self._of_the_original(error.traceback),
        )
        row = {
            "at_ms": error.at_ms or int(time.time() * 1000),
            "kind": error.kind,
            "message": error.message,
            "component": error.component,
            "task": error.task,
            "worker": error.worker,
            "file": error.file,
            "line": error.line,
            "count": error.count,
            "traceback": error.traceback,
        }
        self._unsaved.append(json.dumps(row).encode())
        self._save_errors()
        if self._on_incident is not None:
            self._on_incident(error)

    def _save_errors(self) -> None:
        self._save_at = self._clock() + RETRY_S
        with contextlib.suppress(EnvironmentFault):
            append_lines(self._job.folder.errors, self._unsaved)
            self._unsaved.clear()
            rotate(self._job.folder.errors, MAX_ERRORS_BYTES)

    def _write_summary(self, outcome: Outcome) -> None:
        summary = {**self.status(), "ended_ms": int(time.time() * 1000), "outcome": outcome.as_dict()}
        with contextlib.suppress(EnvironmentFault):
            write_atomically(self._job.folder.summary, json.dumps(summary, default=repr).encode())


def _address(worker: WorkerId, incarnation: Incarnation) -> bytes:
    """Return how a worker's connection is addressed."""
    return f"{worker}:{incarnation}".encode()


def spec_path(folder: TopologyFolder, worker: WorkerId, incarnation: Incarnation) -> Path:
    """Return where the start file of a worker's life is."""
    return folder.workers / f"{worker}-{incarnation}.json"


def note_path(folder: TopologyFolder, worker: WorkerId, incarnation: Incarnation) -> Path:
    """Return where a worker's life notes what it has in hand."""
    return folder.workers / f"{worker}-{incarnation}.note"


def _last_record(path: Path) -> tuple[MasterRecord | None, str]:
    """Return the last master's record; in the place of a damaged one another, and what is wrong with it."""
    try:
        return read_record(path), ""
    except RecordDamaged as error:
        return record_by_clock(), str(error)


def _check_whole(restored: Restored, damage: str, url: str, name: str) -> None:
    """Refuse to start from the beginning because the record is damaged: results could be published a second time."""
    if restored.manifest is None or restored.folder:
        raise EnvironmentFault(
            f"{damage}, and {url} has no whole checkpoint to go on from; `topo resume {name} --from-beginning` begins anew"
        )


def _read_progress(path: Path) -> dict[TaskId, SpoutProgress]:
    try:
        rows = msgspec.msgpack.decode(path.read_bytes(), type=dict[int, tuple[bytes, bytes]])
    except FileNotFoundError:
        return {}
    except (OSError, msgspec.MsgspecError) as error:
        raise EnvironmentFault(f"{path} is damaged ({error}); remove it to read the sources from the beginning") from error
    return {TaskId(task): SpoutProgress(*kept) for task, kept in rows.items()}
