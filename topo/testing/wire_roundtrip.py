"""Values as the wire carries them: the test kit sends nothing by reference, and looks at values where they are emitted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from topo.api.column_batch import ColumnBatch
from topo.api.streams import StreamDeclaration
from topo.api.topology import CarriedType
from topo.emission.carried_batches import carried, check_size
from topo.errors import UnsupportedValueError
from topo.hot import Row
from topo.wire.codec import Codec
from topo.wire.serializers import SerializerRegistry


def codec_for(types: Iterable[CarriedType]) -> Codec:
    """Return a codec that knows the topology's own types."""
    registry = SerializerRegistry()
    for one in types:
        registry.register(one.cls, one.code, one.encode, one.decode)
    return Codec(registry)


class WireRoundtrip:
    """Sends what one component emits through the codec and back.

    Args:
        component: its id, for errors.
        streams: its declared streams.
    """

    def __init__(self, codec: Codec, component: str, streams: Iterable[StreamDeclaration]) -> None:
        self._codec = codec
        self._component = component
        self.streams = tuple(streams)
        self._fields = {stream.name: stream.fields for stream in self.streams}

    def carried(self, values: Sequence[Any], stream: str) -> Row:
        """Return the values as they arrive: sequences as tuples.

        Raises:
            UnsupportedValueError: one of them cannot be carried; names component, stream, field and type.
        """
        if len(values) == 1 and isinstance(values[0], ColumnBatch):
            return (self._carried_batch(values[0], stream),)
        packed = self._codec.pack_or_split([tuple(values)])
        if packed.rejected:
            _, position, type_name, reason = packed.rejected[0]
            fields = self._fields.get(stream, ())
            if position is None:
                where = "the tuple"
            else:
                where = f"field {fields[position]!r}" if position < len(fields) else f"value {position}"
            raise UnsupportedValueError(
                f"component {self._component!r}, stream {stream!r}, {where}: a value of type {type_name}: {reason}"
            )
        return self._codec.unpack_rows(packed.payload, 1)[0]

    def _carried_batch(self, batch: ColumnBatch, stream: str) -> ColumnBatch:
        try:
            if batch.is_arrow:
                check_size(self._codec, batch)
            return carried(self._codec, batch)
        except UnsupportedValueError as error:
            raise UnsupportedValueError(f"component {self._component!r}, stream {stream!r}, {error}") from error


def as_row(item: Any) -> Row:
    """Return an expected tuple as values; a value that is no sequence stands for a tuple of one field."""
    return tuple(item) if isinstance(item, tuple | list) else (item,)
