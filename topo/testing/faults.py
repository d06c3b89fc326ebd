"""What can go wrong in a simulated run, as data, and how a seed draws it.

A fault is set off by progress, not by the clock: when a share of the expected effects has been seen, and a little later. So
it always strikes while there is work, and several can strike in one recovery. Whom it strikes is decided at that moment.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from random import Random

from topo.testing.processes import CrashPoint


class FaultKind(Enum):
    """What happens."""

    CRASH = "a worker's process dies"
    STOP = "a worker's process is stopped, and killed when it is given up"
    ZOMBIE = "a worker's process is stopped, cannot be reached, and continues after it was replaced"
    CUT = "a connection is reset: a suffix of what is in flight is lost"
    REORDER = "an old connection delivers after the new one has begun"
    REPEAT = "frames are delivered twice"
    SLOW_LINK = "a link takes a hundred times as long, for a while"
    SLOW_WORKER = "a worker takes several times as long, for good"
    MASTER = "the master dies, and another one is started"
    RESTART = "the operator has a worker restarted"
    PAUSE = "the operator deactivates the topology for a while"


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
    """

    kind: FaultKind
    share: float
    after_s: float = 0.0
    pick: float = 0.0
    for_s: float = 0.0
    point: CrashPoint = CrashPoint.BEFORE_TURN
    countdown: int = 0

    def __str__(self) -> str:
        where = f", {self.point.value} ({self.countdown})" if self.kind is FaultKind.CRASH else ""
        lasting = f" for {self.for_s:.2f} s" if self.for_s else ""
        return f"{self.share:.0%} + {self.after_s:.3f} s: {self.kind.value}{where}{lasting}"


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
}


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
