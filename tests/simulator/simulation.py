"""A whole topology in virtual time: every worker, every frame and the topology master, with faults, decided by one seed.

It drives the classes that worker processes and the master process run: `Worker` with its tasks, the codec, `TopologyMaster`. Only
clock, transport and processes are simulated. One heap of events orders everything; what happens at the same moment happens
in an order drawn from the seed. The same seed gives the same run, down to every byte on the network.

    python -m tests.simulator --seed 7            replay the run of a seed, with its topology and faults
    python -m tests.simulator --seed 7 --trace    and show everything that happened
    python -m tests.simulator --seed 7 --exactly-once    the seeds of topologies with checkpoints are others
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from hashlib import blake2b
from heapq import heappop, heappush
from random import Random
from traceback import extract_tb

from tests.simulator.consistency_checker import ConsistencyChecker
from tests.simulator.fault_injector import FaultInjector
from tests.simulator.faults import Fault
from tests.simulator.history import History, Violation
from tests.simulator.masters import SimulatedMaster
from tests.simulator.network import Link, SimulatedNetwork
from tests.simulator.processes import ProcessKilled, SimulatedProcess
from tests.simulator.virtual_store import Disk
from topo.api.topology import Topology
from topo.ids import Incarnation, TaskId, WorkerId
from topo.master.events import InFlightTuples, WorkerExited
from topo.plan.physical import physical_plan
from topo.task.events import Inbox
from topo.task.limits import TaskLimits
from topo.wire import control
from topo.wire.codec import Codec
from topo.wire.frames import parse
from topo.worker.core import Exit

QUIET_AFTER_FAULTS_S = 60.0
"""Virtual seconds that a run may take after its last fault; beyond, it hangs."""
MOST_EVENTS = 1_000_000


class Simulation:
    """One run.

    Args:
        topology: makes the topology; called again for every task, as every process does.
        seed: decides everything.
        faults: what goes wrong, in the order of their shares.
        progress: the share of the expected effects that has been seen, from 0 to 1; sets faults off.
        keeps_trace: keep the lines of the trace, not only their hash.

    Attributes:
        now: virtual seconds.
        history: what was seen to happen.
        quiet_s: virtual seconds that the run may take after its last fault; beyond, it hangs.
        reads_at_once: how many frames of an inbox a process takes before its tasks work.
        limits: of tasks; small, so that runs reach them.
        most_events: likewise, what may happen in all.
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
        self._random = Random(seed)
        self._ids = Random(seed + 1)
        self._events: list[tuple[float, float, int, Callable[[], None]]] = []
        self._event_count = 0
        self._topology = topology
        self._hash = blake2b(digest_size=16)
        self._lines: list[str] | None = [] if keeps_trace else None
        self._link_times: dict[tuple[Incarnation, str], float] = {}
        self._wake_at: dict[Incarnation, float] = {}
        self._running: SimulatedProcess | None = None
        self._checks = 0
        self.now = 0.0
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
        low = self._random.choice((0.00005, 0.0005, 0.002))
        self.network = SimulatedNetwork(self._random, self.at, self._arrived, (low / 4, low))
        self.history.has_lost = self.network.has_lost
        self.master = SimulatedMaster(self)
        self.processes: dict[Incarnation, SimulatedProcess] = {}
        self.all_processes: list[SimulatedProcess] = []
        self.strikes = FaultInjector(self, faults, progress)
        self.disk = Disk(self, self._random) if is_checkpointed else None
        """Where checkpoints are stored; None where none are taken."""
        self.finds_old_workers = self._random.random() < 0.5
        """Whether what was started by an earlier master can talk to its successor."""

    # -- running ---------------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Run to the end, to the first violation, or until it hangs, which is one."""
        self.master.start()
        while self.master.outcome is None and not self.history.violations:
            if not self._events:
                self.history.violated(10, "nothing is left that could happen, and the topology has not ended")
                break
            self._event_count += 1
            self.now, _, _, what = heappop(self._events)
            try:
                what()
            except Exception as error:
                inner = extract_tb(error.__traceback__)[-3:]
                where = "; ".join(f"{frame.name} in {frame.filename}:{frame.lineno}" for frame in inner)
                self.history.violated(0, f"{type(error).__name__}: {error} ({where})")
            self.strikes.look()
            quiet_s = self.now - self.strikes.quiet_since
            if quiet_s > self.quiet_s or self._event_count > self.most_events:
                self.history.violated(10, f"not over {quiet_s:.0f} s after the last fault: {self._why_not()}")
        for process in self.all_processes:
            process.drop_calls()

    def _why_not(self) -> str:
        if self.master.master is None:
            return "there is no master"
        quiescence, recovery = self.master.master.quiescence, self.master.master.recovery
        waiting = [f"task {quiet.task}: {quiet.why or 'ended' if quiet.ended else 'has not ended'}"
                   for quiet in quiescence.facts.values()]  # fmt: skip
        return f"epoch {recovery.epochs.epoch} is {recovery.epochs.state.value}; {', '.join(waiting) or 'no task has reported'}"

    def at(self, moment: float, what: Callable[[], None]) -> None:
        """Have something happen."""
        heappush(self._events, (moment, self._random.random(), len(self._events), what))

    def trace(self, *facts: object) -> None:
        """Note what happened: into the hash, and into the trace when it is kept."""
        line = f"{self.now:.9f} {' '.join(map(str, facts))}"
        self._hash.update(line.encode())
        if self._lines is not None:
            self._lines.append(line)

    def _note(self, what: str, who: object, message: Callable[[], object]) -> None:
        """Add to the trace, if it is kept, what is in the hash already as bytes."""
        if self._lines is not None:
            self._lines.append(f"{self.now:.9f} {what} {who} {message()}")

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
        """What was found wrong."""
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
        return self._random.uniform(0.0002, 0.0008)

    def draws_check(self) -> bool:
        """Whether invariants are to be checked now: every so often, since it is slow."""
        self._checks += 1
        return self._checks % 32 == 0

    # -- lives of workers ------------------------------------------------------------------------------------------------

    def launch(self, worker: WorkerId, incarnation: Incarnation) -> None:
        """The launcher starts a process; its inboxes are bound a little later."""
        self.trace("launch", worker, incarnation)
        process = SimulatedProcess(self, worker, incarnation, self._topology, self.plan, self.master.term, self.now)
        process.turn_s *= self.strikes.slowness_of(worker)
        self.processes[incarnation] = process
        self.all_processes.append(process)
        self.at(self.now + self._random.uniform(0.001, 0.05), lambda: self._booted(process))

    def _booted(self, process: SimulatedProcess) -> None:
        if process.is_alive:
            process.register()
            self._turn(process)

    def stop(self, worker: WorkerId, incarnation: Incarnation, *, kill: bool) -> None:
        """The launcher ends a process, unless it cannot reach it."""
        process = self.processes.get(incarnation)
        if process is None or process.is_out_of_reach:
            return
        if kill:
            self.died(process, "killed")
        elif not process.is_stopped:
            process.worker.exit = process.worker.exit or Exit(0, "asked to end")
            self._wake(process, self.now)

    def died(self, process: SimulatedProcess, how: str) -> None:
        """A process is gone."""
        process.is_alive = False
        if self.processes.pop(process.incarnation, None) is None:
            return
        self.trace("exit", process.id, process.incarnation, how)
        self.network.died(process.incarnation)
        in_hand: InFlightTuples | None = process.note.content
        term = process.term
        event = WorkerExited(process.id, process.incarnation, how, in_hand)

        def tell() -> None:
            # A launcher knows the processes that it has started, and nobody else's.
            if self.master.term == term:
                self.master.handle(event)

        # A death may be known before the last words have arrived; of an orderly end they come first.
        said = self._link_times.get((process.incarnation, "up"), 0.0) if process.worker.exit is not None else 0.0
        self.at(max(self.now + self._random.uniform(0.0, 0.01), said + 1e-9), tell)

    def resume(self, process: SimulatedProcess) -> None:
        """A process that was stopped goes on, if it lives."""
        if process.is_alive and process.resumes_at is not None:
            process.resumes_at = None
            process.is_out_of_reach = False
            self._wake_at.pop(process.incarnation, None)
            self._wake(process, self.now)

    def master_died(self) -> None:
        """Workers in the foreground die with their master; others go on without it."""
        self.strikes.last_at = self.now
        if not self.finds_old_workers and self._random.random() < 0.5:
            for process in list(self.processes.values()):
                if not process.is_out_of_reach:
                    self.died(process, "killed with its master")

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
            self.died(process, "killed by a signal")
            return
        finally:
            self._running = None
        if not process.is_alive:
            exit_ = process.worker.exit
            self.died(process, f"exited with {exit_.code}" if exit_ else "exited")
            return
        if self.draws_check():
            self.history.inspect(process)
        self._wake(process, wants)

    def wall_ms(self) -> int:
        """The wall clock of all machines, in milliseconds."""
        return int(self.now * 1000)

    def wake(self, process: SimulatedProcess) -> None:
        """Something has happened that is of interest to a process."""
        if process.is_alive:
            self._wake(process, self.now)

    def work(self, seconds: float) -> None:
        """Called by user code: it takes so long."""
        if self._running is not None:
            self._running.work(seconds)

    def kill(self) -> None:
        """Called by user code: it takes its process down."""
        if self._running is not None:
            self._running.kill_itself()

    # -- messages --------------------------------------------------------------------------------------------------------

    def tell_master(self, process: SimulatedProcess, data: bytes) -> None:
        """A worker's message is on its way to the master."""
        worker, incarnation, term = process.id, process.incarnation, process.term

        def arrive() -> None:
            if self.master.term == term or (self.master.term and self.finds_old_workers):
                self._hash.update(data)
                self._note("tells", worker, lambda: control.decode_from_worker(data))
                self.master.heard(worker, incarnation, data)

        self.at(self._in_order((incarnation, "up"), process.time), arrive)

    def tell_worker(self, worker: WorkerId, incarnation: Incarnation, message: control.FromMaster) -> None:
        """A message of the master is on its way to a worker."""
        data = control.encode(message)
        self._tell(incarnation, data)
        if isinstance(message, control.Routes) and self.finds_old_workers:
            # Whoever believes that it is this worker hears it, too.
            for process in list(self.processes.values()):
                if process.id == worker and process.incarnation != incarnation:
                    self._tell(process.incarnation, data)

    def _tell(self, incarnation: Incarnation, data: bytes) -> None:
        def arrive() -> None:
            process = self.processes.get(incarnation)
            if process is not None:
                self._hash.update(data)
                self._note("told", process.id, lambda: control.decode_from_master(data))
                process.link.append(data)
                self._wake(process, self.now)

        self.at(self._in_order((incarnation, "down"), self.now), arrive)

    def _in_order(self, link: tuple[Incarnation, str], now: float) -> float:
        at = max(now + self._random.uniform(0.0001, 0.002), self._link_times.get(link, 0.0) + 1e-9)
        self._link_times[link] = at
        return at

    def _arrived(self, link: Link, data: bytes) -> None:
        frame = parse(data)
        self._hash.update(data)
        self._note("frame", link.inbox.value, lambda: frame)
        if frame.incarnation != link.sender:
            self.history.violated(9, f"a life of a worker speaks under the name of another: {frame!r}")
        process = self.processes.get(link.receiver)
        if process is not None:
            sender = self.processes.get(link.sender)
            if sender is not None and process.routes.get(TaskId(frame.sender), link.sender) != link.sender:
                self.history.count("frame of a replaced worker refused")
            process.inboxes[link.task, link.inbox].append(data)
            if link.inbox is Inbox.CONTROL or process.worker.tasks[link.task].wants_data:
                self._wake(process, self.now)


def main(arguments: list[str] | None = None) -> int:
    """Replay the run of one seed; 0 when no oracle was broken."""
    import argparse

    from tests.simulator.checkpoint_scenarios import draw_checkpoint_scenario
    from tests.simulator.random_scenarios import draw_scenario

    parser = argparse.ArgumentParser(prog="python -m tests.simulator", description="Replay a simulated run.")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--trace", action="store_true", help="show everything that happened")
    parser.add_argument("--exactly-once", action="store_true", help="a topology with checkpoints")
    options = parser.parse_args(arguments)
    scenario = draw_checkpoint_scenario(options.seed) if options.exactly_once else draw_scenario(options.seed)
    run = scenario.run(keeps_trace=options.trace)
    for line in run.simulation.trace_lines:
        print(line)
    print(scenario.describe())
    for at, fault, victim in run.simulation.strikes.struck:
        print(f"  {at:.6f} s: {fault} -> {victim}")
    print(run.summary())
    for violation in run.violations:
        print(f"VIOLATION {violation}")
    return 1 if run.violations else 0


if __name__ == "__main__":
    # The module that runs as a script is another one than the module that others import.
    from tests.simulator.simulation import main as run_main

    sys.exit(run_main())
