"""The promises of every two-phase sink, whichever process is killed and when."""

from __future__ import annotations

from pathlib import Path

import msgpack
import pytest

from tests.contract.two_phase_sinks import KINDS, SinkKind, SinkTask, carried, started
from tests.unit.connectors.drive import TICK, tracked
from topo.checkpoint.staged_output import merged


@pytest.fixture(params=KINDS, ids=lambda kind: kind.name)
def kind(request: pytest.FixtureRequest) -> SinkKind:
    found: SinkKind = request.param
    return found


@pytest.fixture(params=[kind for kind in KINDS if kind.takes_one_by_one], ids=lambda kind: kind.name)
def simple(request: pytest.FixtureRequest) -> SinkKind:
    """A kind that is in the other modes as the base class is, and judges each tuple when it comes."""
    found: SinkKind = request.param
    return found


@pytest.fixture(params=["in memory", "spilled"], autouse=True)
def spilling(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Transactions that fit into memory, and such that do not."""
    if request.param == "spilled":
        monkeypatch.setattr("topo.connectors.json_lines_sink._SPILL_LINES", 2)
        monkeypatch.setattr("topo.connectors.staged_table.SPILL_ROWS", 2)
        monkeypatch.setattr("topo.connectors.staged_files._SPILL_ROWS", 2)


def test_rows_are_seen_when_their_checkpoint_is_complete_and_not_before(kind: SinkKind, tmp_path: Path) -> None:
    task = SinkTask(kind, tmp_path)
    task.write(1, 2, 3, 4, 5)
    assert kind.rows(tmp_path) == []
    task.snapshot(1)
    task.write(6)
    assert kind.rows(tmp_path) == []
    task.output.complete(1)
    assert kind.rows(tmp_path) == [1, 2, 3, 4, 5]
    task.write(7, 8, 9)
    task.snapshot(2)
    task.output.complete(2)
    assert kind.rows(tmp_path) == [1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert kind.staged(tmp_path) == []


def test_every_tuple_is_acked_when_it_is_written_and_ticks_do_nothing(simple: SinkKind, tmp_path: Path) -> None:
    task = SinkTask(simple, tmp_path)
    task.write(1, 2)
    task.sink.execute(TICK)
    task.sink.end_of_input()
    assert len(task.collector.acked) == 2
    assert simple.rows(tmp_path) == []


def test_a_checkpoint_without_rows_stages_nothing(kind: SinkKind, tmp_path: Path) -> None:
    task = SinkTask(kind, tmp_path)
    assert task.snapshot(1) == ()
    task.output.complete(1)
    task.write(1)
    assert len(task.snapshot(2)) == 1
    assert task.output.staged == 1


def test_rows_of_an_aborted_checkpoint_are_published_with_the_next(kind: SinkKind, tmp_path: Path) -> None:
    task = SinkTask(kind, tmp_path)
    task.write(1)
    task.snapshot(1)
    task.write(2)
    assert [number for number, _ in task.snapshot(2)] == [1, 2]
    task.write(3)
    task.snapshot(3)
    task.output.complete(2)
    assert kind.rows(tmp_path) == [1, 2]
    task.output.complete(2)
    assert kind.rows(tmp_path) == [1, 2]
    task.output.complete(3)
    assert kind.rows(tmp_path) == [1, 2, 3]


def test_a_commit_can_be_repeated_also_by_another_process_and_after_later_ones(kind: SinkKind, tmp_path: Path) -> None:
    task = SinkTask(kind, tmp_path)
    task.write(1, 2, 3)
    ((_, token),) = state = task.snapshot(1)
    task.output.complete(1)
    task.sink.commit(token)
    task.write(4)
    task.snapshot(2)
    task.output.complete(2)
    task.sink.commit(token)
    other = SinkTask(kind, tmp_path, state=state)
    other.sink.commit(token)
    assert kind.rows(tmp_path) == [1, 2, 3, 4]


def test_a_replacement_publishes_the_tokens_of_the_checkpoint_and_removes_the_rest(kind: SinkKind, tmp_path: Path) -> None:
    task = SinkTask(kind, tmp_path)
    task.write(1)
    task.snapshot(1)
    task.write(2, 3)
    state = task.snapshot(2)
    task.write(4, 5)
    task.snapshot(3)
    task.write(6, 7, 8)
    task.die()
    replacement = SinkTask(kind, tmp_path, state=state)
    assert kind.rows(tmp_path) == [1, 2, 3]
    assert kind.staged(tmp_path) == []
    replacement.write(4, 5, 6)
    replacement.snapshot(4)
    replacement.output.complete(4)
    assert kind.rows(tmp_path) == [1, 2, 3, 4, 5, 6]


def test_without_a_complete_checkpoint_a_replacement_removes_everything(kind: SinkKind, tmp_path: Path) -> None:
    task = SinkTask(kind, tmp_path)
    task.write(1, 2, 3)
    task.snapshot(1)
    task.write(4, 5, 6)
    task.die()
    SinkTask(kind, tmp_path)
    assert kind.rows(tmp_path) == []
    assert kind.staged(tmp_path) == []


def test_a_surviving_process_returns_to_the_checkpoint_too(kind: SinkKind, tmp_path: Path) -> None:
    task = SinkTask(kind, tmp_path)
    task.write(1)
    state = task.snapshot(1)
    task.write(2, 3, 4)
    task.snapshot(2)
    task.write(5, 6, 7)
    task.output.restore(state)
    assert kind.rows(tmp_path) == [1]
    assert kind.staged(tmp_path) == []
    task.write(2, 3)
    task.snapshot(3)
    task.output.complete(3)
    assert kind.rows(tmp_path) == [1, 2, 3]


WRITERS = [("test", "one"), ("test", "two"), ("other", "one")]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0)], ids=["first to last", "last to first"])
def test_other_components_and_topologies_on_one_target_keep_their_staged_rows(
    kind: SinkKind, tmp_path: Path, order: tuple[int, ...]
) -> None:
    tasks = [SinkTask(kind, tmp_path, writer=writer) for writer in WRITERS]
    for number, task in enumerate(tasks):
        task.write(*range(4 * number, 4 * number + 3))
    states = [task.snapshot(1) for task in tasks]
    for number, task in enumerate(tasks):
        task.write(4 * number + 3)
        task.snapshot(2)
        task.die()
    for number in order:
        SinkTask(kind, tmp_path, state=states[number], writer=WRITERS[number])
    assert sorted(kind.rows(tmp_path)) == [0, 1, 2, 4, 5, 6, 8, 9, 10]
    assert kind.staged(tmp_path) == []


def test_a_second_loss_before_anything_new_changes_nothing(kind: SinkKind, tmp_path: Path) -> None:
    task = SinkTask(kind, tmp_path)
    task.write(1, 2)
    state = task.snapshot(1)
    task.die()
    for _ in range(3):
        task = SinkTask(kind, tmp_path, state=state)
        task.write(3)
        task.die()
    assert kind.rows(tmp_path) == [1, 2]


def test_an_orderly_end_keeps_only_rows_that_may_still_count(kind: SinkKind, tmp_path: Path) -> None:
    task = SinkTask(kind, tmp_path)
    task.write(1, 2)
    state = task.snapshot(1)
    task.write(3, 4, 5)
    before = kind.rows(tmp_path)
    task.sink.cleanup()
    assert (before, kind.rows(tmp_path)) == ([], [])
    SinkTask(kind, tmp_path, state=state)
    assert kind.rows(tmp_path) == [1, 2]
    assert kind.staged(tmp_path) == []


def test_an_orderly_end_removes_rows_that_no_checkpoint_covers(kind: SinkKind, tmp_path: Path) -> None:
    task = SinkTask(kind, tmp_path)
    task.write(1, 2, 3, 4, 5)
    task.sink.cleanup()
    assert kind.staged(tmp_path) == []


def test_after_a_change_of_parallelism_each_row_is_there_once(kind: SinkKind, tmp_path: Path) -> None:
    written: set[int] = set()
    states: list[object] = []
    for round_, parallelism in enumerate((2, 3, 1, 4)):
        tasks = [SinkTask(kind, tmp_path, index, parallelism, merged(states[index::parallelism])) for index in range(parallelism)]
        assert sorted(kind.rows(tmp_path)) == sorted(written)
        for index, task in enumerate(tasks):
            task.write(*(numbers := range(100 * round_ + 10 * index, 100 * round_ + 10 * index + 3)))
            written.update(numbers)
        states = [task.snapshot(round_) for task in tasks]
        # The checkpoint is complete, and only one task gets the message before all die.
        tasks[0].output.complete(round_)
        for task in tasks:
            task.write(-1)
            task.die()
    SinkTask(kind, tmp_path, state=merged(states))
    assert sorted(kind.rows(tmp_path)) == sorted(written)
    assert kind.staged(tmp_path) == []


def test_a_recovering_task_leaves_the_staged_rows_of_others_alone(kind: SinkKind, tmp_path: Path) -> None:
    first, second = (SinkTask(kind, tmp_path, index, 2) for index in range(2))
    first.write(1, 2, 3)
    second.write(4, 5, 6)
    second.snapshot(1)
    second.write(7, 8, 9)
    first.die()
    replacement = SinkTask(kind, tmp_path, 0, 2)
    replacement.write(1, 2, 3)
    for task in (replacement, second):
        task.snapshot(2)
    for task in (replacement, second):
        task.output.complete(2)
    assert sorted(kind.rows(tmp_path)) == list(range(1, 10))


def test_a_process_that_was_given_up_does_no_harm_to_its_replacement(kind: SinkKind, tmp_path: Path) -> None:
    zombie = SinkTask(kind, tmp_path)
    zombie.write(1)
    state = zombie.snapshot(1)
    zombie.write(2, 3, 4)
    replacement = SinkTask(kind, tmp_path, state=state)
    replacement.write(2)
    replacement.snapshot(2)
    zombie.output.complete(1)
    zombie.sink.cleanup()
    replacement.output.complete(2)
    assert kind.rows(tmp_path) == [1, 2]


def test_a_token_is_small_and_survives_the_checkpoint(kind: SinkKind, tmp_path: Path) -> None:
    task = SinkTask(kind, tmp_path)
    task.write(*range(100))
    state = task.output.snapshot(1)
    assert len(msgpack.packb(state)) < 200 + 2 * len(str(tmp_path))
    task.output.restore(carried(state))
    assert kind.rows(tmp_path) == list(range(100))


def test_a_tuple_that_cannot_be_written_leaves_nothing_behind(simple: SinkKind, tmp_path: Path) -> None:
    task = SinkTask(simple, tmp_path)
    task.write(1, 2)
    for _ in range(3):
        with pytest.raises(Exception, match=r"object|type"):
            task.sink.execute(tracked(n=object()))
    task.write(3)
    task.snapshot(1)
    task.output.complete(1)
    assert simple.rows(tmp_path) == [1, 2, 3]


@pytest.mark.parametrize("delivery", ["at_least_once", "at_most_once"])
def test_with_other_modes_a_batch_is_published_and_acked_when_it_is_full(simple: SinkKind, tmp_path: Path, delivery: str) -> None:
    sink = simple.make(tmp_path)
    sink.max_batch = 2
    collector = started(sink, delivery=delivery)
    first, second, third = (tracked(n=n) for n in range(3))
    sink.execute(first)
    assert (collector.acked, simple.rows(tmp_path)) == ([], [])
    sink.execute(second)
    assert (collector.acked, simple.rows(tmp_path)) == ([first, second], [0, 1])
    sink.execute(third)
    sink.execute(TICK)
    assert (collector.acked, simple.rows(tmp_path)) == ([first, second, third], [0, 1, 2])


def test_with_other_modes_the_end_publishes_and_a_reset_drops(simple: SinkKind, tmp_path: Path) -> None:
    sink = simple.make(tmp_path)
    collector = started(sink, delivery="at_least_once")
    sink.execute(tracked(n=1))
    sink.on_reset()
    sink.execute(tracked(n=2))
    sink.end_of_input()
    sink.execute(tracked(n=3))
    sink.execute(TICK)
    assert simple.rows(tmp_path) == [2, 3]
    assert len(collector.acked) == 2
    sink.execute(tracked(n=4))
    sink.cleanup()
    assert simple.rows(tmp_path) == [2, 3, 4]
    assert simple.staged(tmp_path) == []
