"""The number of partitions that are read at the same time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from topo.api.generator_reader import GeneratorReader
from topo.api.partition_values import Partition, SourceRow, SourceRows


class Output:
    """Keeps the names of the partitions that gave rows."""

    room = 10

    def __init__(self) -> None:
        self.names: set[str] = set()

    def rows(self, partition: Partition, *_: Any) -> None:
        self.names.add(partition.name)


def numbers(_partition: Partition, _position: Any) -> Iterator[SourceRow]:
    for n in range(1000):
        yield SourceRow((n,), n)


def polled(reader: GeneratorReader) -> set[str]:
    output: Any = Output()
    reader.poll(output)
    names: set[str] = output.names
    return names


def test_partitions_wait_for_the_end_of_others_but_not_for_paused_ones() -> None:
    """A paused partition waits for others, in event time: they would wait for each other."""
    reader = GeneratorReader(numbers, most_open=2)
    for name in "abcd":
        reader.assign(Partition(name), None, False)
    assert polled(reader) == {"a", "b"} and polled(reader) == {"a", "b"}
    reader.pause(Partition("a"), True)
    assert polled(reader) == {"b", "c"}
    reader.release(Partition("d"))
    reader.release(Partition("b"))
    assert polled(reader) == {"c"}
    reader.close()


def test_all_partitions_are_read_where_there_is_no_limit() -> None:
    reader = GeneratorReader(numbers)
    for name in "abcd":
        reader.assign(Partition(name), None, False)
    assert polled(reader) == set("abcd")
    reader.close()


def test_a_batch_without_rows_is_nothing_for_now() -> None:
    rows = iter([SourceRows([], []), SourceRows([("a",)], [1]), SourceRows([], []), SourceRows([], [])])
    reader = GeneratorReader(lambda _partition, _position: rows)
    reader.assign(Partition("a"), None, False)
    assert [polled(reader) for _ in range(2)] == [set(), {"a"}]
    assert next(rows) == SourceRows([], [])
    reader.close()
