"""Types that travel without being registered: sets, dataclasses, enums, and what numpy has.

Each is an ext type whose payload is its content, packed in turn. A class is named by module and qualified name; a receiver looks
it up among the modules that it has imported, and never imports one on behalf of a frame. Nothing is ever unpickled.

| code           | content                        | arrives as                                                           |
| -------------- | ------------------------------ | -------------------------------------------------------------------- |
| SET, FROZENSET | the elements                   | the same                                                             |
| DATACLASS      | its name, its fields by name   | the same class; `__init__` and `__post_init__` are not called        |
| ENUM           | its name, the member           | the same member; of a Flag by value                                  |
| TUPLE          | the elements                   | a tuple; only inside dataclasses, where lists stay lists             |
| ARRAY, SCALAR  | dtype, shape, bytes in C order | the same; an array is a copy that can be written to                  |
| BATCH          | Arrow's IPC stream, or lists   | the same, in the same form (`column_batches`)                        |
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum, Flag
from importlib import import_module
from typing import Any, NamedTuple

from topo.api.column_batch import ColumnBatch
from topo.wire.column_batches import build_batch, content_of

SET, FROZENSET, DATACLASS, ENUM, TUPLE, ARRAY, SCALAR = range(7, 14)
BATCH = 15
NATIVE = (bool, int, float, str, bytes, bytearray, memoryview, tuple, list, dict, type(None))
"""The types that msgpack packs, subclasses too."""
_PLAIN_KINDS = "biufcSUmM"
"""Kinds of numpy's dtypes whose bytes are the values."""


class Structure(NamedTuple):
    """The wire form of values of a class.

    Attributes:
        code: of the ext type; 0: the content is packed in the value's place.
        content: makes plain content of a value.
    """

    code: int
    content: Callable[[Any], Any]


class Unfit(Exception):
    """A class whose values do not travel. The message gives the reason and the fix."""


def structure_of(cls: type) -> Structure:
    """Return how values of a class travel that is not registered. Raises Unfit."""
    if issubclass(cls, Enum):
        name = _name_of(cls)
        if issubclass(cls, Flag):
            return Structure(ENUM, lambda member: (name, member._value_))
        return Structure(ENUM, lambda member: (name, member._name_))
    if is_dataclass(cls):
        name, names = _name_of(cls), tuple(field.name for field in fields(cls))
        try:
            object.__new__(cls)
        except TypeError as error:
            raise Unfit("it derives from a built-in class, and only fields travel; make the value of that a field") from error
        return Structure(DATACLASS, lambda value: [name, {field: getattr(value, field) for field in names}])
    if cls in (set, frozenset):
        return Structure(SET if cls is set else FROZENSET, list)
    if issubclass(cls, tuple):
        return Structure(TUPLE, list)
    if cls is ColumnBatch:
        return Structure(BATCH, content_of)
    if cls.__module__.partition(".")[0] == "numpy":
        return _structure_of_numpy(cls)
    native = next((native for native in NATIVE if issubclass(cls, native)), cls)
    if native is not cls:
        return Structure(0, native)
    if cls is int:
        raise Unfit("the integer does not fit 64 bits; emit it as a str or a Decimal")
    raise Unfit(
        "topo carries what msgpack does, datetime, Decimal, UUID, sets, dataclasses, enums and numpy's arrays; "
        "make it a dataclass, emit plain values, or register a serializer for the type"
    )


def build(code: int, content: Any) -> Any:
    """Return the value of some content. Raises any error when that is not what a sender makes."""
    return _BUILDERS[code](content)


def _name_of(cls: type) -> str:
    """Return the name that a receiver finds a class by. Raises Unfit."""
    name = f"{cls.__module__}:{cls.__qualname__}"
    if "<locals>" in cls.__qualname__:
        raise Unfit("it is defined inside a function, so no other process finds it; move it to the top level of its module")
    if cls.__module__ == "__main__":
        raise Unfit("it is defined in the script that was started, which workers do not import; move it to a separate module")
    try:
        found = _find(name)
    except LookupError as error:
        raise Unfit(f"no other process would find it: {error}") from error
    if found is not cls:
        raise Unfit(f"another class is to be found under its name {name}; give each its own name")
    return name


