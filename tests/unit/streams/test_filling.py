"""Which sinks do nothing but fill a container of their process."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from typing import Any

import pytest

from topo.streams.filling import filled_by

RESULTS: list[Any] = []
BY_KEY: dict[Any, Any] = {}


class Record:
    value = 3


def fill(record: Any) -> None:
    RESULTS.append(record)


def fill_by_key(record: Any) -> None:
    BY_KEY[record.value] = record


def count(record: Any) -> None:
    BY_KEY[record] += 1


def test_a_sink_that_only_fills_a_container_is_found() -> None:
    results, seen, latest, counts = list[Any](), set[Any](), deque[Any](), Counter[Any]()

    def store(record: Any) -> None:
        counts[record] = record

    found: list[tuple[Callable[..., Any], Any]] = [
        (results.append, results),
        (lambda record: results.append(record), results),
        (lambda record: results.append((record.value, record.value + 1)), results),
        (lambda record: results.extend([record]), results),
        (lambda record: seen.add(record), seen),
        (lambda record: latest.appendleft(record), latest),
        (lambda key, record: counts.update({key: record}), counts),
        (lambda record: RESULTS.append(record), RESULTS),
        (store, counts),
        (fill, RESULTS),
        (fill_by_key, BY_KEY),
        (count, BY_KEY),
    ]
    for function, container in found:
        assert filled_by(function) is container


def test_a_sink_that_may_do_more_is_none() -> None:
    results, seen = list[Any](), set[Any]()

    def flush(record: Any) -> None:
        results.append(record)
        if len(results) == 100:
            results.clear()

    def both(record: Any) -> None:
        results.append(record)
        print(record)

    class Rows(list[Any]):
        def append(self, record: Any) -> None:
            print(record)

    rows = Rows()

    def local(record: Any) -> None:
        kept = []
        kept.append(record)

    others: list[Callable[..., Any]] = [
        print,
        flush,
        both,
        local,
        rows.append,
        lambda record: rows.append(record),
        lambda record: results.append(print(record)),  # type: ignore[func-returns-value]
        lambda record: (results.append(record), print(record)),  # type: ignore[func-returns-value]
        lambda record: results.append(record) or print(record),  # type: ignore[func-returns-value]
        lambda record: seen.add(record) if record not in seen else print(record),  # type: ignore[func-returns-value]
        lambda record: results.remove(record),
        lambda record: results,
        lambda record: None,
        lambda record: [print(one) for one in results],
    ]
    assert [filled_by(function) for function in others] == [None] * len(others)


@pytest.mark.parametrize("value", [None, 5, "text"])
def test_a_variable_without_a_container_is_none(value: Any) -> None:
    assert filled_by(lambda record: value.append(record)) is None
