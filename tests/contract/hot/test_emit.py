"""`emit` against a model: rows that every receiver can be given as they are go to the main stream, all others the slow way."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from types import ModuleType
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topo.ids import DEFAULT_STREAM

WIDTHS = {"EmitOne": 1, "EmitTwo": 2, "EmitThree": 3, "EmitFour": 4, "Emit": 6}
MESSAGE_WIDTHS = {"EmitMessageOne": 1, "EmitMessage": 3}


class Text(str): ...


class Pair(NamedTuple):
    one: Any
    two: Any


class Lock:
    """The lock of the task's thread."""

    is_owned = True

    def _is_owned(self) -> bool:
        return self.is_owned


@dataclass
class Stream:
    stamps: dict[int, int] = field(default_factory=dict)


def collector(hot: ModuleType, name: str, width: int) -> Any:
    """Return a collector made of a mix-in, which notes what goes another way."""

    class Collector(getattr(hot, name)):  # type: ignore[misc]
        def __init__(self) -> None:
            self._mine, self._width = Lock(), width
            self._main, self._rows, self._messages = Stream(), [], []
            self.slow: list[Any] = []
            self.nested: list[Any] = []

        def _emit_nested(self, values: Any) -> None:
            self.nested.append(values)
            self._rows.append(values)

        def _emit_slow(self, *call: Any) -> None:
            self.slow.append(call)

        def _checked(self, timestamp: Any) -> int:
            if timestamp < 0:
                raise ValueError(timestamp)
            return int(timestamp)

    return Collector()


atoms = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(),
    st.binary(),
    st.just(date(2020, 1, 2)),
    st.just(Decimal("1.5")),
)
others = st.one_of(
    st.just(("a", 1)),
    st.just(["a"]),
    st.just({}),
    st.just(Text("a")),
    st.just(object()),
    st.just(bytearray(b"a")),
    st.just(set()),
)
rows = st.one_of(
    st.lists(atoms, min_size=0, max_size=7).map(tuple),
    st.lists(st.one_of(atoms, others), min_size=1, max_size=6).map(tuple),
    st.lists(atoms, min_size=1, max_size=4),
    st.builds(Pair, atoms, atoms),
    st.just("ab"),
    st.none(),
)
plain_types = {type(None), bool, int, float, str, bytes, date, Decimal}


def is_plain(values: Any, width: int) -> bool:
    return type(values) is tuple and len(values) == width and all(type(value) in plain_types for value in values)


@pytest.mark.parametrize("name", WIDTHS)
@given(
    values=rows,
    stream=st.sampled_from([DEFAULT_STREAM, "other"]),
    timestamp=st.one_of(st.none(), st.integers(0, 9)),
    is_owned=st.booleans(),
)
def test_a_bolts_row_goes_to_the_main_stream_only_if_nothing_of_it_is_special(
    hot: ModuleType, name: str, values: Any, stream: str, timestamp: int | None, is_owned: bool
) -> None:
    width = WIDTHS[name]
    made = collector(hot, name, width)
    made._mine.is_owned = is_owned
    made.emit(values, stream, timestamp)
    if is_plain(values, width) and stream == DEFAULT_STREAM and is_owned:
        assert [id(row) for row in made._rows] == [id(values)] and not made.slow and not made.nested
        assert made._main.stamps == ({} if timestamp is None else {0: timestamp})
    elif made.nested:
        assert is_owned and type(values) is tuple and len(values) == width and made.nested == [values] and not made.slow
        assert made._main.stamps == ({} if timestamp is None else {0: timestamp})
    else:
        assert made._rows == [] and made.slow == [(values, stream, timestamp)] and made._main.stamps == {}


@pytest.mark.parametrize("name", MESSAGE_WIDTHS)
@given(
    values=rows,
    message=st.one_of(st.none(), st.integers(0, 9)),
    stream=st.sampled_from([DEFAULT_STREAM, "other"]),
    timestamp=st.one_of(st.none(), st.integers(0, 9)),
    is_owned=st.booleans(),
)
def test_a_spouts_row_goes_to_the_main_stream_with_its_message_and_its_timestamp(
    hot: ModuleType, name: str, values: Any, message: Any, stream: str, timestamp: int | None, is_owned: bool
) -> None:
    width = MESSAGE_WIDTHS[name]
    made = collector(hot, name, width)
    made._mine.is_owned = is_owned
    made.emit(values, message, stream, timestamp)
    if is_plain(values, width) and stream == DEFAULT_STREAM and is_owned:
        assert [id(row) for row in made._rows] == [id(values)] and made._messages == [message] and not made.slow
        assert made._main.stamps == ({} if timestamp is None else {0: timestamp})
    else:
        assert made._rows == [] and made._messages == [] and made._main.stamps == {}
        assert made.slow == [(values, message, stream, timestamp)]


def test_a_refused_timestamp_leaves_no_row(hot: ModuleType) -> None:
    spout, bolt = collector(hot, "EmitMessageOne", 1), collector(hot, "EmitOne", 1)
    with pytest.raises(ValueError):
        spout.emit(("a",), 1, timestamp=-1)
    with pytest.raises(ValueError):
        bolt.emit(("a",), timestamp=-1)
    assert spout._rows == [] and spout._messages == [] and spout._main.stamps == {}
    assert bolt._rows == [] and bolt._main.stamps == {}


def test_arguments_may_be_named(hot: ModuleType) -> None:
    bolt, spout = collector(hot, "EmitTwo", 2), collector(hot, "EmitMessage", 2)
    bolt.emit(values=("a", 1), stream="other", timestamp=5)
    spout.emit(("a", 1), timestamp=5, message_id=7)
    assert bolt.slow == [(("a", 1), "other", 5)]
    assert (spout._rows, spout._messages, spout._main.stamps) == ([("a", 1)], [7], {0: 5})
