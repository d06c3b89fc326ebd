"""Methods of a process whose results would be lost are refused, at build where it shows, else at the record."""

from __future__ import annotations

from typing import Any

import pytest

from topo import TopologyError
from topo.streams import CoProcess, KeyedProcess, StreamBuilder
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
