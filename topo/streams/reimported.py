"""Whether a program holds the same data as if its file were imported again, which each worker does.

A script may change its data after they were read (`LIMIT = 3` below `if __name__ == "__main__":`), and has arguments that the
workers have not (`sys.argv`).
"""

from __future__ import annotations

import inspect
from argparse import Namespace
from collections.abc import Callable, Iterable, Mapping
from dataclasses import is_dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import partial
from pathlib import PurePath
from types import FunctionType, MethodType, SimpleNamespace
from typing import Any, Final
from uuid import UUID

import msgspec

from topo.streams.captured import globals_of
from topo.streams.collecting import Collected
from topo.streams.graph import Site
from topo.user_errors import is_engine_frame

_PLAIN = (str, bytes, int, float, date, time, timedelta, Decimal, UUID, PurePath)
_READ = (msgspec.Struct, Namespace, SimpleNamespace, partial, MethodType)
"""Other objects whose attributes are data."""
_MOST: Final = 200_000
"""Objects that are compared; what lies beyond counts as the same."""


class Comparison:
    """Compares what two imports of one file have made: functions by the data that they read, objects by their attributes.

    Attributes:
        name: the first variable of a function that differs; "" where it is in none.
    """

    def __init__(self) -> None:
        self.name = ""
        self._seen: dict[tuple[int, int], tuple[Any, Any]] = {}

    def same(self, one: Any, other: Any) -> bool:
        """Return whether no difference shows. Objects of other libraries are taken for the same."""
        pair = (id(one), id(other))
        if one is other or pair in self._seen or len(self._seen) >= _MOST:
            return True
        self._seen[pair] = (one, other)
        if type(one).__qualname__ != type(other).__qualname__:
            return False
        if isinstance(one, FunctionType):
            return self._same_functions(one, other)
        if isinstance(one, type):
            mine, others = ({name: part for name, part in vars(cls).items() if _is_data(name, part)} for cls in (one, other))
            return one.__qualname__ == other.__qualname__ and self._same_named(mine, others)
        if isinstance(one, Enum):
            return bool(one.name == other.name)
        if isinstance(one, _PLAIN):
            return bool(one == other or (one != one and other != other))
        if isinstance(one, Mapping):
            return self._all_same(one, other) and self._all_same(one.values(), other.values())
        if isinstance(one, list | tuple):
            return self._all_same(one, other)
        if isinstance(one, set | frozenset):
            return sorted(map(repr, one)) == sorted(map(repr, other))
        if isinstance(one, Site | Collected) or not _is_known(one, other):
            return True
        return self._same_named(_attributes(one), _attributes(other))

    def _same_functions(self, one: FunctionType, other: FunctionType) -> bool:
        if (one.__qualname__, one.__code__.co_firstlineno) != (other.__qualname__, other.__code__.co_firstlineno):
            return False
        if not self.same((one.__defaults__, one.__kwdefaults__), (other.__defaults__, other.__kwdefaults__)):
            return False
        mine, others = ({**inspect.getclosurevars(function).nonlocals, **globals_of(function)} for function in (one, other))
        return self._same_named(mine, others)

    def _same_named(self, mine: Mapping[str, Any], others: Mapping[str, Any]) -> bool:
        for name in {**mine, **others}:
            if name not in mine or name not in others or not self.same(mine[name], others[name]):
                self.name = self.name or name
                return False
        return True

    def _all_same(self, mine: Iterable[Any], others: Iterable[Any]) -> bool:
        mine, others = list(mine), list(others)
        return len(mine) == len(others) and all(map(self.same, mine, others))


def _is_data(name: str, part: Any) -> bool:
    return isinstance(part, Callable | property) or not name.startswith("__")  # type: ignore[arg-type]


def _is_known(one: Any, other: Any) -> bool:
    """Return whether the attributes of an object are data: its class is the file's, the engine's, or that of a record."""
    cls = type(one)
    is_own = cls is not type(other) or is_engine_frame(cls.__module__)
    return is_own or is_dataclass(cls) or isinstance(one, _READ)


def _attributes(value: Any) -> dict[str, Any]:
    if isinstance(value, partial | MethodType):
        return {
            name: getattr(value, name) for name in ("func", "args", "keywords", "__func__", "__self__") if hasattr(value, name)
        }
    slots = [name for cls in type(value).__mro__ for name in (getattr(cls, "__slots__", None) or ())]
    names = [*slots, *getattr(value, "__struct_fields__", ()), *getattr(value, "__dict__", ())]
    return {name: getattr(value, name, None) for name in names if name not in ("__dict__", "__weakref__", "declared_at")}
