"""The snapshot of a task, and the alignment of barriers that decides when it is taken.

A barrier comes on every data edge, behind the tuples that its checkpoint covers. When it has come on all of them the task has
processed exactly those tuples: it takes its snapshot, passes the barrier on, and continues at once. Frames that follow a barrier
wait until then, within their edge's window.

A barrier is a message of a spout like any other: it has a root, and an edge id on every edge. A task anchors the barriers that it
passes on upon all that it got, and acks these when its snapshot is stored. So the ackers know when a checkpoint is through.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from msgspec import Struct

from topo.ids import ID_BYTES
from topo.wire.control import PartToRead
from topo.wire.frames import Frame


@dataclass(slots=True)
class Snapshot:
    """The state of a task, as plain data.

    Attributes:
        keyed: makes the state of keys, by key group: once, at any later time, on any thread. Its result stays unchanged
            only while `keyed` is kept.
        values: what belongs to no key, by name.
    """

    keyed: Callable[[], Mapping[int, Any]] = dict
    values: dict[str, Any] = field(default_factory=dict)


class StoredPart(Struct, frozen=True):
    """The place of a snapshot: file in the folder of checkpoints, its length in bytes, its checksum."""

    file: str
    length: int
    checksum: str


StoredCallback = Callable[[StoredPart | None, Exception | None], None]


class SnapshotStore(Protocol):
    """The store of a task's snapshots. In the simulator it is virtual."""

    def pack(self, value: Any, what: str = "state") -> bytes:
        """Return a value as it is stored. Raises UnsupportedStateError, with `what` it is, for what a tuple could not carry."""

    def unpack(self, packed: bytes) -> Any:
        """Return what `pack` packed; sequences are tuples."""

    def write(self, checkpoint: int, snapshot: Snapshot, stored: StoredCallback) -> None:
        """Encode and store a snapshot in the background; call back, on any thread, when it is durable or has failed.

        One whose turn has not come when the next is written may be dropped, unanswered: its checkpoint has been given up.
        """

    def read(self, folder: str, checkpoint: int, parts: Sequence[PartToRead]) -> list[Snapshot]:
        """Return the snapshots that the task takes from the parts. Blocks. Raises TopoError when a part cannot be used."""


class Barred(Protocol):
    """An edge, as far as barriers are concerned."""

    is_behind_barrier: bool
    """The barrier at hand has come on it: what follows waits until it has come on all others."""


@dataclass(slots=True)
class Aligned:
    """A barrier that has come on all edges.

    Attributes:
        roots: of the barriers, each with the XOR of the edge ids that it came with.
        waited_s: from the first barrier to the last.
    """

    checkpoint: int
    roots: dict[int, int]
    waited_s: float


class Alignment:
    """Collects a barrier over all edges of a task."""

    def __init__(self) -> None:
        self.checkpoint = 0
        """The last one whose barrier has come at all."""
        self._sums: dict[bytes, int] = {}
        """By packed roots, which are the same on most edges: the XOR of the packed edges that came with them, as one number."""
        self._began = 0.0
        self._come = 0
        """Edges on which the barrier at hand has come."""

    def reset(self) -> None:
        """A new epoch: no barrier is under way."""
        self._sums.clear()
        self._come = 0

    def arrived(self, edge: Barred, frame: Frame, edges: Collection[Barred], now: float) -> Aligned | None:
        """A barrier has come on one of the data edges; what follows on it waits. Returns it when that was the last edge."""
        if not self._come:
            self.checkpoint, self._began = frame.mark, now
        roots = bytes(frame.roots)
        self._sums[roots] = self._sums.get(roots, 0) ^ int.from_bytes(frame.edges, "little")
        edge.is_behind_barrier = True
        self._come += 1
        if self._come < len(edges):
            return None
        self._come = 0
        for one in edges:
            one.is_behind_barrier = False
        owed: dict[int, int] = {}
        for packed, total in self._sums.items():
            values = total.to_bytes(len(packed), "little")
            for at in range(0, len(packed), ID_BYTES):
                root, value = (int.from_bytes(column[at : at + ID_BYTES], "little") for column in (packed, values))
                owed[root] = owed.get(root, 0) ^ value
        self._sums.clear()
        return Aligned(frame.mark, owed, now - self._began)
