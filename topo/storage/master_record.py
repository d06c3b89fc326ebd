"""The master's record on disk: the numbers that its successors must not use again."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import msgspec

from topo.errors import TopoEnvironmentError
from topo.ids import Epoch
from topo.master.commands import MasterRecord
from topo.storage.state_folder import write_atomically


class RecordDamaged(TopoEnvironmentError):
    """The record exists and cannot be read."""


def read_record(path: Path) -> MasterRecord | None:
    """Return the record of the last master; None when there was none. Raises RecordDamaged."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=MasterRecord)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        raise RecordDamaged(f"{path} is damaged ({type(error).__name__}: {error})") from error


def write_record(path: Path, record: MasterRecord, **about: Any) -> None:
    """Replace the record, durably. Raises TopoEnvironmentError.

    Args:
        about: the master itself, for clients: its process, and where it listens.
    """
    write_atomically(path, json.dumps({**_plain(record), **about}).encode())


def record_by_clock(checkpoint: int = 0) -> MasterRecord:
    """Return a record in the place of a damaged one.

    Term and epoch are the seconds since 1970: higher than all used ones, so that messages of an earlier master are ignored.

    Args:
        checkpoint: the highest number of a checkpoint that is in the store.
    """
    now = int(time.time())
    return MasterRecord(now, Epoch(now), {}, True, checkpoint, has_run=True)


def reset_run(path: Path, **changes: Any) -> None:
    """Have the next run start from the beginning: nothing is complete and it has never run, but terms and epochs keep rising."""
    try:
        if read_record(path) is None:
            return
        kept = json.loads(path.read_bytes())
    except RecordDamaged:
        kept = _plain(record_by_clock())
    write_atomically(path, json.dumps({**kept, "completed": 0, "has_run": False, **changes}).encode())


def _plain(record: MasterRecord) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(record, str_keys=True)
    return plain
