"""Collecting tuples for one edge and stream until they fill a frame.

A buffer knows tuples of one stream for one target, in columns and in order. It must not know the clock, the window, or
the target. A frame has a single anchoring, and timestamps for all its tuples or none, so a change of either seals the columns
collected before it. Work is done for each batch that comes and each piece that leaves, never for each tuple.
"""

from __future__ import annotations

from topo.hot import Column, Row
from topo.wire.columns import cut
from topo.wire.frames import Anchoring, Columns

PIECES = 4
"""Frames that an allowance is cut into, so that the receiver works on one while the next is under way."""

BATCHES = 4
"""Full batches that leave as one frame at most where that many are at hand: fewer, larger frames cost both ends less."""

BATCH_SIZE = 1024
"""Tuples."""
BATCH_BYTES = 64 * 1024


class EdgeBuffer:
    """Columns that grow until they are cut.

    Attributes:
        oldest: when the oldest tuple inside entered, as given to `extend`; None when the buffer is empty.
        limit: tuples that fill a piece, as the receiver wants them; the batch size unless it is set.
        ahead: tuples beyond the receiver's limit that leave first. A piece may be a fraction of them: the receiver has
            worked them off by then, so the pieces of a burst grow however little it has granted before.
    """

    __slots__ = (
        "_anchoring", "_batch_bytes", "_batch_size", "_counts", "_edges", "_fit", "_most", "_newest", "_roots", "_rows",
        "_sealed", "_timed", "_timestamps", "ahead", "limit", "oldest",
    )  # fmt: skip

    def __init__(self, batch_size: int = BATCH_SIZE, batch_bytes: int = BATCH_BYTES, batches: int = BATCHES) -> None:
        """Make an empty buffer; `batches`: full batches that may leave as one piece."""
        self._batch_size = batch_size
        self._most = batches * batch_size
        self._batch_bytes = batch_bytes
        self._fit = self.limit = batch_size
        self.ahead = 0
        self._sealed: list[Columns] = []
        self._anchoring = Anchoring.NONE
        self._timed = False
        self.oldest: float | None = None
        self._newest = 0.0
        self._clear()

    def _clear(self) -> None:
        self._rows: list[Row] = []
        self._roots = bytearray()
        self._edges = bytearray()
        self._timestamps = bytearray()
        self._counts = bytearray()

    def __len__(self) -> int:
        return len(self._rows) + sum(len(piece.rows) for piece in self._sealed)

    @property
    def piece_size(self) -> int:
        """How many tuples fill the next piece: the receiver's limit, or fewer when rows have turned out to be large."""
        return min(self._fit, self._batch_size, max(self.limit, self.ahead // PIECES))

    def extend(self, now: float, columns: Columns) -> None:
        """Append tuples, at least one, that enter at `now`, which is never earlier than in the call before."""
        anchoring, rows, roots, edges, timestamps, counts = columns
        timed = bool(timestamps)
        if not self._rows:
            self._anchoring, self._timed = anchoring, timed
        elif anchoring is not self._anchoring or timed is not self._timed:
            self._seal()
            self._anchoring, self._timed = anchoring, timed
        self._rows += rows
        self._roots += roots
        self._edges += edges
        self._timestamps += timestamps
        self._counts += counts
        if self.oldest is None:
            self.oldest = now
        self._newest = now

    def cut(self) -> list[Columns]:
        """Return the pieces that are full (or sealed), oldest first; what does not fill a piece stays.

        Called after each `extend`: the tuples that stay are taken to have come with the last one.
        """
        if not self._sealed and len(self._rows) < self.piece_size:
            return []
        pieces, self._sealed = self._sealed, []
        if len(self._rows) >= self.piece_size:
            pieces += self._take_full()
        self.oldest = self._newest if self._rows else None
        return pieces

    def flush(self) -> list[Columns]:
        """Return all there is, oldest first, and leave the buffer empty."""
        pieces = self.cut()
        if self._rows:
            pieces.append(self._take_all())
            self.oldest = None
        return pieces

    def note_packed(self, rows: int, size: int) -> None:
        """Learn what a piece became: `rows` tuples took `size` bytes. The next pieces stay near the batch bytes."""
        fitting = max(1, self._batch_bytes * rows // max(size, 1))
        # Shrink at once, grow by a half: one small piece among large ones must not undo the estimate.
        most = self._most if self.limit >= self._batch_size else self._batch_size
        self._fit = min(most, fitting, self._fit + self._fit // 2 + 1)

    def roots(self) -> list[Column]:
        """Return the roots of all there is."""
        return [piece.roots for piece in self._sealed] + [bytes(self._roots)]

    def clear(self) -> None:
        """Drop all collected tuples, as a new epoch demands. The estimate of sizes stays."""
        self._sealed = []
        self._clear()
        self.oldest = None

    def _seal(self) -> None:
        if len(self._rows) >= self.piece_size:
            self._sealed += self._take_full()
        if self._rows:
            self._sealed.append(self._take_all())

    def _take_all(self) -> Columns:
        whole = Columns(self._anchoring, self._rows, self._roots, self._edges, self._timestamps, self._counts)
        self._clear()
        return whole

    def _take_full(self) -> list[Columns]:
        left, sizes = len(self._rows), []
        while left >= (size := self.piece_size):
            if self.limit >= self._batch_size:
                # The receiver is fast: rows at hand leave together.
                size = max(size, min(left, self._fit, self._most))
            sizes.append(size)
            left -= size
            self.ahead += size
        *full, (_, self._rows, *rest) = cut(self._take_all(), sizes)
        self._roots, self._edges, self._timestamps, self._counts = map(bytearray, rest)
        return full
