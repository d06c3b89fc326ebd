"""The process of the topology master: what its loop runs on. It opens sockets, files and threads, sleeps, answers clients."""

from __future__ import annotations

import logging
import os
import time
from collections import deque
from collections.abc import Callable, Generator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from topo.dead_letters.records import known_letters
from topo.errors import FrameError, TopoEnvironmentError, TopoError, UserError
from topo.ids import WorkerId, new_incarnation
from topo.master.commands import MasterRecord, RecordError
from topo.master.ending import EndingStage
from topo.master.events import (
    ActivateAsked,
    DeactivateAsked,
    DrainAsked,
    KillAsked,
    MasterEvent,
    RestartAsked,
    SavepointAsked,
    Started,
)
from topo.master.master import TopologyMaster
from topo.master.outcome import Outcome
from topo.master_process.checkpoint_thread import CheckpointWriterThread
from topo.master_process.control_link import ControlLink
from topo.master_process.history_keeper import HistoryKeeper
from topo.master_process.job import Job
from topo.master_process.launcher import Launcher
from topo.master_process.loop import MasterLoop
from topo.master_process.observation_verbs import observation_verbs
from topo.master_process.part_server import PartServer
from topo.master_process.recorder import Incident, Recorder, read_progress
from topo.master_process.replay_desk import ReplayDesk
from topo.master_process.restore_point import Restored, checkpoint_to_restore, settle, start_of
from topo.master_process.starter import WorkerStarter
from topo.observability.overview import questions
from topo.observability.process_figures import ProcessFigures
from topo.observability.status import TopologyStatus, describe
from topo.storage.checkpoint_store import open_store
from topo.storage.master_record import RecordDamaged, read_record, record_by_clock
from topo.storage.part_service import PartService
from topo.storage.socket_folder import make_socket_folder, remove_socket_folder
from topo.storage.state_folder import StateFolderLost, json_lines
from topo.transport import descriptors
from topo.transport.base import MAX_LINK_MESSAGE
from topo.transport.zmq import new_key_pair
from topo.wire import control
from topo.wire.codec import Codec

_LOG = logging.getLogger(__name__)

LONGEST_SLEEP_S = 0.5
LOOK_S = 0.5
"""Interval between two checks that the state folder and the sockets exist."""
PROGRESS_S = 0.25
"""Interval between progress callbacks."""

_LATER = object()
"""In place of an answer that is made in slices and not complete."""

Watcher = Callable[[dict[str, Any]], None]


