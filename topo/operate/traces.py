"""Traces: the rows that workers report, joined into a tree of spans for each message, and where its time went. Pure.

A span is one tuple at one task. Its time has three phases, all in microseconds:

    on the way     from its emission until its frame has arrived: buffers, full edges, the network
    in front       from then until its call: frames and tuples before it in the queue of the task
    executing      from then until its ack: the call, and the time that the bolt holds it

The time of a message is that of its *last* tuple, which ended latest, and of those that it descends from. Behind it the acks
travel, or a window holds the input: the rest, until the verdict, is "acks".

`MOST_TUPLES` bounds the memory of all messages together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

ON_THE_WAY, IN_FRONT, EXECUTING, ACKS = PHASES = "on the way", "in front", "executing", "acks"

MOST_TUPLES = 50_000
"""Tuples that are kept: up to 20 MB."""


class Sent(NamedTuple):
    """An emitted tuple: the span it was emitted for ("": the message itself), where to, and when."""

    parent: str
    target: int
    at: int


@dataclass(slots=True)
class TupleSpan:
    """One tuple at one task; microseconds since 1970.

    Attributes:
        sent: who emitted it; several where it is anchored on several inputs, none if that is not known.
    """

    edge: str
    task: int
    arrived: int
    began: int
    ended: int
    outcome: str
    sent: list[Sent] = field(default_factory=list)

    @property
    def left(self) -> int:
        """When it was emitted; when it arrived, where that is not known. Clocks of two hosts may differ."""
        return min(self.arrived, max((sent.at for sent in self.sent), default=self.arrived))

    @property
    def parents(self) -> list[str]:
        """The tuples it was emitted for; the last is that which it left last."""
        return [one.parent for one in sorted(self.sent, key=lambda one: one.at)]


@dataclass(slots=True)
class Trace:
    """One message.

    Attributes:
        outcome: "acked", "failed", "timed out" or "reset"; "" while there is none.
        spans: by edge, in the order in which they arrived.
        unseen: emitted tuples without a span, by edge: on the way, in a queue, or not reported.
    """

    root: str
    task: int = 0
    at: int = 0
    message: Any = None
    ended: int = 0
    outcome: str = ""
    is_known: bool = False
    size: int = 0
    spans: dict[str, TupleSpan] = field(default_factory=dict)
    unseen: dict[str, list[Sent]] = field(default_factory=dict)

    @property
    def is_complete(self) -> bool:
        return self.is_known and bool(self.outcome)

    @property
    def took(self) -> int:
        """Microseconds from its emission to its verdict."""
        return max(0, self.ended - self.at)

    def path(self) -> list[TupleSpan]:
        """Return the last tuple to end, behind those that it descends from."""
        last = max(self.spans.values(), key=lambda span: span.ended, default=None)
        path: dict[str, TupleSpan] = {}
        while last is not None and last.edge not in path:
            path[last.edge] = last
            parent = max(last.sent, key=lambda sent: sent.at, default=None)
            last = None if parent is None else self.spans.get(parent.parent)
        return [*reversed(path.values())]

    def breakdown(self) -> list[tuple[int, str, int]]:
        """Return where the time went: task, phase, microseconds. They add up to the whole, but for clocks that differ."""
        path, found, at = self.path(), [], self.at
        for place, span in enumerate(path):
            # The next tuple may leave before its parent is acked.
            until = min(span.ended, path[place + 1].left) if place + 1 < len(path) else span.ended
            for phase, moment in ((ON_THE_WAY, span.arrived), (IN_FRONT, span.began), (EXECUTING, until)):
                found.append((span.task, phase, max(0, moment - at)))
                at = max(at, moment)
        return [*found, (self.task, ACKS, max(0, self.ended - at))]


class Traces:
    """Joins rows, which may come in any order.

    Args:
        tasks: component and index of each task of the topology.
        most: tuples that are kept. Room for more is made by forgetting the quickest messages.

    Attributes:
        forgotten: messages with a verdict that are not kept.
        dropped: tuples that were not taken: those of messages without a verdict had all the room, or their parent had emitted too
            many.
    """

    def __init__(self, tasks: Mapping[int, tuple[str, int]], most: int = MOST_TUPLES) -> None:
        self.tasks = tasks
        self.forgotten = self.dropped = 0
        self._most = most
        self._size = 0
        self._known: dict[str, Trace] = {}

    def take(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Add rows of the observation."""
        for row in rows:
            kind, trace = row["kind"], self._known.get(row["root"])
            size = 0 if trace is not None and kind == "end" else 1 + len(row.get("out", ()))
            if self._size + size > self._most and not self._make_room(row["root"], size):
                self.dropped += 1
                continue
            trace = trace or self._known.setdefault(row["root"], Trace(row["root"]))
            trace.size += size
            self._size += size
            self.dropped += row.get("more", 0)
            if kind == "end":
                trace.ended, trace.outcome = row["at"], row["outcome"]
            elif kind == "message":
                trace.task, trace.at, trace.message, trace.is_known = row["task"], row["at"], row["message"], True
                self._sent(trace, "", row["out"])
            elif kind == "span":
                sent = trace.unseen.pop(row["edge"], [])
                times = row["arrived"], row["began"], row["ended"]
                trace.spans[row["edge"]] = TupleSpan(row["edge"], row["task"], *times, row["outcome"], sent)
                self._sent(trace, row["edge"], row["out"])

    def _sent(self, trace: Trace, parent: str, out: Iterable[Sequence[Any]]) -> None:
        for edge, target, at in out:
            span = trace.spans.get(edge)
            (trace.unseen.setdefault(edge, []) if span is None else span.sent).append(Sent(parent, target, at))

    def _make_room(self, root: str, size: int) -> bool:
        """Forget the quickest messages until a tenth is free, those without a beginning first; False if that is not enough."""
        over = [one for one in self._known.values() if one.root != root and (one.is_complete or not one.is_known)]
        for trace in sorted(over, key=lambda one: (one.is_known, one.took)):
            if self._size <= 0.9 * self._most:
                break
            self.forgotten += trace.is_known
            self._forget(trace)
        return self._size + size <= self._most

    def _forget(self, trace: Trace) -> None:
        self._size -= self._known.pop(trace.root).size

    def settled(self, rows: Iterable[Mapping[str, Any]]) -> list[Trace]:
        """Add rows; return and forget the messages that had a verdict before these rows, so that all theirs have come."""
        complete = self.slowest()
        self.take(rows)
        for trace in complete:
            self._forget(trace)
        return complete

    @property
    def open(self) -> int:
        """How many messages have no verdict."""
        return sum(trace.is_known and not trace.outcome for trace in self._known.values())

    def all(self) -> list[Trace]:
        """Return the messages whose emission is known, in order."""
        return sorted((trace for trace in self._known.values() if trace.is_known), key=lambda trace: trace.at)

    def slowest(self, count: int | None = None) -> list[Trace]:
        """Return the complete messages that took longest; None: all that are complete."""
        complete = [trace for trace in self._known.values() if trace.is_complete]
        return sorted(complete, key=lambda trace: -trace.took)[:count]

    def where(self, traces: Iterable[Trace]) -> list[dict[str, Any]]:
        """Return where the time of these messages went: microseconds by component and phase, the greatest first."""
        sums: dict[str, dict[str, int]] = {}
        for trace in traces:
            for task, phase, us in trace.breakdown():
                row = sums.setdefault("" if phase == ACKS else self.tasks[task][0], dict.fromkeys(PHASES, 0))
                row[phase] += us
        rows: list[dict[str, Any]] = [{"component": component, "us": row} for component, row in sums.items()]
        return sorted(rows, key=lambda row: -sum(row["us"].values()))

    def shown(self, trace: Trace) -> dict[str, Any]:
        """Return a message as JSON has it."""
        path = {span.edge for span in trace.path()}
        spans = [
            {
                "id": span.edge, "parents": span.parents, **self._place(span.task), "sent_us": span.left,
                "arrived_us": span.arrived, "began_us": span.began, "ended_us": span.ended, "outcome": span.outcome,
                "on_path": span.edge in path,
            }
            for span in sorted(trace.spans.values(), key=lambda span: (span.left, span.edge))
        ]  # fmt: skip
        unseen = [
            {"id": edge, "parents": [one.parent for one in sent], **self._place(sent[0].target), "sent_us": sent[0].at}
            for edge, sent in trace.unseen.items()
        ]
        return {
            "root": trace.root, **self._place(trace.task), "message": trace.message, "at_us": trace.at,
            "took_us": trace.took if trace.is_complete else None, "outcome": trace.outcome, "spans": spans, "unseen": unseen,
            "path": [{"component": self.tasks[task][0], "phase": phase, "us": us} for task, phase, us in trace.breakdown()],
        }  # fmt: skip

    def _place(self, task: int) -> dict[str, Any]:
        return dict(zip(("component", "index"), self.tasks[task], strict=True))


def rows_of(message: Mapping[str, Any], most: int) -> tuple[list[dict[str, Any]], int]:
    """Return the tuples of a shown message in the order of the tree, each with its `depth`, and how many are left out.

    A tuple with several parents comes below its last parent. Those that decide how long the message took come before others.
    """
    spans = {span["id"] for span in message["spans"]}
    children: dict[str, list[dict[str, Any]]] = {}
    for span in (*message["spans"], *message["unseen"]):
        known = [parent for parent in span["parents"] if parent in spans]
        children.setdefault(known[-1] if known else "", []).append(span)
    shown, number, deciding = [], 0, min(most, sum(span["on_path"] for span in message["spans"]))
    rooms = {True: deciding, False: most - deciding}
    waiting = [(1, span) for span in reversed(children.get("", ()))]
    while waiting:
        depth, span = waiting.pop()
        waiting += [(depth + 1, child) for child in reversed(children.get(span["id"], ()))]
        number += 1
        if rooms[on_path := span.get("on_path", False)]:
            rooms[on_path] -= 1
            shown.append({"depth": depth, **span})
    return shown, number - len(shown)
