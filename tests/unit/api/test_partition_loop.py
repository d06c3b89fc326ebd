"""The life of partitions in a task, on a source in memory: cases that not every source can show."""

from __future__ import annotations

import math
from typing import Any

import pytest

from topo import BadRecord, MemoryPartitions, MemorySpout, Partition, PartitionedSpout, SourceRow, SourceRows, TaskContext
from topo.api.generator_reader import GeneratorReader
from topo.errors import EmitError, TopoEnvironmentError
from topo.testing.partition_harness import PartitionHarness


def harness_of(source: MemoryPartitions, tasks: int = 1, **settings: Any) -> PartitionHarness:
    harness = PartitionHarness(lambda: MemorySpout(source, **settings), tasks)
    harness.turns()
    return harness


def test_latest_begins_behind_the_last_row_and_reads_later_partitions_whole() -> None:
    source = MemoryPartitions({"a": [1, 2]})
    harness = harness_of(source, start="latest")
    source.append("a", 3)
    source.add("b", [7])
    harness.discover()
    assert harness.read == {"a": [3], "b": [7]}


def test_where_a_partition_begins_is_decided_once_even_before_a_row() -> None:
    source = MemoryPartitions({"a": [1, 2], "empty": []})
    harness = harness_of(source, start="latest")
    harness.stop()
    source.append("a", 3)
    source.append("empty", 4)
    harness.start(1)
    harness.turns()
    assert harness.read == {"a": [3], "empty": [4]}


def test_a_partition_that_came_while_nothing_ran_is_read_from_its_beginning() -> None:
    source = MemoryPartitions()
    harness = harness_of(source, start="latest")
    harness.stop()
    source.add("a", [1])
    harness.start(1)
    harness.turns()
    assert harness.read == {"a": [1]}


def test_partitions_that_a_task_had_not_found_begin_where_the_settings_say_also_at_another_parallelism() -> None:
    first, mine, other = ["p0", "p1", "p2", "p3"], "p4", "p6"
    assert [Partition(name).owner(2) for name in (*first, mine, other)] == [0, 1, 0, 1, 0, 1]
    source = MemoryPartitions({name: [1] for name in first})
    harness = PartitionHarness(lambda: MemorySpout(source, start="latest"), 2)
    for _ in range(10):
        harness.tasks[0].turn()
    for tasks in (1, 3):
        # Stored once more before these tasks have found any.
        harness.stop()
        harness.start(tasks)
    source.add(mine, [1])
    source.add(other, [1])
    harness.turns()
    for name in (*first, mine, other):
        source.append(name, 2)
    harness.turns()
    assert harness.read == {name: [2] for name in (*first, other)} | {mine: [1, 2]}, "the first task would have read it whole"
    harness.stop()
    source.add("later", [1])
    harness.start(2)
    harness.turns()
    assert harness.read["later"] == [1] and not harness.errors


def test_without_further_discovery_the_input_ends_with_its_partitions() -> None:
    source = MemoryPartitions({"a": [1], "b": [2]})
    harness = harness_of(source, discovery_interval=None)
    source.end("a")
    harness.turns()
    assert not harness.has_ended
    source.end("b")
    harness.turns()
    assert harness.has_ended and harness.read == {"a": [1], "b": [2]}


def test_one_listing_without_a_partition_does_not_count_and_two_do() -> None:
    source = MemoryPartitions({"a": [1], "b": [2]})
    harness = harness_of(source)
    source.remove("a")
    harness.discover()
    assert harness.errors == []
    harness.discover()
    (error,) = harness.errors
    assert isinstance(error, TopoEnvironmentError) and "partition 'a' is gone" in str(error) and "position 0" in str(error)


def test_a_partition_that_comes_back_goes_on_behind_its_position() -> None:
    source = MemoryPartitions({"a": [1, 2]})
    harness = harness_of(source)
    source.remove("a")
    harness.discover()
    harness.discover()
    source.add("a", [3])
    harness.discover()
    assert harness.read == {"a": [1, 2, 3]}


