"""Inputs that a `Bolt` holds back: watermarks and the end of the input wait for them.

With checkpoints they are part of the snapshot, and executed again after a recovery.

| an undecided input is | when                                              | at a barrier                 |
| --------------------- | ------------------------------------------------- | ---------------------------- |
| done                  | user code has no reference to it any more         | left out                     |
| held                  | nothing was emitted in its call or anchored on it | stored, to be executed again |
| half done             | something was: another call would emit it again   | the checkpoint fails, loudly |

Pure. Must not know frames, epochs or the collector.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from sys import getrefcount
from typing import Any

from topo.api.tuples import Origin
from topo.emission.collectors import TrackedTuple, TupleState
from topo.errors import UserError

_REFERENCES_OF_OURS = 2
"""The result of `getrefcount` for an item of a list without further references."""
HeldState = dict[str, Any]


def still_held(inputs: list[TrackedTuple]) -> list[TrackedTuple]:
    """Return the inputs that are undecided and that user code still refers to, in order. Empties the list."""
    held: list[TrackedTuple] = []
    inputs.reverse()
    while inputs:
        if _is_held(inputs):
            held.append(inputs[-1])
        inputs.pop()
    return held


def _is_held(inputs: list[TrackedTuple]) -> bool:
    """Whether the last one is undecided, and user code still refers to it."""
    return getrefcount(inputs[-1]) > _REFERENCES_OF_OURS and inputs[-1].state == TupleState.OPEN


class HeldInputs:
    """The undecided inputs of one task.

    Args:
        component: the bolt's name, for messages.
        tasks: how many tasks the bolt has.
        moves: whether an input may go to any task of the bolt, as with shuffle groupings.
        first_sweep: how many inputs are held before those are looked for that the bolt has let go of.
    """

    def __init__(self, component: str, tasks: int, *, moves: bool, first_sweep: int = 1_000) -> None:
        self._component = component
        self._tasks = tasks
        self._moves = moves
        self._held: list[TrackedTuple] = []
        self._first_sweep = self._sweep_at = first_sweep
        self.restored: list[HeldState] = []
        """Inputs of a checkpoint that have not been executed again yet."""
        self._restored_at = 0.0

    def keep(self, held: list[TrackedTuple]) -> None:
        """Take over inputs that are held."""
        self._held += held
        if len(self._held) >= self._sweep_at:
            self._held = still_held(self._held)
            self._sweep_at = max(self._first_sweep, 2 * len(self._held))

    def __bool__(self) -> bool:
        return bool(self._held or self.restored)

    def now(self) -> Sequence[TrackedTuple]:
        """Return the inputs that are held at this moment."""
        self._held = still_held(self._held)
        return self._held

    def has_held(self) -> bool:
        """Whether an input is held at this moment. Cheap, however many there are."""
        while self._held and not _is_held(self._held):
            self._held.pop()
        return bool(self._held)

    def least_timestamp(self, since: float) -> int | None:
        """Return the least timestamp of the inputs that are held, and have been since `since` at the earliest.

        Restored inputs count from the recovery on, though user code has them only when they are executed again.
        """
        stamps = [tup.timestamp for tup in self.now() if tup.since >= since]
        if self._restored_at >= since:
            stamps += [one["timestamp"] for one in self.restored]
        return min((stamp for stamp in stamps if stamp is not None), default=None)

    def clear(self) -> list[TrackedTuple]:
        """Forget all inputs; return those that were held."""
        self.restored = []
        held, self._held = self._held, []
        return held

    def note_anchors(self, anchors: Iterable[tuple[TrackedTuple, ...]]) -> None:
        """Rows that are anchored on these inputs leave."""
        for inputs in anchors:
            for tup in inputs:
                tup.has_emitted = True

    def snapshot(self) -> HeldState:
        """Return the held inputs as state. Raises UserError when something was emitted for an input that is held."""
        held = self.now()
        if half := sum([tup.has_emitted for tup in held]):
            raise UserError(
                f"component {self._component!r} has emitted for {half} inputs that it holds back: executed again after a "
                "recovery, they would emit it twice. With exactly_once ack an input in the call that emits for it, or hold it "
                "without emitting; else use a ProcessBolt or a BatchBolt, or set delivery=at_least_once"
            )
        stored = [{"values": tup.values, "timestamp": tup.timestamp, "origin": _stored(tup.origin)} for tup in held]
        return {"tasks": self._tasks, "inputs": [*self.restored, *stored]}

    def restore(self, states: Iterable[HeldState], now: float) -> None:
        """Restore snapshots. Raises UserError when an input may belong to another task now."""
        self._restored_at = now
        for state in states:
            if state["inputs"] and state["tasks"] != self._tasks and not self._moves:
                raise UserError(
                    f"component {self._component!r} held {len(state['inputs'])} inputs back when the checkpoint was taken, in "
                    f"one of {state['tasks']} tasks; there are {self._tasks} now, and their grouping may send what belongs "
                    f"to them to another task: leave its parallelism at {state['tasks']}"
                )
            self.restored += state["inputs"]

    def take_restored(self, epoch: int) -> list[TrackedTuple]:
        """Return the inputs of the checkpoint, to be executed again; in order."""
        restored, self.restored = self.restored, []
        return [TrackedTuple.made(one["values"], Origin(*one["origin"]), one["timestamp"], epoch, (), ()) for one in restored]


def _stored(origin: Origin) -> tuple[Any, ...]:
    return (origin.component, origin.task, origin.stream, origin.fields)
