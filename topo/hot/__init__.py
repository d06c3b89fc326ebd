"""The per-tuple path: loops over tuples, rows and ids, which take and give columns.

It lies beside `topo.ids`: it knows no frames, no tasks and no settings. Errors, refusals and their texts are made outside of it.

`topo.hot.plain` is the reference. Where `topo.hot.compiled` was built its names take the place of the plain ones, unless the
environment has TOPO_PURE; nothing but speed depends on it. `KIND` is the kind in use: "compiled" or "plain"; `PLAIN_BECAUSE` is
the reason when it is plain, and empty otherwise.
"""

import os

from topo.hot.plain import (
    ATOMS,
    EVERY_ROW,
    NO_TIMESTAMP,
    Acks,
    Column,
    Emit,
    EmitFour,
    EmitMessage,
    EmitMessageOne,
    EmitOne,
    EmitThree,
    EmitTwo,
    Ids,
    Pending,
    Ran,
    RotatingMap,
    Rotation,
    Row,
    RowShare,
    Selection,
    Slots,
    Trees,
    Verdicts,
    accumulate,
    hold_run,
    pack_counts,
    pack_rows,
    pack_timestamps,
    pack_words,
    run_inputs,
    run_loop,
    share,
    share_ids,
    stays,
    take,
    traced_places,
    unpack_rows,
    unpack_words,
    xor_words,
)

try:
    if os.environ.get("TOPO_PURE"):
        raise ImportError("TOPO_PURE is set")
    from topo.hot.compiled import (
        Acks,
        Emit,
        EmitFour,
        EmitMessage,
        EmitMessageOne,
        EmitOne,
        EmitThree,
        EmitTwo,
        Ids,
        Trees,
        accumulate,
        hold_run,
        pack_rows,
        run_inputs,
        share,
        share_ids,
        stays,
        traced_places,
        unpack_rows,
    )
except ImportError as error:
    KIND, PLAIN_BECAUSE = "plain", str(error)
else:
    KIND, PLAIN_BECAUSE = "compiled", ""

__all__ = [
    "ATOMS",
    "EVERY_ROW",
    "KIND",
    "NO_TIMESTAMP",
    "PLAIN_BECAUSE",
    "Acks",
    "Column",
    "Emit",
    "EmitFour",
    "EmitMessage",
    "EmitMessageOne",
    "EmitOne",
    "EmitThree",
    "EmitTwo",
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
