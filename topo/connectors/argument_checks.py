"""Checks the arguments of a constructor by its annotations: `config: Mapping[str, Any] | None` takes a dict or None, and no list.

An annotation with a type that is not listed here is not checked. The ranges of numbers are for the constructor.
"""

from __future__ import annotations

import ast
import inspect
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import timedelta
from functools import lru_cache, wraps
from typing import Any, NamedTuple, ParamSpec

from topo.api.arguments import check_interval, is_number
from topo.api.durations import is_whole
from topo.config import parse_duration, parse_size
from topo.connectors.secrets import is_secret, masked
from topo.errors import ConfigError

_P = ParamSpec("_P")


class _Wanted(NamedTuple):
    """One alternative of an annotation: its name in an error, and whether a value is one."""

    text: str
    fits: Callable[[Any], bool]


_FUNCTION = _Wanted("a function", callable)
_WANTED: Mapping[str, _Wanted] = {
    "None": _Wanted("None", lambda value: value is None),
    "str": _Wanted("a text", lambda value: isinstance(value, str)),
    "bool": _Wanted("True or False", lambda value: isinstance(value, bool)),
    "int": _Wanted("a whole number, such as 1000", lambda value: is_whole(value) and not isinstance(value, bool)),
    "float": _Wanted("a number", is_number),
    "timedelta": _Wanted("a timedelta", lambda value: isinstance(value, timedelta)),
    "PathLike": _Wanted("a pathlib.Path", lambda value: isinstance(value, os.PathLike)),
    "Mapping": _Wanted("a dict", lambda value: isinstance(value, Mapping)),
    "Schema": _Wanted("a pyarrow.Schema", lambda value: type(value).__module__.partition(".")[0] == "pyarrow"),
    "Callable": _FUNCTION,
    "Query": _FUNCTION,
    "Select": _FUNCTION,
    "Serialize": _FUNCTION,
    "Deserialize": _FUNCTION,
}
_SEVERAL = {
    "str": "texts, such as ('a', 'b')",
    "int": "whole numbers, such as (1, 2)",
    "str | os.PathLike[str]": "several, such as ('a.log', 'b.log')",
}


def checks_arguments(init: Callable[_P, None]) -> Callable[_P, None]:
    """Have an `__init__` refuse arguments of wrong types, and durations and sizes that are none.

    The ConfigError names the class, the argument, the value unless it may be secret, and the types that can be used.
    """

    @wraps(init)
    def checking(*args: _P.args, **kwargs: _P.kwargs) -> None:
        signature = inspect.signature(init)
        try:
            given = signature.bind(*args, **kwargs).arguments
        except TypeError:
            given = {}  # the call raises it, with the name of the class
        for argument, value in list(given.items())[1:]:
            if wanted := unmet(argument, value, signature.parameters[argument].annotation):
                raise ConfigError(f"{type(args[0]).__name__}: {_shown(argument, value)} must be {wanted}")
        init(*args, **kwargs)

    return checking


def unmet(argument: str, value: Any, annotation: str) -> str | None:
    """Return what an argument must be by its annotation, which is given as text; None: the value can be used."""
    alternatives = _alternatives(annotation)
    if alternatives is None:
        return None
    names = alternatives.keys()
    fits = _fits(value, alternatives)
    try:
        if names >= {"str", "timedelta"}:
            # A number of seconds is taken for ticks alone, which cannot come all the time.
            is_interval = argument.endswith("_interval") or "float" in names
            text = f"a duration {'above zero' if is_interval else 'of 0 or more'}, such as '10s'"
            if fits and value is not None:
                check_interval(argument, value) if is_interval else parse_duration(value)
        elif names - {"None"} == {"str", "int"}:
            text = "a size, such as '1MiB'"
            if fits:
                parse_size(value)
        else:
            text = " or ".join(wanted.text for name, wanted in alternatives.items() if name != "None")
            if isinstance(value, str) and value:
                text = text.replace("('a', 'b')", f"({value!r:.40},)")
    except ConfigError:
        fits = False
    if fits:
        return None
    if "None" in names:
        text += ", or None" if " or " in text or ", " in text else " or None"
    return text


def _fits(value: Any, alternatives: Mapping[str, _Wanted]) -> bool:
    # An empty text is a variable that is not set, more often than it is the current folder.
    is_unset = "PathLike" in alternatives and value == ""
    return not is_unset and any(wanted.fits(value) for wanted in alternatives.values())


def _shown(argument: str, value: Any) -> str:
    kind = type(value).__name__
    if argument in ("config", "headers", "tls", "storage_options", "catalog") or is_secret(argument):
        return f"{argument}= (a {kind})"
    shown = f"{argument}={masked(repr(value)):.60}"
    return shown if kind == "str" else f"{shown} ({kind})"


@lru_cache
def _alternatives(annotation: str) -> Mapping[str, _Wanted] | None:
    """Return the alternatives of an annotation by name; None: one is not known."""
    found = dict[str, _Wanted]()
    for node in _leaves(ast.parse(annotation, mode="eval").body):
        name, inner = _name(node)
        wanted = _WANTED.get(name)
        if name == "Literal":
            wanted = _one_of(ast.literal_eval(inner))
        elif name in ("Sequence", "Collection"):
            wanted = _several(ast.unparse(inner)) if inner else None
        if wanted is None:
            return None
        found[name] = wanted
    return found


def _leaves(node: ast.expr) -> Iterator[ast.expr]:
    if isinstance(node, ast.BinOp):
        yield from _leaves(node.left)
        yield from _leaves(node.right)
    else:
        yield node


def _name(node: Any) -> tuple[str, Any]:
    """Return the last name of an alternative, such as PathLike of os.PathLike[str], and the content of its brackets."""
    inner = node.slice if isinstance(node, ast.Subscript) else None
    head = ast.unparse(node.value if inner is not None else node)
    return head.rpartition(".")[2], inner


def _one_of(values: Any) -> _Wanted:
    allowed = values if isinstance(values, tuple) else (values,)
    *most, last = map(repr, allowed)
    return _Wanted(f"{', '.join(most)} or {last}" if most else last, lambda value: isinstance(value, str) and value in allowed)


def _several(item: str) -> _Wanted | None:
    alternatives = _alternatives(item) if item in _SEVERAL else None
    if alternatives is None:
        return None

    def all_fit(value: Any) -> bool:
        if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
            return False
        # To look at what can be iterated once would take it away.
        return not isinstance(value, Collection) or all(_fits(one, alternatives) for one in value)

    return _Wanted(_SEVERAL[item], all_fit)
