"""Streams: the declared outputs of a component.

A component's `outputs` is a tuple of field names (one stream, called "default") or a mapping of stream names to fields. Fields
wrapped in `direct(...)` make a direct stream, on which the emitter names the task that gets each tuple.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from topo.errors import ConfigError
from topo.ids import DEFAULT_STREAM as DEFAULT_STREAM

RESERVED_PREFIX = "__"
TICK_STREAM = "__tick"
SYSTEM_COMPONENT = "__system"
ACKER_COMPONENT = "__acker"


class DirectFields(Struct, frozen=True):
    """Fields of a direct stream; made by `direct`."""

    fields: tuple[str, ...]


Outputs = Sequence[str] | DirectFields | Mapping[str, Sequence[str] | DirectFields]
"""Types of `Spout.outputs` and `Bolt.outputs`."""


class StreamDeclaration(Struct, frozen=True):
    """One stream of a component, as the plan sees it."""

    name: str
    fields: tuple[str, ...]
    direct: bool = False
    columnar: bool = False
    """Its tuples are batches of columns (`ColumnBatch`)."""


def direct(*fields: str) -> DirectFields:
    """Declare a direct stream: `outputs = {"replies": direct("id", "answer")}`.

    Its tuples are emitted with `collector.emit_direct(task, values, stream="replies")` and read with a direct grouping.
    """
    return DirectFields(fields)


def streams_of(component: Any) -> tuple[StreamDeclaration, ...]:
    """Return the streams of a component, or of a component's class. Raises ConfigError as `declared_streams` does."""
    return declared_streams(component.outputs, columnar=getattr(component, "emits_batches", False))


def declared_streams(outputs: Outputs, *, columnar: bool = False) -> tuple[StreamDeclaration, ...]:
    """Return the streams of an `outputs` declaration, in the order of their declaration.

    An empty tuple declares no stream at all.

    Args:
        outputs: the declaration.
        columnar: the component emits batches of columns.

    Raises:
        ConfigError: the declaration is malformed; the message names the fault and the fix.
    """
    if isinstance(outputs, Mapping):
        return tuple(_stream(name, fields, columnar) for name, fields in outputs.items())
    if outputs == ():
        return ()
    return (_stream(DEFAULT_STREAM, outputs, columnar),)


def _stream(name: object, fields: object, columnar: bool) -> StreamDeclaration:
    if not isinstance(name, str) or not name:
        raise ConfigError(f"a stream name must be a non-empty string, not {name!r}")
    if name.startswith(RESERVED_PREFIX):
        raise ConfigError(f"stream {name!r}: names that begin with {RESERVED_PREFIX!r} are reserved; choose another")
    is_direct = isinstance(fields, DirectFields)
    names = fields.fields if isinstance(fields, DirectFields) else fields
    if isinstance(names, str):
        raise ConfigError(f"stream {name!r}: fields must be a tuple of names; write ({names!r},) for one field")
    if not isinstance(names, list | tuple):
        raise ConfigError(f"stream {name!r}: fields must be a tuple of names, not {type(names).__name__}")
    for field in names:
        if not isinstance(field, str) or not field:
            raise ConfigError(f"stream {name!r}: a field name must be a non-empty string, not {field!r}")
        if field.startswith(RESERVED_PREFIX):
            raise ConfigError(f"stream {name!r}: field {field!r} begins with {RESERVED_PREFIX!r}, which is reserved; rename it")
    twice = sorted({field for field in names if names.count(field) > 1})
    if twice:
        raise ConfigError(f"stream {name!r}: declared twice: {', '.join(map(repr, twice))}; give each field its own name")
    if columnar and (is_direct or not names):
        fault = "is a direct stream; declare plain fields" if is_direct else "has no field; declare one for each column"
        raise ConfigError(f"stream {name!r} of batches {fault}")
    return StreamDeclaration(name, tuple(names), is_direct, columnar)
