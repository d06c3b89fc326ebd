"""Facts of types: what stands behind a name and in the place of a type variable, and which classes are lost on the way."""

from __future__ import annotations

import inspect
from collections import namedtuple
from collections.abc import Iterator
from typing import Any, TypeVar, get_args, get_origin

import msgspec

CHANGED = (list, bytearray, str, int, float, bytes, tuple, dict, set, frozenset)
"""Of subclasses of these the value is carried and the class is not; a list arrives as a tuple."""

_TUPLE_FIELD = type(namedtuple("_TupleField", "field").field)  # type: ignore[attr-defined]


def named(kind: Any) -> Any:
    """Return the type that a `NewType` or an alias (`type Scores = list[int]`) is a name of; every other as it is."""
    origin = get_origin(kind)
    # A generic alias with its arguments has the attributes of the alias itself.
    if hasattr(origin, "__value__"):
        return substituted(origin.__value__, dict(zip(origin.__type_params__, get_args(kind), strict=False)))
    return getattr(kind, "__value__", getattr(kind, "__supertype__", kind)) if not isinstance(kind, type) else kind


def substituted(kind: Any, given: dict[Any, Any]) -> Any:
    """Return a type with its type variables replaced; those that were not given stay."""
    parameters = getattr(kind, "__parameters__", ())
    if isinstance(kind, TypeVar):
        return given.get(kind, kind)
    if not parameters or isinstance(kind, type) or isinstance(getattr(type(kind), "__parameters__", None), tuple):
        # The last is an instance of a generic class: `build` refuses it.
        return kind
    return kind[tuple(given.get(one, one) for one in parameters)]


def lost_in(kind: Any) -> Iterator[type]:
    """Return the classes in a type whose values could not be made of plain ones: those derived from `dict`, `str` and so on."""
    waiting: list[Any] = [msgspec.inspect.type_info(kind)]
    seen: set[int] = set()
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, msgspec.inspect.CustomType):
            cls = get_origin(one.cls) or one.cls
            if isinstance(cls, type) and issubclass(cls, CHANGED):
                yield cls
        held = [getattr(one, name) for name in one.__struct_fields__]
        parts = [part for some in held for part in (some if isinstance(some, tuple) else (some,))]
        waiting += [part for part in parts if isinstance(part, msgspec.inspect.Type | msgspec.inspect.Field)]


def loss_of(cls: type) -> str:
    base = next(base.__name__ for base in cls.__mro__ if base in CHANGED)
    return f"{cls.__name__} arrives as {base}; make a {base} of it"


def reads_as_given(record: Any, name: str) -> bool:
    """Return whether this field of a record is the value that its class was called with: no code of the class changes it."""
    cls: Any = get_origin(record) or record
    read = inspect.getattr_static(cls, name, None)
    if cls.__getattribute__ not in (object.__getattribute__, tuple.__getattribute__) or hasattr(cls, "__post_init__"):
        return False
    if issubclass(cls, msgspec.Struct):
        return inspect.ismemberdescriptor(read)
    if issubclass(cls, tuple):
        return cls.__bases__[0] is tuple and type(read) is _TUPLE_FIELD
    # A dataclass: a slot or a default is in its class, and code that was generated has no file.
    return (inspect.ismemberdescriptor(read) or not hasattr(type(read), "__get__")) and (
        inspect.isfunction(cls.__init__) and cls.__init__.__code__.co_filename == "<string>"
    )
