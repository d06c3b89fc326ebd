"""The counters of a task, as heartbeats carry them. Plain attributes, added to once for each batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

from msgspec import structs

from topo.api.metrics import HistogramSnapshot


@dataclass(slots=True)
class Counters:
    """Monotonic counts of one task since its process started."""

    emitted: int = 0
    """Rows that user code emitted."""
    transferred: int = 0
    """Tuples made of them: one for each target task."""
    executed: int = 0
    acked: int = 0
    """Inputs acked; in a spout: messages whose tree is complete."""
    failed: int = 0
    """Inputs failed; in a spout: verdicts of failure."""
    timed_out: int = 0
    """Messages that got no verdict within `message_timeout`."""
    replayed: int = 0
    dead_lettered: int = 0
    finally_failed: int = 0
    """Messages that failed and that no spout emits again."""
    lost_results: int = 0
    """Calls without input that raised in their last attempt, and transactions whose staged rows are gone."""
    unsent: int = 0
    """Rows that could not be sent, without checkpoints and with no message that fails with them."""
    reset: int = 0
    """Messages that a recovery put back; no attempt."""
    refused: int = 0
    """Messages of a spout that were not sent, since their id cannot be used."""
    unaccounted: int = 0
    """Messages that a closed spout took, less those that were acked, given up or put back. Other than 0 is a bug."""
    late_acks: int = 0
    expired_trees: int = 0
    errors: int = 0
    overshoot: int = 0
    """Messages emitted by a single call beyond `max_spout_pending`."""
    frames_out: int = 0
    frames_in: int = 0
    malformed_frames: int = 0
    stale_frames: int = 0
    """Frames of an older epoch."""
    fenced_frames: int = 0
    """Frames of a sender that is not, or no longer, in the routes."""
    duplicate_frames: int = 0
    gaps: int = 0
    """Frames that came after others that were lost."""
    stale_tuples: int = 0
    """Inputs of an older epoch that user code acked or failed without effect."""
    batch_rows_in: int = 0
    """Rows of the column batches among the inputs, each of which counts as one input."""
    batch_rows_out: int = 0
    """Rows of the column batches that were emitted, each of which counts as one row."""
    late: int = 0
    """Inputs that came too late for all their windows."""
    late_dropped: int = 0
    """Those of them that no late stream has taken."""
    busy_s: float = 0.0
    blocked_s: float = 0.0
    """Time with input at hand and no room for output."""


class EdgeFigures(NamedTuple):
    """The tuples of one task for the tasks of one component.

    Attributes:
        sent: tuples in frames that were offered, since the process started.
        in_front: tuples that no receiver has confirmed: in buffers, in frames that wait, and on their way.
        full_s: seconds in which at least one of the edges held as much as it may, summed over them, since the process started.
    """

    sent: int = 0
    in_front: int = 0
    full_s: float = 0.0

    def plus(self, other: EdgeFigures) -> EdgeFigures:
        return EdgeFigures(self.sent + other.sent, self.in_front + other.in_front, self.full_s + other.full_s)


NO_EDGE_FIGURES = EdgeFigures()
_COUNTERS = tuple(one.name for one in fields(Counters))


@dataclass(slots=True)
class TaskStatistics:
    """A snapshot: counts, levels and latency distributions (seconds)."""

    counters: Counters
    levels: Mapping[str, float] = field(default_factory=dict)
    latencies: Mapping[str, HistogramSnapshot] = field(default_factory=dict)
    user: Mapping[str, Any] = field(default_factory=dict)
    edges: Mapping[str, EdgeFigures] = field(default_factory=dict)
    """By the component that the tuples are for."""
    watermarks: Mapping[str, int] = field(default_factory=dict)
    """By the component that the input comes from, in milliseconds; empty without event time."""

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain values for the wire."""
        return {
            "counters": {name: getattr(self.counters, name) for name in _COUNTERS},
            "levels": dict(self.levels),
            "latencies": {name: structs.asdict(histogram) for name, histogram in self.latencies.items()},
            "user": dict(self.user),
            "edges": {target: list(figures) for target, figures in self.edges.items()},
            **({"watermarks": dict(self.watermarks)} if self.watermarks else {}),
        }
