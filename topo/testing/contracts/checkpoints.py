"""The promises of every two-phase sink, whichever process is killed and when."""

from __future__ import annotations

from pathlib import Path

import msgpack
import pytest

from topo.checkpoint.staged_output import merged
from topo.testing.contracts.sink_contract import PublishesBy, SinkContract
from topo.testing.contracts.sink_tasks import TICK, SinkTask, carried, started, tracked

WRITERS = [("test", "one"), ("test", "two"), ("other", "one")]


class CheckpointContract(SinkContract):
    """Each row once: a sink and its replacements go through checkpoints that complete, are aborted and are lost."""

    def _only_if_it_judges_each_tuple(self) -> None:
        if not self.judges_each_tuple:
            pytest.skip("this sink gathers tuples otherwise")

    def test_rows_are_seen_when_their_checkpoint_is_complete_and_not_before(self, tmp_path: Path) -> None:
        task = SinkTask(self, tmp_path)
        task.write(1, 2, 3, 4, 5)
        self.assert_published(tmp_path, [])
        task.snapshot(1)
        task.write(6)
        self.assert_published(tmp_path, [])
        task.output.complete(1)
        self.assert_published(tmp_path, [1, 2, 3, 4, 5])
        task.write(7, 8, 9)
        task.snapshot(2)
        task.output.complete(2)
        self.assert_published(tmp_path, [1, 2, 3, 4, 5, 6, 7, 8, 9])
        assert self.staged(tmp_path) == []

    def test_every_tuple_is_acked_when_it_is_written_and_ticks_do_nothing(self, tmp_path: Path) -> None:
        self._only_if_it_judges_each_tuple()
        task = SinkTask(self, tmp_path)
        task.write(1, 2)
        task.sink.execute(TICK)
        task.sink.end_of_input()
        assert len(task.collector.acked) == 2
        self.assert_published(tmp_path, [])

    def test_a_checkpoint_without_rows_stages_nothing(self, tmp_path: Path) -> None:
        task = SinkTask(self, tmp_path)
        assert task.snapshot(1) == ()
        task.output.complete(1)
        task.write(1)
        if self.publishes_by is not PublishesBy.UPSERT:
            assert len(task.snapshot(2)) == 1
            assert task.output.staged == 1

    def test_rows_of_an_aborted_checkpoint_are_published_with_the_next(self, tmp_path: Path) -> None:
        task = SinkTask(self, tmp_path)
        task.write(1)
        task.snapshot(1)
        task.write(2)
        task.snapshot(2)
        task.write(3)
        task.snapshot(3)
        task.output.complete(2)
        self.assert_published(tmp_path, [1, 2])
        task.output.complete(2)
        self.assert_published(tmp_path, [1, 2])
        task.output.complete(3)
        self.assert_published(tmp_path, [1, 2, 3])

    def test_a_commit_can_be_repeated_also_by_another_process_and_after_later_ones(self, tmp_path: Path) -> None:
        task = SinkTask(self, tmp_path)
        task.write(1, 2, 3)
        state = task.snapshot(1)
        tokens = [token for _, token in state]
        task.output.complete(1)
        for token in tokens:
            task.sink.commit(token)
        task.write(4)
        task.snapshot(2)
        task.output.complete(2)
        other = SinkTask(self, tmp_path, state=state)
        for sink in (task.sink, other.sink):
            for token in tokens:
                sink.commit(token)
        self.assert_published(tmp_path, [1, 2, 3, 4])

    def test_a_replacement_publishes_the_tokens_of_the_checkpoint_and_removes_the_rest(self, tmp_path: Path) -> None:
        task = SinkTask(self, tmp_path)
        task.write(1)
        task.snapshot(1)
        task.write(2, 3)
        state = task.snapshot(2)
        task.write(4, 5)
        task.snapshot(3)
        task.write(6, 7, 8)
        task.die()
        replacement = SinkTask(self, tmp_path, state=state)
        self.assert_published(tmp_path, [1, 2, 3])
        assert self.staged(tmp_path) == []
        replacement.write(4, 5, 6)
        replacement.snapshot(4)
        replacement.output.complete(4)
        self.assert_published(tmp_path, [1, 2, 3, 4, 5, 6])

    def test_without_a_complete_checkpoint_a_replacement_removes_everything(self, tmp_path: Path) -> None:
        task = SinkTask(self, tmp_path)
        task.write(1, 2, 3)
        task.snapshot(1)
        task.write(4, 5, 6)
        task.die()
        SinkTask(self, tmp_path)
        self.assert_published(tmp_path, [])
        assert self.staged(tmp_path) == []

    def test_a_surviving_process_returns_to_the_checkpoint_too(self, tmp_path: Path) -> None:
        task = SinkTask(self, tmp_path)
        task.write(1)
        state = task.snapshot(1)
        task.write(2, 3, 4)
        task.snapshot(2)
        task.write(5, 6, 7)
        task.output.restore(state)
        self.assert_published(tmp_path, [1])
        assert self.staged(tmp_path) == []
        task.write(2, 3)
        task.snapshot(3)
        task.output.complete(3)
        self.assert_published(tmp_path, [1, 2, 3])

    @pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0)], ids=["first to last", "last to first"])
    def test_other_components_and_topologies_on_one_target_keep_their_staged_rows(
        self, tmp_path: Path, order: tuple[int, ...]
    ) -> None:
        tasks = [SinkTask(self, tmp_path, writer=writer) for writer in WRITERS]
        for number, task in enumerate(tasks):
            task.write(*range(4 * number, 4 * number + 3))
        states = [task.snapshot(1) for task in tasks]
        for number, task in enumerate(tasks):
            task.write(4 * number + 3)
            task.snapshot(2)
            task.die()
        for number in order:
            SinkTask(self, tmp_path, state=states[number], writer=WRITERS[number])
        self.assert_published(tmp_path, [0, 1, 2, 4, 5, 6, 8, 9, 10], in_order=False)
        assert self.staged(tmp_path) == []

    def test_a_second_loss_before_anything_new_changes_nothing(self, tmp_path: Path) -> None:
        task = SinkTask(self, tmp_path)
        task.write(1, 2)
        state = task.snapshot(1)
        task.die()
        for _ in range(3):
            task = SinkTask(self, tmp_path, state=state)
            task.write(3)
            task.die()
        self.assert_published(tmp_path, [1, 2])

    def test_an_orderly_end_keeps_only_rows_that_may_still_count(self, tmp_path: Path) -> None:
        task = SinkTask(self, tmp_path)
        task.write(1, 2)
        state = task.snapshot(1)
        task.write(3, 4, 5)
        self.assert_published(tmp_path, [])
        task.sink.cleanup()
        self.assert_published(tmp_path, [])
        SinkTask(self, tmp_path, state=state)
        self.assert_published(tmp_path, [1, 2])
        assert self.staged(tmp_path) == []

    def test_an_orderly_end_removes_rows_that_no_checkpoint_covers(self, tmp_path: Path) -> None:
        task = SinkTask(self, tmp_path)
        task.write(1, 2, 3, 4, 5)
        task.sink.cleanup()
        assert self.staged(tmp_path) == []

    def test_after_a_change_of_parallelism_each_row_is_there_once(self, tmp_path: Path) -> None:
        written: set[int] = set()
        states: list[object] = []
        for round_, parallelism in enumerate((2, 3, 1, 4)):
            tasks = [
                SinkTask(self, tmp_path, index, parallelism, merged(states[index::parallelism])) for index in range(parallelism)
            ]
            self.assert_published(tmp_path, sorted(written), in_order=False)
            for index, task in enumerate(tasks):
                task.write(*(numbers := range(100 * round_ + 10 * index, 100 * round_ + 10 * index + 3)))
                written.update(numbers)
            states = [task.snapshot(round_) for task in tasks]
            # The checkpoint is complete, and only one task gets the message before all die.
            tasks[0].output.complete(round_)
            for task in tasks:
                task.write(-1)
                task.snapshot(round_ + 1)
                task.die()
        SinkTask(self, tmp_path, state=merged(states))
        self.assert_published(tmp_path, sorted(written), in_order=False)
        assert self.staged(tmp_path) == []

    def test_a_recovering_task_leaves_the_staged_rows_of_others_alone(self, tmp_path: Path) -> None:
        first, second = (SinkTask(self, tmp_path, index, 2) for index in range(2))
        first.write(1, 2, 3)
        second.write(4, 5, 6)
        second.snapshot(1)
        second.write(7, 8, 9)
        first.die()
        replacement = SinkTask(self, tmp_path, 0, 2)
        replacement.write(1, 2, 3)
        for task in (replacement, second):
            task.snapshot(2)
        for task in (replacement, second):
            task.output.complete(2)
        self.assert_published(tmp_path, list(range(1, 10)), in_order=False)

    def test_a_process_that_was_given_up_does_no_harm_to_its_replacement(self, tmp_path: Path) -> None:
        zombie = SinkTask(self, tmp_path)
        zombie.write(1)
        state = zombie.snapshot(1)
        zombie.write(2, 3, 4)
        replacement = SinkTask(self, tmp_path, state=state)
        replacement.write(2)
        replacement.snapshot(2)
        zombie.output.complete(1)
        zombie.sink.cleanup()
        replacement.output.complete(2)
        self.assert_published(tmp_path, [1, 2])

    def test_a_token_is_small_and_survives_the_checkpoint(self, tmp_path: Path) -> None:
        task = SinkTask(self, tmp_path)
        task.write(*range(100))
        state = task.output.snapshot(1)
        assert len(msgpack.packb(state)) < 200 + 2 * len(str(tmp_path))
        task.output.restore(carried(state))
        self.assert_published(tmp_path, list(range(100)))

    def test_a_tuple_that_cannot_be_written_leaves_nothing_behind(self, tmp_path: Path) -> None:
        self._only_if_it_judges_each_tuple()
        task = SinkTask(self, tmp_path)
        task.write(1, 2)
        for _ in range(3):
            with pytest.raises(Exception):  # noqa: B017 - whatever the sink has for it
                task.sink.execute(tracked(n=object()))
        task.write(3)
        task.snapshot(1)
        task.output.complete(1)
        self.assert_published(tmp_path, [1, 2, 3])

    @pytest.mark.parametrize("delivery", ["at_least_once", "at_most_once"])
    def test_with_other_modes_a_batch_is_published_and_acked_when_it_is_full(self, tmp_path: Path, delivery: str) -> None:
        self._only_if_it_judges_each_tuple()
        sink = self.sink(tmp_path)
        sink.max_batch = 2
        collector = started(sink, delivery=delivery)
        first, second, third = (tracked(n=n) for n in range(3))
        sink.execute(first)
        assert collector.acked == []
        self.assert_published(tmp_path, [])
        sink.execute(second)
        assert collector.acked == [first, second]
        self.assert_published(tmp_path, [0, 1])
        sink.execute(third)
        sink.execute(TICK)
        assert collector.acked == [first, second, third]
        self.assert_published(tmp_path, [0, 1, 2])

    def test_with_other_modes_the_end_publishes_and_a_reset_drops(self, tmp_path: Path) -> None:
        self._only_if_it_judges_each_tuple()
        sink = self.sink(tmp_path)
        collector = started(sink, delivery="at_least_once")
        sink.execute(tracked(n=1))
        sink.on_reset()
        sink.execute(tracked(n=2))
        sink.end_of_input()
        sink.execute(tracked(n=3))
        sink.execute(TICK)
        self.assert_published(tmp_path, [2, 3])
        assert len(collector.acked) == 2
        sink.execute(tracked(n=4))
        sink.cleanup()
        self.assert_published(tmp_path, [2, 3, 4])
        assert self.staged(tmp_path) == []
