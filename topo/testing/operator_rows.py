"""The input of a bolt under test: rows by field names, and the key in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from topo.api.streams import DEFAULT_STREAM
from topo.api.tuples import Origin
from topo.errors import UserError
from topo.hot import Row
from topo.testing.wire_roundtrip import WireRoundtrip
from topo.wire.codec import Codec

SOURCE = "source"
"""The component that elements come from by default."""
_FIRST_TASK = 1001

FieldNames = Sequence[str] | Mapping[str, Sequence[str]]
"""Names of the fields of an input, or of each of several, by component."""


class InputRows:
    """Makes rows of what a test gives.

    Args:
        fields: names of the fields, or by component.
        key: those of the key.
        codec: what values go through, as on the wire.

    Attributes:
        origins: where elements come from, by component.

    Raises:
        UserError: there are no fields, or a key is none of them.
    """

    def __init__(self, fields: FieldNames, key: Sequence[str], codec: Codec) -> None:
        inputs = fields if isinstance(fields, Mapping) else {SOURCE: fields}
        if not inputs or not all(inputs.values()):
            raise UserError("give the names of the input's fields: OperatorHarness(bolt, fields=(...))")
        for component, names in inputs.items():
            if missing := [name for name in key if name not in names]:
                of = "the input's fields" if len(inputs) == 1 else f"the fields of {component!r},"
                raise UserError(f"the key {missing[0]!r} is none of {of} {', '.join(names)}")
        numbered = enumerate(inputs.items(), _FIRST_TASK)
        self.origins = {component: Origin(component, task, DEFAULT_STREAM, tuple(names)) for task, (component, names) in numbered}
        self._key = tuple(key)
        self._carrier = WireRoundtrip(codec, SOURCE, ())

    def origin(self, component: str | None) -> Origin:
        """Return where an element comes from.

        Raises:
            UserError: there is no such input, or none is named and there are several.
        """
        if component is None and len(self.origins) == 1:
            return next(iter(self.origins.values()))
        if component not in self.origins:
            what = "say which input the element is of" if component is None else f"there is no input {component!r}"
            raise UserError(f"{what}; component= is one of {', '.join(map(repr, self.origins))}")
        return self.origins[component]

    def row(self, values: Any, origin: Origin) -> Row:
        """Return the row, as it arrives.

        Raises:
            UserError: it does not have the fields.
            UnsupportedValueError: no component could emit it.
        """
        fields = origin.fields
        if isinstance(values, Mapping):
            if set(values) != set(fields):
                raise UserError(f"the input has the fields {', '.join(fields)}; got {', '.join(map(str, values))}")
            values = [values[name] for name in fields]
        if not isinstance(values, tuple | list) or len(values) != len(fields):
            raise UserError(f"{values!r} is not a row of the fields {', '.join(fields)}")
        return self._carrier.carried(values, DEFAULT_STREAM)

    def key(self, row: Row, origin: Origin) -> Any:
        """Return the key of a row: the value of one field, a tuple of several, None without any."""
        values = tuple([row[origin.fields.index(name)] for name in self._key])
        return values[0] if len(values) == 1 else values or None