def test_lost_records_hold_the_partition_by_default_and_the_others_are_read() -> None:
    source = MemoryPartitions({"a": [1, 2], "b": [1]})
    harness = harness_of(source)
    harness.stop()
    source.append("a", 3, 4, 5)
    source.truncate("a", 3)
    source.append("b", 2)
    harness.start(1)
    harness.turns()
    assert harness.read == {"a": [1, 2], "b": [1, 2]}
    assert [str(error) for error in harness.errors] == ["partition 'a' has no records 2 to 2 any more"]
    harness.clock.advance("2s")
    harness.turns()
    assert len(harness.errors) == 2, "reported again and again"


def test_lost_records_are_reported_and_skipped_where_the_user_wants_that() -> None:
    source = MemoryPartitions({"a": [1, 2]})
    harness = harness_of(source, on_lost="skip")
    harness.stop()
    source.append("a", 3, 4, 5)
    source.truncate("a", 3)
    harness.start(1)
    harness.turns()
    assert harness.read == {"a": [1, 2, 4, 5]} and len(harness.errors) == 1


@pytest.mark.parametrize(("policy", "read", "given_up"), [("dead_letter", [1, 3], 1), ("drop", [1, 3], 0), ("fail", [1], 0)])
def test_bad_records_follow_the_policy(policy: Any, read: list[int], given_up: int) -> None:
    source = MemoryPartitions({"a": ["1", "x", "3"], "b": ["4"]})
    harness = harness_of(source, decode=int, on_bad_record=policy)
    assert harness.read == {"a": read, "b": [4]} and len(harness.given_up) == given_up
    assert bool(harness.errors) == (policy == "fail")


def test_a_paused_partition_gives_nothing_until_it_continues() -> None:
    source = MemoryPartitions({"a": [1], "b": [2]})
    harness = harness_of(source)
    harness.tasks[0].spout.set_ahead({"a"})
    source.append("a", 10)
    source.append("b", 20)
    harness.turns()
    assert harness.read == {"a": [1], "b": [2, 20]}
    harness.tasks[0].spout.set_ahead(())
    harness.turns()
    assert harness.read == {"a": [1, 10], "b": [2, 20]}


def test_committed_positions_reach_the_source() -> None:
    source = MemoryPartitions({"a": [1, 2], "b": [3]})
    harness = harness_of(source)
    harness.tasks[0].commit()
    assert source.committed == {"a": 1, "b": 0}


class Listed(PartitionedSpout):
    """Reads what a test has listed for each partition; an exception is raised where it stands, the first time."""

    outputs = ("value",)

    def __init__(self, **listed: list[Any]) -> None:
        self.listed = listed
        self.polls: list[tuple[str, Any]] = []

    def partitions(self) -> list[Partition | str]:
        return list(self.listed)

    def read(self, partition: Partition, position: Any) -> Any:
        self.polls.append((partition.name, position))
        items = self.listed[partition.name]
        for place, item in enumerate(items):
            if isinstance(item, Exception):
                items.remove(item)
                raise item
            if position is None or place > position:
                yield item if isinstance(item, SourceRows | BadRecord) or item is None else SourceRow((item,), place)
        while True:
            yield None


def test_a_partition_whose_reading_fails_is_read_again_after_a_wait() -> None:
    spout = Listed(a=[1, OSError("no disk"), 2], b=[5])
    harness = PartitionHarness(lambda: spout)
    harness.turns()
    assert harness.read == {"a": [1], "b": [5]} and [str(error) for error in harness.errors] == ["no disk"]
    harness.clock.advance("1s")
    harness.turns()
    assert harness.read == {"a": [1, 2], "b": [5]} and spout.polls == [("a", None), ("b", None), ("a", 0)]


@pytest.mark.parametrize(
    ("item", "why"),
    [
        ("x", "yielded 'x'"),
        (SourceRows([(1,), (2,)], [1]), "2 rows, 1 positions"),
        (SourceRows([(1,), (2,)], [2, 1]), "each position is later"),
        (SourceRows([(1, 2)], [1]), "2 values"),
        (SourceRows([[1], (1, 2)], [1, 2]), "2 values"),
    ],
)
def test_what_a_reader_may_not_give_fails_its_partition_alone(item: Any, why: str) -> None:
    class Wrong(Listed):
        def read(self, partition: Partition, position: Any) -> Any:
            if partition.name == "b":
                yield SourceRow((5,), 0)
                return
            self.polls.append((partition.name, position))
            yield SourceRow((0,), 0)
            yield item

    spout = Wrong(a=[], b=[])
    harness = PartitionHarness(lambda: spout)
    harness.turns()
    (error,) = harness.errors
    assert isinstance(error, EmitError) and why in str(error)
    assert harness.read == {"a": [0], "b": [5]} and harness.tasks[0].stored()["a"].position == 0
    harness.clock.advance("1s")
    harness.turns()
    assert spout.polls == [("a", None), ("a", 0)], "begins behind the last row that was taken"


