"""Types of keys, by which streams meet and state is found: an int and a str never match, though both may mean one thing."""

from __future__ import annotations

import logging
import types
from datetime import date
from decimal import Decimal
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from topo.streams.chain import inlined
from topo.streams.functions import result_type
from topo.streams.graph import Node
from topo.streams.records import SCALARS, has_fields
from topo.streams.type_facts import named

_log = logging.getLogger("topo.streams")
_WIDER = (int, float, Decimal, date)
"""Keys of these, or of a type derived from them, may be equal to others of such a type."""


def _family(cls: type) -> str | None:
    """Return the name of a set of types whose values may be equal; None where it is not known."""
    if issubclass(cls, _WIDER):
        return "date" if issubclass(cls, date) else "number"
    return cls.__name__ if cls in SCALARS or cls is tuple else None


def _families(kind: Any) -> set[str | None]:
    kind = named(kind)
    origin = get_origin(kind)
    if origin is Annotated:
        return _families(get_args(kind)[0])
    if origin in (Union, types.UnionType):
        return set().union(*(_families(one) for one in get_args(kind)))
    cls = origin or (type(None) if kind is None else kind)
    return {_family(cls) if isinstance(cls, type) else None}


def _key_type(node: Node) -> Any:
    """Return the type of the keys that a `key_by` or `gather` gives; Any where it is not known."""
    if node.function is None:
        return type(None)
    if (declared := result_type(node.function)) is not None:
        return declared
    source, output = node.inputs[0]
    record = source.record_of(output)
    read = inlined(node.function, "record")
    if record is None or read is None or read == "record":
        return record if read == "record" and record is not None else Any
    cls = get_origin(record) or record
    if not has_fields(record) or getattr(cls, "__parameters__", None):
        return Any
    try:
        return get_type_hints(cls).get(read.removeprefix("record."), Any)
    except (NameError, TypeError):
        return Any


def key_family(node: Node) -> str | None:
    """Return the one set of types that all keys of a `key_by` or `gather` are of; None where they may be of several."""
    families = _families(_key_type(node))
    return families.pop() if len(families) == 1 else None


def keys_problem(left: Node, right: Node) -> str | None:
    """Return that the keys of two `key_by` never match; None where they may."""
    mine, other = _key_type(left), _key_type(right)
    families = _families(mine), _families(other)
    if None in families[0] | families[1] or families[0] & families[1]:
        return None
    shown = [getattr(kind, "__name__", kind) for kind in (mine, other)]
    return f"its keys are {shown[0]}, of {left}, but those of {right} are {shown[1]}; they never match: make them one type"


class FirstKeys:
    """The first key of either side of a join; warns once where these can never match."""

    def __init__(self) -> None:
        self._keys: dict[bool, Any] = {}

    def are_known(self, key: Any, *, left: bool) -> bool:
        """Take the key of a record; return whether no more is wanted."""
        self._keys.setdefault(left, key)
        if len(self._keys) < 2:
            return False
        mine, other = self._keys[True], self._keys[False]
        if _family(type(mine)) != _family(type(other)):
            _log.warning(
                "a join was given the key %.40r (%s) on the left and %.40r (%s) on the right; such keys never match; "
                "make them one type in key_by",
                *(mine, type(mine).__name__, other, type(other).__name__),
            )
        return True
