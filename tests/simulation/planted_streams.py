"""Faults planted into tables that all tasks have, joins, other numbers of tasks, and second requests. Undone by `monkeypatch`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import pytest

from tests.simulation.planted import Plant
from topo.checkpoint import assignment, manifest
from topo.checkpoint.coordinator import CheckpointCoordinator
from topo.checkpoint.manifest import Manifest, Share
from topo.emission.groupers import EveryTarget
from topo.keys import KeyGroupRange
from topo.operators.state.handles import Ageing
from topo.plan.state_kinds import BROADCAST
from topo.streams.components import SameTask
from topo.streams.time_buffer import Kept, TimeBuffer


def the_table_goes_to_the_first_task_alone(patch: pytest.MonkeyPatch) -> None:
    """Of broadcast state the tasks beyond the first are given nothing."""
    shares_for = assignment.shares_for

    def first(stored: Manifest, component: str, index: int, parallelism: int) -> list[Share]:
        shape = stored.components.get(component)
        is_without = shape is not None and shape.state == BROADCAST and index > 0
        return [] if is_without else shares_for(stored, component, index, parallelism)

    patch.setattr(assignment, "shares_for", first)


def rows_for_all_miss_the_last_task(patch: pytest.MonkeyPatch) -> None:
    """The last of several tasks does not get the rows that all are to have."""
    init = EveryTarget.__init__
    patch.setattr(EveryTarget, "__init__", lambda self, targets: init(self, max(1, targets - 1)))


def state_lives_twice_as_long(patch: pytest.MonkeyPatch) -> None:
    """A value with a time to live is kept for twice that time."""
    stamp = Ageing.stamp

    def later(self: Ageing, value: Any) -> tuple[Any, int]:
        value, expires = stamp(self, value)
        return value, expires + self._lifetime_ms

    patch.setattr(Ageing, "stamp", later)


def records_leave_joins_early(patch: pytest.MonkeyPatch) -> None:
    """A join by event time drops records that may still find a partner."""
    take_until = TimeBuffer.take_until

    def early(self: TimeBuffer, last: int, *, but: int = 0) -> Sequence[Kept]:
        return take_until(self, last + 25, but=but)

    patch.setattr(TimeBuffer, "take_until", early)


def rows_stay_in_tasks_that_are_gone(patch: pytest.MonkeyPatch) -> None:
    """Rows of a task whose index the reader does not have after a rebalance are dropped."""
    prepare = SameTask.prepare

    def prepare_and_drop(self: SameTask, context: Any, stream: str, target_tasks: Collection[int]) -> None:
        prepare(self, context, stream, list(target_tasks))
        if context.task_index >= len(target_tasks):
            self._choice = ()  # type: ignore[assignment]

    patch.setattr(SameTask, "prepare", prepare_and_drop)


def key_groups_stay_where_they_were(patch: pytest.MonkeyPatch) -> None:
    """A task of a rebalanced component is given the key groups that the task of its index had."""
    range_of = manifest.range_of

    def before(index: int, groups: int, parallelism: int) -> KeyGroupRange:
        return range_of(index % 2, groups, 2)

    patch.setattr(manifest, "range_of", before)


def a_second_request_changes_nothing(patch: pytest.MonkeyPatch) -> None:
    """A savepoint that is asked for while it is being taken is the checkpoint that had begun before."""
    want_savepoint = CheckpointCoordinator.want_savepoint

    def once(self: CheckpointCoordinator, folder: str, *, at_end: bool = False) -> None:
        known = self.savepoints.get(folder)
        if at_end or known is None or known.state in ("written", "failed"):
            want_savepoint(self, folder, at_end=at_end)

    patch.setattr(CheckpointCoordinator, "want_savepoint", once)


PLANTS: dict[Plant, tuple[set[int], tuple[int, ...]]] = {
    the_table_goes_to_the_first_task_alone: ({7}, (7,)),
    rows_for_all_miss_the_last_task: ({7}, (7,)),
    state_lives_twice_as_long: ({7}, (13,)),
    records_leave_joins_early: ({7}, (3,)),
    rows_stay_in_tasks_that_are_gone: ({7}, (143,)),
    key_groups_stay_where_they_were: ({7}, (0,)),
    a_second_request_changes_nothing: ({18}, (22,)),
}
"""Each planted fault with the oracles that may catch it, and seeds that have: they are tried first, then all the others."""
