"""Bounds the tuples that may wait before a bolt, so that they wait for a time that does not depend on how slow it is.

The senders' edges hold at most `size` tuples in all, which is `target_s` seconds of this bolt's work as it was measured last. The
law is that of a slow start: an evaluation after each `size` tuples, or after `target_s` seconds of work, sets the size to what
has just been measured, but to four times the last one at most. So it falls at once when the bolt has become slow, and is back at
`most` after seven evaluations, short ones, when it has become fast. No evaluation remembers an older one: a first call that
loads a model for a minute leaves no trace.

Seconds of work are counted while there is input, so they include the time in which the bolt could not act because those after it
are slow: what waits before a bolt that is held up waits for them, too.

Few tuples wait for the turns of the other tasks of a worker as long as many do. So of that wait, tuples count the part of a whole
slice that they are. If it counted in full, a bolt that shares a worker with many would seem slow, its grants and so its frames
would become small, and with them all tasks of the worker slow.
"""

from __future__ import annotations

from math import inf

from topo.config import TopologyConfig
from topo.wire.batcher import BATCHES

GROWTH = 4
"""How much larger a size is than the one before, at most."""
QUEUE_SHARE = 20
"""Tuples before one bolt may wait for this part of `message_timeout` or `checkpoint_interval`: many bolts may stand in a row."""


class Allowance:
    """The bound on what waits before one bolt.

    Args:
        target_s: how long a tuple should wait at most, in seconds.
        most: tuples; the size is never larger.

    Attributes:
        size: tuples that may be out to this bolt, over all its edges; at least 1.
        each_s: seconds that a tuple took in the last evaluation; 0 before the first.
    """

    __slots__ = ("_done", "_seconds", "_target_s", "each_s", "most", "size")

    def __init__(self, target_s: float, most: int) -> None:
        self._target_s = target_s
        self.most = most
        self.size = 1
        self.each_s = 0.0
        self._done = 0
        self._seconds = 0.0

    def note(self, done: int, seconds: float, may_grow: bool = True) -> None:
        """Learn from tuples that were processed.

        Args:
            done: how many.
            seconds: that they took, counted from the later of their arrival and the end of those before.
            may_grow: False while the bolt waits for those after it: how long it will is not measured yet.
        """
        self._done += done
        self._seconds += seconds
        # Time without tuples counts for the next ones: the last ones have not taken it.
        if done and (self._done >= self.size or self._seconds >= self._target_s):
            self.each_s = self._seconds / self._done
            fits = self.most if self.each_s * self.most <= self._target_s else int(self._target_s / self.each_s)
            self.size = max(1, min(GROWTH * self.size if may_grow else self.size, fits))
            self._done, self._seconds = 0, 0.0

    def waited(self, seconds: float, blocked_s: float, part: float) -> None:
        """Learn how long the bolt has waited for its turn with input at hand.

        Args:
            seconds: of the wait.
            blocked_s: in which the bolts after it had no room.
            part: of the largest slice that is at hand, 0 to 1.
        """
        self.note(0, seconds - max(0.0, seconds - blocked_s) * (1.0 - part))

    def share(self, edges: int) -> int:
        """Return the grant of one of `edges` edges; each gets at least one tuple, or its sender would wait for ever."""
        return max(1, self.size // max(1, edges))


def make_allowance(config: TopologyConfig, senders: int, limit_s: float | None) -> Allowance:
    """Return the allowance of a bolt under `queue_time`.

    Args:
        config: of the topology; its `queue_time` is set.
        senders: edges that bring data.
        limit_s: how long messages or barriers may take through the whole topology; None where nothing depends on that.
    """
    limits = [config.queue_time_s or inf]
    if limit_s is not None:
        limits.append(limit_s / QUEUE_SHARE)
    return Allowance(min(limits), senders * config.edge_window * BATCHES * config.batch_size)
