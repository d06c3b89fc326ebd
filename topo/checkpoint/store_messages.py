"""Commands to the store of checkpoints, and its answers. The shell performs them beside the master's loop."""

from __future__ import annotations

from msgspec import Struct

from topo.checkpoint.manifest import Manifest


class CommitCheckpoint(Struct, frozen=True):
    """Store a manifest, durably; its parts are stored already. The shell notes when that was.

    Answered by CheckpointStored once the result is known. Earlier checkpoints that are not needed may then go.
    """

    manifest: Manifest


class DiscardCheckpoint(Struct, frozen=True):
    """Remove the files of a checkpoint that will never be complete. Not answered."""

    checkpoint: int


class CopyCheckpoint(Struct, frozen=True):
    """Copy a complete checkpoint to another folder, as a savepoint. Answered by SavepointStored."""

    checkpoint: int
    folder: str


class FindCheckpoint(Struct, frozen=True):
    """Look for the last whole checkpoint up to a number, that one included. Answered by CheckpointFound.

    Attributes:
        upto: the number; a task could not read its part of it.
        folder: where its parts are, if not with this topology's checkpoints; then no earlier one is taken.
    """

    upto: int
    folder: str = ""


class CheckpointStored(Struct, frozen=True):
    """The answer to a CommitCheckpoint.

    Attributes:
        manifest: as it was stored, with the moment.
        problem: why it was not; it is certain then that it is not there. "" when it was.
    """

    manifest: Manifest
    problem: str = ""


class SavepointStored(Struct, frozen=True):
    """The answer to a CopyCheckpoint. `problem` is the reason when there is no savepoint, else ""."""

    folder: str
    problem: str = ""


class CheckpointFound(Struct, frozen=True):
    """The answer to a FindCheckpoint. `problem` is the reason when there is none."""

    manifest: Manifest | None
    problem: str = ""


StoreCommand = CommitCheckpoint | DiscardCheckpoint | CopyCheckpoint | FindCheckpoint
StoreAnswer = CheckpointStored | SavepointStored | CheckpointFound
