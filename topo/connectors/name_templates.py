"""Names of targets, such as topics and subjects, in which fields of the tuple may stand in braces."""

from __future__ import annotations

from collections.abc import Callable
from string import Formatter
from typing import Any

from topo.api.tuples import Tuple
from topo.errors import ConfigError, UserError


def fields_in(template: str | Callable[[Tuple], str], argument: str) -> list[str]:
    """Return the names of fields in a template such as "orders.{shop}".

    Args:
        template: the text. A function, in place of one, names none.
        argument: for errors, such as "NatsSink: subject=".

    Raises:
        ConfigError: its braces have something other than names.
    """
    if callable(template):
        return []
    try:
        parsed = [part for part in Formatter().parse(template) if part[1] is not None]
    except ValueError as error:
        raise ConfigError(f"{argument}{template!r}: {error}") from error
    if any(spec or how or not str(name).isidentifier() for _, name, spec, how in parsed):
        raise ConfigError(f"{argument}{template!r} may have names of fields in braces, and nothing else there")
    return [str(name) for _, name, _, _ in parsed]


def filled(template: str, argument: str, text_of: Callable[[Any, str], str]) -> Callable[[Tuple], str]:
    """Return what puts the fields of a tuple into a template.

    Args:
        template: the text.
        argument: for errors.
        text_of: makes a value into a text, with the field's name for its error.

    Raises:
        ConfigError: its braces have something other than names.
    """
    fields = fields_in(template, argument)
    if not fields:
        name = template.format()
        return lambda _tup: name

    def fill(tup: Tuple) -> str:
        missing = [name for name in fields if name not in tup]
        if missing:
            raise UserError(f"a tuple from {tup.component!r} has no field {missing[0]!r}, which {argument}{template!r} names")
        return template.format_map({name: text_of(tup[name], name) for name in fields})

    return fill
