"""A topology master with a hand on the clock: events go in, whole lists of commands come out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import count

from tests.unit.plan.parts import Lines, Sink
from topo.builder import TopologyBuilder
from topo.checkpoint.manifest import Manifest
from topo.ids import Epoch, Incarnation, TaskId, WorkerId
from topo.master.commands import MasterCommand, MasterRecord, Persist, SendTo, StartWorker
from topo.master.events import MasterEvent, Started, Tick, WorkerExited, WorkerMessage
from topo.master.master import TopologyMaster
from topo.master.positions import SpoutProgress
from topo.plan.physical import PhysicalPlan, physical_plan
from topo.tracking.suspects import InFlightTuples
from topo.wire import control
from topo.wire.control import Heartbeat, Quiet, Register, Routes, TaskReady, TaskRoute

DIGEST = "the plan's digest"

LINES, SINK, ACKER = TaskId(1), TaskId(2), TaskId(3)
"""The tasks of `small_plan`; task n lives in worker n - 1."""


def small_plan(**settings: object) -> PhysicalPlan:
    """Return a spout, a bolt and an acker, each in a separate worker unless `workers` packs them."""
    builder = TopologyBuilder("small").config(**settings)
    builder.set_spout("lines", Lines())
    builder.set_bolt("sink", Sink()).shuffle_grouping("lines")
    return physical_plan(builder.build())


def register_message(plan: PhysicalPlan, worker: int, incarnation: Incarnation, digest: str = DIGEST) -> Register:
    """Return the message of a worker whose inbox is bound."""
    tasks = list(plan.workers[worker])
    return Register(WorkerId(worker), incarnation, 1000 + worker, "here", "3.11", digest, tasks, f"inbox-{incarnation}")


class Play:
    """Drives a master. Every call checks the master's invariants.

    Incarnations are 101, 102, ... in the order in which workers are started.
    """

    def __init__(
        self,
        plan: PhysicalPlan | None = None,
        previous: MasterRecord | None = None,
        progress: Mapping[TaskId, SpoutProgress] | None = None,
        completed: Manifest | None = None,
        completed_in: str = "",
    ) -> None:
        self.plan = plan or small_plan()
        lives = count(101)
        self.draw: Callable[[], Incarnation] = lambda: Incarnation(next(lives))
        self.master = TopologyMaster(
            self.plan, DIGEST, self.draw, previous, progress, completed=completed, completed_in=completed_in
        )
        self.now = 0.0

    def do(self, event: MasterEvent) -> list[MasterCommand]:
        """Let something happen now."""
        commands = self.master.handle(event, self.now)
        self.master.validate()
        return commands

    def until(self, moment: float, *, silent: tuple[int, ...] = ()) -> list[MasterCommand]:
        """Let time pass, with a Tick at every deadline and heartbeats of all live workers but the silent ones."""
        commands: list[MasterCommand] = []
        beat_at = self.now + 1.0
        while True:
            deadline = self.master.next_deadline()
            at = min(beat_at, moment if deadline is None else max(deadline, self.now))
            if at >= moment:
                break
            self.now = at
            if at == beat_at:
                beat_at += 1.0
                for slot in self.master.membership.live():
                    if slot.worker not in silent:
                        commands += self.beat(slot.worker)
            else:
                commands += self.do(Tick())
        self.now = moment
        return commands + self.do(Tick())

    def life(self, worker: int) -> Incarnation:
        """Return the worker's present incarnation."""
        incarnation = self.master.membership.slots[WorkerId(worker)].incarnation
        assert incarnation is not None
        return incarnation

    def receives(self, worker: int, message: control.FromWorker) -> list[MasterCommand]:
        """Let the worker's present life say something."""
        return self.do(WorkerMessage(WorkerId(worker), self.life(worker), message))

    def beat(self, worker: int, **counters: float) -> list[MasterCommand]:
        """Send a heartbeat, with counters for the worker's first task."""
        tasks = {self.plan.workers[worker][0]: {"counters": counters}} if counters else {}
        return self.receives(worker, Heartbeat(WorkerId(worker), self.life(worker), 1, self.epoch, "", tasks))

    def register(self, worker: int) -> list[MasterCommand]:
        """Let the worker's present life register."""
        return self.receives(worker, register_message(self.plan, worker, self.life(worker)))

    def ready(self, task: int) -> list[MasterCommand]:
        """Let a task report ready in the present epoch."""
        return self.receives(self.plan.worker_of(task), TaskReady(TaskId(task), self.epoch))

    def all_ready(self) -> list[MasterCommand]:
        """Let all tasks report ready; return the last answer."""
        commands: list[MasterCommand] = []
        for task in self.plan.tasks:
            commands = self.ready(task.id)
        return commands

    def quiet(
        self,
        task: int,
        probe: int = 0,
        *,
        ended: bool = True,
        quiet: bool = True,
        sent: int = 0,
        received: int = 0,
        pending: int = 0,
        refused: str = "",
    ) -> list[MasterCommand]:
        """Let a task report its Quiet facts in the present epoch."""
        facts = Quiet(TaskId(task), self.epoch, probe, ended, quiet, sent, received, pending, "" if quiet else "busy", refused)
        return self.receives(self.plan.worker_of(task), facts)

    def answer_probe(self, probe: int, **facts: int) -> list[MasterCommand]:
        """Let all tasks answer a round in the same way; return the last answer."""
        commands: list[MasterCommand] = []
        for task in self.plan.tasks:
            commands = self.quiet(task.id, probe, **facts)
        return commands

    def exits(self, worker: int, why: str = "killed by SIGKILL", in_flight: InFlightTuples | None = None) -> list[MasterCommand]:
        """Let the worker's present process end."""
        return self.do(WorkerExited(WorkerId(worker), self.life(worker), why, in_flight))

    @property
    def epoch(self) -> Epoch:
        """The master's present epoch."""
        return self.master.recovery.epochs.epoch

    def replace(self, worker: int, in_flight: InFlightTuples | None = None) -> list[MasterCommand]:
        """Let a worker die and its replacement register; return the commands that follow the registration."""
        self.exits(worker, in_flight=in_flight)
        self.until(self.master.membership.slots[WorkerId(worker)].start_at)
        return self.register(worker)