def _find(name: str) -> Any:
    """Return the class of a name. Raises LookupError."""
    module, _, path = name.partition(":")
    found: Any = sys.modules.get(module)
    if found is None:
        raise LookupError(f"module {module!r} is not imported in this process: import it at the top of the topology's file")
    for part in path.split("."):
        found = getattr(found, part, None)
    if not isinstance(found, type):
        raise LookupError(f"module {module!r} has no class {path!r} at its top level")
    return found


def _build_dataclass(content: Any) -> Any:
    name, values = content
    cls = _find(name)
    if not is_dataclass(cls):
        raise LookupError(f"{name} is no dataclass here")
    declared = {field.name: field for field in fields(cls)}
    if unknown := values.keys() - declared.keys():
        raise LookupError(f"{name} has no field {min(unknown)!r} here")
    value: Any = object.__new__(cls)  # type: ignore[arg-type]
    for field in declared.values():
        if field.name in values:
            own = values[field.name]
        elif field.default is not MISSING:
            own = field.default
        elif field.default_factory is not MISSING:
            own = field.default_factory()
        else:
            raise LookupError(f"{name} has a field {field.name!r} here, which was not sent and has no default")
        object.__setattr__(value, field.name, own)
    return value


def _build_enum(content: Any) -> Any:
    name, member = content
    cls = _find(name)
    if not issubclass(cls, Enum):
        raise LookupError(f"{name} is no enum here")
    return cls[member] if isinstance(member, str) and not issubclass(cls, Flag) else cls(member)


# -- numpy, which is imported only where a value of it is ---------------------------------------------------------------------


def _numpy() -> Any:
    return import_module("numpy")


def _structure_of_numpy(cls: type) -> Structure:
    numpy = _numpy()
    if cls is numpy.ndarray:
        return Structure(ARRAY, lambda array: (_dtype_of(array), array.shape, array.tobytes()))
    if issubclass(cls, numpy.generic):
        return Structure(SCALAR, lambda scalar: (_dtype_of(scalar), scalar.tobytes()))
    raise Unfit("of numpy, arrays and scalars are carried; emit numpy.asarray() of it")


def _dtype_of(value: Any) -> str:
    if value.dtype.kind not in _PLAIN_KINDS:
        raise Unfit(f"its dtype {value.dtype} is not one of plain values; emit .tolist() of it, or an array for each field")
    text: str = value.dtype.str
    return text


def _build_array(content: Any) -> Any:
    dtype, shape, data = content
    return _values(dtype, data).reshape(shape).copy()


def _build_scalar(content: Any) -> Any:
    dtype, data = content
    (value,) = _values(dtype, data)
    return value


def _values(dtype: str, data: bytes) -> Any:
    numpy = _numpy()
    kind = numpy.dtype(dtype)
    if kind.kind not in _PLAIN_KINDS:
        raise ValueError(f"a dtype {dtype}")
    # An empty string is a scalar of no bytes, of which `frombuffer` cannot count any.
    return numpy.frombuffer(data, kind) if kind.itemsize else numpy.zeros(1, kind)


_BUILDERS: dict[int, Callable[[Any], Any]] = {
    SET: set,
    FROZENSET: frozenset,
    DATACLASS: _build_dataclass,
    ENUM: _build_enum,
    TUPLE: tuple,
    ARRAY: _build_array,
    SCALAR: _build_scalar,
    BATCH: build_batch,
}
CODES = frozenset(_BUILDERS)
EXACT = frozenset((DATACLASS, TUPLE))
"""Whose content keeps lists and tuples apart, and enums that are ints or strings."""