def test_rows_many_at_a_time_are_cut_to_the_room() -> None:
    numbers = list(range(250))
    spout = Listed(a=[SourceRows([(n,) for n in numbers], numbers, numbers)])
    harness = PartitionHarness(lambda: spout)
    harness.turns(2)
    assert len(harness.all_rows()) == 100
    harness.turns()
    assert harness.read == {"a": numbers}


@pytest.mark.parametrize("failure", [OSError, SystemExit])
def test_a_discovery_that_fails_is_reported_and_repeated(failure: type[BaseException]) -> None:
    class Shy(Listed):
        def partitions(self) -> list[Partition | str]:
            if not self.polls:
                self.polls.append(("", None))
                raise failure("not yet")
            return list(self.listed)

    harness = PartitionHarness(lambda: Shy(a=[1]))
    harness.turns()
    assert [str(error) for error in harness.errors] == ["not yet"] and harness.read == {}
    harness.clock.advance("1s")
    harness.turns()
    assert harness.read == {"a": [1]}


@pytest.mark.parametrize("partitions", [{}, {"a": [1]}])
def test_after_going_back_to_the_beginning_the_task_has_positions_to_store_again(partitions: dict[str, list[int]]) -> None:
    harness = harness_of(MemoryPartitions(partitions))
    (task,) = harness.tasks
    task.restart(None)
    harness.turns()
    assert task.is_known and {name: kept.position for name, kept in task.stored().items()} == dict.fromkeys(partitions, 0)


class Faulty(GeneratorReader):
    """A reader some of whose calls raise."""

    def __init__(self, spout: Listed, *calls: str) -> None:
        super().__init__(spout.read)
        self.calls = calls

    def _raise(self, call: str) -> None:
        if call in self.calls:
            raise OSError(f"no {call}")

    def release(self, partition: Partition) -> None:
        super().release(partition)
        self._raise("release")

    def pause(self, partition: Partition, paused: bool) -> None:
        super().pause(partition, paused)
        self._raise("pause")

    def lag(self) -> int | None:
        self._raise("lag")
        return 7


def faulty(spout: Listed, *calls: str) -> Any:
    class WithReader(Listed):
        def reader(self, context: TaskContext) -> Any:
            return Faulty(spout, *calls)

    return WithReader(**spout.listed)


def test_a_lag_is_shown_when_it_is_known_and_by_the_name_that_the_spout_gives() -> None:
    def shown(spout: Any) -> dict[str, float]:
        harness = PartitionHarness(lambda: spout)
        harness.turns()
        return {name: value for name, value in harness.tasks[0].metrics.snapshot().gauges.items() if "lag" in name}

    in_bytes = faulty(Listed(a=[1]))
    in_bytes.lag_metric = "lag_bytes"
    assert [shown(Listed(a=[1])), shown(faulty(Listed(a=[1]))), shown(in_bytes)] == [{}, {"lag": 7.0}, {"lag_bytes": 7.0}]


def test_a_lag_that_is_not_known_any_more_is_not_shown_as_it_was() -> None:
    class Forgetting(Faulty):
        known: int | None = None

        def lag(self) -> int | None:
            return self.known

    class Lagging(Listed):
        def reader(self, context: TaskContext) -> Any:
            return reader

    spout = Lagging(a=[1])
    reader = Forgetting(spout)
    harness = PartitionHarness(lambda: spout)

    def shown() -> dict[str, float]:
        harness.turns()
        harness.clock.advance("1s")
        harness.turns()
        return {name: value for name, value in harness.tasks[0].metrics.snapshot().gauges.items() if name == "lag"}

    assert shown() == {}
    reader.known = 7
    assert shown() == {"lag": 7.0}
    # The master leaves out a gauge that is no number.
    reader.known = None
    assert math.isnan(shown()["lag"])
    reader.known = 3
    assert shown() == {"lag": 3.0}
    reader.calls = ("lag",)
    reader.lag = lambda: reader._raise("lag")  # type: ignore[method-assign]
    assert math.isnan(shown()["lag"])


