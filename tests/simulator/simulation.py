"""A whole topology in virtual time: every worker, every frame and the topology master, with faults, decided by one seed.

It drives the classes that worker processes and the master process run: `Loop` with its worker and tasks, the codec,
`MasterLoop`. Only clock, transport, files and processes are simulated. One heap orders all events; the seed draws the order of
those at the same time. The same seed gives the same run, down to every byte on the network.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from heapq import heappop, heappush
from random import Random
from traceback import extract_tb

from tests.simulator.consistency_checker import ConsistencyChecker
from tests.simulator.control_line import message_name
from tests.simulator.fault_injector import FaultInjector
from tests.simulator.faults import Fault, FaultKind
from tests.simulator.history import History, Violation
from tests.simulator.masters import SimulatedMaster
from tests.simulator.network import Link, SimulatedNetwork, frames_of, stamps_of
from tests.simulator.processes import KILLED, ProcessKilled, SimulatedProcess
from tests.simulator.virtual_store import Disk
from topo.api.topology import Topology
from topo.ids import Incarnation, TaskId, WorkerId
from topo.master.links import ENDED_WELL, WorkerEnd
from topo.plan.physical import physical_plan
from topo.task.limits import TaskLimits
from topo.tracking.suspects import InFlightTuples
from topo.wire import control
from topo.wire.codec import Codec
from topo.worker.connections import INBOX
from topo.worker.core import EXIT_DONE, WorkerExit
from topo.worker.loop import LINK

QUIET_AFTER_FAULTS_S = 60.0
"""Virtual seconds that a run may take after its last fault; beyond, it hangs."""
MISSED_WITHIN_S = 2.0
"""Virtual seconds in which a loss of control messages is noticed: a few heartbeats, and the time to connect again."""
MOST_EVENTS = 1_000_000


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pause the collector of cyclic garbage, which takes a tenth of a run. The objects of one run fit into memory."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class Simulation:
    """One run.

    Args:
        topology: makes the topology; no instance of a component is used for two tasks.
        seed: decides everything.
        faults: in the order of their shares.
        progress: the share of the expected effects that has been seen, from 0 to 1; sets faults off.
        keeps_trace: keep the lines of the trace, not only their hash.

    Attributes:
        now: virtual seconds since the run began, at the virtual second `began_at`.
        history: the observed events, and the violations of oracles.
        quiet_s: virtual seconds that the run may take after its last fault; beyond, it hangs.
        reads_at_once: how many frames of an inbox a process takes before its tasks work.
        limits: of tasks; small, so that runs reach them.
        most_events: likewise, the number of events of a run.
        strikes: the faults, and those that have struck.
    """

    def __init__(
        self,
        topology: Callable[[], Topology],
        seed: int,
        faults: Sequence[Fault] = (),
        progress: Callable[[], float] = lambda: 0.0,
        *,
        keeps_trace: bool = False,
    ) -> None:
        self.random = Random(seed)
        self._ids = Random(seed + 1)
        self._events: list[tuple[float, float, int, Callable[[], None]]] = []
        self._event_count = 0
        self._make_topology = topology
        self._topologies: list[Topology] = []
        self._task_counts: Counter[str] = Counter()
        self._hash = blake2b(digest_size=16)
        self._lines: list[str] | None = [] if keeps_trace else None
        self._wake_at: dict[Incarnation, float] = {}
        self._running: SimulatedProcess | None = None
        self._checks = 0
        self._hangs_at = 0.0
        """The run may have hung at this time; looked at again then."""
        self.now = self.began_at = 0.0
        self.quiet_s = QUIET_AFTER_FAULTS_S
        limits = Random(f"limits {seed}")
        self.reads_at_once = limits.choice((1, 4, 32))
        self.limits = TaskLimits(
            acks_at_once=limits.choice((1, 8, 256)),
            causes=limits.choice((1, 10, 1_000)),
            held_inputs=limits.choice((1, 10, 1_000)),
            remembered_keys=limits.choice((1, 10, 65_536)),
        )
        self.most_events = MOST_EVENTS
        self.plan = physical_plan(topology())
        self.codec = Codec()
        self.digest = self.plan.digest()
        is_checkpointed = self.plan.config.delivery == "exactly_once"
        self.history = ConsistencyChecker(self) if is_checkpointed else History(lambda: self.now)
        low = self.random.choice((0.00005, 0.0005, 0.002))
        self.network = SimulatedNetwork(self.random, self.at, self._arrived, (low / 4, low))
        self.history.has_lost = self.network.has_lost
        self.network.most_in_flight = limits.choice((1, 3, 1_000, 1_000))
        self.most_orders = limits.choice((2, 1_000, 1_000))
        """Messages of the master in flight to one process."""
        self.master = SimulatedMaster(self, limits.choice((0.0, 0.0005, 0.005)))
        self.most_reports = limits.choice((2, 1_000, 1_000))
        """Messages to the master in flight from one process."""
        self.notes: dict[Incarnation, InFlightTuples | None] = {}
        """Tuples that processes worked on at their end, until the master takes them."""
        self._epochs: dict[WorkerId, int] = {}
        """The highest epoch that a life of each worker has adopted."""
        self.processes: dict[Incarnation, SimulatedProcess] = {}
        self.all_processes: list[SimulatedProcess] = []
        self.strikes = FaultInjector(self, faults, progress)
        self.disk = Disk(self, self.random) if is_checkpointed else None
        """Where checkpoints are stored; None where none are taken."""
        self.finds_old_workers = self.random.random() < 0.5
        """Whether processes that an earlier master has started can talk to its successor."""

    # -- running ---------------------------------------------------------------------------------------------------------

    def run(self, until: Callable[[], bool] = lambda: False) -> None:
        """Run to the end, to the first violation, until it hangs, which is a violation, or as long as `until` is false: then
        all processes are gone at once."""
        with collector_paused():
            self.master.start()
            while self.master.outcome is None and not self.history.violations and not until():
                self._step()
        for process in self.all_processes:
            process.drop_calls()
        self._judge_lines()

    def _step(self) -> None:
        """Perform the next event."""
        if not self._events:
            self.history.violated(10, "no event is left, and the topology has not ended")
            return
        self._event_count += 1
        self.now, _, _, action = heappop(self._events)
        try:
            action()
        except Exception as error:
            inner = extract_tb(error.__traceback__)[-3:]
            where = "; ".join(f"{frame.name} in {frame.filename}:{frame.lineno}" for frame in inner)
            self.history.violated(0, f"{type(error).__name__}: {error} ({where})")
        if self.strikes.is_waiting:
            self.strikes.look()
        if self.now > self._hangs_at or self._event_count > self.most_events:
            quiet_s = self.now - self.strikes.quiet_since
            # Faults may have struck since then.
            self._hangs_at = self.strikes.quiet_since + self.quiet_s
            if quiet_s > self.quiet_s or self._event_count > self.most_events:
                self.history.violated(10, f"not over {quiet_s:.0f} s after the last fault: {self._why_not()}")

    def _judge_lines(self) -> None:
        """Check that no worker went on for long whose messages were lost, or the master's to it."""
        kinds = {fault.kind for _, fault, _ in self.strikes.struck}
        if kinds & {FaultKind.STOP, FaultKind.ZOMBIE, FaultKind.MASTER}:
            return
        for process in self.all_processes:
            lost_at, until = process.line.lost_at, process.ended_at or self.now
            if lost_at is not None and until > lost_at + MISSED_WITHIN_S:
                what = f"messages of worker {process.id} or to it were lost at {lost_at:.3f} s, and it went on"
                self.history.violated(11, what)

    def _why_not(self) -> str:
        if self.master.master is None:
            return "there is no master"
        quiescence, recovery = self.master.master.quiescence, self.master.master.recovery
        waiting = [f"task {quiet.task}: {quiet.why or 'ended' if quiet.ended else 'has not ended'}"
                   for quiet in quiescence.facts.values()]  # fmt: skip
        return f"epoch {recovery.epochs.epoch} is {recovery.epochs.state.value}; {', '.join(waiting) or 'no task has reported'}"

    def at(self, moment: float, what: Callable[[], None]) -> None:
        """Have something happen."""
        heappush(self._events, (moment, self.random.random(), len(self._events), what))

    def trace(self, *facts: object) -> None:
        """Note what happened: into the hash, and into the trace when it is kept."""
        line = f"{self.now:.9f} {' '.join(map(str, facts))}"
        self._hash.update(line.encode())
        if self._lines is not None:
            self._lines.append(line)

    def _note(self, event: str, who: object, message: Callable[[], object]) -> None:
        """Add a message to the trace, if it is kept. Its bytes are in the hash already."""
        if self._lines is not None:
            self._lines.append(f"{self.now:.9f} {event} {who} {message()}")

    @property
    def trace_hash(self) -> str:
        """The hash of everything that has happened."""
        return self._hash.hexdigest()

    @property
    def trace_lines(self) -> list[str]:
        """Everything that has happened, if it was kept."""
        return self._lines or []

    @property
    def violations(self) -> list[Violation]:
        """The violations of oracles, in order."""
        return self.history.violations

    # -- chance ----------------------------------------------------------------------------------------------------------

    def draw_bytes(self) -> bytes:
        """Draw the seed of a task's ids."""
        return self._ids.randbytes(16)

    def draw_incarnation(self) -> Incarnation:
        """Draw the number of a life."""
        return Incarnation(self._ids.getrandbits(63) | 1)

    def draw_turn_s(self) -> float:
        """Draw how long an empty turn of a process takes."""
        return self.random.uniform(0.0002, 0.0008)

    def draw_delay_s(self) -> float:
        """Draw how long it takes to connect two processes."""
        return self.random.uniform(0.0, 0.002)

    def draws_check(self) -> bool:
        """Whether invariants are to be checked now: every so often, since it is slow."""
        self._checks += 1
        return self._checks % 32 == 0

    # -- lives of workers ------------------------------------------------------------------------------------------------

    def launch(self, worker: WorkerId, incarnation: Incarnation) -> None:
        """The launcher starts a process; its inboxes are bound a little later."""
        self.trace("launch", worker, incarnation)
        process = SimulatedProcess(self, worker, incarnation, self._topology_for, self.plan, self.master.term, self.now)
        process.turn_s *= self.strikes.slowness_of(worker)
        process.line.most_in_flight, process.line.most_reports = self.most_orders, self.most_reports
        self.processes[incarnation] = process
        self.all_processes.append(process)
        self.at(self.now + self.random.uniform(0.001, 0.05), lambda: self._booted(process))

    def _topology_for(self, component: str) -> Topology:
        """Return a topology whose component is for one more task. To make one for each task takes long."""
        count = self._task_counts[component]
        self._task_counts[component] += 1
        if count == len(self._topologies):
            self._topologies.append(self._make_topology())
        return self._topologies[count]

    def _booted(self, process: SimulatedProcess) -> None:
        if process.is_alive:
            process.boot()
            self._turn(process)

    def stop(self, incarnation: Incarnation, *, kill: bool) -> None:
        """The launcher ends a process, unless it cannot reach it."""
        process = self.processes.get(incarnation)
        if process is None or process.is_out_of_reach:
            return
        if kill or not process.is_booted:
            self.died(process, KILLED)
        elif not process.is_stopped:
            process.loop.stop(WorkerExit(EXIT_DONE, "asked to end"))

    def died(self, process: SimulatedProcess, how: str) -> None:
        """A process is gone."""
        process.is_alive = False
        process.ended_at = process.ended_at or self.now
        if self.processes.pop(process.incarnation, None) is None:
            return
        self.trace("exit", process.id, process.incarnation, how)
        self.network.died(process.incarnation)
        if process.worker.exit is None:
            process.line.process_died()
        else:
            process.line.close()
        self.notes[process.incarnation] = process.note.content
        term, end = process.term, WorkerEnd(process.id, process.incarnation, how)

        def report() -> None:
            # A launcher knows only the processes that it has started.
            if self.master.term == term:
                self.master.ended(end)

        # A death may be known before the last words have arrived.
        self.at(self.now + self.random.uniform(0.0, 0.01), report)

    def resume(self, process: SimulatedProcess) -> None:
        """Continue a process that was stopped, if it lives."""
        if process.is_alive and process.resumes_at is not None:
            process.resumes_at = None
            process.is_out_of_reach = False
            self._wake_at.pop(process.incarnation, None)
            self._wake(process, self.now)

    def master_died(self) -> None:
        """Workers in the foreground die with their master; others continue without it."""
        self.strikes.last_at = self.now
        for process in self.all_processes:
            process.line.master_died()
        if not self.finds_old_workers and self.random.random() < 0.5:
            for process in list(self.processes.values()):
                if not process.is_out_of_reach:
                    self.died(process, KILLED)

    def master_listens(self) -> None:
        """A master has started: processes that know where it is connect to it."""
        for process in self.processes.values():
            if self._is_known(process):
                process.line.connect(self.now)

    def _is_known(self, process: SimulatedProcess) -> bool:
        return self.master.term == process.term or self.finds_old_workers

    def _wake(self, process: SimulatedProcess, at: float) -> None:
        """Have the process turn at a moment, or when it is next there to do so."""
        at = max(at, process.time, self.now)
        incarnation = process.incarnation
        if process.is_stopped or at >= self._wake_at.get(incarnation, float("inf")):
            return
        self._wake_at[incarnation] = at
        self.at(at, lambda: self._woken(process, at))

    def _woken(self, process: SimulatedProcess, at: float) -> None:
        if self._wake_at.get(process.incarnation) == at and process.is_alive and not process.is_stopped:
            self._turn(process)

    def _turn(self, process: SimulatedProcess) -> None:
        self._wake_at.pop(process.incarnation, None)
        self._running = process
        try:
            wants = process.turn(self.now)
        except ProcessKilled:
            self.strikes.fell(process)
            self.died(process, KILLED)
            return
        finally:
            self._running = None
        if not process.is_alive:
            exit_ = process.worker.exit
            self.died(process, f"exit code {exit_.code}" if exit_ is not None and exit_.code else ENDED_WELL)
            return
        if self.draws_check():
            self.history.inspect(process)
        self._wake(process, wants)

    def adopted(self, process: SimulatedProcess, epoch: int) -> None:
        """Check that a process which adopts an epoch has no successor that has adopted a later one.

        A process that its master could not reach in time, or whose master has died, does not know of a successor.
        """
        last = self._epochs.get(process.id, 0)
        if epoch < last and self.master.term == process.term and process.line.is_sound:
            what = f"a life of worker {process.id} adopted epoch {epoch}, when another had adopted epoch {last}"
            self.history.violated(9, what)
        self._epochs[process.id] = max(epoch, last)

    def wall_ms(self) -> int:
        """The wall clock of all machines, in milliseconds."""
        return int((self.began_at + self.now) * 1000)

    def wake(self, process: SimulatedProcess, at: float = 0.0) -> None:
        """Something has happened that is of interest to a process, or will have."""
        if process.is_alive:
            self._wake(process, at)

    def work(self, seconds: float) -> None:
        """Called by user code: it takes a time."""
        if self._running is not None:
            self._running.work(seconds)

    def kill(self) -> None:
        """Called by user code: it takes its process down."""
        if self._running is not None:
            self._running.kill_itself()

    # -- messages --------------------------------------------------------------------------------------------------------

    def arrived_at_master(self, process: SimulatedProcess, data: bytes) -> None:
        """A worker's message has arrived at the master."""
        self._hash.update(data)
        self._note("to the master from", process.id, lambda: control.decode_from_worker(data))
        if message_name(data) == control.TaskReady.__name__:
            ready = control.decode_from_worker(data)
            assert isinstance(ready, control.TaskReady)
            self.history.task_ready(ready)
        self.master.arrived(process.id, process.incarnation, data)

    def arrived_at_worker(self, process: SimulatedProcess, data: bytes) -> None:
        """A message of the master has arrived at a worker."""
        if process.is_alive:
            self._hash.update(data)
            self._note("to worker", process.id, lambda: control.decode_from_master(data))
            process.transport.put(LINK, data)
            self._wake(process, self.now)

    def send_to_worker(self, worker: WorkerId, incarnation: Incarnation, data: bytes, *, is_for_all: bool) -> bool:
        """Send a message of the master to a life of a worker; False when there is no connection.

        Args:
            is_for_all: other lives of the worker get it, too, if they are known.
        """
        if is_for_all and self.finds_old_workers:
            for process in list(self.processes.values()):
                if process.id == worker and process.incarnation != incarnation:
                    process.line.send_down(data, self.now)
        addressee = self.processes.get(incarnation)
        if addressee is None or not self._is_known(addressee):
            return False
        is_sent = addressee.line.send_down(data, self.now)
        if not is_sent:
            self.history.count("an order was refused")
        return is_sent

    def _arrived(self, link: Link, data: bytes) -> None:
        stamps = stamps_of(data)
        self._hash.update(data)
        self._note("frames", link.receiver, lambda: frames_of(data))
        process, sender = self.processes.get(link.receiver), self.processes.get(link.sender)
        for stamp in stamps:
            if stamp.incarnation != link.sender:
                self.history.violated(9, f"a life of a worker sends under the name of another: {frames_of(data)}")
            known = link.sender if process is None else process.routes.get(TaskId(stamp.sender), link.sender)
            if sender is not None and known != link.sender:
                self.history.count("frame of a replaced worker refused")
        if process is not None:
            process.transport.put(INBOX, data)
            self._wake(process, self.now)
        if sender is not None:
            sender.transport.drained(link.receiver)
