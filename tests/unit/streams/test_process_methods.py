"""Methods of a process whose results would be lost are refused, at build where it shows, else at the record."""

from __future__ import annotations

from typing import Any

import pytest

from topo import TopologyError
from topo.streams import CoProcess, KeyedList, KeyedMap, KeyedProcess, KeyedValue, StreamBuilder
from topo.testing import StreamTest


class Yields(KeyedProcess[str, str, str]):
    def process(self, record: str, context: Any, out: Any) -> Any:
        yield record


class YieldsRight(CoProcess[str, str, str, str]):
    def process_left(self, record: str, context: Any, out: Any) -> None: ...

    def process_right(self, record: str, context: Any, out: Any) -> Any:
        yield record


class TakesTwo(KeyedProcess[str, str, str]):
    def process(self, record: str, out: Any) -> None:  # type: ignore[override]
        out.emit(record)


class TimerTakesOne(KeyedProcess[str, str, str]):
    def process(self, record: str, context: Any, out: Any) -> None: ...

    def on_timer(self, timestamp: int) -> None:  # type: ignore[override]
        ...


class Returns(KeyedProcess[str, str, str]):
    def process(self, record: str, context: Any, out: Any) -> Any:
        return [record]


class ReturnsAtTimer(KeyedProcess[str, str, str]):
    def process(self, record: str, context: Any, out: Any) -> None:
        context.register_event_time_timer(1)

    def on_timer(self, timestamp: int, context: Any, out: Any) -> Any:
        return [timestamp]


class ReturnsLeft(CoProcess[str, str, str, str]):
    def process_left(self, record: str, context: Any, out: Any) -> Any:
        return [record]

    def process_right(self, record: str, context: Any, out: Any) -> None: ...


class Assigns(KeyedProcess[str, str, str]):
    last = KeyedValue(str)
    all = KeyedList(str)
    times = KeyedMap(str, int)

    def __init__(self, name: str) -> None:
        self._name = name

    def process(self, record: str, context: Any, out: Any) -> None:
        setattr(self, self._name, record)


class GivesAName(KeyedProcess[str, str, str]):
    def process(self, record: str, context: Any, out: Any) -> None:
        out.side("late", record)


class OpensAlone(CoProcess[str, str, str, str]):
    def open(self) -> None:
        self.mark = "!"

    def process_left(self, record: str, context: Any, out: Any) -> None:
        out.emit(record + self.mark)

    def process_right(self, record: str, context: Any, out: Any) -> None: ...


@pytest.mark.parametrize(
    ("process", "problem"),
    [
        (Yields(), "Yields.process is a generator function, which would not run; use out.emit"),
        (YieldsRight(), "YieldsRight.process_right is a generator function"),
        (TakesTwo(), r"TakesTwo.process is called with 3 \(record, context, out\), but it takes \(record: 'str', out: 'Any'\)"),
        (TimerTakesOne(), r"TimerTakesOne.on_timer is called with 3 \(timestamp, context, out\)"),
    ],
)
def test_a_method_that_cannot_be_called_as_it_is_declared_is_refused_at_build(process: Any, problem: str) -> None:
    flow = StreamBuilder("program")
    keyed = flow.from_iterable(["a"], name="left").key_by(str)
    if isinstance(process, CoProcess):
        keyed.connect(flow.from_iterable(["a"], name="right").key_by(str)).process(process).to(print)
    else:
        keyed.process(process).to(print)
    with pytest.raises(TopologyError, match=problem) as raised:
        flow.build()
    assert "test_process_methods.py:" in str(raised.value)


@pytest.mark.parametrize(
    ("process", "method"), [(Returns(), "process"), (ReturnsAtTimer(), "on_timer"), (ReturnsLeft(), "process_left")]
)
def test_a_value_that_a_method_returns_is_an_error_at_its_place(process: Any, method: str) -> None:
    with StreamTest() as test:
        words = test.source(str)
        keyed = words.stream.key_by(str)
        if isinstance(process, CoProcess):
            seen = test.collect(keyed.connect(keyed).process(process).values())
        else:
            seen = test.collect(keyed.process(process).values())
        words.send("a", at=1)
        words.watermark(5)
        assert seen.take() == []
        error = test.errors()[0]
        assert f"{method} returned [" in error.message and "use out.emit(...) and return None" in error.message
        assert (error.file, error.line) == (__file__, getattr(type(process), method).__code__.co_firstlineno)


@pytest.mark.parametrize(
    ("process", "problem"),
    [
        (Assigns("last"), "the state 'last' was assigned 'a', which all keys would share; use self.last.set(...)"),
        (Assigns("all"), "the state 'all' was assigned 'a', which all keys would share; use self.all.add(...)"),
        (Assigns("times"), "the state 'times' was assigned 'a', which all keys would share; use self.times.put(...)"),
        (GivesAName(), "out.side takes a tag, a SideOutput('name', type), and the record; got 'late'"),
    ],
)
def test_state_that_is_assigned_and_a_side_output_by_name_are_errors_at_their_place(process: Any, problem: str) -> None:
    with StreamTest() as test:
        words = test.source(str)
        seen = test.collect(words.stream.key_by(str).process(process).values())
        words.send("a")
        assert seen.take() == []
        error = test.errors()[0]
        assert error.message == problem
        assert (error.file, error.line) == (__file__, type(process).process.__code__.co_firstlineno + 1)


def test_a_co_process_may_have_an_open_without_that_of_its_base() -> None:
    with StreamTest() as test:
        words = test.source(str)
        keyed = words.stream.key_by(str)
        seen = test.collect(keyed.connect(keyed).process(OpensAlone()).values())
        words.send("a")
        assert seen.take() == ["a!"]
