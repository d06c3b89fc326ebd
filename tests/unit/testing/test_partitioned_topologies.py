"""Spouts with partitions in whole topologies, in each delivery mode: dead letters, event time, commits, recoveries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from topo import (
    BadRecord,
    BasicBolt,
    Bolt,
    MemoryPartitions,
    MemorySpout,
    PartitionedSpout,
    SourceRow,
    Topology,
    TopologyBuilder,
    TopologyError,
    WatermarkStrategy,
    WindowBolt,
    aggregates,
    windows,
)
from topo.testing import TopologyTest

MODES = pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])


class Pass(BasicBolt):
    """Emits its input, but for values that are to fail."""

    outputs = ("n",)

    def execute(self, tup: Any, collector: Any) -> None:
        """Emit the value."""
        if tup[0] == 13:
            raise ValueError("thirteen")
        collector.emit((tup[0],))


def read_by(spout: PartitionedSpout, bolt: Any = None, tasks: int = 1, **settings: Any) -> Topology:
    """A spout, and a bolt that passes its numbers on."""
    builder = TopologyBuilder("t").config(**settings)
    builder.set_spout("spout", spout, tasks)
    builder.set_bolt("bolt", bolt or Pass()).shuffle_grouping("spout")
    return builder.build()


def passing(make: Callable[[], PartitionedSpout], delivery: str, tasks: int = 1) -> Topology:
    return read_by(make(), None, tasks, delivery=delivery, attempts=2, backoff="1s", checkpoint_interval="500ms")


@MODES
def test_a_bad_record_is_a_dead_letter_with_its_bytes_place_and_error(delivery: str) -> None:
    source = MemoryPartitions({"a": [b"1", b"x", b"2"]}, ended=True)
    test = TopologyTest(lambda: passing(lambda: MemorySpout(source, decode=int, discovery_interval=None), delivery))
    test.run()
    (given_up,) = test.dead_letters()
    assert (given_up.component, given_up.message_id, given_up.values) == ("spout", ("a", 1), (b"x",))
    assert "invalid literal" in given_up.why
    assert sorted(test.emitted("bolt")) == [(1,), (2,)] and source.committed == {"a": 2}


@MODES
def test_a_record_whose_values_cannot_be_carried_is_a_dead_letter_and_holds_up_no_other(delivery: str) -> None:
    source = MemoryPartitions({"a": [b"1", b"9" * 30, b"2"]}, ended=True)
    test = TopologyTest(lambda: passing(lambda: MemorySpout(source, decode=int, discovery_interval=None), delivery))
    test.advance("1m")
    (given_up,) = test.dead_letters()
    assert given_up.message_id == ("a", 1) and "does not fit 64 bits" in given_up.why
    assert sorted(test.emitted("spout")) == sorted(test.emitted("bolt")) == [(1,), (2,)] and source.committed == {"a": 2}


def test_the_position_does_not_pass_a_bad_record_before_its_dead_letter_is_stored() -> None:
    source = MemoryPartitions({"a": [b"x"]})
    test = TopologyTest(lambda: passing(lambda: MemorySpout(source, decode=int), "at_least_once"))
    test.advance("1s")
    assert source.committed == {"a": 0} and len(test.dead_letters()) == 1


@MODES
def test_a_message_that_a_bolt_fails_is_given_up_alone(delivery: str) -> None:
    source = MemoryPartitions({"a": [1, 13, 2], "b": [3]}, ended=True)
    test = TopologyTest(lambda: passing(lambda: MemorySpout(source, discovery_interval=None), delivery))
    test.run()
    assert [given_up.values for given_up in test.dead_letters()] == [(13,)]
    assert sorted(test.emitted("bolt")) == [(1,), (2,), (3,)] and source.committed == {"a": 2, "b": 0}


@MODES
@pytest.mark.parametrize("seed", range(3))
def test_partitions_that_come_while_tasks_die_are_read_to_their_end(delivery: str, seed: int) -> None:
    source = MemoryPartitions({f"p{n}": range(n * 100 + 20, n * 100 + 40) for n in range(4)})
    test = TopologyTest(lambda: passing(lambda: MemorySpout(source), delivery, 2), seed=seed)
    test.advance("300ms")
    test.crash("spout", seed % 2)
    source.add("late", [900, 901])
    test.advance("2s")
    test.crash("bolt")
    source.append("late", 902)
    test.advance("5s")
    wanted = {n * 100 + k for n in range(4) for k in range(20, 40)} | {900, 901, 902}
    assert {n for (n,) in test.emitted("bolt")} == wanted
    assert source.committed == {f"p{n}": 19 for n in range(4)} | {"late": 2}


def test_a_living_reader_goes_back_to_the_checkpoint_when_another_worker_dies() -> None:
    source = MemoryPartitions({"a": range(10), "b": range(10)})
    made: list[MemorySpout] = []

    class Counted(MemorySpout):
        def reader(self, context: Any) -> Any:
            made.append(self)
            return super().reader(context)

    test = TopologyTest(lambda: passing(lambda: Counted(source), "exactly_once"))
    test.advance("3s")
    test.crash("bolt")
    source.append("a", 10)
    test.advance("3s")
    assert len(made) == 1 and source.committed == {"a": 10, "b": 9}


def counting(source: MemoryPartitions, delivery: str, make: type[MemorySpout] = MemorySpout, **settings: Any) -> Topology:
    builder = TopologyBuilder("t").config(delivery=delivery, checkpoint_interval="500ms")
    strategy = WatermarkStrategy.monotonic_timestamps("at").with_idleness("10s")
    builder.set_spout("spout", make(source, ("key", "at"), **settings), watermarks=strategy)
    window = WindowBolt(key="key", window=windows.TumblingEventTimeWindows.of("1s"), aggregate=aggregates.Count())
    builder.set_bolt("window", window).fields_grouping("spout", "key")
    return builder.build()


@MODES
def test_no_row_is_late_because_another_partition_is_ahead(delivery: str) -> None:
    source = MemoryPartitions({"fast": [("k", ms) for ms in range(0, 10_000, 10)], "slow": [("k", ms) for ms in (0, 1000, 2000)]})
    test = TopologyTest(lambda: counting(source, delivery))
    test.advance("5s")
    source.append("slow", ("k", 3_000), ("k", 9_999))
    test.advance("5s")
    counts = [row[-1] for row in test.emitted("window")]
    assert counts[:4] == [101, 101, 101, 101] and len(counts) == 9


@MODES
def test_no_row_is_late_after_a_recovery_because_another_partition_was_ahead(delivery: str) -> None:
    source = MemoryPartitions({"fast": [("k", ms) for ms in range(0, 10_000, 10)], "slow": [("k", 0), ("k", 1000)]})
    test = TopologyTest(lambda: counting(source, delivery))
    test.advance("3s")
    test.crash("spout")
    test.advance("3s")
    source.append("slow", ("k", 2_000), ("k", 3_000), ("k", 9_999))
    test.advance("3s")
    counts = {row[1]: row[-1] for row in test.emitted("window")}
    assert counts[2_000] >= 101 and counts[3_000] >= 101, "a row that is late is left out"


@MODES
def test_event_time_waits_for_a_partition_that_cannot_be_assigned_at_once(delivery: str) -> None:
    class Refusing(MemorySpout):
        def reader(self, context: Any) -> Any:
            reader = super().reader(context)
            assign, failures = reader.assign, [OSError("not now")]

            def assign_later(partition: Any, position: Any, found_later: bool) -> Any:
                if partition.name == "slow" and failures:
                    raise failures.pop()
                return assign(partition, position, found_later)

            reader.assign = assign_later  # type: ignore[method-assign]
            return reader

    source = MemoryPartitions({"fast": [("k", ms) for ms in range(0, 10_000, 10)], "slow": [("k", 0), ("k", 9_999)]})
    test = TopologyTest(lambda: counting(source, delivery, Refusing))
    test.advance("5s")
    assert [row[-1] for row in test.emitted("window")][:2] == [101, 100]


def test_max_drift_holds_the_partition_back_that_is_ahead() -> None:
    source = MemoryPartitions({"fast": [("k", 0)], "slow": [("k", 0)]})
    test = TopologyTest(lambda: counting(source, "at_least_once", max_drift="1s"))
    test.advance("1s")
    source.append("fast", ("k", 5_000))
    test.advance("1s")
    source.append("fast", ("k", 6_000))
    test.advance("1s")
    assert len(test.emitted("spout")) == 3, "the fast partition is paused"
    source.append("slow", ("k", 5_500))
    test.advance("1s")
    assert len(test.emitted("spout")) == 5


def test_the_watermark_of_a_partition_that_ends_between_two_probes_counts() -> None:
    source = MemoryPartitions({f"p{n}": [("k", ms) for ms in range(0, 10_000, 100)] for n in range(6)}, ended=True)
    test = TopologyTest(lambda: counting(source, "at_least_once"))
    test.advance("5s")
    assert [row[-1] for row in test.emitted("window")] == [60] * 9


@MODES
def test_a_poll_gives_no_more_rows_than_one_call_may_emit(delivery: str) -> None:
    source = MemoryPartitions({"a": range(20, 51)}, ended=True)
    test = TopologyTest(lambda: read_by(MemorySpout(source, discovery_interval=None), delivery=delivery, max_task_emit=10))
    test.run()
    assert sorted(test.emitted("bolt")) == [(n,) for n in range(20, 51)]


@MODES
def test_the_begin_of_an_empty_partition_is_stored_before_a_checkpoint_or_report(delivery: str) -> None:
    source = MemoryPartitions({"empty": []})
    test = TopologyTest(lambda: read_by(MemorySpout(source, start="latest"), delivery=delivery, checkpoint_interval="60s"))
    test.advance("300ms")
    source.append("empty", 4)
    test.crash("spout")
    test.advance("30s")
    assert test.emitted("bolt") == [(4,)], "not behind it, as a second decision would have it"


class Stamped(PartitionedSpout):
    """Gives timestamps, from which no watermark is made without a strategy."""

    outputs = ("key",)

    def partitions(self) -> list[str]:
        """Return one."""
        return ["a"]

    def read(self, partition: Any, position: Any) -> Any:
        """Yield one row."""
        yield SourceRow(("k",), 0, timestamp=1)


@pytest.mark.parametrize(
    ("strategy", "why"), [(None, "the tuples of 'spout' have none"), (WatermarkStrategy.emitted(), "cannot emit watermarks")]
)
def test_timestamps_without_a_strategy_that_makes_watermarks_are_refused_at_build(strategy: Any, why: str) -> None:
    builder = TopologyBuilder("t")
    builder.set_spout("spout", Stamped(), watermarks=strategy)
    window = WindowBolt(key="key", window=windows.TumblingEventTimeWindows.of("1s"), aggregate=aggregates.Count())
    builder.set_bolt("window", window).fields_grouping("spout", "key")
    with pytest.raises(TopologyError, match=why):
        builder.build()


class Streams(PartitionedSpout):
    outputs = {"default": ("a",), "other": ("b",)}

    def partitions(self) -> list[str]:
        """Return none."""
        return []

    def read(self, partition: Any, position: Any) -> Any:
        """Return no rows."""
        yield SourceRow((1,), 1)


class Neither(PartitionedSpout):
    outputs = ("a",)

    def partitions(self) -> list[str]:
        """Return none."""
        return []


@pytest.mark.parametrize(
    ("spout", "why"),
    [
        (Streams(), "emits on one stream alone"),
        (Neither(), "defines neither read nor reader"),
        (MemorySpout(MemoryPartitions(), max_drift="1m"), "no watermark strategy"),
    ],
)
def test_a_spout_that_cannot_work_is_refused_at_build(spout: PartitionedSpout, why: str) -> None:
    with pytest.raises(TopologyError, match=why):
        read_by(spout)


class Folder:
    """Complete partitions by name; all copies of a spout read the same."""

    def __init__(self, **contents: list[int]) -> None:
        self.contents = contents

    def __deepcopy__(self, memo: dict[int, Any]) -> Folder:
        return self


class FolderSpout(PartitionedSpout):
    """Reads the partitions of a folder, each to its end. Those of a name that returns have the positions of its predecessor."""

    outputs = ("n",)
    discovery_interval = "1s"

    def __init__(self, folder: Folder) -> None:
        self.folder = folder

    def partitions(self) -> list[Any]:
        return list(self.folder.contents)

    def read(self, partition: Any, position: Any) -> Any:
        for place, number in enumerate(self.folder.contents.get(partition.name, [])):
            if position is None or place > position:
                yield SourceRow((number,), place)


class Hold(Bolt):
    """Passes numbers on, and keeps those above 100 open."""

    outputs = ("n",)

    def prepare(self, context: Any, collector: Any) -> None:
        """Keep the collector."""
        self.collector = collector

    def execute(self, tup: Any) -> None:
        """Emit the number."""
        self.collector.emit((tup[0],))
        if tup[0] < 100:
            self.collector.ack(tup)


def test_a_name_that_returns_is_read_whole_although_a_message_of_its_predecessor_was_open() -> None:
    folder = Folder(a=[1, 2, 101])
    test = TopologyTest(lambda: read_by(FolderSpout(folder), Hold()))
    test.advance("2s")
    del folder.contents["a"]
    test.advance("3s")
    folder.contents["a"] = [3, 4, 5]
    test.crash("spout")
    test.advance("3s")
    assert sorted(test.emitted("bolt")) == [(1,), (2,), (3,), (4,), (5,), (101,)]


@pytest.mark.parametrize("bad", [False, True])
def test_a_name_that_returns_is_read_whole_beside_open_messages_of_the_same_positions(bad: bool) -> None:
    folder = Folder(a=[101, 102, 1])

    class Spout(FolderSpout):
        def read(self, partition: Any, position: Any) -> Any:
            for row in super().read(partition, position):
                yield BadRecord(b"x", row.position, ValueError("bad")) if bad and row.values[0] == 2 else row

    test = TopologyTest(lambda: read_by(Spout(folder), Hold()))
    for contents in ([2, 3, 103], [2, 5, 6]):
        test.advance("2s")
        del folder.contents["a"]
        test.advance("3s")
        folder.contents["a"] = contents
    test.advance("3s")
    twos = [] if bad else [(2,), (2,)]
    assert sorted(test.emitted("bolt")) == [(1,), *twos, (3,), (5,), (6,), (101,), (102,), (103,)]
    assert [dead.message_id for dead in test.dead_letters()] == ([("a", 0), ("a", 0)] if bad else [])
    assert sorted(test.acked("spout")) == [("a", 0)] * (0 if bad else 2) + [("a", 1)] * 2 + [("a", 2)] * 2
    assert {error.kind for error in test.errors()} == {"TupleStateError"}


def test_a_window_that_is_open_when_its_file_is_replaced_ends_with_the_rows_of_the_next() -> None:
    """Without a partition the output is idle: only the next file brings the watermark that the messages wait for."""
    folder = Folder(a=[0, 500])

    def build() -> Topology:
        builder = TopologyBuilder("t").config(delivery="at_least_once")
        watermarks = WatermarkStrategy.monotonic_timestamps(timestamp="n")
        builder.set_spout("spout", FolderSpout(folder), watermarks=watermarks)
        window = WindowBolt(key=None, window=windows.TumblingEventTimeWindows.of("1s"), aggregate=aggregates.Count())
        builder.set_bolt("count", window).global_grouping("spout")
        return builder.build()

    test = TopologyTest(build)
    test.advance("2s")
    del folder.contents["a"]
    test.advance("3s")
    folder.contents["a"] = [600, 700, 5_000]
    test.advance("5s")
    assert [row[-1] for row in test.emitted("count")] == [4] and not test.errors()
