"""The input of a bolt under test: rows by field names, and the key in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from topo.api.streams import DEFAULT_STREAM
from topo.errors import UserError
from topo.testing.carried import Carrier, Row
from topo.wire.codec import Codec


class InputRows:
    """Makes rows of what a test gives.

    Args:
        fields: names of the fields.
        key: those of the key.
        codec: what values go through, as on the wire.

    Raises:
        UserError: there are no fields, or a key is none of them.
    """

    def __init__(self, fields: Sequence[str], key: Sequence[str], codec: Codec) -> None:
        if not fields:
            raise UserError("give the names of the input's fields: OperatorHarness(bolt, fields=(...))")
        missing = [name for name in key if name not in fields]
        if missing:
            raise UserError(f"the key {missing[0]!r} is none of the input's fields {', '.join(fields)}")
        self._fields = tuple(fields)
        self._key = tuple(self._fields.index(name) for name in key)
        self._carrier = Carrier(codec, "source", ())

    def row(self, values: Any) -> Row:
        """Return the row, as it arrives.

        Raises:
            UserError: it does not have the fields.
            ValueNotCarried: no component could emit it.
        """
        fields = self._fields
        if isinstance(values, Mapping):
            if set(values) != set(fields):
                raise UserError(f"the input has the fields {', '.join(fields)}; got {', '.join(map(str, values))}")
            values = [values[name] for name in fields]
        if not isinstance(values, tuple | list) or len(values) != len(fields):
            raise UserError(f"{values!r} is not a row of the fields {', '.join(fields)}")
        return self._carrier.carried(values, DEFAULT_STREAM)

    def key(self, row: Row) -> Any:
        """Return the key of a row: the value of one field, a tuple of several, None without any."""
        values = tuple([row[index] for index in self._key])
        return values[0] if len(values) == 1 else values or None