def running(plan: PhysicalPlan | None = None, **settings: object) -> Play:
    """Return a master whose topology runs in epoch 1, at second 1; worker k has incarnation 101 + k."""
    play = Play(plan or small_plan(**settings))
    play.do(Started())
    play.now = 1.0
    for worker in range(len(play.plan.workers)):
        play.register(worker)
    play.all_ready()
    return play


def routes_in(commands: list[MasterCommand]) -> dict[int, Routes]:
    """Return the Routes among commands, by worker."""
    return {
        command.worker: command.message
        for command in commands
        if isinstance(command, SendTo) and isinstance(command.message, Routes)
    }


def messages_in(commands: list[MasterCommand]) -> list[tuple[int, control.FromMaster]]:
    """Return the messages sent, and to which worker."""
    return [(command.worker, command.message) for command in commands if isinstance(command, SendTo)]


def started_in(commands: list[MasterCommand]) -> list[int]:
    """Return the workers that are started."""
    return [command.worker for command in commands if isinstance(command, StartWorker)]


def record(epoch: int, *lives: int, term: int = 1, active: bool = True, has_run: bool = True) -> Persist:
    """Return the Persist of a small topology."""
    incarnations = {WorkerId(worker): Incarnation(life) for worker, life in enumerate(lives)}
    return Persist(MasterRecord(term, Epoch(epoch), incarnations, active, has_run=has_run))


def route(task: int, life: int) -> TaskRoute:
    """Return where a task of a small topology is reached."""
    return TaskRoute(TaskId(task), WorkerId(task - 1), Incarnation(life), f"inbox-{life}")


def routes(epoch: int, *lives: int, term: int = 1, **fields: object) -> Routes:
    """Return the Routes of a small topology, by the lives of its workers."""
    table = [route(task, life) for task, life in enumerate(lives, start=1)]
    return Routes(term=term, epoch=Epoch(epoch), routes=table, **fields)  # type: ignore[arg-type]


def close(play: Play) -> list[MasterCommand]:
    """Let every task close and every worker exit; return the last answer."""
    commands: list[MasterCommand] = []
    for worker, tasks in enumerate(play.plan.workers):
        for task in tasks:
            play.receives(worker, control.Closed(task))
        commands = play.exits(worker, "exited with 0")
    return commands


def probe(number: int, epoch: int = 1) -> list[MasterCommand]:
    return [SendTo(WorkerId(worker), Incarnation(101 + worker), control.Probe(number, Epoch(epoch))) for worker in (0, 1, 2)]


def closing(drain: bool = False) -> list[MasterCommand]:
    return [SendTo(WorkerId(worker), Incarnation(101 + worker), control.Close(Epoch(1), drain)) for worker in (0, 1, 2)]
