"""The `emit` of collectors for rows of the main stream that have its width and hold only ATOMS; others go a slow way.

The same check stands once for each number of fields, since every other form costs more. Instructions an emit of one, two, three
and four fields (callgrind, CPython 3.11): 1,620, 1,980, 2,250 and 3,190 as it stands; 3,500 to 4,140 with
`ATOMS.issuperset(map(type, values))`; 3,750 to 4,320 with a set of the types of rows that have passed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from topo.hot.plain.values import ATOMS, Row
from topo.ids import DEFAULT_STREAM


class Emit:
    """`emit` of bolts that are anchored by the engine, for a main stream of any width.

    Attributes:
        _mine: the lock that the task's thread owns.
        _main: the main stream: its `stamps` are timestamps by row.
        _rows: of the main stream.
        _width: of the main stream; -1 without one.
        _checked: returns a timestamp, or refuses it.
        _emit_nested: takes a row of the main stream's width that does not only hold ATOMS.
        _emit_slow: takes all other rows, or refuses them.
    """

    _mine: Any
    _main: Any
    _rows: list[Row]
    _width: int
    _checked: Any
    _emit_nested: Any
    _emit_slow: Any

    def emit(self, values: Sequence[Any], stream: str = DEFAULT_STREAM, timestamp: int | None = None) -> None:
        """Emit one tuple, anchored on the current input."""
        if stream is DEFAULT_STREAM and type(values) is tuple and len(values) == self._width:
            for value in values:
                kind = type(value)
                if kind is not str and kind is not int and kind not in ATOMS:
                    break
            else:
                if self._mine._is_owned():
                    if timestamp is not None:
                        self._main.stamps[len(self._rows)] = self._checked(timestamp)
                    self._rows.append(values)
                    return
        self._emit_slow(values, stream, timestamp)


class EmitOne(Emit):
    """The same without a loop, for one field. Set lookups cost more than comparisons with the usual types."""

    def emit(self, values: Sequence[Any], stream: str = DEFAULT_STREAM, timestamp: int | None = None) -> None:
        """Emit one tuple, anchored on the current input."""
        if stream is DEFAULT_STREAM and timestamp is None and type(values) is tuple:
            try:
                (one,) = values
            except ValueError:
                pass
            else:
                if self._mine._is_owned():
                    if type(one) is str or type(one) in ATOMS:
                        self._rows.append(values)
                    else:
                        self._emit_nested(values)
                    return
        super().emit(values, stream, timestamp)


class EmitTwo(Emit):
    """The same for two fields."""

    def emit(self, values: Sequence[Any], stream: str = DEFAULT_STREAM, timestamp: int | None = None) -> None:
        """Emit one tuple, anchored on the current input."""
        if stream is DEFAULT_STREAM and timestamp is None and type(values) is tuple:
            try:
                one, two = values
            except ValueError:
                pass
            else:
                a, b = type(one), type(two)
                if self._mine._is_owned():
                    if (a is str or a is int or a in ATOMS) and (b is str or b is int or b in ATOMS):
                        self._rows.append(values)
                    else:
                        self._emit_nested(values)
                    return
        super().emit(values, stream, timestamp)


class EmitThree(Emit):
    """The same for three fields."""

    def emit(self, values: Sequence[Any], stream: str = DEFAULT_STREAM, timestamp: int | None = None) -> None:
        """Emit one tuple, anchored on the current input."""
        if stream is DEFAULT_STREAM and timestamp is None and type(values) is tuple:
            try:
                one, two, three = values
            except ValueError:
                pass
            else:
                a, b, c = type(one), type(two), type(three)
                if self._mine._is_owned():
                    if (
                        (a is str or a is int or a in ATOMS)
                        and (b is str or b is int or b in ATOMS)
                        and (c is str or c is int or c in ATOMS)
                    ):
                        self._rows.append(values)
                    else:
                        self._emit_nested(values)
                    return
        super().emit(values, stream, timestamp)


class EmitFour(Emit):
    """The same for four fields."""

    def emit(self, values: Sequence[Any], stream: str = DEFAULT_STREAM, timestamp: int | None = None) -> None:
        """Emit one tuple, anchored on the current input."""
        if stream is DEFAULT_STREAM and timestamp is None and type(values) is tuple:
            try:
                one, two, three, four = values
            except ValueError:
                pass
            else:
                a, b, c, d = type(one), type(two), type(three), type(four)
                if self._mine._is_owned():
                    if (
                        (a is str or a is int or a in ATOMS)
                        and (b is str or b is int or b in ATOMS)
                        and (c is str or c is int or c in ATOMS)
                        and (d is str or d is int or d in ATOMS)
                    ):
                        self._rows.append(values)
                    else:
                        self._emit_nested(values)
                    return
        super().emit(values, stream, timestamp)


class EmitMessage:
    """`emit` of spouts, for a main stream of any width.

    Attributes:
        _mine: the lock that the task's thread owns.
        _main: the main stream: its `stamps` are timestamps by row.
        _rows: of the main stream.
        _messages: message ids, by row of the main stream.
        _width: of the main stream; -1 without one.
        _checked: returns a timestamp, or refuses it.
        _emit_slow: takes all other rows, or refuses them.
    """

    _mine: Any
    _main: Any
    _rows: list[Row]
    _messages: list[Any]
    _width: int
    _checked: Any
    _emit_slow: Any

    def emit(
        self, values: Sequence[Any], message_id: Any = None, stream: str = DEFAULT_STREAM, timestamp: int | None = None
    ) -> None:
        """Emit one tuple; tracked when it has a message id."""
        if stream is DEFAULT_STREAM and type(values) is tuple and len(values) == self._width:
            for value in values:
                kind = type(value)
                if kind is not str and kind is not int and kind not in ATOMS:
                    break
            else:
                if self._mine._is_owned():
                    if timestamp is not None:
                        self._main.stamps[len(self._rows)] = self._checked(timestamp)
                    self._rows.append(values)
                    self._messages.append(message_id)
                    return
        self._emit_slow(values, message_id, stream, timestamp)


class EmitMessageOne(EmitMessage):
    """The same without a loop, for one field: the common source, of lines or records."""

    def emit(
        self, values: Sequence[Any], message_id: Any = None, stream: str = DEFAULT_STREAM, timestamp: int | None = None
    ) -> None:
        """Emit one tuple; tracked when it has a message id."""
        if stream is DEFAULT_STREAM and timestamp is None and type(values) is tuple:
            try:
                (one,) = values
            except ValueError:
                pass
            else:
                if (type(one) is str or type(one) in ATOMS) and self._mine._is_owned():
                    self._rows.append(values)
                    self._messages.append(message_id)
                    return
        super().emit(values, message_id, stream, timestamp)
