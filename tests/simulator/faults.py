"""Faults of a simulated run, as data, and how a seed draws them.

A fault is set off by progress, not by the clock: when a share of the expected effects has been seen, and a little later. So
it always strikes while there is work, and several can strike in one recovery. Whom it strikes is decided at that moment.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from random import Random

from tests.simulator.processes import CrashPoint


class FaultKind(Enum):
    """What happens."""

    CRASH = "a worker's process dies"
    STOP = "a worker's process is stopped, and killed when it is given up"
    ZOMBIE = "a worker's process is stopped, cannot be reached, and continues after it was replaced"
    CUT = "a connection is reset: a suffix of the frames in flight is lost"
    REORDER = "an old connection delivers after the new one has begun"
    REPEAT = "frames are delivered twice"
    SLOW_LINK = "a link takes a hundred times as long, for a while"
    SLOW_WORKER = "a worker takes several times as long, to the end"
    MASTER = "the master dies, and another one is started"
    RESTART = "the operator has a worker restarted"
    PAUSE = "the operator deactivates the topology for a while"
    SLOW_STORE = "the store of checkpoints takes a hundred times as long, for a while"
    FAILING_STORE = "writes to the store of checkpoints fail, for a while"
    UNREADABLE_STORE = "reads from the store of checkpoints fail, for a while"
    TORN_WRITE = "a write to the store of checkpoints is torn"
    POWER = "the power fails: all processes die, and the disk forgets all that is not synced"
    DAMAGE = "a part of the last complete checkpoint is spoiled, and a worker dies"
    CONTROL_RESET = "the connection of a worker to the master is reset: the last messages in flight are lost"
    CONTROL_SLOW = "the connection of a worker to the master takes a hundred times as long, for a while"
    CONTROL_REPEAT = "control messages are delivered twice"
    FAILING_RECORD = "the master cannot write to the state folder, for a while"


class Moment(Enum):
    """A moment of a checkpoint for which a fault waits."""

    BEGIN = "a spout gets the order for a barrier"
    ALIGNING = "a barrier has come on some edges, and not on others"
    SNAPSHOT = "a snapshot has been taken, and is not stored"
    STORED = "a snapshot is stored, and the master does not know"
    COMMITTING = "the manifest is being written"
    COMPLETE = "the manifest exists, and no task knows"
    PUBLISHING = "a task does what a complete checkpoint allows"
    RESTORING = "a task reads its parts"
    COPYING = "a savepoint is being copied"


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault.

    Attributes:
        kind: what happens.
        share: of the expected effects that sets it off.
        after_s: virtual seconds between that and the fault.
        pick: chooses among those that it can strike.
        for_s: how long it lasts, where it does.
        point: where in its turn a process dies.
        countdown: how many calls or commands come before that.
        moment: it waits for this moment of a checkpoint, and strikes whom it is about.
        message: it waits for a control message of this class, and strikes the connection that it is on.
    """

    kind: FaultKind
    share: float
    after_s: float = 0.0
    pick: float = 0.0
    for_s: float = 0.0
    point: CrashPoint = CrashPoint.BEFORE_TURN
    countdown: int = 0
    moment: Moment | None = None
    message: str = ""

    def __str__(self) -> str:
        where = f", {self.point.value} ({self.countdown})" if self.kind is FaultKind.CRASH else ""
        lasting = f" for {self.for_s:.2f} s" if self.for_s else ""
        moment = f" when {self.moment.value}" if self.moment else f" at a {self.message}" if self.message else ""
        return f"{self.share:.0%} + {self.after_s:.3f} s{moment}: {self.kind.value}{where}{lasting}"


_WEIGHTS = {
    FaultKind.CRASH: 10,
    FaultKind.STOP: 2,
    FaultKind.ZOMBIE: 2,
    FaultKind.CUT: 4,
    FaultKind.REORDER: 1,
    FaultKind.REPEAT: 2,
    FaultKind.SLOW_LINK: 2,
    FaultKind.SLOW_WORKER: 1,
    FaultKind.MASTER: 1,
    FaultKind.RESTART: 1,
    FaultKind.PAUSE: 1,
}
_LASTS_S = {
    FaultKind.STOP: (0.05, 2.5),
    FaultKind.ZOMBIE: (1.5, 3.0),
    FaultKind.SLOW_LINK: (0.02, 0.3),
    FaultKind.MASTER: (0.01, 0.5),
    FaultKind.PAUSE: (0.01, 0.5),
    FaultKind.POWER: (0.01, 0.5),
    FaultKind.SLOW_STORE: (0.02, 0.5),
    FaultKind.FAILING_STORE: (0.02, 0.5),
    FaultKind.CONTROL_RESET: (0.001, 0.3),
    FaultKind.CONTROL_SLOW: (0.02, 0.5),
    FaultKind.CONTROL_REPEAT: (0.0, 0.0),
    FaultKind.FAILING_RECORD: (0.02, 1.5),
}


