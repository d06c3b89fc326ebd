"""Sends ids to the ackers. The acker of a root is the one at position `root % count`, in every process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from topo.hot import Column, share_ids
from topo.ids import TaskId
from topo.wire.frames import FrameKind


class AckerRoutes:
    """The edges from one task to the ackers.

    Args:
        ackers: in the order of the plan; may be empty.
        put_ids: sends roots, and values if the kind has them, to an acker; both are packed.
    """

    def __init__(self, ackers: Sequence[TaskId], put_ids: Callable[[FrameKind, TaskId, Column, Column], None]) -> None:
        self.ackers = ackers
        self._put_ids = put_ids

    def send(self, kind: FrameKind, roots: Column, values: Column = b"") -> None:
        """Send packed roots to their ackers, with one packed value for each root if the kind has values."""
        for acker, mine, owed in self.share(roots, values):
            self._put_ids(kind, acker, mine, owed)

    def share(self, roots: Column, values: Column = b"") -> Iterator[tuple[TaskId, Column, Column]]:
        """Split columns by acker, in the order of the plan; ackers without a root are left out."""
        count = len(self.ackers)
        if not roots or not count:
            return
        if count == 1:
            yield self.ackers[0], roots, values
            return
        for position, mine, owed in share_ids(roots, values, count):
            yield self.ackers[position], mine, owed
