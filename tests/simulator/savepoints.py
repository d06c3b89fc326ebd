"""An operator who asks for savepoints while a topology runs, and the conditions that the answers must meet.

A request has one answer: the savepoint is written, or it failed, with the reason, or the topology has ended before. Or its master
died: the next one knows nothing of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from random import Random

from tests.simulator.faults import Fault, FaultKind, Moment, draw_fault
from tests.simulator.simulation import Simulation
from topo.checkpoint.attempt import Phase
from topo.errors import TopoError
from topo.master.ending import EndingStage
from topo.master.epochs import EpochState
from topo.master.events import DrainAsked, SavepointAsked
from topo.master.master import TopologyMaster
from topo.master.outcome import OutcomeKind

PATIENCE_S = 1.0
"""How long a request waits for its occasion; then it is made whatever happens."""
_FAILS_WRITES = {FaultKind.FAILING_STORE, FaultKind.TORN_WRITE, FaultKind.UNREADABLE_STORE, FaultKind.DAMAGE}


class Occasion(Enum):
    """The state of the master for which a request waits."""

    ANY = "at once"
    RECOVERY = "in a recovery"
    UNDER_WAY = "while a checkpoint is under way"
    COMMITTING = "while a manifest is written"
    ENDING = "when nothing moves any more"


@dataclass(frozen=True, slots=True)
class SavepointRequest:
    """A savepoint that is asked for.

    Attributes:
        share: of the expected effects, from which on it waits for its occasion.
        stops: the topology ends with it, and another run begins from it.
        faults: they strike after the request.
        later_faults: they strike the run that begins from it.
        again: the state of the savepoint in which the same one is asked for a second time; "" for never.
        ends_again: the topology ends with the second request.
    """

    share: float
    occasion: Occasion = Occasion.ANY
    stops: bool = False
    faults: tuple[Fault, ...] = ()
    later_faults: tuple[Fault, ...] = ()
    again: str = ""
    ends_again: bool = False

    def __str__(self) -> str:
        end = " to end with" if self.stops else ""
        faults = "".join(f"\n    then {fault}" for fault in self.faults)
        later = "".join(f"\n    in the next run {fault}" for fault in self.later_faults)
        again = f", and again{' to end' * self.ends_again} while {self.again}" if self.again else ""
        return f"{self.share:.0%}: a savepoint{end}, asked for {self.occasion.value}{again}{faults}{later}"


def draw_requests(random: Random) -> tuple[SavepointRequest, ...]:
    """Draw one to three requests; the last may end the topology."""
    count = random.choice((1, 2, 3))
    shares = sorted(random.random() * 0.9 for _ in range(count))
    ends = random.random() < 0.5
    return tuple(_draw_request(random, share, stops=ends and share == shares[-1]) for share in shares)


def asked_again(random: Random, requests: Sequence[SavepointRequest]) -> tuple[SavepointRequest, ...]:
    """Have some requests be made a second time while the savepoint is open."""
    return tuple(
        replace(one, again=random.choice(("", "waiting", "copying")), ends_again=random.random() < 0.3) for one in requests
    )


def _draw_request(random: Random, share: float, *, stops: bool) -> SavepointRequest:
    kinds = (FaultKind.MASTER, FaultKind.CRASH, FaultKind.CRASH, FaultKind.POWER, FaultKind.FAILING_STORE, FaultKind.SLOW_STORE)
    faults = tuple(_draw_soon(random, kind) for kind in random.sample(kinds, random.choice((0, 1, 1, 2))))
    later = tuple(_draw_soon(random, kind) for kind in random.sample(kinds[:3], random.choice((0, 1)))) if stops else ()
    return SavepointRequest(share, random.choice(list(Occasion)), stops, faults, later)


def _draw_soon(random: Random, kind: FaultKind) -> Fault:
    """Draw a fault that strikes at once, or at one of the next moments of a checkpoint."""
    fault = replace(draw_fault(random, kind), share=0.0, after_s=random.choice((0.0, random.random() * 0.05)))
    if random.random() < 0.6:
        moments = (Moment.COPYING, Moment.COPYING, Moment.SNAPSHOT, Moment.COMMITTING, Moment.COMPLETE, Moment.PUBLISHING)
        fault = replace(fault, moment=random.choice(moments), countdown=random.choice((0, 0, 1, 2)))
    return fault


@dataclass(slots=True)
class Asked:
    """A request that was made, and its answer.

    Attributes:
        last: the number of the last checkpoint that had begun.
        state: as the master has it; "" while it has not taken the request.
        answer: "written", "failed", "ended" or "master died"; "" while there is none.
        is_again: it was made a second time; the answer is that to both.
    """

    request: SavepointRequest
    folder: str
    master: TopologyMaster
    last: int
    state: str = ""
    answer: str = ""
    checkpoint: int = 0
    is_again: bool = False


_FOLLOWS = {"": ("waiting", "copying"), "waiting": ("copying",), "copying": ("written", "failed"), "written": (), "failed": ()}
_LATE = "not drained in time"
"""Why a savepoint of the end fails while the store does not."""


class SavepointDesk:
    """Makes the requests of a run, and watches what becomes of them.

    Args:
        simulation: of the topology.
        requests: in the order of their shares.
        progress: the share of the expected effects that has been seen.

    Attributes:
        asked: the requests that were made.
    """

    def __init__(self, simulation: Simulation, requests: Sequence[SavepointRequest], progress: Callable[[], float]) -> None:
        self._simulation = simulation
        self._progress = progress
        self._waiting = list(requests)
        self._until: float | None = None
        """When the first of them is made whatever happens."""
        self.asked: list[Asked] = []

    def look(self) -> bool:
        """Make the request that is due, and look at the others; always False, so that the run continues."""
        if self._waiting and self._is_due(self._waiting[0]):
            self._ask(self._waiting.pop(0))
            self._until = None
        for asked in self.asked:
            self._watch(asked)
        return False

    def _is_due(self, request: SavepointRequest) -> bool:
        simulation, master = self._simulation, self._simulation.master.master
        if self._until is None:
            if self._progress() < request.share:
                return False
            self._until = simulation.now + PATIENCE_S
        if master is None or master.ending.stage is not EndingStage.SERVING or master.checkpoints is None:
            return False
        # The shell refuses to end a topology with a savepoint before its first epoch has run.
        if request.stops and not master.recovery.epochs.has_run:
            return False
        is_recovering = master.recovery.epochs.state is not EpochState.RUNNING
        return (
            simulation.now >= self._until
            or {
                Occasion.ANY: True,
                Occasion.RECOVERY: is_recovering and master.recovery.has_run,
                Occasion.UNDER_WAY: master.checkpoints.phase is Phase.UNDER_WAY,
                Occasion.COMMITTING: master.checkpoints.phase is Phase.COMMITTING,
                Occasion.ENDING: master.quiescence.is_still,
            }[request.occasion]
        )

    def _ask(self, request: SavepointRequest) -> None:
        simulation, master = self._simulation, self._simulation.master.master
        assert master is not None
        assert master.checkpoints is not None
        folder = f"savepoints/{len(self.asked) + 1}"
        self.asked.append(Asked(request, folder, master, master.checkpoints.last))
        simulation.trace("savepoint asked", folder, request.occasion.value)
        simulation.history.count(f"savepoint asked {request.occasion.value}")
        self._send(folder, stops=request.stops)
        for fault in request.faults:
            simulation.strikes.add(fault)

    def _send(self, folder: str, *, stops: bool) -> None:
        simulation = self._simulation
        simulation.master.ask(DrainAsked(simulation.plan.config.drain_timeout_s, folder) if stops else SavepointAsked(folder))

    def _ask_again(self, asked: Asked) -> None:
        """Make a request a second time, while the savepoint is open."""
        request, checkpoints, ending = asked.request, asked.master.checkpoints, asked.master.ending
        may_end = ending.stage is EndingStage.SERVING and asked.master.recovery.epochs.has_run
        assert checkpoints is not None
        # Once nothing moves any more a checkpoint that has begun has all that one behind the request would have.
        if not request.stops and not ending.is_draining:
            asked.last = checkpoints.last
        stops = request.stops or (request.ends_again and may_end)
        asked.request, asked.is_again = replace(request, stops=stops, again=""), True
        self._simulation.history.count(f"savepoint asked again while {request.again}")
        self._send(asked.folder, stops=stops)

    def _watch(self, asked: Asked) -> None:
        if asked.answer == "master died":
            return
        if self._simulation.master.master is not asked.master:
            self._answer(asked, asked.answer or "master died")
            return
        assert asked.master.checkpoints is not None
        found = asked.master.checkpoints.savepoints.get(asked.folder)
        state = asked.state if found is None else found.state
        if found is None and asked.state:
            self._violated(asked, f"is not known any more, and was {asked.state}")
        if found is None or state == asked.state:
            return
        # After a recovery another checkpoint is the final one.
        is_again = (asked.request.stops or asked.is_again) and state == "waiting"
        is_late = asked.request.stops and state == "failed" and found.why.startswith(_LATE)
        if state not in _FOLLOWS[asked.state] and not is_again and not is_late:
            self._violated(asked, f"is {state} after it was {asked.state or 'asked for'}")
        asked.state, asked.checkpoint, asked.answer = state, found.checkpoint, ""
        if state == asked.request.again:
            self._ask_again(asked)
        if state == "written":
            self._answer(asked, state)
            self._check_written(asked)
            if asked.checkpoint <= asked.last:
                self._violated(asked, f"is checkpoint {asked.checkpoint}, which had begun before the request")
        elif state == "failed":
            self._answer(asked, state)
            self._check_failed(asked, found.why)

    def _answer(self, asked: Asked, answer: str) -> None:
        if asked.answer != answer:
            asked.answer = answer
            self._simulation.history.count(f"savepoint {'to end with ' * asked.request.stops}{answer}")

    def _check_written(self, asked: Asked) -> None:
        """Check that a run could begin from the savepoint, also after a power cut."""
        assert self._simulation.disk is not None
        try:
            manifest = self._simulation.disk.left_of(asked.folder)
        except TopoError as error:
            self._violated(asked, f"is written, and after a power cut {error}")
            return
        if manifest is None or manifest.checkpoint != asked.checkpoint or not manifest.is_savepoint:
            self._violated(asked, f"is written, and its folder has not checkpoint {asked.checkpoint} as a savepoint")

    def _check_failed(self, asked: Asked, why: str) -> None:
        if not why:
            self._violated(asked, "has failed without a reason")
        simulation = self._simulation
        if not (asked.request.stops and why.startswith(_LATE)) and _FAILS_WRITES.isdisjoint(
            fault.kind for _, fault, _ in simulation.strikes.struck
        ):
            self._violated(asked, f"has failed, and the store has not: {why}")
        rows = [row.message for _, row in simulation.master.store.errors if row.kind == "SavepointFailed"]
        if not any(asked.folder in message for message in rows):
            self._violated(asked, "has failed, and there is no row of it")

    def judge(self) -> None:
        """Judge the requests of a run that has ended."""
        self.look()
        outcome = self._simulation.master.outcome
        assert outcome is not None
        for asked in self.asked:
            if asked.state == "written":
                self._check_written(asked)
            if asked.answer:
                continue
            self._answer(asked, "ended")
            if asked.state and outcome.kind is not OutcomeKind.CUT_SHORT:
                self._violated(asked, f"is {asked.state}, and the topology has ended: {outcome.kind.value}")

    def written_on_the_way(self) -> str:
        """Return the folder of a savepoint after which the topology continued; "" where none has been written."""
        return next((asked.folder for asked in self.asked if asked.state == "written" and not asked.request.stops), "")

    def last_written(self) -> str:
        """Return the folder of the savepoint that the topology has ended with; "" where it has not been written."""
        store, found = self._simulation.master.store, [asked for asked in self.asked if asked.request.stops]
        if not found or found[-1].answer != "written":
            return ""
        completed = 0 if store.record is None else store.record.completed
        if found[-1].checkpoint != completed:
            self._violated(found[-1], f"is checkpoint {found[-1].checkpoint}, and the topology has ended with {completed}")
        return found[-1].folder

    def _violated(self, asked: Asked, what: str) -> None:
        self._simulation.history.violated(18, f"savepoint {asked.folder} {what}")
