"""The rows about checkpoints and savepoints that the coordinator keeps for users."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec import Struct

REMEMBERED = 20
"""Checkpoints, the last ones."""


class CheckpointRow(Struct, frozen=True):
    """The outcome of a checkpoint. `state` is "complete", "failed" or "aborted" (by a recovery)."""

    checkpoint: int
    state: str
    duration_s: float
    bytes: int = 0
    alignment_ms: float = 0.0
    pause_ms: float = 0.0
    why: str = ""

    @property
    def problem(self) -> str:
        """Why it failed, in words; "" when it did not."""
        return f"checkpoint {self.checkpoint} failed: {self.why}" if self.state == "failed" else ""


@dataclass(slots=True)
class Savepoint:
    """A savepoint that was asked for. `state` is "waiting", "copying", "written" or "failed"."""

    folder: str
    state: str = "waiting"
    checkpoint: int = 0
    why: str = ""

    @property
    def is_settled(self) -> bool:
        return self.state in ("written", "failed")


def forget_settled(savepoints: dict[str, Savepoint]) -> None:
    """Keep the last of the settled savepoints alone."""
    settled = [one.folder for one in savepoints.values() if one.is_settled]
    for old in settled[:-REMEMBERED]:
        del savepoints[old]
