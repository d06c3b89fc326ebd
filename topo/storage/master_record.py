"""The master's record on disk: the numbers that its successors must not use again."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from topo.errors import EnvironmentFault
from topo.ids import Epoch, Incarnation, WorkerId
from topo.master.commands import MasterRecord
from topo.storage.state_folder import write_atomically


class RecordDamaged(EnvironmentFault):
    """The record exists and cannot be read."""


def read_record(path: Path) -> MasterRecord | None:
    """Return the record of the last master; None when there was none. Raises RecordDamaged."""
    try:
        kept = json.loads(path.read_bytes())
        lives = {WorkerId(int(worker)): Incarnation(life) for worker, life in kept["incarnations"].items()}
        return MasterRecord(
            kept["term"],
            kept["epoch"],
            lives,
            kept["active"],
            kept.get("checkpoint", 0),
            kept.get("completed", 0),
            kept.get("has_run", False),
        )
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise RecordDamaged(f"{path} is damaged ({type(error).__name__}: {error})") from error


def write_record(path: Path, record: MasterRecord, **about: Any) -> None:
    """Replace the record, durably. Raises EnvironmentFault.

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
    return {
        "term": record.term,
        "epoch": record.epoch,
        "incarnations": {str(worker): incarnation for worker, incarnation in record.incarnations.items()},
        "active": record.active,
        "checkpoint": record.checkpoint,
        "completed": record.completed,
        "has_run": record.has_run,
    }
