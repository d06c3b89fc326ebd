"""Values stay as they were when they were emitted, in the collectors."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from topo.api.streams import declared_streams
from topo.emission.collectors import BoltCollector, OneFieldCollector, anchoring_collector
from topo.emission.message_collectors import message_collector
from topo.errors import EmitError

COLLECTORS = [anchoring_collector, BoltCollector, message_collector]
OUTPUTS: Any = {"default": ("a",), "side": ("x",), "two": ("x", "y")}


def made(kind: Any) -> Any:
    return kind("part", declared_streams(OUTPUTS), lambda error: None)


def rows(collector: Any, stream: int = 0) -> list[Any]:
    found: list[Any] = collector.streams[stream].rows
    return found


@pytest.mark.parametrize("kind", COLLECTORS)
@pytest.mark.parametrize("stream", ["default", "side"])
def test_a_list_that_grows_is_emitted_as_it_was_each_time(kind: Any, stream: str) -> None:
    collector, seen = made(kind), []
    for number in (1, 2, 3):
        seen.append(number)
        collector.emit((seen,), stream=stream)
    assert rows(collector, 0 if stream == "default" else 1) == [((1,),), ((1, 2),), ((1, 2, 3),)]
    assert collector.changeable == {0 if stream == "default" else 1}


@pytest.mark.parametrize("kind", COLLECTORS)
def test_the_values_of_a_dict_and_of_a_list_in_a_tuple_are_fixed_too(kind: Any) -> None:
    collector = made(kind)
    counts, inner = {"a": [1]}, [1]
    collector.emit((1, counts), stream="two")
    collector.emit(("x", (1, inner)), stream="two")
    counts["a"].append(2)
    counts["b"] = [3]
    inner.append(2)
    assert rows(collector, 2) == [(1, {"a": (1,)}), ("x", (1, (1,)))]


@pytest.mark.parametrize("kind", COLLECTORS)
def test_values_that_never_change_are_kept_as_they_are(kind: Any) -> None:
    collector = made(kind)
    for value in ("text", 7, 1.5, b"bytes", None, True, datetime(2024, 1, 1, tzinfo=UTC), ("a", (1, 2.0))):
        row = (value,)
        collector.emit(row)
        assert rows(collector)[-1] is row
    assert collector.changeable == set()


@pytest.mark.parametrize("kind", COLLECTORS)
def test_a_list_behind_and_inside_tuples_is_found(kind: Any) -> None:
    collector, inner = made(kind), [1]
    collector.emit((("a", ("b", 2)), inner), stream="two")
    collector.emit((("a", ("b", inner)), "x"), stream="two")
    collector.emit((("a", ("b", 2)), ("c", (inner, 3))), stream="two")
    inner.append(2)
    assert rows(collector, 2) == [(("a", ("b", 2)), (1,)), (("a", ("b", (1,))), "x"), (("a", ("b", 2)), ("c", ((1,), 3)))]


NESTED: Any = ("x", 1)
WIDTHS = [1, 2, 3, 4, 5]


@pytest.mark.parametrize("kind", COLLECTORS)
@pytest.mark.parametrize("width", WIDTHS)
def test_at_every_width_each_field_is_looked_at(kind: Any, width: int) -> None:
    streams = declared_streams(tuple("abcde"[:width]))
    for field in range(width):
        for timestamp in (None, 7):
            collector, seen = kind("part", streams, lambda error: None), [1]
            plain: list[Any] = ["w", 1, 2.5, None, b"b"][:width]
            collector.emit(tuple(plain), timestamp=timestamp)
            assert not collector.nested
            for value in (NESTED, seen):
                row = (*plain[:field], value, *plain[field + 1 :])
                collector.emit(row, timestamp=timestamp)
                assert collector.nested == {0}
            seen.append(2)
            assert rows(collector)[2][field] == (1,) and collector.changeable == {0}
            assert collector.streams[0].stamps == ({} if timestamp is None else {0: 7, 1: 7, 2: 7})


@pytest.mark.parametrize("kind", COLLECTORS)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("wrong", [-1, 1])
def test_at_every_width_a_row_of_another_is_refused(kind: Any, width: int, wrong: int) -> None:
    collector = kind("part", declared_streams(tuple("abcde"[:width])), lambda error: None)
    for row in (("x",) * (width + wrong), "x" * width, {"x"}):
        with pytest.raises(EmitError):
            collector.emit(row)
    assert rows(collector) == []


def test_a_row_given_as_a_list_may_be_filled_anew() -> None:
    collector, row = made(anchoring_collector), ["first"]
    assert isinstance(collector, OneFieldCollector)
    collector.emit(row)
    row[0] = "second"
    collector.emit(row)
    assert rows(collector) == [("first",), ("second",)]


def test_a_windows_result_that_its_function_goes_on_changing_is_fixed() -> None:
    collector, result = made(BoltCollector), [1]
    collector.emit_stamped((result,), 5)
    result.append(2)
    assert rows(collector) == [((1,),)] and collector.streams[0].stamps == {0: 5}
