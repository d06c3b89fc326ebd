"""Classes as values. Of those of `msgspec.Struct` cloudpickle alone would make classes without fields."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NewType, get_type_hints

import msgspec

_SETTINGS = (
    "frozen", "eq", "order", "array_like", "gc", "repr_omit_defaults", "omit_defaults", "forbid_unknown_fields", "weakref",
    "dict", "cache_hash", "tag", "tag_field",
)  # fmt: skip
_AT_ONCE = ("__module__", "__qualname__", "__doc__", "__post_init__", "__orig_bases__")
"""Attributes that a class has to be made with."""
_MADE = {"__slots__", "__match_args__", "__annotations__", "__dict__", "__weakref__", "__parameters__"}
_MADE |= {"__annotate_func__", "__annotations_cache__"}


def resolved(cls: type) -> dict[str, Any]:
    """Return the annotations of a class; types for texts, whose names no worker could look up."""
    own = inspect.get_annotations(cls)
    try:
        hints = get_type_hints(cls, include_extras=True)
    except Exception:
        return own
    return {name: hints.get(name, given) for name, given in own.items()}


def reduce_meta(meta: msgspec.Meta) -> tuple[Any, ...]:
    """Return what a pickler puts for a constraint of a type."""
    return _make_meta, (dict(meta.__rich_repr__()),)


NAMED: tuple[Any, ...] = tuple(filter(None, (NewType, getattr(typing, "TypeAliasType", None))))
"""Kinds of types that are names of others."""


def _make_meta(given: Mapping[str, Any]) -> msgspec.Meta:
    return msgspec.Meta(**given)


def reduce_named(kind: Any) -> Any:
    """Return what a pickler puts for a `NewType`, or a `type` alias; its name for one of a module that workers import."""
    if kind.__module__ != "__main__":
        return kind.__reduce__()
    if hasattr(kind, "__supertype__"):
        return NewType, (kind.__name__, kind.__supertype__)
    alias: Callable[..., Any] = type(kind)
    return partial(alias, type_params=kind.__type_params__), (kind.__name__, kind.__value__)


def reduced(cls: Any) -> tuple[Any, ...]:
    """Return what a pickler puts for a Struct: how to make it, and its other attributes, which may lead back to it."""
    fields, encoded = cls.__struct_fields__, cls.__struct_encode_fields__
    own = {name: given for name, given in inspect.get_annotations(cls).items() if name in fields}
    defaults = dict(zip(reversed(fields), reversed(cls.__struct_defaults__), strict=False))
    given = {name: value for name, value in defaults.items() if name in own and value is not msgspec.NODEFAULT}
    factories = {name: value.factory for name, value in given.items() if hasattr(value, "factory")}
    begun = {name: value for name, value in vars(cls).items() if name in _AT_ONCE} | {"__annotations__": own}
    begun |= {name: value for name, value in given.items() if name not in factories}
    config = {name: getattr(cls.__struct_config__, name) for name in _SETTINGS}
    config["rename"] = {name: new for name, new in zip(fields, encoded, strict=True) if name in own and name != new}
    config["kw_only"] = any(name in own and name not in cls.__match_args__ for name in fields)
    made = _MADE | begun.keys() | set(fields)
    rest = {name: value for name, value in vars(cls).items() if name not in made and not name.startswith("__struct_")}
    rest["__annotations__"] = resolved(cls)
    return _make, (type(cls), cls.__name__, cls.__bases__, begun, factories, config), rest, None, None, _complete


def _make(
    meta: Any, name: str, bases: tuple[type, ...], begun: dict[str, Any], factories: Mapping[str, Any], config: Mapping[str, Any]
) -> Any:
    fields = {field: msgspec.field(default_factory=factory) for field, factory in factories.items()}
    return meta(name, bases, begun | fields, **config)


def _complete(cls: type, rest: Mapping[str, Any]) -> None:
    for name, value in rest.items():
        setattr(cls, name, value)
