"""The per-tuple path in C: what `topo.hot.plain` does, under the same names. Importing it fails where it was not compiled."""

from topo.hot.compiled.acks import Acks
from topo.hot.compiled.emit import Emit, EmitFour, EmitMessage, EmitMessageOne, EmitOne, EmitThree, EmitTwo
from topo.hot.compiled.ids import Ids, has_suspect, traced_places
from topo.hot.compiled.inputs import run_inputs
from topo.hot.compiled.pending import Pending
from topo.hot.compiled.rows import pack_rows, unpack_rows
from topo.hot.compiled.share import share, share_ids
from topo.hot.compiled.stays import stays
from topo.hot.compiled.trees import Trees
from topo.hot.compiled.windows import accumulate, hold_run
from topo.hot.compiled.words import distinct_words, pack_timestamps, pack_words

__all__ = [
    "Acks",
    "Emit",
    "EmitFour",
    "EmitMessage",
    "EmitMessageOne",
    "EmitOne",
    "EmitThree",
    "EmitTwo",
    "Ids",
    "Pending",
    "Trees",
    "accumulate",
    "distinct_words",
    "has_suspect",
    "hold_run",
    "pack_rows",
    "pack_timestamps",
    "pack_words",
    "run_inputs",
    "share",
    "share_ids",
    "stays",
    "traced_places",
    "unpack_rows",
]
