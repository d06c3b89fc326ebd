"""Checks of the batches that user code emits, in the call that emits them."""

from __future__ import annotations

from topo.api.column_batch import ColumnBatch
from topo.errors import UnsupportedValueError
from topo.wire.codec import Codec


def check_size(codec: Codec, batch: ColumnBatch) -> None:
    """Raise UnsupportedValueError for a batch of arrays that no frame can hold."""
    size = sum([column.nbytes for column in batch.columns])
    if size > codec.max_row:
        raise UnsupportedValueError(
            f"a batch of {len(batch)} rows takes {size} bytes; at most {codec.max_row} are carried: emit batches of fewer rows"
        )


def carried(codec: Codec, batch: ColumnBatch) -> ColumnBatch:
    """Return a batch as its receivers get it: values of lists may be changed after this call.

    Raises:
        UnsupportedValueError: it cannot be carried; names the column.
    """
    packed = codec.pack_or_split([(batch,)])
    if not packed.rejected:
        arrived: ColumnBatch = codec.unpack_rows(packed.payload, 1)[0][0]
        return arrived
    for name, column in zip(batch.fields, batch.columns, strict=True):
        try:
            codec.pack_value(column)
        except UnsupportedValueError as error:
            raise UnsupportedValueError(f"column {name!r}: a value of type {error}") from error
    _, _, type_name, reason = packed.rejected[0]
    raise UnsupportedValueError(f"a batch of {len(batch)} rows: {type_name}: {reason}")
