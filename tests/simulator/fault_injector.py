"""Makes faults strike a running simulation: when they are due, whom, and whether they have.

A fault that cannot strike yet, such as a cut while no frame is in flight, is tried again a little later, for a while.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tests.simulator.control_line import ControlLine, message_name
from tests.simulator.faults import Fault, FaultKind, Moment
from tests.simulator.network import Link
from tests.simulator.processes import KILLED, CrashPlan, SimulatedProcess
from topo.ids import Incarnation, WorkerId
from topo.master.events import ActivateAsked, DeactivateAsked, RestartAsked

if TYPE_CHECKING:
    from tests.simulator.simulation import Simulation
    from tests.simulator.virtual_store import Disk

SLOWER = 6
"""How many times as long every turn of a slow worker takes."""
PATIENCE_S = 0.02
"""How long a process has to come to the point where it is to die; then it dies wherever it is."""
ARMED_S = 1.0
"""How long a fault waits for its moment; then it strikes whatever happens."""
_AGAIN_S = 0.0005
_TRIES = 20_000


class FaultInjector:
    """The faults of one run.

    Args:
        simulation: what they strike.
        faults: in the order of their shares.
        progress: the share of the expected effects that has been seen.

    Attributes:
        struck: each fault that has struck, with the moment and whom.
        last_at: when the last one was over.
    """

    def __init__(self, simulation: Simulation, faults: Sequence[Fault], progress: Callable[[], float]) -> None:
        self._simulation = simulation
        self._waiting = list(faults)
        self._progress = progress
        self._due = 0
        self._dooms: dict[Incarnation, Fault] = {}
        self._armed: list[Fault] = []
        """Those that wait for a moment of a checkpoint."""
        self._concerned: SimulatedProcess | None = None
        self._concerned_line: ControlLine | None = None
        self.struck: list[tuple[float, Fault, str]] = []
        self.last_at = 0.0

    def look(self) -> None:
        """Set off the next of the faults that wait, if its share of the effects has been seen."""
        if self._waiting[0].share <= self._progress():
            self.add(self._waiting.pop(0))

    def add(self, fault: Fault) -> None:
        """Set a fault off, whatever its share."""
        self._due += 1
        self._simulation.at(self._simulation.now + fault.after_s, lambda: self._arm(fault))

    def reached(self, moment: Moment, process: SimulatedProcess | None) -> None:
        """A moment of a checkpoint has come, in a process or at the master."""
        for fault in self._armed:
            if fault.moment is moment:
                self._armed.remove(fault)
                self._concerned = process
                self._simulation.history.count(f"struck when {moment.value}")
                self._strike(fault, _TRIES)
                self._concerned = None
                return

    def control_sent(self, line: ControlLine, data: bytes) -> None:
        """A control message was handed over."""
        for fault in self._armed:
            if fault.message and fault.message == message_name(data):
                self._armed.remove(fault)
                self._concerned_line = line
                self._strike(fault, _TRIES)
                self._concerned_line = None
                return

    def _arm(self, fault: Fault) -> None:
        if fault.moment is None and not fault.message:
            self._strike(fault, _TRIES)
            return
        self._armed.append(fault)
        self._simulation.at(self._simulation.now + ARMED_S, lambda: self._disarm(fault))

    def _disarm(self, fault: Fault) -> None:
        if fault in self._armed:
            self._armed.remove(fault)
            self._strike(fault, _TRIES)

    @property
    def is_waiting(self) -> bool:
        """Whether a fault has not been set off yet."""
        return bool(self._waiting)

    @property
    def has_begun(self) -> bool:
        """Whether a fault has been set off."""
        return bool(self._due or self.struck)

    @property
    def quiet_since(self) -> float:
        """Since when nothing has gone wrong any more."""
        return self._simulation.now if self._due else self.last_at

    def fell(self, process: SimulatedProcess) -> None:
        """A process has died, perhaps as it was doomed to."""
        if process.crash_plan is not None and process.crash_plan.has_come:
            self._note(self._dooms[process.incarnation], f"worker {process.id}")

    def slowness_of(self, worker: WorkerId) -> float:
        """Return how many times as long a new life of the worker takes for everything."""
        victims = [who for _, fault, who in self.struck if fault.kind is FaultKind.SLOW_WORKER]
        return float(SLOWER) ** victims.count(f"worker {worker}")

    def _strike(self, fault: Fault, tries: int) -> None:
        victim = getattr(self, "_" + fault.kind.name.lower())(fault)
        if victim is None and tries:
            self._simulation.at(self._simulation.now + _AGAIN_S, lambda: self._strike(fault, tries - 1))
            return
        self._due -= 1
        # A crash strikes when the process has come to the point of its turn.
        if victim is not None and fault.kind is not FaultKind.CRASH:
            self._note(fault, victim)

    def _note(self, fault: Fault, victim: str) -> None:
        now = self._simulation.now
        self.last_at = max(self.last_at, now + fault.for_s)
        self.struck.append((now, fault, victim))
        self._simulation.trace("fault", fault, "->", victim)

    def _pick_process(self, fault: Fault) -> SimulatedProcess | None:
        concerned = self._concerned
        if concerned is not None and concerned.is_alive and not concerned.is_stopped and concerned.crash_plan is None:
            return concerned
        found = [process for process in self._simulation.processes.values() if process.is_alive and not process.is_stopped]
        found = [process for process in found if process.crash_plan is None and process.turns]
        return found[int(fault.pick * len(found))] if found else None

    def _crash(self, fault: Fault) -> str | None:
        process = self._pick_process(fault)
        if process is None:
            return None
        process.crash_plan = CrashPlan(fault.point, fault.countdown)
        self._dooms[process.incarnation] = fault
        self._simulation.at(self._simulation.now + PATIENCE_S, lambda: self._end(process))
        return f"worker {process.id}"

    def _end(self, process: SimulatedProcess) -> None:
        if process.is_alive and process.crash_plan is not None:
            process.crash_plan.has_come = True
            self.fell(process)
            self._simulation.died(process, KILLED)

    def _stop(self, fault: Fault) -> str | None:
        process = self._pick_process(fault)
        if process is None:
            return None
        process.resumes_at = self._simulation.now + fault.for_s
        self._simulation.at(process.resumes_at, lambda: self._simulation.resume(process))
        return f"worker {process.id}"

    def _zombie(self, fault: Fault) -> str | None:
        process = self._pick_process(fault)
        if process is not None:
            process.is_out_of_reach = True
        return None if process is None else self._stop(fault)

    def _pick_link(self, fault: Fault) -> Link | None:
        found = self._simulation.network.links_in_use()
        return found[int(fault.pick * len(found))] if found else None

    def _frames(self, fault: Fault, act: Callable[[Link], int]) -> str | None:
        link = self._pick_link(fault)
        return None if link is None else f"{act(link)} messages to life {link.receiver}"

    def _cut(self, fault: Fault) -> str | None:
        return self._frames(fault, self._simulation.network.cut)

    def _reorder(self, fault: Fault) -> str | None:
        return self._frames(fault, lambda link: self._simulation.network.reconnect(link, self._simulation.now))

    def _repeat(self, fault: Fault) -> str | None:
        return self._frames(fault, lambda link: self._simulation.network.repeat(link, self._simulation.now))

    def _slow_link(self, fault: Fault) -> str | None:
        link = self._pick_link(fault)
        if link is None:
            return None
        link.slow_until = self._simulation.now + fault.for_s
        return f"life {link.receiver}"

    def _slow_worker(self, fault: Fault) -> str | None:
        process = self._pick_process(fault)
        if process is None:
            return None
        process.turn_s *= SLOWER
        return f"worker {process.id}"

    def _master(self, fault: Fault) -> str | None:
        if self._simulation.master.master is None or self._simulation.master.crashes_after is not None:
            return None
        self._simulation.master.restarts_in_s = fault.for_s
        self._simulation.master.crashes_after = fault.countdown
        return "the master"

    def _restart(self, fault: Fault) -> str | None:
        worker = WorkerId(int(fault.pick * len(self._simulation.plan.workers)))
        self._simulation.master.ask(RestartAsked(worker))
        return f"worker {worker}"

    def _pause(self, fault: Fault) -> str | None:
        if self._simulation.master.master is None:
            return None
        self._simulation.master.ask(DeactivateAsked())
        self._simulation.at(self._simulation.now + fault.for_s, self._activate)
        return "the spouts"

    def _activate(self) -> None:
        if self._simulation.master.outcome is None:
            self._simulation.master.ask(ActivateAsked())
            # An operator whose master dies asks again.
            if self._simulation.master.master is None or not self._simulation.master.master.is_active:
                self._simulation.at(self._simulation.now + 0.01, self._activate)

    def _pick_line(self, fault: Fault) -> ControlLine | None:
        if self._concerned_line is not None:
            return self._concerned_line
        found = [process.line for process in self._simulation.processes.values() if process.line.is_in_use]
        return found[int(fault.pick * len(found))] if found else None

    def _control_reset(self, fault: Fault) -> str | None:
        line, now = self._pick_line(fault), self._simulation.now
        return None if line is None or line.has_repeated else f"{line.reset(now, fault.for_s)} messages"

    def _control_repeat(self, fault: Fault) -> str | None:
        line = self._pick_line(fault)
        return None if line is None or line.lost_at is not None else f"{line.repeat(self._simulation.now)} messages"

    def _control_slow(self, fault: Fault) -> str | None:
        line = self._pick_line(fault)
        if line is None:
            return None
        line.slow_until = self._simulation.now + fault.for_s
        return "a connection"

    def _failing_record(self, fault: Fault) -> str | None:
        self._simulation.master.store.failing_until = self._simulation.now + fault.for_s
        return "the state folder"

    @property
    def _disk(self) -> Disk:
        assert self._simulation.disk is not None, "a fault of the store strikes a topology without checkpoints"
        return self._simulation.disk

    def _slow_store(self, fault: Fault) -> str | None:
        self._disk.slow_until = self._simulation.now + fault.for_s
        return "the store"

    def _failing_store(self, fault: Fault) -> str | None:
        self._disk.failing_until = self._simulation.now + fault.for_s
        return "the store"

    def _unreadable_store(self, fault: Fault) -> str | None:
        self._disk.unreadable_until = self._simulation.now + fault.for_s
        return "the store"

    def _torn_write(self, fault: Fault) -> str | None:
        self._disk.torn_next = True
        return "the store"

    def _power(self, fault: Fault) -> str | None:
        simulation = self._simulation
        if simulation.master.master is None:
            return None
        simulation.master.restarts_in_s = fault.for_s
        simulation.master.crash()
        self._disk.lose_power()
        for process in list(simulation.processes.values()):
            simulation.died(process, "lost its power")
        return "the machine"

    def _damage(self, fault: Fault) -> str | None:
        damage = self._disk.damage(fault.pick)
        if damage is not None:
            # Tasks that restore it find the damage, or the next master does.
            (self._crash if fault.pick < 0.6 else self._master)(fault)
        return damage
