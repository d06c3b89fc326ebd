"""What stands behind the name of a type, and in the place of its type variables."""

from __future__ import annotations

from typing import Any, TypeVar, get_args, get_origin


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
    if not parameters or isinstance(kind, type):
        return kind
    return kind[tuple(given.get(one, one) for one in parameters)]
