"""What a run may take over from the last one under its name."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.submissions import store_submission
from topo import BasicBolt, IterableSpout, MemoryPartitions, MemorySpout, TopologyBuilder
from topo.api.partition_values import UNFOUND, owned
from topo.errors import TopoEnvironmentError, UserError
from topo.launch.rebalancing import Rebalancing, write_down
from topo.launch.resuming import go_on_from_positions, split_by_partition, text_of_beginning
from topo.launch.submission import note_resumed, reset_run
from topo.plan.physical import PhysicalPlan, physical_plan
from topo.storage.state_folder import StateFolder, TopologyFolder, TopologyLock
from topo.storage.submitted import SubmittedTopology
from topo.wire.codec import Codec


class Pass(BasicBolt):
    def execute(self, tup: Any, collector: Any) -> None:
        pass


def plan(*spouts: tuple[str, int], delivery: str = "at_least_once") -> PhysicalPlan:
    builder = TopologyBuilder("flow").config(delivery=delivery)
    for name, tasks in spouts:
        builder.set_spout(name, IterableSpout([1]), parallelism=tasks)
    bolt = builder.set_bolt("pass", Pass())
    for name, _ in spouts:
        bolt.shuffle_grouping(name)
    return physical_plan(builder.build())


@pytest.fixture
def folder(tmp_path: Path) -> TopologyFolder:
    return StateFolder(tmp_path / "home").create("flow")


def store(folder: TopologyFolder, last: PhysicalPlan, positions: dict[int, bytes]) -> None:
    store_submission(folder, last)
    folder.positions.write_bytes(msgspec.msgpack.encode({task: (position, b"") for task, position in positions.items()}))


def positions(folder: TopologyFolder) -> dict[int, bytes]:
    rows = msgspec.msgpack.decode(folder.positions.read_bytes(), type=dict[int, tuple[bytes, bytes]])
    return {task: position for task, (position, _) in rows.items()}


def go_on(folder: TopologyFolder, last: PhysicalPlan, now: PhysicalPlan) -> None:
    store_submission(folder, now, moved=go_on_from_positions(folder, last, now))


def test_positions_move_to_the_tasks_that_have_new_numbers(folder: TopologyFolder) -> None:
    before, now = plan(("b", 2)), plan(("a", 1), ("b", 2))
    first, second = before.tasks_of("b")
    store(folder, before, {first: b"1", second: b"2"})

    go_on(folder, before, now)

    assert now.tasks_of("b") != before.tasks_of("b")
    assert positions(folder) == dict(zip(now.tasks_of("b"), (b"1", b"2"), strict=True))


def test_positions_and_the_plan_that_numbers_their_tasks_change_together(folder: TopologyFolder) -> None:
    """Under the plan of before, renumbered positions are those of other tasks: a resume would read twice, or leave out."""
    before, now = plan(("b", 2)), plan(("a", 1), ("b", 2))
    first, second = before.tasks_of("b")
    store(folder, before, {first: b"1", second: b"2"})
    change = Rebalancing((), (1, 1), False, (), {}, {}, now, was_foreground=False)

    # As on a full disk: topology.json cannot be written.
    obstacle = folder.topology.with_name(f".{folder.topology.name}.{os.getpid()}.new")
    obstacle.mkdir()
    with pytest.raises(TopoEnvironmentError, match=r"cannot write .*topology\.json"):
        write_down(folder, change, "")
    assert SubmittedTopology.read(folder).plan == before
    assert positions(folder) == {first: b"1", second: b"2"}

    obstacle.rmdir()
    write_down(folder, change, "")
    # As if the process had been killed before the positions were in their place.
    moved = SubmittedTopology.read(folder).moved
    folder.positions.rename(folder.path / moved)
    assert SubmittedTopology.read(folder).plan == now
    assert positions(folder) == dict(zip(now.tasks_of("b"), (b"1", b"2"), strict=True))


class Overtaken(TopologyFolder):
    """Its lock is got when another process has rebalanced the topology meanwhile."""

    def lock(self) -> TopologyLock:
        folder = TopologyFolder(self.path)
        if not SubmittedTopology.read(folder).parallelism:
            last, now = SubmittedTopology.read(folder).plan, plan(("a", 1), ("b", 2))
            store_submission(folder, now, moved=go_on_from_positions(folder, last, now), parallelism={"b": 2})
        return super().lock()


def test_a_change_takes_the_place_of_that_which_another_process_has_made_before_the_lock_was_had(folder: TopologyFolder) -> None:
    before, between, now = plan(("b", 2)), plan(("a", 1), ("b", 2)), plan(("0", 1), ("a", 1), ("b", 2))
    store(folder, before, dict(zip(before.tasks_of("b"), (b"1", b"2"), strict=True)))
    write_down(Overtaken(folder.path), Rebalancing((), (1, 1), False, (), {}, {}, now, was_foreground=False), "")
    assert between.tasks_of("b") != now.tasks_of("b")
    assert positions(folder) == dict(zip(now.tasks_of("b"), (b"1", b"2"), strict=True))


@pytest.mark.parametrize("again", [note_resumed, reset_run])
def test_another_start_keeps_the_numbers_of_a_rebalance_at_the_same_moment(
    folder: TopologyFolder, again: Callable[[TopologyFolder], None]
) -> None:
    store(folder, plan(("b", 2)), {})
    again(Overtaken(folder.path))
    submitted = SubmittedTopology.read(folder)
    assert (submitted.parallelism, submitted.plan) == ({"b": 2}, plan(("a", 1), ("b", 2)))


@pytest.mark.parametrize(("spouts", "tasks"), [((("b", 3),), 3), ((("a", 2),), 0)])
def test_positions_of_tasks_that_are_no_more_are_not_given_to_others(
    folder: TopologyFolder, spouts: tuple[tuple[str, int], ...], tasks: int
) -> None:
    before = plan(("b", 2))
    store(folder, before, dict.fromkeys(before.tasks_of("b"), b"1"))

    with pytest.raises(UserError, match=f"spout 'b' had 2 tasks with a position each, and now has {tasks}: .*the beginning"):
        go_on_from_positions(folder, before, plan(*spouts))
    assert positions(folder) == dict.fromkeys(before.tasks_of("b"), b"1")


def test_a_position_of_another_kind_is_not_given_to_a_spout_with_partitions(folder: TopologyFolder) -> None:
    before = plan(("a", 1))
    (task,) = before.tasks_of("a")
    store(folder, before, {task: b"1"})
    builder = TopologyBuilder("flow").config(delivery="at_least_once")
    builder.set_spout("a", MemorySpout(MemoryPartitions({"p": [1]})))
    builder.set_bolt("pass", Pass()).shuffle_grouping("a")

    with pytest.raises(UserError, match=r"spout 'a' has stored a position and now keeps positions by partition; .*the beginning"):
        go_on_from_positions(folder, before, physical_plan(builder.build()))
    assert positions(folder) == {task: b"1"}


def test_another_mode_of_delivery_does_not_go_on(folder: TopologyFolder) -> None:
    store(folder, plan(("a", 1)), {1: b"1"})

    with pytest.raises(UserError, match="ran with delivery=at_least_once and cannot continue with delivery=exactly_once"):
        go_on_from_positions(folder, plan(("a", 1)), plan(("a", 1), delivery="exactly_once"))


def test_text_of_a_first_run_and_of_runs_after_it(folder: TopologyFolder) -> None:
    assert text_of_beginning(folder, "") == "starts from the beginning"
    store(folder, plan(("a", 1)), {1: b""})
    assert text_of_beginning(folder, "") == "starts from the beginning; the last run has stored nothing to continue from"
    store(folder, plan(("a", 1)), {1: b"1"})
    os.utime(folder.positions, (0, 0))
    assert "the last run's positions of 1970-01-01 " in text_of_beginning(folder, "")


@pytest.mark.parametrize(("before", "after"), [(2, 3), (3, 1), (1, 4), (2, 2)])
def test_positions_by_partition_move_to_the_tasks_that_read_the_partitions_now(
    folder: TopologyFolder, before: int, after: int
) -> None:
    def with_tasks(tasks: int) -> PhysicalPlan:
        builder = TopologyBuilder("flow").config(delivery="at_least_once")
        builder.set_spout("s", MemorySpout(MemoryPartitions()), parallelism=tasks)
        builder.set_bolt("pass", Pass()).shuffle_grouping("s")
        return physical_plan(builder.build())

    codec, kept = Codec(), {f"t-{n}": ("t", n, n * 10, None) for n in range(5)}
    kills = [(("t-3", 31), 2)]
    last, now = with_tasks(before), with_tasks(after)
    rows = {}
    for index, task in enumerate(last.tasks_of("s")):
        mine = {name: tuple(one) for name, one in owned(kept, index, before).items()}
        rows[task] = (codec.pack_value(mine), codec.pack_value(kills) if "t-3" in mine else b"")
    store_submission(folder, last)
    folder.positions.write_bytes(msgspec.msgpack.encode(rows))

    go_on(folder, last, now)

    moved = msgspec.msgpack.decode(folder.positions.read_bytes(), type=dict[int, tuple[bytes, bytes]])
    for index, task in enumerate(now.tasks_of("s")):
        packed, attempts = moved[task]
        assert codec.unpack_value(packed) == {name: tuple(one) for name, one in owned(kept, index, after).items()}
        assert bool(attempts) == ("t-3" in codec.unpack_value(packed))


@pytest.mark.parametrize(("stored", "unfound"), [((True, False), ((1, 2),)), ((False, False), None)])
def test_tasks_that_had_not_found_their_partitions_are_known_to_those_of_another_parallelism(
    stored: tuple[bool, ...], unfound: Any
) -> None:
    codec = Codec()
    row = codec.pack_value({"t-0": ("t", 0, 7, None)}), b""
    for parallelism in (1, 3):
        rows = split_by_partition([row if is_stored else (b"", b"") for is_stored in stored], parallelism)
        again = [split_by_partition(rows, 2) for _ in range(2)][1]
        for packed, _ in rows + again:
            assert (codec.unpack_value(packed)[UNFOUND] if packed else None) == unfound


@pytest.mark.parametrize("form", ["{}", "file://{}"])
def test_the_checkpoint_that_a_run_begins_from_stays_however_its_path_is_written(tmp_path: Path, form: str) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "home").symlink_to(tmp_path / "disk")
    folder = StateFolder(tmp_path / "home").create("flow")
    store(folder, plan(("a", 1), delivery="exactly_once"), {})
    for run in ("5", "7"):
        (folder.checkpoints / run / "41").mkdir(parents=True)
    begun_from = folder.checkpoints.resolve() / "7" / "41"
    reset_run(folder, start_from=form.format(begun_from))
    assert [run.name for run in folder.checkpoints.iterdir()] == ["7"]
