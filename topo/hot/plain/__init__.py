"""The per-tuple path in Python: the reference."""

from topo.hot.plain.acks import Acks
from topo.hot.plain.emit import Emit, EmitFour, EmitMessage, EmitMessageOne, EmitOne, EmitThree, EmitTwo
from topo.hot.plain.ids import Ids, has_suspect, traced_places
from topo.hot.plain.inputs import Ran, run_inputs, run_loop
from topo.hot.plain.pending import Pending
from topo.hot.plain.rotating_map import RotatingMap, Rotation
from topo.hot.plain.rows import pack_rows, unpack_rows
from topo.hot.plain.share import EVERY_ROW, RowShare, Selection, share, share_ids, take
from topo.hot.plain.trees import Trees, Verdicts
from topo.hot.plain.values import ATOMS, Row, stays
from topo.hot.plain.windows import AddField, FieldPlace, Slots, accumulate, hold_run
from topo.hot.plain.words import (
    NO_TIMESTAMP,
    Column,
    distinct_words,
    pack_counts,
    pack_timestamps,
    pack_words,
    unpack_words,
    xor_words,
)

__all__ = [
    "ATOMS",
    "EVERY_ROW",
    "NO_TIMESTAMP",
    "Acks",
    "AddField",
    "Column",
    "Emit",
    "EmitFour",
    "EmitMessage",
    "EmitMessageOne",
    "EmitOne",
    "EmitThree",
    "EmitTwo",
    "FieldPlace",
    "Ids",
    "Pending",
    "Ran",
    "RotatingMap",
    "Rotation",
    "Row",
    "RowShare",
    "Selection",
    "Slots",
    "Trees",
    "Verdicts",
    "accumulate",
    "distinct_words",
    "has_suspect",
    "hold_run",
    "pack_counts",
    "pack_rows",
    "pack_timestamps",
    "pack_words",
    "run_inputs",
    "run_loop",
    "share",
    "share_ids",
    "stays",
    "take",
    "traced_places",
    "unpack_rows",
    "unpack_words",
    "xor_words",
]