CHECKPOINT_WEIGHTS = {
    **_WEIGHTS,
    FaultKind.MASTER: 4,
    FaultKind.SLOW_STORE: 2,
    FaultKind.FAILING_STORE: 3,
    FaultKind.TORN_WRITE: 2,
    FaultKind.POWER: 3,
    FaultKind.DAMAGE: 8,
}
"""What strikes topologies with checkpoints."""
_DRAWN_MOMENTS = [moment for moment in Moment if moment is not Moment.COPYING]
_HAS_MOMENT = {FaultKind.CRASH, FaultKind.STOP, FaultKind.ZOMBIE, FaultKind.CUT, FaultKind.MASTER, FaultKind.POWER}
_NEEDS_LINKS = {FaultKind.CUT, FaultKind.REORDER, FaultKind.REPEAT, FaultKind.SLOW_LINK}


def draw_faults(random: Random, *, has_links: bool, most: int = 4) -> tuple[Fault, ...]:
    """Draw one to `most` faults, in the order of what sets them off. The first strikes while there is much left to do.

    Args:
        has_links: there are several workers, so that frames travel.
    """
    weights = {kind: weight for kind, weight in _WEIGHTS.items() if has_links or kind not in _NEEDS_LINKS}
    kinds = random.choices(list(weights), list(weights.values()), k=random.randint(1, most))
    first = replace(draw_fault(random, kinds[0]), share=random.random() * 0.6, after_s=0.0)
    return tuple(sorted((first, *(draw_fault(random, kind) for kind in kinds[1:])), key=lambda fault: fault.share))


def draw_fault(random: Random, kind: FaultKind) -> Fault:
    """Draw one fault of a kind."""
    lasts = _LASTS_S.get(kind)
    return Fault(
        kind,
        share=random.choice((0.0, random.random() * 0.9)),
        after_s=random.choice((0.0, random.random() * 0.02, random.random() * 0.5)),
        pick=random.random(),
        for_s=random.uniform(*lasts) if lasts else 0.0,
        point=random.choice(list(CrashPoint)),
        countdown=random.choice((0, 1, random.randrange(20))),
    )


def draw_checkpoint_faults(random: Random, *, has_links: bool, may_damage: bool, most: int = 4) -> tuple[Fault, ...]:
    """Draw faults for a topology with checkpoints; many of them wait for a moment of one.

    Args:
        has_links: there are several workers, so that frames travel.
        may_damage: an earlier checkpoint gives the same results.
    """
    left_out = (set() if has_links else _NEEDS_LINKS) | (set() if may_damage else {FaultKind.DAMAGE})
    weights = {kind: weight for kind, weight in CHECKPOINT_WEIGHTS.items() if kind not in left_out}
    faults = []
    for number in range(random.randint(1, most)):
        fault = draw_fault(random, random.choices(list(weights), list(weights.values()))[0])
        if number == 0:
            fault = replace(fault, share=random.random() * 0.6, after_s=0.0)
        if fault.kind in _HAS_MOMENT and random.random() < 0.7:
            countdown = random.choice((0, 0, 1, 2, random.randrange(8)))
            fault = replace(fault, moment=random.choice(_DRAWN_MOMENTS), countdown=countdown)
            if random.random() < 0.7:
                fault = replace(fault, point=CrashPoint.IN_TURN)
            if fault.moment is Moment.RESTORING:
                # Something has to begin a recovery.
                faults.append(replace(draw_fault(random, FaultKind.CRASH), share=fault.share, after_s=fault.after_s))
        elif fault.kind in (FaultKind.FAILING_STORE, FaultKind.TORN_WRITE) and random.random() < 0.3:
            fault = replace(fault, moment=Moment.COMMITTING)
        if fault.kind is not FaultKind.DAMAGE or all(other.kind is not FaultKind.DAMAGE for other in faults):
            faults.append(fault)
    return tuple(sorted(faults, key=lambda fault: fault.share))


_CONTROL_WEIGHTS = {
    FaultKind.CONTROL_RESET: 6,
    FaultKind.CONTROL_SLOW: 2,
    FaultKind.CONTROL_REPEAT: 2,
    FaultKind.FAILING_RECORD: 2,
}
_MESSAGES = (
    *("Register", "TaskReady", "Heartbeat", "EdgeLost", "PositionReport", "DeadLetter", "Quiet", "Closed", "TuplesFailed"),
    *("Routes", "Go", "Go", "Probe", "DeadLettersStored", "Close", "Deactivate", "Activate", "Stop"),
)
_CHECKPOINT_MESSAGES = ("SnapshotTaken", "BarrierAcked", "CheckpointPublished", "BeginCheckpoint", "CheckpointComplete")


def with_control_faults(faults: Sequence[Fault], seed: int, *, is_checkpointed: bool) -> tuple[Fault, ...]:
    """Add what goes wrong between workers and the master, in half of all seeds."""
    random = Random(f"control {seed}")
    kinds = random.choices(list(_CONTROL_WEIGHTS), list(_CONTROL_WEIGHTS.values()), k=random.choice((0, 0, 1, 2)))
    messages = (*_MESSAGES, *_CHECKPOINT_MESSAGES, *_CHECKPOINT_MESSAGES) if is_checkpointed else _MESSAGES
    found = list(faults)
    for kind in kinds:
        message = "" if kind is FaultKind.FAILING_RECORD or random.random() < 0.2 else random.choice(messages)
        lasts_s = random.uniform(*_LASTS_S[kind])
        share = random.choice((0.0, random.random() * 0.9))
        found.append(Fault(kind, share, pick=random.random(), for_s=lasts_s, message=message))
    return tuple(sorted(found, key=lambda fault: fault.share))
