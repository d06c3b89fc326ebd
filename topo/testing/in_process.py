"""A cluster in one process: the loops of worker and master processes, with their tasks, on a manual clock.

Every task has its own worker, so that every tuple is encoded. Messages between two workers stay in order; whose turn it is,
and how much it reads, is drawn from a seed. A round is a turn of each and takes ROUND_S; when a round finds nothing to do
the clock advances to the next deadline.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from math import inf
from random import Random
from typing import TYPE_CHECKING

from topo.hot import unpack_words
from topo.ids import Incarnation, TaskId, WorkerId
from topo.master.ending import EndingStage
from topo.master.epochs import EpochState
from topo.master.events import LaunchFailed, MasterEvent, Started, WorkerLaunched, WorkerMessage
from topo.master.links import ENDED_WELL, Life, WorkerEnd
from topo.master.master import TopologyMaster
from topo.master.outcome import Outcome
from topo.master_process.loop import MasterLoop
from topo.plan.physical import PhysicalPlan
from topo.task.guarantees.tracked_source import TrackedSource
from topo.task.task import Task
from topo.testing.clock import ManualClock
from topo.testing.memory_files import MemoryCheckpoints
from topo.testing.memory_records import MemoryRecords
from topo.testing.recording_spouts import SpoutState
from topo.testing.script import ScriptedSpout
from topo.tracking.suspects import InFlightTuples
from topo.transport.base import Outlet
from topo.transport.memory import MemoryNetwork, MemoryRouter, MemoryTransport
from topo.user_errors import kind_and_message
from topo.wire import control
from topo.wire.codec import Codec, split_packed
from topo.wire.envelope import unpack
from topo.wire.frames import parse
from topo.worker.connections import Connections, bind_inbox
from topo.worker.core import EXIT_DONE, InFlightTracker, Worker, WorkerExit, busy_component
from topo.worker.loop import LINK, READ_AT_ONCE, Loop
from topo.worker.session import WorkerSession

if TYPE_CHECKING:
    from topo.testing.manual_loop import ManualLoop

ROUND_S = 0.001
"""What a round takes on the clock, so that time passes even for a source that never rests."""
PATIENCE_S = 5.0
"""Real seconds to wait for threads and sockets of asynchronous calls, before the clock advances without them."""
MOST_PATIENCES = 6
"""How many times PATIENCE_S the clock stands still at most, whatever happens meanwhile."""
GLANCE_S = 0.02
SILENT_STEP_S = 0.5
"""A spout that has nothing to emit is looked at so often, however often it wants to be asked."""

_MASTER = "memory://master"


class _Marker:
    """The batch that a worker is processing."""

    def __init__(self) -> None:
        self.in_flight: InFlightTuples | None = None

    def write(self, task: TaskId, roots: bytes, positions: list[tuple[TaskId, bytes]]) -> None:
        each = [(spout, position) for spout, packed in positions for position in split_packed(packed)]
        self.in_flight = InFlightTuples(tuple(unpack_words(roots)), tuple(each))

    def clear(self) -> None:
        """Mark that no tuple is in processing."""
        self.in_flight = None


class SeededTransport(MemoryTransport):
    """The transport of a worker, which reads as much at a time as a seed draws, and sends nothing once it was killed."""

    def __init__(self, network: MemoryNetwork, chance: Random, before_send: Callable[[], None]) -> None:
        super().__init__(network)
        self._chance = chance
        self._before_send = before_send
        self.is_open = True

    @property
    def has_mail(self) -> bool:
        """Whether anything has arrived and is not read."""
        return any(inbox.frames for inbox in self._inboxes.values()) or any(link.answers for link in self._links.values())

    @property
    def has_news(self) -> bool:
        """Whether a send was refused, which may have room now, or somebody has called `wake`."""
        return bool(self._refused or self._recovered or self._woken)

    def receive(self, inbox: str, limit: int) -> list[bytes]:
        return super().receive(inbox, min(limit, self._chance.randint(1, READ_AT_ONCE)))

    def send(self, outlet: Outlet, frame: bytes) -> bool:
        self._before_send()
        return not self.is_open or super().send(outlet, frame)

    def close(self, linger_s: float = 0.0) -> None:
        self.is_open = False
        super().close(linger_s)


class Host:
    """One life of a worker: its loop with its only task.

    Attributes:
        calls: where the calls of an async bolt run.
    """

    def __init__(self, worker: WorkerId, incarnation: Incarnation, transport: SeededTransport) -> None:
        self.id = worker
        self.incarnation = incarnation
        self.transport = transport
        self.marker = _Marker()
        self.tracker = InFlightTracker(self.marker)
        self.calls: ManualLoop | None = None
        self.spout: SpoutState | None = None
        self.script: ScriptedSpout | None = None
        self._wants_at = 0.0
        """When the loop wants its next turn if nothing arrives before."""

    def hosts(self, task: Task, spout: SpoutState | None, script: ScriptedSpout | None) -> None:
        """Take the task that runs here, and the state of its spout."""
        self.task = task
        self.spout, self.script = spout, script
        self.worker = Worker(self.id, self.incarnation, [task], self.tracker)

    def begin(self, plan: PhysicalPlan, digest: str, clock: ManualClock) -> None:
        """Bind the inbox, register, and begin to turn."""
        task, transport = self.task.id, self.transport
        endpoint = bind_inbox(transport, plan.config)
        master = transport.link(LINK, _MASTER, f"{self.id}:{self.incarnation}".encode())
        self.session = WorkerSession(plan.config, {task: self.task.component_id}, clock())
        self.loop = Loop(
            self.worker,
            self.session,
            transport,
            master,
            Connections(transport, plan, frozenset([task])),
            lambda: busy_component(self.worker, self.tracker),
            clock,
            stint_s=0.0,
        )
        self.session.send(control.Register(self.id, self.incarnation, 0, "test", "", digest, [task], endpoint))

    def turn(self, now: float) -> bool | None:
        """Turn the loop, and the calls of the task; return whether it wants another turn at once, None when it has ended."""
        if self._rests(now):
            return False
        # User code may move the clock: neither this process nor its master stands still for that.
        self.loop.alive_at = now
        self.session.received((), now)
        wants = self.loop.turn(self.transport.wait(0.0), now)
        if self.calls is not None:
            self.calls.turn()
            if self.worker.has_work:
                # A call gives its result to the task as a mail.
                wants = self.loop.turn([], now)
        self._wants_at = 0.0 if wants is None else wants
        return None if wants is None else wants <= now

    def _rests(self, now: float) -> bool:
        """Whether a turn would do nothing: most turns of most tests are such."""
        worker = self.worker
        return (
            now < self._wants_at
            and self.calls is None
            and worker.exit is None
            and not self.transport.has_mail
            and not self.transport.has_news
            and not self.session.has_messages
            and not worker.has_work
        )

    def end(self) -> None:
        """Cancel the calls of a worker that has ended, and lose its messages."""
        self.transport.close()
        if self.calls is not None:
            self.calls.turn()
            self.calls.end()

    def next_deadline(self, now: float) -> float:
        """When the worker wants a turn if nothing arrives."""
        at = self.worker.next_deadline(now)
        if self.calls is not None and (due_ms := self.calls.next_due_ms) is not None:
            at = due_ms / 1000 if at is None else min(at, due_ms / 1000)
        if at is not None and self.spout is not None and not self.spout.pending:
            # It asks to be polled every few milliseconds; with nothing to emit, an hour of that would take minutes.
            if self.script is not None:
                at = max(at, min(self.script.quiet_until(), now + SILENT_STEP_S))
            elif self.spout.is_silent:
                at = max(at, now + SILENT_STEP_S)
        return self.session.next_beat if at is None else min(at, self.session.next_beat)

    def is_at_rest(self, *, committed: bool = True, may_hold: bool = False) -> bool:
        """Whether nothing will happen here unless something arrives or a tick is due; when not `committed`, but checkpoints.

        Args:
            may_hold: messages that windows hold are not under way, but those that wait for another attempt are.
        """
        task = self.task
        if self.spout is None:
            return (task.is_quiet if committed else task.has_passed_on) and not task.has_work
        outbox, is_settled = task.outbound.outbox, not committed or not self.spout.pending
        if may_hold and isinstance(task, Task) and isinstance(task.guarantee, TrackedSource):
            is_settled = not task.guarantee.source_messages.is_waiting
        is_silent = self.spout.is_silent if self.script is None else self.script.is_dry and is_settled
        return is_silent and not task.inbound.queue and (outbox.is_quiet if committed else outbox.has_left)


class InProcessCluster:
    """One topology and its master: the link and the workers of that master's loop.

    Args:
        build: makes the task of a worker's life, in the given host; an exception ends that life.
        crashes: taken and emptied after every turn: the tasks whose workers are to be killed.

    Attributes:
        records: errors and dead letters.
        hosts: the workers that live, by slot.
    """

    def __init__(
        self,
        plan: PhysicalPlan,
        clock: ManualClock,
        seed: int,
        codec: Codec,
        build: Callable[[TaskId, Host], None],
        crashes: Callable[[], list[TaskId]],
    ) -> None:
        assert all(len(tasks) == 1 for tasks in plan.workers), "tuples of tasks that share a worker are not encoded"
        self.plan = plan
        self.clock = clock
        self.chance = Random(seed)
        self.records = MemoryRecords()
        self.hosts: dict[WorkerId, Host] = {}
        self._build = build
        self._crashes = crashes
        self._digest = plan.digest()
        self.checkpoints = MemoryCheckpoints(plan, codec.registry)
        self.master = TopologyMaster(plan, self._digest, self._new_incarnation, codec=codec)
        self._loop = MasterLoop(self.master, self, self, self.records, self.checkpoints, clock)
        self._loop.ask(Started())
        self._network = MemoryNetwork()
        self._router = MemoryRouter(self._network, _MASTER)
        self._arrived: deque[tuple[bytes, bytes]] = deque()
        self._ended: list[WorkerEnd] = []
        self._markers: dict[Life, InFlightTuples | None] = {}
        self._waited_s, self._seen_calls = 0.0, 0
        """Real seconds since anything has happened in the loops of asynchronous calls, and how many callbacks there were."""
        self._stood_s = self._stood_at = 0.0
        """Real seconds for which the clock has stood still, and at what time."""

    def _new_incarnation(self) -> Incarnation:
        return Incarnation(self.chance.getrandbits(62) + 1)

    # -- time ------------------------------------------------------------------------------------------------------------

    def step(self, limit_s: float) -> bool:
        """Give everybody a turn, and let time pass: a round's time, or up to the next deadline; never beyond `limit_s`.

        Returns whether anybody had something to do.
        """
        now = self.clock()
        turns: list[Callable[[], bool]] = [self._master_turn, *[partial(self._turn, host) for host in self.hosts.values()]]
        self.chance.shuffle(turns)
        has_run = [turn() for turn in turns].count(True) > 0 or self._is_master_due
        has_run = has_run or any(host.transport.has_mail for host in self.hosts.values())
        if not has_run and self._wait_outside():
            return True
        at = now + ROUND_S
        if not has_run:
            at = min([self._loop.next_turn(), *[host.next_deadline(now) for host in self.hosts.values()]])
        # User code may have moved the clock.
        self.clock.advance_to(max(self.clock(), min(limit_s, max(now, at))))
        return has_run

    def _wait_outside(self) -> bool:
        """Wait, in real time, for threads and sockets of asynchronous calls; return whether there are any. The clock stands."""
        loops = [host.calls for host in self.hosts.values() if host.calls is not None and host.calls.waits_outside]
        seen = sum(loop.scheduled_calls for loop in loops)
        if seen != self._seen_calls:
            self._waited_s, self._seen_calls = 0.0, seen
        if (now := self.clock()) != self._stood_at:
            self._stood_s, self._stood_at = 0.0, now
        if not loops or self._waited_s >= PATIENCE_S or self._stood_s >= MOST_PATIENCES * PATIENCE_S:
            return False
        for loop in loops:
            loop.wait(GLANCE_S)
            self._waited_s += GLANCE_S
            self._stood_s += GLANCE_S
        return True

    def is_at_rest(self, *, committed: bool = True) -> bool:
        """Whether nothing is under way, and nothing but ticks and the clock could start anything.

        With `exactly_once` and not `committed`, messages of scripts that wait for a checkpoint alone are not under way; with
        `at_least_once`, those that windows hold are not.
        """
        if self.outcome is not None:
            return True
        if self._has_events or not self._loop.is_idle or self.has_ended():
            return False
        if self.master.recovery.epochs.state is not EpochState.RUNNING or self.master.ending.stage is not EndingStage.SERVING:
            return False
        may_hold = not committed and self.plan.config.delivery == "at_least_once"
        committed = committed or self.plan.config.delivery != "exactly_once"
        return all(
            not host.transport.has_mail and host.is_at_rest(committed=committed, may_hold=may_hold)
            for host in self.hosts.values()
        )

    @property
    def has_run(self) -> bool:
        """Whether every task was ready at least once."""
        return self.master.recovery.epochs.has_run

    def has_ended(self) -> bool:
        """Whether the input of every spout has ended, so that the topology ends."""
        spouts = [host.spout for host in self.hosts.values() if host.spout is not None]
        return bool(spouts) and all(spout.has_ended for spout in spouts)

    def scripts_wait_until(self) -> float:
        """Return until when some script lets time pass; minus infinity when none does."""
        waits = [host.script.quiet_until() for host in self.hosts.values() if host.script is not None]
        return max((at for at in waits if at < inf), default=-inf)

    def unrest(self) -> list[str]:
        """Describe the work that is under way."""
        found = []
        if self.master.recovery.epochs.state is not EpochState.RUNNING:
            found.append(f"epoch {self.master.recovery.epochs.epoch} is {self.master.recovery.epochs.state.value}")
        for host in self.hosts.values():
            task = self.plan.task(host.task.id)
            who = f"{task.component}[{task.index}]"
            if host.spout is not None and host.spout.pending:
                some = ", ".join(map(repr, list(host.spout.pending)[:5]))
                found.append(f"{who}: {len(host.spout.pending)} messages pending: {some}")
            elif not host.is_at_rest():
                found.append(f"{who} has work")
        return found

    # -- the master ------------------------------------------------------------------------------------------------------

    @property
    def outcome(self) -> Outcome | None:
        return self._loop.outcome

    def ask(self, event: MasterEvent) -> None:
        """Ask the master for something, as an operator does."""
        self._loop.ask(event)

    def _master_turn(self) -> bool:
        if not self._is_master_due:
            return False
        self._loop.turn()
        return True

    @property
    def _has_events(self) -> bool:
        self._arrived += self._router.receive()
        return bool(self._arrived or self._ended or self.checkpoints.unread)

    @property
    def _is_master_due(self) -> bool:
        return self._has_events or self._loop.next_turn() <= self.clock()

    def from_workers(self) -> list[tuple[bytes, bytes]]:
        return [self._arrived.popleft() for _ in range(min(len(self._arrived), self.chance.randint(1, READ_AT_ONCE)))]

    def to_worker(self, identity: bytes, message: bytes) -> bool:
        return self._router.send(identity, message)

    def start(self, worker: WorkerId, incarnation: Incarnation, term: int) -> WorkerLaunched | LaunchFailed:
        host = Host(worker, incarnation, SeededTransport(self._network, self.chance, self._kill_crashed))
        (task,) = self.plan.workers[worker]
        try:
            self._build(task, host)
        except Exception as error:
            why = f"its component could not be made: {kind_and_message(error)}"
            self._ended.append(WorkerEnd(worker, incarnation, why))
        else:
            self.hosts[worker] = host
            host.begin(self.plan, self._digest, self.clock)
        return WorkerLaunched(worker, incarnation)

    def stop(self, worker: WorkerId, incarnation: Incarnation, *, kill: bool) -> None:
        host = self.hosts.get(worker)
        if host is not None and host.incarnation == incarnation:
            if kill:
                self._remove(host, "killed by the master")
            else:
                host.loop.stop(WorkerExit(EXIT_DONE, "asked to end"))

    def poll(self) -> list[WorkerEnd]:
        ended, self._ended = self._ended, []
        return ended

    def take_marker(self, worker: WorkerId, incarnation: Incarnation) -> InFlightTuples | None:
        return self._markers.pop((worker, incarnation), None)

    # -- workers ---------------------------------------------------------------------------------------------------------

    def _turn(self, host: Host) -> bool:
        if self.hosts.get(host.id) is not host:
            return False
        is_busy = host.turn(self.clock())
        self._kill_crashed()
        if is_busy is None and self.hosts.get(host.id) is host:
            exit_ = host.worker.exit
            assert exit_ is not None
            self._remove(host, f"exited with {exit_.code}: {exit_.why}" if exit_.code else ENDED_WELL)
        return is_busy is not False

    def _kill_crashed(self) -> None:
        for task in self._crashes():
            self.kill(task)

    def beat_all(self) -> None:
        """Bring the figures of the master up to date."""
        for host in self.hosts.values():
            beat = host.worker.heartbeat("")
            self._loop.handle(WorkerMessage(host.id, host.incarnation, beat))

    def kill(self, task: TaskId) -> None:
        host = self.hosts.get(self.plan.worker_of(task))
        if host is not None:
            self._remove(host, "killed by the test")
            for inbox in self._network.inboxes.values():
                # All frames of a message are of one life.
                inbox.frames = deque(data for data in inbox.frames if parse(unpack(data)[0][1]).incarnation != host.incarnation)

    def _remove(self, host: Host, how: str) -> None:
        del self.hosts[host.id]
        host.end()
        self._markers[host.id, host.incarnation] = host.marker.in_flight
        self._ended.append(WorkerEnd(host.id, host.incarnation, how))

    def validate(self) -> None:
        self.master.validate()
        for host in self.hosts.values():
            host.worker.validate()
