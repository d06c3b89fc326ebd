"""Faults planted into what decides beside the tasks: master, coordinator, dead letters, retries. Undone by `monkeypatch`."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest

from tests.simulation.planted_storage import restored_manifests_are_not_kept
from topo.checkpoint.attempt import Phase
from topo.checkpoint.coordinator import CheckpointCoordinator
from topo.checkpoint.source_progress import Covered, UncommittedMessages
from topo.checkpoint.staged_output import StagedOutput
from topo.dead_letters.registry import DeadLetters
from topo.ids import Epoch, TaskId
from topo.master.epochs import Epochs, EpochState
from topo.master.master import TopologyMaster
from topo.master.quiescence import Quiescence
from topo.operators.state.undo_log import UndoLog
from topo.storage.checkpoint_store import CheckpointStore, Found
from topo.task.flow_control import Arrival, InEdge
from topo.task.guarantees.checkpointed_source import CheckpointedSource
from topo.wire import control

Plant = Callable[[pytest.MonkeyPatch], None]


# -- both modes ------------------------------------------------------------------------------------------------------------


def frames_are_taken_twice(patch: pytest.MonkeyPatch) -> None:
    """A frame that is delivered twice is processed twice."""

    def accept(self: InEdge, number: int) -> Arrival:
        if number < self.expected:
            return Arrival.NEXT
        arrival = Arrival.NEXT if number == self.expected else Arrival.GAP
        if arrival is Arrival.NEXT:
            self.expected = number + 1
        return arrival

    patch.setattr(InEdge, "accept", accept)


def ready_of_an_older_epoch_counts(patch: pytest.MonkeyPatch) -> None:
    """A task that was ready in the epoch before counts as ready in this one."""
    ready = Epochs.task_ready
    patch.setattr(Epochs, "task_ready", lambda self, task, _epoch: ready(self, task, self.epoch))


def spouts_go_before_all_are_ready(patch: pytest.MonkeyPatch) -> None:
    """The first task that is ready lets the spouts emit."""

    def task_ready(self: Epochs, task: TaskId, epoch: Epoch) -> bool:
        if self.state is not EpochState.OPENING or epoch != self.epoch:
            return False
        self._ready = set(self._tasks)
        self.state, self.has_run, self._deadline = EpochState.RUNNING, True, None
        return True

    patch.setattr(Epochs, "task_ready", task_ready)


def record_is_not_stored(patch: pytest.MonkeyPatch) -> None:
    """The master stores no epoch after its first."""
    record = TopologyMaster._record

    def first(self: TopologyMaster) -> Any:
        return record(self) if self._persisted is None or self._persisted.term != self.term else self._persisted

    patch.setattr(TopologyMaster, "_record", first)


def frames_on_their_way_are_not_counted(patch: pytest.MonkeyPatch) -> None:
    """The topology is still when all tasks are quiet, whatever is in flight between them."""

    def conclude(self: Quiescence, answers: Mapping[TaskId, control.Quiet], now: float) -> None:
        self._answers = None
        self.is_still = all(map(self._permits_end, answers.values()))

    patch.setattr(Quiescence, "_conclude", conclude)


def stillness_outlives_its_epoch(patch: pytest.MonkeyPatch) -> None:
    """Answers of tasks from before a recovery count after it."""

    def follow(self: Quiescence, epoch: Epoch, breaks: int) -> None:
        self._epoch, self._breaks = epoch, breaks

    patch.setattr(Quiescence, "follow", follow)


# -- without checkpoints -----------------------------------------------------------------------------------------------------


def letters_are_confirmed_unwritten(patch: pytest.MonkeyPatch) -> None:
    """A dead letter is confirmed to its spout before it is on disk."""
    patch.setattr(DeadLetters, "is_stored", lambda *_: True)


PLANTS: dict[Plant, tuple[set[int], tuple[int, ...]]] = {
    frames_are_taken_twice: ({6}, (27,)),
    record_is_not_stored: ({15}, (0,)),
    stillness_outlives_its_epoch: ({0}, (0,)),
    letters_are_confirmed_unwritten: ({4}, (2,)),
    spouts_go_before_all_are_ready: ({16}, (0,)),
    frames_on_their_way_are_not_counted: (set(), ()),
}
"""Each planted fault with the oracles that may catch it, and a seed that has. Those without oracles no seed has caught yet."""


# -- with checkpoints --------------------------------------------------------------------------------------------------------


def parts_of_an_older_checkpoint_count(patch: pytest.MonkeyPatch) -> None:
    """A part or a barrier of a checkpoint that was given up counts for the one under way."""

    def matching(self: CheckpointCoordinator, message: Any) -> Any:
        return self._attempt if self.phase is Phase.UNDER_WAY and message.epoch == self._epoch else None

    patch.setattr(CheckpointCoordinator, "_matching", matching)


def an_epoch_begins_while_a_manifest_is_written(patch: pytest.MonkeyPatch) -> None:
    """A recovery does not wait for the answer whether the checkpoint is complete."""

    def holds_epoch(self: CheckpointCoordinator) -> bool:
        return self.phase is Phase.SEARCHING or bool(self.lost)

    patch.setattr(CheckpointCoordinator, "holds_epoch", property(holds_epoch))


def completion_is_reported_once(patch: pytest.MonkeyPatch) -> None:
    """A sink that has failed to publish is not asked again."""
    patch.setattr(CheckpointCoordinator, "_may_resend", property(lambda self: False))


def no_final_checkpoint(patch: pytest.MonkeyPatch) -> None:
    """The topology closes when nothing moves, without a checkpoint of that."""
    patch.setattr(CheckpointCoordinator, "may_close", property(lambda self: True))


def numbers_of_checkpoints_are_used_twice(patch: pytest.MonkeyPatch) -> None:
    """A new master counts checkpoints from the last complete one."""
    init = CheckpointCoordinator.__init__

    def forgetful(self: Any, plan: Any, last: int = 0, completed: Any = None, folder: str = "") -> None:
        init(self, plan, 0 if completed is None else completed.checkpoint, completed, folder)

    patch.setattr(CheckpointCoordinator, "__init__", forgetful)


def a_damaged_part_is_not_replaced(patch: pytest.MonkeyPatch) -> None:
    """The master ignores that a task cannot read its part."""
    patch.setattr(CheckpointCoordinator, "restore_failed", lambda self, message, now: None)


def checkpoints_are_not_verified(patch: pytest.MonkeyPatch) -> None:
    """The last manifest is taken, whatever has become of its parts."""

    def latest(self: CheckpointStore, *, expected: int = 0, below: int | None = None) -> Found:
        for stored in reversed(self.checkpoints()):
            if stored.manifest is not None and (below is None or stored.checkpoint < below):
                return Found(stored.manifest)
        return Found(None)

    patch.setattr(CheckpointStore, "latest", latest)


def one_checkpoint_is_kept(patch: pytest.MonkeyPatch) -> None:
    """All checkpoints but the last are removed, whatever the settings say."""
    init = CheckpointStore.__init__
    patch.setattr(CheckpointStore, "__init__", lambda self, files, topology, keep=3: init(self, files, topology, 1))


def an_older_checkpoint_is_kept_for_a_newer_one(patch: pytest.MonkeyPatch) -> None:
    """As many complete checkpoints are kept as the settings say: the first ones and the last one."""

    def prune(self: CheckpointStore, under_way: int) -> list[int]:
        whole = [one.checkpoint for one in self.checkpoints() if one.manifest is not None and one.checkpoint < under_way]
        gone = whole[self._keep - 1 : -1]
        for number in gone:
            self.discard(number)
        return gone

    patch.setattr(CheckpointStore, "prune", prune)


def tokens_of_later_checkpoints_are_published(patch: pytest.MonkeyPatch) -> None:
    """A sink publishes all that it has staged, of checkpoints under way, too."""
    complete = StagedOutput.complete
    patch.setattr(StagedOutput, "complete", lambda self, checkpoint: complete(self, 1 << 60))


def tokens_are_published_in_reverse(patch: pytest.MonkeyPatch) -> None:
    """A sink publishes its newest token first."""

    def complete(self: StagedOutput, checkpoint: int) -> None:
        for entry in [entry for entry in reversed(self._staged) if entry[0] <= checkpoint]:
            self._sink.commit(entry[1])
            self._staged.remove(entry)

    patch.setattr(StagedOutput, "complete", complete)


def tokens_of_failed_checkpoints_are_left_out(patch: pytest.MonkeyPatch) -> None:
    """A snapshot has the token of one checkpoint, and not the earlier ones that are staged."""
    snapshot = StagedOutput.snapshot
    patch.setattr(
        StagedOutput, "snapshot", lambda self, checkpoint: [one for one in snapshot(self, checkpoint) if one[0] == checkpoint]
    )


def restored_tokens_are_not_published(patch: pytest.MonkeyPatch) -> None:
    """A sink that restores a checkpoint removes the rows staged for it."""
    restore = StagedOutput.restore
    patch.setattr(StagedOutput, "restore", lambda self, state: restore(self, None))


def tokens_are_published_and_removed(patch: pytest.MonkeyPatch) -> None:
    """A token counts as published before that has succeeded."""

    def complete(self: StagedOutput, checkpoint: int) -> None:
        for entry in [entry for entry in self._staged if entry[0] <= checkpoint]:
            self._staged.remove(entry)
            self._sink.commit(entry[1])

    patch.setattr(StagedOutput, "complete", complete)


def covered_messages_are_not_remembered(patch: pytest.MonkeyPatch) -> None:
    """A checkpoint does not name messages that are covered, and that the source may deliver again."""
    snapshot = UncommittedMessages.snapshot

    def without(self: UncommittedMessages, checkpoint: int) -> Covered:
        unreported, self._unreported = self._unreported, deque()
        try:
            return snapshot(self, checkpoint)
        finally:
            self._unreported = unreported

    patch.setattr(UncommittedMessages, "snapshot", without)


def covered_messages_are_not_waited_for(patch: pytest.MonkeyPatch) -> None:
    """The topology may close while `ack` is to be called for messages that the final checkpoint covers."""

    def report(self: CheckpointedSource) -> None:
        self._snapshots.report_published(self._to_report)
        self._to_report = 0

    patch.setattr(CheckpointedSource, "_report_published", report)


def delivered_again_is_sent_again(patch: pytest.MonkeyPatch) -> None:
    """A message that the restored checkpoint covers is sent when the source delivers it again."""
    patch.setattr(UncommittedMessages, "_recognise", lambda self, message, digest: False)


def one_message_too_many_is_covered(patch: pytest.MonkeyPatch) -> None:
    """A checkpoint covers messages that were emitted behind its barrier."""
    complete = UncommittedMessages.complete
    patch.setattr(UncommittedMessages, "complete", lambda self, checkpoint: complete(self, checkpoint + 1))


def lost_messages_are_not_failed(patch: pytest.MonkeyPatch) -> None:
    """A recovery does not ask the spout for what no checkpoint covers."""
    restore = UncommittedMessages.restore

    def silent(self: UncommittedMessages, states: Iterable[Covered], checkpoint: int) -> list[Any]:
        restore(self, states, checkpoint)
        return []

    patch.setattr(UncommittedMessages, "restore", silent)


def failed_calls_leave_state(patch: pytest.MonkeyPatch) -> None:
    """What a call has changed before it raised stays."""

    def undo(self: UndoLog) -> None:
        if self._output is not None:
            self._output.rewind(self._mark)
        self._steps.clear()
        self._touched.clear()

    patch.setattr(UndoLog, "undo", undo)


CHECKPOINT_PLANTS: dict[Plant, tuple[set[int], tuple[int, ...]]] = {
    parts_of_an_older_checkpoint_count: ({3}, (157,)),
    completion_is_reported_once: ({10}, (34,)),
    no_final_checkpoint: ({7}, (0,)),
    numbers_of_checkpoints_are_used_twice: ({9}, (0,)),
    a_damaged_part_is_not_replaced: ({10}, (186,)),
    checkpoints_are_not_verified: ({10}, (15,)),
    tokens_of_failed_checkpoints_are_left_out: ({7}, (151,)),
    restored_tokens_are_not_published: ({7}, (1,)),
    tokens_are_published_in_reverse: ({14}, (16,)),
    tokens_are_published_and_removed: ({7}, (7,)),
    covered_messages_are_not_waited_for: ({2}, (292,)),
    delivered_again_is_sent_again: ({1, 10}, (24,)),
    one_message_too_many_is_covered: ({7}, (1,)),
    lost_messages_are_not_failed: ({10}, (7,)),
    failed_calls_leave_state: ({7}, (3,)),
    one_checkpoint_is_kept: ({16}, (0,)),
    an_older_checkpoint_is_kept_for_a_newer_one: ({16}, (0,)),
}
"""Likewise, for topologies with checkpoints."""

SECOND_PLANTS: dict[Plant, tuple[set[int], tuple[int, ...], str]] = {
    restored_manifests_are_not_kept: ({16}, (17,), "death_in_a_write"),
    ready_of_an_older_epoch_counts: ({16}, (1,), "slow_news"),
    an_epoch_begins_while_a_manifest_is_written: ({7, 16}, (82,), "scenario"),
    covered_messages_are_not_remembered: ({7}, (0,), "death_between_acks"),
    tokens_of_later_checkpoints_are_published: ({16}, (1,), "slow_news"),
}
"""Likewise, caught by runs of `test_second_faults.py`, which the third entry names."""