def test_a_lag_that_raises_is_reported_and_loses_no_row() -> None:
    harness = PartitionHarness(lambda: faulty(Listed(a=[1, 2]), "lag"))
    harness.turns()
    assert harness.read == {"a": [1, 2]} and {str(error) for error in harness.errors} == {"no lag"}


def test_a_release_that_raises_is_reported_and_loses_no_row() -> None:
    spout = Listed(a=[1, BadRecord(b"x", 1, ValueError("bad"))], b=[5])
    harness = PartitionHarness(lambda: faulty(spout, "release"))
    harness.tasks[0].spout.on_bad_record = "fail"
    harness.turns()
    assert harness.read == {"a": [1], "b": [5]} and [str(error) for error in harness.errors] == ["bad", "no release"]


def test_a_partition_that_is_gone_is_left_even_when_its_release_raises() -> None:
    spout = faulty(Listed(a=[1], b=[5]), "release")
    harness = PartitionHarness(lambda: spout)
    harness.turns()
    kept = spout.listed.pop("a")
    harness.discover()
    harness.discover()
    assert [word in str(error) for word, error in zip(("no release", "is gone"), harness.errors, strict=True)] == [True, True]
    spout.listed["a"] = kept
    harness.discover()
    assert harness.read == {"a": [1], "b": [5]}


def test_a_pause_that_raises_is_reported_and_its_partition_waits() -> None:
    harness = PartitionHarness(lambda: faulty(Listed(a=[1], b=[5]), "pause"))
    harness.turns()
    harness.tasks[0].spout.set_ahead({"a"})
    assert [str(error) for error in harness.errors] == ["no pause"]
    harness.tasks[0].spout.set_ahead(())
    harness.clock.advance("1s")
    harness.turns()
    assert harness.read == {"a": [1], "b": [5]} and len(harness.errors) == 1


def test_a_poll_above_its_room_is_refused_before_the_positions_move() -> None:
    class Greedy(Listed):
        def reader(self, context: TaskContext) -> Any:
            class Reader(GeneratorReader):
                def poll(self, output: Any) -> None:
                    output.rows(Partition("a"), [(n,) for n in range(101)], range(101))

            return Reader(self.read)

    harness = PartitionHarness(lambda: Greedy(a=[]))
    harness.turns()
    assert harness.read == {} and harness.tasks[0].stored()["a"].position is None
    (error,) = harness.errors
    assert "101 rows in one poll" in str(error) and "was 100" in str(error)


def test_a_name_that_is_not_utf8_is_reported_once_and_the_others_are_read() -> None:
    harness = PartitionHarness(lambda: Listed(**{"a": [1], "b\udcff": [2]}))
    harness.turns()
    harness.discover()
    (error,) = harness.errors
    assert harness.read == {"a": [1]} and r"'b\udcff' is not read" in str(error)


def test_a_decided_begin_holds_when_a_task_goes_back_before_the_first_checkpoint() -> None:
    source = MemoryPartitions({"a": [1, 2], "empty": []})
    harness = harness_of(source, start="latest")
    source.append("a", 3)
    source.append("empty", 4)
    harness.tasks[0].restart(None)
    harness.turns()
    assert harness.read == {"a": [3], "empty": [4]}


def test_a_task_whose_last_partition_is_gone_after_a_restart_is_idle() -> None:
    source = MemoryPartitions({"a": [1]})
    harness = harness_of(source)
    (task,) = harness.tasks
    source.remove("a")
    task.restart(task.stored())
    assert not task.is_idle
    harness.discover()
    harness.discover()
    assert task.is_idle


def test_a_spout_that_was_restored_behind_its_end_takes_committed_positions_without_a_reader() -> None:
    source = MemoryPartitions({"a": [1]})
    MemorySpout(source).on_committed({"a": 0})
    assert source.committed == {}
