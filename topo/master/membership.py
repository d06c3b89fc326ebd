"""Worker slots and the lives of workers in them.

Knows for each slot of the plan, the current incarnation, where its tasks are reached, the time of its last message.
Must not know epochs, tasks' states, or the reason for which a worker is to end.

| state    | meaning                                                   | becomes lost by                            |
| -------- | --------------------------------------------------------- | ------------------------------------------ |
| WAITING  | no process; one is started at `start_at`                  |                                            |
| STARTING | launched under `incarnation`, has not registered          | exit, failed launch, `start_timeout`       |
| LIVE     | registered; its inboxes are bound                         | exit, silence for `worker_timeout`, or the |
|          |                                                           | master's decision (no progress, restart)   |
| GONE     | has ended, and no other life takes its place              |                                            |

At most one incarnation of a slot is current. Messages of any other are fenced. Any message of the current one is a sign of
life. The time during which the master itself was not called does not count as silence (`forgive`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from topo.config import TopologyConfig
from topo.ids import Incarnation, TaskId, WorkerId
from topo.master.restarts import RestartPolicy
from topo.wire.control import Register


class SlotState(Enum):
    """State of the life of a slot's worker."""

    WAITING = "waiting"
    STARTING = "starting"
    LIVE = "live"
    GONE = "gone"


@dataclass(slots=True)
class Slot:
    """One worker slot."""

    worker: WorkerId
    tasks: tuple[TaskId, ...]
    restarts: RestartPolicy
    state: SlotState = SlotState.WAITING
    start_at: float = 0.0
    incarnation: Incarnation | None = None
    last_message_at: float = 0.0
    pid: int = 0
    host: str = ""
    busy_in: str = ""
    endpoint: str = ""
    public_key: str = ""
    lost_why: str = ""
    """Why the last life ended; "" before the first loss."""


class Membership:
    """All slots of a plan, empty at first.

    Args:
        workers: the tasks of each slot, by slot number.
        config: start_timeout, worker_timeout and the restart back-off are taken from it.
    """

    def __init__(self, workers: Iterable[tuple[TaskId, ...]], config: TopologyConfig) -> None:
        self._start_timeout_s = config.start_timeout_s
        self._worker_timeout_s = config.worker_timeout_s
        self.slots = {
            WorkerId(number): Slot(
                WorkerId(number), tasks, RestartPolicy(config.restart_back_off_s, config.restart_back_off_max_s)
            )
            for number, tasks in enumerate(workers)
        }

    def is_current(self, worker: WorkerId, incarnation: Incarnation) -> bool:
        """Whether that is the slot's present life."""
        slot = self.slots.get(worker)
        return slot is not None and slot.incarnation == incarnation

    def incarnations(self) -> dict[WorkerId, Incarnation]:
        """Return the present life of every slot that has one."""
        return {slot.worker: slot.incarnation for slot in self.slots.values() if slot.incarnation is not None}

    def live(self) -> list[Slot]:
        """Return the slots whose workers have registered."""
        return [slot for slot in self.slots.values() if slot.state is SlotState.LIVE]

    @property
    def is_complete(self) -> bool:
        """Whether every slot's worker has registered."""
        return all(slot.state is SlotState.LIVE for slot in self.slots.values())

    @property
    def is_gone(self) -> bool:
        """Whether every slot's worker has ended and stays so."""
        return all(slot.state is SlotState.GONE for slot in self.slots.values())

    def due(self, now: float) -> list[Slot]:
        """Return the slots whose worker is to be started now."""
        return [slot for slot in self.slots.values() if slot.state is SlotState.WAITING and slot.start_at <= now]

    def overdue(self, now: float) -> list[tuple[Slot, str]]:
        """Return the slots whose worker counts as lost because of its silence, with the reason in words."""
        found = []
        for slot in self.slots.values():
            deadline = self._deadline(slot)
            if deadline is not None and deadline <= now:
                if slot.state is SlotState.STARTING:
                    found.append((slot, f"did not register within {self._start_timeout_s:g} s"))
                else:
                    found.append((slot, f"was silent for {now - slot.last_message_at:.1f} s"))
        return found

    def next_deadline(self) -> float | None:
        """When `due` or `overdue` will next name a slot, unless something arrives."""
        deadlines = [
            slot.start_at if slot.state is SlotState.WAITING else deadline
            for slot in self.slots.values()
            if (deadline := self._deadline(slot)) is not None or slot.state is SlotState.WAITING
        ]
        return min((at for at in deadlines if at is not None), default=None)

    def started(self, slot: Slot, incarnation: Incarnation, now: float) -> None:
        """A worker is being launched into the slot."""
        slot.state, slot.incarnation, slot.last_message_at = SlotState.STARTING, incarnation, now

    def sign_of_life(self, slot: Slot, now: float) -> None:
        """The slot's present life has shown a sign of life, or the launcher one of its birth."""
        slot.last_message_at = now

    def registered(self, slot: Slot, message: Register, now: float) -> None:
        """The slot's present life has bound its inbox."""
        slot.state = SlotState.LIVE
        slot.pid, slot.host, slot.busy_in = message.pid, message.host, ""
        slot.endpoint, slot.public_key = message.endpoint, message.public_key
        slot.restarts.registered(now)

    def vacate(self, slot: Slot, why: str, start_at: float) -> None:
        """The slot's present life is over, or fenced: another is to be started at `start_at`."""
        slot.state, slot.incarnation, slot.start_at, slot.lost_why = SlotState.WAITING, None, start_at, why
        slot.endpoint, slot.public_key, slot.pid, slot.host, slot.busy_in = "", "", 0, "", ""

    def gone(self, slot: Slot) -> None:
        """The slot's worker has ended and stays so."""
        self.vacate(slot, slot.lost_why, slot.start_at)
        slot.state = SlotState.GONE

    def forgive(self, seconds: float) -> None:
        """Do not count a stall of the master as silence of the workers."""
        for slot in self.slots.values():
            slot.last_message_at += seconds

    def validate(self) -> None:
        for slot in self.slots.values():
            has_life = slot.state in (SlotState.STARTING, SlotState.LIVE)
            assert (slot.incarnation is not None) == has_life, (slot.worker, slot.state, slot.incarnation)
            assert (slot.state is SlotState.LIVE) == bool(slot.endpoint), "a live worker has an endpoint, and only a live one"
        lives = list(self.incarnations().values())
        assert len(lives) == len(set(lives)), "two slots share an incarnation"

    def _deadline(self, slot: Slot) -> float | None:
        if slot.state is SlotState.STARTING:
            return slot.last_message_at + self._start_timeout_s
        if slot.state is SlotState.LIVE:
            return slot.last_message_at + self._worker_timeout_s
        return None
