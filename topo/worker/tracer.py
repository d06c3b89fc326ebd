"""A trace of some messages in one worker: which tuples descend from them, and when each arrived, ran and ended.

The spout sets `TRACED_BIT` in the roots of some messages. Every tuple that descends from one carries its root, so every task
knows by one look at the packed roots of a frame. The edge id of a tuple is the id of its *span*; that of the input it was emitted
for is its parent. A traced input runs alone in its slice, so that time and rows of the slice are those of this input.

    frame_taken -> arrived | slice_begins -> begun | inputs_acked, inputs_failed -> ended, and the edges of its rows follow

A task calls a tracer for frames that arrive and roots that are drawn; while traced messages are in it, for everything. So tasks
through which none passes pay for one look at each frame.

A tuple with several roots has a span in the trace of each root that is traced. The rows of a column batch are one span. What
waits when the observation ends has no span.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec import Struct, structs

from topo.emission.collectors import TrackedTuple
from topo.hot import Column, pack_words, traced_places, unpack_words
from topo.ids import ID_BYTES, TRACED_BIT, TaskId
from topo.observability.logs import TaskLog
from topo.plan.physical import PhysicalPlan
from topo.task.batch import Batch
from topo.task.flow_control import Arrival
from topo.task.observer import TaskObserver
from topo.task.runners.input_runner import InputRunner
from topo.task.task import Task
from topo.wire.control import Observe, Observed, Routes
from topo.wire.frames import Anchoring, Columns, Frame, FrameKind
from topo.worker.tap import short

MOST_SPANS_S = 500
"""Spans a second of one worker: each costs a slice."""
MOST_OPEN = 2000
"""Spans that have not ended, in one worker; and messages without a verdict, of one spout task."""
MOST_ANCHORED = 10_000
"""Rows that are about to be routed and whose parents are known."""
MOST_EDGES = 100
"""Edges of one span that are reported."""

_DATA, _NEXT = FrameKind.DATA, Arrival.NEXT

IdsOfInputs = Iterable[tuple[Sequence[int], Sequence[int]]]
SpanKey = tuple[TaskId, int, int]
"""A span: task, root, edge. That of a message at its spout has edge 0."""


@dataclass(slots=True, eq=False)
class _Span:
    """Times are monotonic seconds.

    Attributes:
        edges: of the rows that were emitted for it: edge, target, time.
        more: how many further rows there were.
        is_batch: it is a batch of columns, whose rows run one by one.
    """

    key: SpanKey
    arrived: float
    began: float = 0.0
    ended: float = 0.0
    outcome: str = ""
    edges: list[tuple[int, TaskId, float]] = field(default_factory=list)
    more: int = 0
    is_batch: bool = False
    message: Any = None


class Tracer(TaskObserver):
    """The trace of the messages of one topology, in one worker. It observes all tasks there but ackers.

    Args:
        number: of the observation.
        rate: messages a second of each spout task.
        mark_s: for how long messages are marked.
        shares: by spout task of this worker, the part of a second that its first message waits; so they do not all begin at once.
        windows: tasks that keep their inputs in windows.
        hidden: spout tasks whose message ids are not shown.
        attend: has a task call all methods from now on, or `frame_taken` and `roots_drawn` alone.
        clock: monotonic seconds.
        wall: seconds since 1970.
    """

    def __init__(
        self,
        number: int,
        rate: float,
        mark_s: float,
        shares: Mapping[TaskId, float],
        windows: Collection[TaskId],
        hidden: Collection[TaskId],
        attend: Callable[[TaskId, bool], None],
        clock: Callable[[], float],
        wall: Callable[[], float],
    ) -> None:
        self._id = number
        self._rate = rate
        self._windows = windows
        self._hidden = hidden
        self._attend = attend
        self._clock = clock
        now = clock()
        # One offset for the whole observation: a wall clock that is set meanwhile tears no trace.
        self._offset = wall() - now
        self._mark_until = now + mark_s
        self._rooms = {task: (now, 1.0 - share) for task, share in shares.items()}
        """By spout task: when messages were drawn last, and how many may be marked; grows with time."""
        self._room = (now, float(MOST_SPANS_S))
        self._attended: set[TaskId] = set()
        self._arrived: dict[TaskId, dict[SpanKey, _Span]] = defaultdict(dict)
        self._begun: dict[TaskId, dict[SpanKey, _Span]] = defaultdict(dict)
        self._done: dict[SpanKey, _Span] = {}
        """Spans that have ended since the last reports."""
        self._settling: set[TaskId] = set()
        """Tasks of spans that have ended in the present call: rows may still be routed for them."""
        self._slice: dict[TaskId, list[_Span]] = {}
        """By task: the spans that run in its present slice."""
        self._anchored: dict[tuple[TaskId, int, int], list[_Span]] = {}
        """By task, root and edge: parents of rows that are about to be routed."""
        self._marked: dict[TaskId, set[int]] = {}
        """By spout task: roots of messages that have no verdict."""
        self._has_marked = False
        self._rows: list[dict[str, Any]] = []
        self._counts: dict[TaskId, dict[str, int]] = {}
        self._problem = ""

    # -- spouts ----------------------------------------------------------------------------------------------------------

    def roots_drawn(self, task: TaskId, roots: list[int]) -> None:
        """Mark one of these messages, if it is time for one."""
        if task not in self._rooms:
            return
        if task in self._attended:
            self._settling.discard(task)
            if not self._marked.get(task):
                self._turn_from(task)
        self._count(task, "seen", len(roots))
        at, room = self._rooms[task]
        if (now := self._clock()) < at + (1.0 - room) / self._rate:
            return
        room = min(max(1.0, self._rate), room + (now - at) * self._rate)
        marked = min(int(room), len(roots)) if now < self._mark_until else 0
        if marked and len(self._marked.get(task, ())) >= MOST_OPEN:
            marked, self._problem = 0, f"{MOST_OPEN:,} traced messages of a spout task have no verdict; no more begin"
        if marked:
            self._turn_to(task)
            # Anywhere in the burst: roots are random.
            start = roots[0]
            for place in range(start, start + marked):
                roots[place % len(roots)] |= TRACED_BIT
            self._has_marked = True
        self._rooms[task] = (now, room - marked)

    def messages_pending(self, task: TaskId, roots: Sequence[int], message_ids: Sequence[Any], now: float) -> None:
        if not self._has_marked:
            return
        self._has_marked, now = False, self._clock()
        # The replay bit is set after the draw.
        for root, message in zip(roots, message_ids, strict=True):
            if root & TRACED_BIT:
                self._count(task, "matched", 1)
                self._marked.setdefault(task, set()).add(root)
                shown = None if task in self._hidden else short(message)
                self._done[task, root, 0] = _Span((task, root, 0), now, now, now, "emitted", message=shown)
                self._settling.add(task)

    def messages_decided(self, task: TaskId, verdict: str, roots: Sequence[int], pending: Container[int]) -> None:
        self._decide(task, verdict, roots)

    def messages_expired(self, task: TaskId, roots: Sequence[int], due: float, now: float) -> None:
        self._decide(task, "timed out", roots)

    def _decide(self, task: TaskId, verdict: str, roots: Sequence[int]) -> None:
        if not (marked := self._marked.get(task)):
            return
        for root in marked.intersection(roots):
            marked.discard(root)
            end = {"kind": "end", "task": task, "root": f"{root:016x}", "at": self._us(self._clock()), "outcome": verdict}
            self._rows.append(end)

    # -- inputs ----------------------------------------------------------------------------------------------------------

    def routes_adopted(self, task: TaskId, routes: Routes) -> None:
        """All that was in flight at the task is gone."""
        for span in [*self._arrived[task].values(), *self._begun[task].values()]:
            self._end(span, "reset")
        self._slice.pop(task, None)

    def frame_taken(self, task: TaskId, frame: Frame, arrival: Arrival | None) -> None:
        if frame.kind is not _DATA or arrival is not _NEXT or not (places := traced_places(frame.roots)):
            return
        now = self._clock()
        for place in places:
            if self._has_room(now):
                key = task, _word(frame.roots, place), _word(frame.edges, place)
                self._arrived[task][key] = _Span(key, now)
                self._turn_to(task)
            else:
                self._count(task, "dropped", 1)

    def slice_begins(self, task: TaskId, batch: Batch, first: int, last: int) -> int:
        """Let a traced tuple run alone."""
        self._slice.pop(task, None)
        self._settling.discard(task)
        if not (self._arrived[task] or self._begun[task]):
            self._turn_from(task)
            return last
        if batch.anchoring is Anchoring.NONE:
            return last
        places = traced_places(batch.packed_roots(first, last))
        if not places:
            return last
        if batch.anchoring is Anchoring.MULTI:
            places = [place for place, roots in enumerate(batch.ids()[0][first:last]) if any(map(TRACED_BIT.__and__, roots))]
        if places[0]:
            return first + places[0]
        roots, spans = batch.ids_at(first)[0], self._spans_at(task, batch, first)
        is_batch = not spans and batch.origin.columnar
        if is_batch:
            # Its rows have edges of their own.
            spans = [span for span in self._of_task(task) if span.key[1] in roots]
        if not spans:
            # There was no room for one. Those behind it may have theirs.
            return next((first + place for place in places[1:] if self._spans_at(task, batch, first + place)), last)
        now = self._clock()
        for span in spans:
            span.began, span.is_batch = (span.began if is_batch and span.began else now), is_batch
            self._arrived[task].pop(span.key, None)
            self._begun[task][span.key] = span
        self._slice[task] = spans
        return last if is_batch else first + 1

    def inputs_acked(self, task: TaskId, ids: IdsOfInputs, stale: int = 0) -> None:
        self._end_inputs(task, ids, "in a window" if task in self._windows else "acked")

    def inputs_failed(self, task: TaskId, ids: IdsOfInputs) -> None:
        self._end_inputs(task, ids, "failed")

    def frame_processed(self, task: TaskId, frame: Frame) -> None:
        """End the batches of columns of a frame."""
        if frame.kind is _DATA and (begun := self._begun[task]):
            for span in [span for span in begun.values() if span.is_batch]:
                self._end(span, "acked")

    # -- rows ------------------------------------------------------------------------------------------------------------

    def rows_anchored(
        self,
        task: TaskId,
        anchors: Sequence[Sequence[TrackedTuple]],
        counts: Sequence[int],
        roots: Sequence[int],
        edges: Sequence[int],
    ) -> None:
        if not ((self._begun[task] or task in self._settling) and traced_places(pack_words(roots))):
            return
        at = 0
        for on, count in zip(anchors, counts, strict=True):
            for root, edge in zip(roots[at : at + count], edges[at : at + count], strict=True):
                if root & TRACED_BIT and len(self._anchored) < MOST_ANCHORED:
                    keys = [(task, root, anchor.edges[anchor.roots.index(root)]) for anchor in on if root in anchor.roots]
                    found = [self._begun[task].get(key) or self._done.get(key) for key in keys]
                    batches = [span for span in self._slice.get(task, ()) if span.is_batch and span.key[1] == root]
                    self._anchored[task, root, edge] = [span for span in found if span is not None] or batches
            at += count

    def rows_routed(self, task: TaskId, target: TaskId, stream: int, columns: Columns) -> None:
        if not (self._anchored or task in self._settling or self._slice.get(task)):
            return
        now = self._clock()
        for place in traced_places(columns.roots):
            root, edge = _word(columns.roots, place), _word(columns.edges, place)
            parents = self._anchored.pop((task, root, edge), None)
            if parents is None:
                source = self._done.get((task, root, 0))
                parents = [span for span in self._slice.get(task, ()) if span.key[1] == root] if source is None else [source]
            for span in parents:
                if len(span.edges) < MOST_EDGES:
                    span.edges.append((edge, target, now))
                else:
                    span.more += 1

    def running(self, task: TaskId) -> list[str]:
        """Return the roots of the traced messages of the tuple that the task is at."""
        return [f"{span.key[1]:016x}" for span in self._slice.get(task, ()) if not span.ended]

    # -- reports ---------------------------------------------------------------------------------------------------------

    def reports(self) -> list[Observed]:
        """Return what there was since the last call, by task."""
        rows: dict[TaskId, list[dict[str, Any]]] = {task: [] for task in self._counts}
        for row in [*map(self._span_row, self._done.values()), *self._rows]:
            rows.setdefault(row["task"], []).append(row)
        found = [Observed(self._id, task, own, problem=self._problem) for task, own in rows.items()]
        found = [structs.replace(one, **self._counts.get(one.task, {})) for one in found]
        self._done, self._rows, self._counts = {}, [], {}
        self._anchored.clear()
        return found

    # -- parts -----------------------------------------------------------------------------------------------------------

    def _turn_to(self, task: TaskId) -> None:
        if task not in self._attended:
            self._attended.add(task)
            self._attend(task, True)

    def _turn_from(self, task: TaskId) -> None:
        if task in self._attended:
            self._attended.discard(task)
            self._attend(task, False)

    def _has_room(self, now: float) -> bool:
        at, room = self._room
        room = min(float(MOST_SPANS_S), room + (now - at) * MOST_SPANS_S)
        has_room = room >= 1 and sum(map(len, [*self._arrived.values(), *self._begun.values()])) < MOST_OPEN
        self._room = (now, room - has_room)
        return has_room

    def _spans_at(self, task: TaskId, batch: Batch, place: int) -> list[_Span]:
        pairs = zip(*batch.ids_at(place), strict=True)
        return [span for pair in pairs if (span := self._waiting(task, *pair)) is not None]

    def _waiting(self, task: TaskId, root: int, edge: int) -> _Span | None:
        key = task, root, edge
        return self._arrived[task].get(key) or self._begun[task].get(key)

    def _of_task(self, task: TaskId) -> list[_Span]:
        begun = [span for span in self._begun[task].values() if span.is_batch]
        return begun or list(self._arrived[task].values())

    def _end_inputs(self, task: TaskId, ids: IdsOfInputs, outcome: str) -> None:
        if not (begun := self._begun[task]):
            return
        for roots, edges in ids:
            for root, edge in zip(roots, edges, strict=True):
                if (span := begun.get((task, root, edge))) is not None:
                    self._end(span, outcome)
                elif outcome == "failed":
                    for span in self._slice.get(task, ()):
                        span.outcome = outcome

    def _end(self, span: _Span, outcome: str) -> None:
        span.ended, span.outcome = self._clock(), span.outcome or outcome
        span.began = span.began or span.ended
        task = span.key[0]
        self._arrived[task].pop(span.key, None)
        self._begun[task].pop(span.key, None)
        self._done[span.key] = span
        self._settling.add(task)

    def _count(self, task: TaskId, name: str, more: int) -> None:
        counts = self._counts.setdefault(task, {})
        counts[name] = counts.get(name, 0) + more

    def _us(self, at: float) -> int:
        return round((at + self._offset) * 1e6)

    def _span_row(self, span: _Span) -> dict[str, Any]:
        task, root, edge = span.key
        out = [[f"{edge:016x}", target, self._us(at)] for edge, target, at in span.edges]
        row = {"task": task, "root": f"{root:016x}", "out": out} | ({"more": span.more} if span.more else {})
        if not edge:
            return {"kind": "message", "at": self._us(span.arrived), "message": span.message, **row}
        times = {name: self._us(at) for name, at in (("arrived", span.arrived), ("began", span.began), ("ended", span.ended))}
        return {"kind": "span", "edge": f"{edge:016x}", **times, "outcome": span.outcome, **row}


def _word(words: Column, place: int) -> int:
    return unpack_words(words[ID_BYTES * place : ID_BYTES * (place + 1)])[0]


class _Watch(Struct, frozen=True):
    tracer: Tracer
    tasks: Sequence[Task]
    log: TaskLog | None

    def reports(self) -> list[Observed]:
        return self.tracer.reports()

    def end(self) -> None:
        for task in self.tasks:
            if task.state.lookout is self.tracer:
                task.observed_by(None)
        if self.log is not None and self.log.traced == self.tracer.running:
            self.log.traced = None


class TaskTraces:
    """Has the tasks of a worker traced.

    Args:
        tasks: of the worker.
        plan: knows the spouts.
        clock: monotonic seconds.
        wall: seconds since 1970.
        log: of the worker; its lines get the roots of the traced messages for which they are written.
    """

    def __init__(
        self,
        tasks: Mapping[TaskId, Task],
        plan: PhysicalPlan,
        clock: Callable[[], float],
        wall: Callable[[], float],
        log: TaskLog | None = None,
    ) -> None:
        self._tasks = tasks
        self._plan = plan
        self._clock = clock
        self._wall = wall
        self._log = log

    def begin(self, message: Observe) -> _Watch:
        """Trace. `spec` has `spouts`, tasks; `rate`, messages a second of each; `settle_s`, without new ones at the end."""
        # A worker without windows loads what runs them for a trace alone.
        from topo.task.runners.window import WindowKind

        plan = self._plan
        tasks = [task for id_, task in self._tasks.items() if id_ not in plan.ackers]
        spouts = message.spec["spouts"]
        shares = {task: place / len(spouts) for place, task in enumerate(spouts)}
        hidden = [task for task in plan.spouts if plan.config_of(plan.task(task).component).tap is None]
        windows = {one.id for one in tasks if isinstance(one.runner, InputRunner) and isinstance(one.runner.kind, WindowKind)}
        rate, mark_s = float(message.spec["rate"]), message.for_s - float(message.spec["settle_s"])

        def attend(task: TaskId, everything: bool) -> None:
            self._tasks[task].observed_by(tracer if everything else None, lookout=tracer)

        tracer = Tracer(message.id, rate, mark_s, shares, windows, hidden, attend, self._clock, self._wall)
        for task in tasks:
            attend(task.id, False)
        if self._log is not None:
            self._log.traced = tracer.running
        return _Watch(tracer, tasks, self._log)
