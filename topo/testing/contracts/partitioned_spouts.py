"""The promises of connectors to the engine, as tests that a connector's own test suite takes over by one import.

    from topo.testing.contracts import PartitionedSpoutContract

    class TestPages(PartitionedSpoutContract):
        def source(self, folder):
            return Pages(folder)       # a `SourceUnderTest`

Needs pytest.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

import pytest

from topo.api.bolt import BasicBolt, BasicCollector
from topo.api.groupings import Shuffle
from topo.api.partitions import PartitionedSpout
from topo.api.streams import DEFAULT_STREAM
from topo.api.topology import ComponentKind, ComponentSpec, Input, Topology
from topo.api.tuples import Tuple
from topo.config import TopologyConfig
from topo.testing.partition_harness import PartitionHarness
from topo.testing.topology_test import TopologyTest


class SourceUnderTest(ABC):
    """A source that the tests change while a spout reads it. Numbers are the values of the spout's one field.

    What a source cannot do stays undefined: the tests that need it are skipped.
    """

    @abstractmethod
    def spout(self) -> PartitionedSpout:
        """Return a spout that reads the source, with one field, discovering below 1 minute; for each task another one."""

    @abstractmethod
    def add(self, name: str, numbers: Sequence[int]) -> None:
        """Add a partition with these numbers. The spout may give it a longer name that has this one as a word: "page-a.json"."""

    def append(self, name: str, numbers: Sequence[int]) -> None:
        """Append numbers to a partition."""
        pytest.skip("this source appends nothing")

    def remove(self, name: str) -> None:
        """Remove a partition."""
        pytest.skip("this source removes no partitions")

    def poison(self, name: str, numbers: Sequence[int | None]) -> None:
        """Add a partition with these numbers, and with a record that cannot be decoded for each None."""
        pytest.skip("this source has no bad records")


class _Pass(BasicBolt):
    outputs = ("n",)

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        """Emit the number."""
        collector.emit((tup[0],))


class PartitionedSpoutContract(ABC):
    """The promises of a `PartitionedSpout`. Subclass it in a test module, under a name that begins with `Test`."""

    @abstractmethod
    def source(self, folder: Path) -> SourceUnderTest:
        """Return an empty source, which may keep its data in `folder`."""

    @pytest.fixture
    def under_test(self, tmp_path: Path) -> SourceUnderTest:
        """The source of one test."""
        return self.source(tmp_path)

    # -- positions -----------------------------------------------------------------------------------------------------------

    def test_all_partitions_are_read_in_their_order(self, under_test: SourceUnderTest) -> None:
        harness = _with_partitions(under_test)
        assert _numbers(harness) == WHOLE and harness.errors == []

    def test_positions_rise_in_each_partition_and_name_one_row_each(self, under_test: SourceUnderTest) -> None:
        rows = _with_partitions(under_test).all_rows()
        for name in {name for name, _, _ in rows}:
            positions = [position for one, position, _ in rows if one == name]
            assert positions == sorted(set(positions))

    def test_a_task_continues_behind_the_position_of_each_partition(self, under_test: SourceUnderTest) -> None:
        harness = _with_partitions(under_test)
        harness.stop()
        harness.start(1)
        harness.turns()
        assert _numbers(harness) == WHOLE, "rows behind a stored position are read once"

    @pytest.mark.parametrize("row", range(5))
    def test_reading_continues_behind_any_row(self, under_test: SourceUnderTest, row: int) -> None:
        under_test.add("p", range(5))
        harness = PartitionHarness(under_test.spout)
        harness.turns()
        (kept,) = harness.stored().values()
        position = harness.all_rows()[row][1]
        harness.tasks[0].restart({harness.all_rows()[row][0]: kept._replace(position=position)})
        harness.tasks[0].rows.clear()
        harness.turns()
        assert _numbers(harness) == ({"p": list(range(row + 1, 5))} if row < 4 else {})

    @pytest.mark.parametrize("lives", [(1, 3, 2), (3, 1), (2, 5, 1)])
    def test_another_parallelism_takes_all_positions_over(self, under_test: SourceUnderTest, lives: tuple[int, ...]) -> None:
        harness = _with_partitions(under_test, tasks=lives[0])
        for life, tasks in enumerate(lives[1:]):
            harness.stop()
            under_test.add(f"late{life}", [100 + life])
            harness.start(tasks)
            harness.turns()
        assert _numbers(harness) == WHOLE | {f"late{life}": [100 + life] for life in range(len(lives) - 1)}

    def test_each_partition_is_read_by_one_task(self, under_test: SourceUnderTest) -> None:
        harness = _with_partitions(under_test, tasks=3)
        readers = {name: {place for place, task in enumerate(harness.tasks) if name in _names(task.rows)} for name in WHOLE}
        assert all(len(tasks) == 1 for tasks in readers.values()), readers

    def test_a_reader_goes_back_to_a_checkpoint(self, under_test: SourceUnderTest) -> None:
        harness = _with_partitions(under_test)
        (task,) = harness.tasks
        task.rows.clear()
        task.restart(None)
        harness.turns()
        assert _numbers(harness) == WHOLE, "without a checkpoint everything is read again"

    # -- discovery -----------------------------------------------------------------------------------------------------------

    def test_a_partition_is_found_while_the_source_is_read(self, under_test: SourceUnderTest) -> None:
        harness = _with_partitions(under_test, tasks=2)
        under_test.add("new", [7, 8])
        harness.discover()
        assert _numbers(harness) == WHOLE | {"new": [7, 8]}

    def test_appended_rows_are_read(self, under_test: SourceUnderTest) -> None:
        harness = _with_partitions(under_test)
        under_test.append("a", [50, 51])
        harness.discover()
        assert _numbers(harness) == WHOLE | {"a": [*WHOLE["a"], 50, 51]}

    def test_a_removed_partition_is_reported_and_the_others_are_read_on(self, under_test: SourceUnderTest) -> None:
        harness = _with_partitions(under_test)
        (removed,) = [name for name in harness.stored() if _short(name) == "a"]
        under_test.remove("a")
        harness.discover()
        harness.discover()
        # Nothing is lost with a partition that has been read to its end: it is forgotten.
        if removed in harness.stored():
            assert [error for error in harness.errors if repr(removed) in str(error)], "an error names the partition"
        under_test.add("new", [7])
        harness.discover()
        assert _numbers(harness) == WHOLE | {"new": [7]}

    # -- bad records ---------------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("numbers", [(None, 1, 2), (1, None, 2), (1, 2, None), (None, None), (None, 1, None, None, 2)])
    def test_bad_records_are_given_up_and_the_rest_is_read(
        self, under_test: SourceUnderTest, numbers: Sequence[int | None]
    ) -> None:
        under_test.poison("p", numbers)
        harness = PartitionHarness(under_test.spout)
        harness.turns()
        assert [value for values in harness.read.values() for value in values] == [n for n in numbers if n is not None]
        assert len(harness.given_up) == list(numbers).count(None)
        harness.stop()
        harness.start(1)
        harness.turns()
        assert len(harness.given_up) == list(numbers).count(None), "a bad record is given up once"

    # -- in a topology -------------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
    @pytest.mark.parametrize("crash", [None, "spout", "bolt"])
    def test_a_topology_reads_all_whatever_crashes(self, under_test: SourceUnderTest, delivery: str, crash: str | None) -> None:
        _add_all(under_test)
        test = TopologyTest(lambda: _topology(under_test, delivery))
        if crash is not None:
            _run_into_the_rows(test)
            test.crash(crash)
        test.advance("5s")
        seen = sorted(values[0] for values in test.emitted("bolt"))
        assert sorted(set(seen)) == sorted(n for numbers in WHOLE.values() for n in numbers)
        assert crash is not None or len(seen) == len(set(seen))


NAMES = {"a", "b", "c", "d", "p", "new", "late0", "late1"}
"""The partitions that tests add."""
WHOLE = {"a": [0, 1, 2], "b": [10, 11, 12, 13], "c": [20], "d": [30, 31]}


def _add_all(source: SourceUnderTest) -> None:
    for name, numbers in WHOLE.items():
        source.add(name, numbers)


def _with_partitions(source: SourceUnderTest, tasks: int = 1) -> PartitionHarness:
    _add_all(source)
    harness = PartitionHarness(source.spout, tasks)
    harness.turns()
    return harness


def _run_into_the_rows(test: TopologyTest) -> None:
    """Run a topology until some rows have reached the bolt and others have not."""
    until = test.clock() + 60
    while len(test.emitted("bolt")) < 3 and test.clock() < until:
        test._cluster.step(until)
    assert 3 <= len(test.emitted("bolt")) < sum(map(len, WHOLE.values()))


def _short(name: str) -> str:
    """Return the name that the test has given to a partition, which the spout may have made longer."""
    return next((word for word in re.findall(r"[a-z0-9]+", name) if word in NAMES), name)


def _names(rows: Sequence[tuple[str, object, object]]) -> set[str]:
    return {_short(name) for name, _, _ in rows}


def _numbers(harness: PartitionHarness) -> dict[str, list[int]]:
    return {_short(name): numbers for name, numbers in harness.read.items()}


def _topology(source: SourceUnderTest, delivery: str) -> Topology:
    spout = ComponentSpec("spout", ComponentKind.SPOUT, source.spout(), parallelism=2)
    bolt = ComponentSpec("bolt", ComponentKind.BOLT, _Pass(), inputs=(Input("spout", DEFAULT_STREAM, Shuffle()),))
    settings = {"delivery": delivery, "max_spout_pending": 4, "batch_size": 2}
    return Topology("contract", (spout, bolt), TopologyConfig().with_settings(settings))