class MasterShell:
    """Runs one topology to its end.

    Args:
        job: what to run. The caller holds the folder's lock.
        launcher: where workers come from.
        on_progress: called at intervals with the status, in this thread.
        on_incident: called with each error as it is recorded.
        asked: where signal handlers put events; taken in each turn.
    """

    def __init__(
        self,
        job: Job,
        launcher: Launcher,
        on_progress: Watcher | None = None,
        on_incident: Incident | None = None,
        asked: list[MasterEvent] | None = None,
    ) -> None:
        descriptors.ensure(descriptors.of_master(job.plan), f"the master of {job.plan.name!r}")
        self._job = job
        self._launcher = launcher
        self._on_progress = on_progress
        self._sockets = make_socket_folder(os.environ)
        config = job.plan.config
        keys = new_key_pair() if config.transport == "tcp" else None
        self.link = ControlLink(self._sockets, keys, config.host)
        progress = read_progress(job.folder.positions)
        digest = job.plan.digest(job.submitted.code_hash)
        record, self._damage = _last_record(job.folder.master)
        self._keeper: CheckpointWriterThread | None = None
        self._restored = Restored(None)
        self._parts: PartServer | None = None
        if job.checkpoints:
            record = self._restore(record)
        has_positions = any(kept.position for kept in progress.values()) and not job.checkpoints
        positions_ms = int(job.folder.positions.stat().st_mtime * 1000) if has_positions else None
        self.start = start_of(self._restored, job.submitted.start_from, positions_ms, job.submitted.otherwise)
        """The starting point of the run, for users."""
        served: list[str] = []
        if job.is_spread and job.checkpoints:
            own = [] if config.checkpoint_folder else [job.checkpoints]
            served = own + [folder for folder in [self._restored.folder] if folder and "://" not in folder]
        if served:
            # Each worker writes one part at a time; its predecessor may have left one.
            self._parts = PartServer(self.link, config.host, PartService(served, 2 * len(job.plan.workers)))
        self.master = TopologyMaster(
            job.plan,
            digest,
            new_incarnation,
            record,
            progress,
            Codec(job.serializers),
            known_letters(json_lines(job.folder.dead_letters)),
            self._restored.manifest,
            self._restored.folder,
        )
        self._check_folder = partial(job.folder.check_identity, job.folder.lock_identity())
        self._recorder = Recorder(job, progress, self.link.client_endpoint, time.monotonic, on_incident, self._check_folder)
        parts_endpoint = self._parts.endpoint if self._parts is not None else ""
        starter = WorkerStarter(job, launcher, self.link, self._sockets, keys, digest, served, parts_endpoint, self._before_start)
        self.loop = MasterLoop(self.master, self.link, starter, self._recorder, self._keeper, time.monotonic, asked)
        self._figures = ProcessFigures()
        asked_for = questions(self.master, time.monotonic)
        of_overview = asked_for["overview"]
        self._questions: dict[str, Callable[..., Any]] = asked_for | {
            "status": self.status,
            "overview": lambda **arguments: self._with_process(of_overview(**arguments)),
        }
        self._history = HistoryKeeper(job.folder.history, lambda: of_overview(window="1s", buckets=True))
        self._questions["history"] = self._history.answer
        self._replays = ReplayDesk(job.folder, job.plan, self._recorder.append_replays, self.loop.handle)
        self._slow: deque[tuple[bytes, Generator[None, None, Any]]] = deque()
        """Answers that are made in slices, and to whom; the first is under way."""
        self._questions |= observation_verbs(self.loop, time.monotonic)
        self._reported_at = 0.0
        self._look_at = 0.0

    def _restore(self, record: MasterRecord | None) -> MasterRecord | None:
        """Open the store and find the checkpoint to restore; return the record, or another one in place of a damaged one."""
        job = self._job
        store = open_store(job.checkpoints, job.plan.name, job.plan.config.checkpoint_keep)
        store.make_root()
        expected = 0 if record is None else record.completed
        self._restored = checkpoint_to_restore(
            store, job.plan, expected=expected, start_from=job.submitted.start_from, drop=job.submitted.drop_state
        )
        if self._damage:
            _check_whole(self._restored, self._damage, store.url, job.plan.name)
            record = record_by_clock(store.highest())
        settle(store, self._restored, 0 if record is None else record.checkpoint)
        self._keeper = CheckpointWriterThread(store, job.plan.name)
        return record

    def run(self) -> Outcome:
        """Run the topology to its end, and return how it ended.

        Raises:
            StateFolderLost: the state folder or its lock is not this master's any more. Its workers are killed, nothing is
                written: another master may run under the name.
            TopoEnvironmentError: the folder of the sockets was removed and cannot be made again. The workers are killed.
        """
        _LOG.info("%s %s", self._job.plan.name, self.start.text)
        try:
            if self._damage:
                self._recorder.record(
                    RecordError("RecordDamaged", f"{self._damage}; going on from what else is stored, and not paused")
                )
            for problem in self._restored.problems:
                self._recorder.record(RecordError("CheckpointDamaged", f"{problem}; an earlier one is restored"))
            self.loop.handle(Started())
            deque(self._replays.resume(self._recorder.store_replays), maxlen=0)
            while self.loop.outcome is None:
                self.sleep()
                self.turn()
            self._history.close()
            self._recorder.write_summary(self.status(), self.loop.outcome)
            if self._on_progress is not None:
                self._on_progress(self.status())
            return self.loop.outcome
        finally:
            self._launcher.close()
            if self._keeper is not None:
                self._keeper.close()
            if self._parts is not None:
                self._parts.close()
            self.link.close()
            remove_socket_folder(self._sockets)

    def status(self) -> dict[str, Any]:
        """Return what `topo status` shows."""
        return self._with_process(describe(self.master, time.monotonic()))

    def _with_process(self, status: dict[str, Any]) -> dict[str, Any]:
        """Add to a status what only the process knows: where the run started, its own cost, and a disk that is full."""
        status |= {
            "start": {"goes_on": self.start.goes_on, "text": self.start.text},
            "master": {"pid": os.getpid(), "started_ms": self._recorder.started_ms, **self._figures.read()},
            "ended_ms": None,
        }
        if status["checkpoints"] is not None:
            status["checkpoints"]["folder"] = self._job.checkpoints
        # On a full disk `topo errors` has no row of it, so the status itself has to say why nothing moves.
        if self.loop.outcome is None and (problem := self.loop.held.problem or self._recorder.latest_unsaved()):
            status["reason"] = "; ".join(filter(None, (status["reason"], problem)))
            if status["status"] == TopologyStatus.RUNNING.value:
                status["status"] = TopologyStatus.DEGRADED.value
        return status

    def sleep(self) -> None:
        """Sleep until something arrives or the next turn is due."""
        own = [] if self._keeper is None else [self._keeper.descriptor]
        left_s = 0.0 if self._slow else self.loop.next_turn() - time.monotonic()
        self.link.wait(min(LONGEST_SLEEP_S, max(0.0, left_s)), [*self._launcher.descriptors(), *own])

    def turn(self) -> None:
        """Turn the loop once, and do what only a process has to: look at files, answer clients, report progress."""
        self._look_at_files(time.monotonic())
        self._recorder.save_again(time.monotonic())
        self.loop.turn()
        for identity, data in self.link.from_clients():
            self._from_client(identity, data)
        if self._slow and self._answered(self._slow[0][0], partial(_next_slice, self._slow[0][1])):
            self._slow.popleft()
        now = time.monotonic()
        self._history.tick(now)
        if self._on_progress is not None and now >= self._reported_at + PROGRESS_S:
            self._reported_at = now
            self._on_progress(self.status())

    def _look_at_files(self, now: float) -> None:
        """Notice now and then that files were removed or replaced under the running topology."""
        if now < self._look_at:
            return
        self._look_at = now + LOOK_S
        try:
            self._check_folder()
        except StateFolderLost as error:
            raise StateFolderLost(
                f"{error}; the topology has ended with its workers, since another one may be started under its name now"
            ) from None
        self._listen_again()

    def _before_start(self) -> None:
        self._check_folder()
        self._listen_again()

    def _listen_again(self) -> None:
        if self.link.listen_again():
            self._recorder.record(
                RecordError("SocketsRemoved", f"{self._sockets} was removed while the topology ran; it is made again")
            )

    # -- clients -------------------------------------------------------------------------------------------------------------

    def _from_client(self, identity: bytes, data: bytes) -> None:
        def make() -> Any:
            request = control.decode_request(data)
            if request.verb != "replay":
                return self._answer(request.verb, request.arguments)
            self._slow.append((identity, self._replays.answer(**request.arguments)))
            return _LATER

        self._answered(identity, make)

    def _answered(self, identity: bytes, make: Callable[[], Any]) -> bool:
        """Answer a client with what `make` returns or raises; return False where that is `_LATER`."""
        try:
            if (result := make()) is _LATER:
                return False
            answer = control.encode(control.Reply(ok=True, result=result))
            if len(answer) > MAX_LINK_MESSAGE:
                # The client's socket would drop it with the connection, and the master seem to be stopped.
                raise UserError(
                    f"the answer has {len(answer):,} bytes, and at most {MAX_LINK_MESSAGE:,} can be sent: ask for a shorter time "
                    "or fewer components or series, or keep fewer metrics"
                )
        except TopoError as error:
            answer = control.encode(control.Reply(ok=False, error=str(error)))
        except Exception as error:  # odd arguments, or a sum of users' counters that cannot be sent, must not end the topology
            _LOG.exception("a client's request failed")
            answer = control.encode(control.Reply(ok=False, error=f"{type(error).__name__}: {error}"))
        self.link.to_client(identity, answer)
        return True

    def _answer(self, verb: str, arguments: Mapping[str, Any]) -> Any:
        if verb == "ping":
            return {"pid": os.getpid(), "term": self.master.term}
        if verb in self._questions:
            return self._questions[verb](**arguments)
        wishes: dict[str, Callable[[], MasterEvent]] = {
            "activate": ActivateAsked,
            "deactivate": DeactivateAsked,
            "kill": KillAsked,
            "drain": lambda: DrainAsked(
                float(arguments.get("within_s", self._job.plan.config.drain_timeout_s)),
                str(arguments.get("savepoint", "")),
                restarts=bool(arguments.get("restarts", False)),
            ),
            "savepoint": lambda: SavepointAsked(str(arguments["folder"])),
            "restart": lambda: RestartAsked(WorkerId(int(arguments["worker"]))),
        }
        if verb not in wishes:
            raise FrameError(f"the master does not know the verb {verb!r}")
        workers, ending = self.master.membership.slots, self.master.ending
        is_ending, name = ending.is_draining or ending.stage is not EndingStage.SERVING, self._job.plan.name
        if arguments.get("restarts") and is_ending:
            raise UserError(
                f"{name} is ending, as by `topo kill` or `topo rebalance`; change it when it has ended, or after `topo resume`"
            )
        if verb in ("activate", "deactivate") and is_ending:
            raise UserError(
                f"{name} is ending, as by `topo kill` or `topo rebalance`, and its spouts are paused until then; "
                f"when it has ended, `topo resume {name}` starts it, and then they can be paused or emit"
            )
        if verb == "restart" and int(arguments["worker"]) not in workers:
            raise UserError(f"{self._job.plan.name} has no worker {arguments['worker']}; it has 0 to {len(workers) - 1}")
        if self._keeper is None and (verb == "savepoint" or arguments.get("savepoint")):
            raise UserError(f"{self._job.plan.name} takes no checkpoints; run it with -s delivery=exactly_once")
        if arguments.get("savepoint") and not self.master.recovery.epochs.has_run:
            raise UserError(f"{self._job.plan.name} has not begun yet, so there is nothing to save; try again when it runs")
        self.loop.handle(wishes[verb]())
        return {}


def _next_slice(work: Generator[None, None, Any]) -> Any:
    try:
        next(work)
    except StopIteration as end:
        return end.value
    return _LATER


def _last_record(path: Path) -> tuple[MasterRecord | None, str]:
    """Return the last master's record; in the place of a damaged one another, and its damage."""
    try:
        return read_record(path), ""
    except RecordDamaged as error:
        return record_by_clock(), str(error)


def _check_whole(restored: Restored, damage: str, url: str, name: str) -> None:
    """Refuse to start from the beginning because the record is damaged: results could be published a second time."""
    if restored.manifest is None or restored.folder:
        raise TopoEnvironmentError(
            f"{damage}, and {url} has no whole checkpoint to continue from; "
            f"`topo resume {name} --from-beginning` starts from the beginning"
        )
