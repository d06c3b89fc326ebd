"""Observers of the tasks of one simulated process: they report to the history, and judge what they see on the way."""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from topo.hot import Verdicts, unpack_words
from topo.ids import TaskId
from topo.task.flow_control import Arrival
from topo.task.observer import TaskObserver
from topo.wire.control import Routes
from topo.wire.frames import Columns, Frame, FrameKind

if TYPE_CHECKING:
    from tests.simulator.history import History
    from tests.simulator.processes import SimulatedProcess

_SLACK_S = 1e-6
_PROMPT_S = 0.25
"""How long an acker may keep a verdict to itself, in the time of its process: many times `flush_interval`."""


@dataclass(slots=True)
class _InEpoch:
    """What a task has done in its epoch.

    Attributes:
        incarnations: whom it takes for each task.
        taken, processed: number of the last frame, by sender.
        inits: roots that an acker task has had the INIT of.
        fails: roots that it has had a FAIL of and has not decided, with the moment since when it could.
    """

    epoch: int = 0
    incarnations: Mapping[int, int] = field(default_factory=dict)
    taken: dict[int, int] = field(default_factory=dict)
    processed: dict[int, int] = field(default_factory=dict)
    inits: set[int] = field(default_factory=set)
    fails: dict[int, float] = field(default_factory=dict)


class FrameObserver(TaskObserver):
    """Sees to it that each edge is processed in order, in its epoch, and that no gap goes unnoticed."""

    def __init__(self, history: History, process: SimulatedProcess) -> None:
        self.history = history
        self.process = process
        self._tasks: dict[TaskId, _InEpoch] = {}

    def routes_adopted(self, task: TaskId, routes: Routes) -> None:
        """Forget the epoch before."""
        self._tasks[task] = _InEpoch(routes.epoch, {route.task: route.incarnation for route in routes.routes})

    def inspect(self) -> None:
        """Check invariants between two turns of the process."""

    def work_noted(self, task: TaskId, roots: Sequence[int]) -> None:
        """Check the tuples that a task is about to process."""

    def frame_taken(self, task: TaskId, frame: Frame, arrival: Arrival | None) -> None:
        """Check what became of a frame that has arrived."""
        history = self.history
        if arrival is None:
            if frame.kind is not FrameKind.CONFIRM:
                history.count("frame of a newer epoch left unread")
            return
        mine = self._tasks[task]
        if arrival is Arrival.NEXT:
            if frame.number > mine.taken.get(frame.sender, -1) + 1:
                history.violated(6, f"task {task} did not count the gap before {frame!r}")
            mine.taken[frame.sender] = frame.number
        elif arrival is Arrival.GAP and not history.has_lost(frame.epoch, frame.sender, task):
            history.violated(11, f"task {task} found a gap before {frame!r}, where nothing was lost")

    def frame_processed(self, task: TaskId, frame: Frame) -> None:
        """Check the order of frames."""
        mine, history = self._tasks[task], self.history
        last = mine.processed.get(frame.sender, -1)
        if frame.epoch != mine.epoch:
            history.violated(6, f"task {task} in epoch {mine.epoch} processed {frame!r}")
        elif frame.number != last + 1:
            history.violated(6, f"task {task} processed {frame!r} after number {last}")
        elif mine.incarnations.get(frame.sender) != frame.incarnation:
            history.violated(9, f"task {task} processed {frame!r} of a life that the routes do not name")
        mine.processed[frame.sender] = frame.number


class TreeObserver(FrameObserver):
    """Keeps the tuple trees of the history, and checks verdicts and timeouts against them."""

    def __init__(self, history: History, process: SimulatedProcess) -> None:
        super().__init__(history, process)
        plan = process.plan
        self._spouts = frozenset(plan.spouts)
        self._timeouts = {task: plan.config_of(plan.task(task).component).message_timeout_s for task in plan.spouts}
        self._longest_timeout_s = plan.longest_message_timeout_s
        self._pending: dict[TaskId, dict[int, float]] = {task: {} for task in plan.spouts}
        """By root: how long the process had stood still, in all, when the message was emitted."""
        self._stood_still: dict[TaskId, float] = dict.fromkeys(plan.spouts, 0.0)
        self._lost: dict[TaskId, list[Any]] = {task: [] for task in plan.spouts}
        """Messages that a recovery has taken back, in the order in which they are to be replayed."""
        self._has_suspects: dict[TaskId, bool] = {}

    def routes_adopted(self, task: TaskId, routes: Routes) -> None:
        """Forget the epoch before. Suspects are replayed one at a time, so they may be overtaken."""
        super().routes_adopted(task, routes)
        if task in self._spouts:
            self._has_suspects[task] = bool(routes.suspects or routes.attempts.get(task))
            self._lost[task] = []
            if task in self.history.replays_in_order:
                named = [self.history.trees[root] for root in routes.suspects if root in self._pending[task]]
                self.history.suspects.update((self.process, task, tree.message) for tree in named)

    def work_noted(self, task: TaskId, roots: Sequence[int]) -> None:
        """Check that a suspect is processed alone."""
        if task not in self.history.takes_single_roots or len(roots) < 2:
            return
        for tree in filter(None, map(self.history.trees.get, roots)):
            if (tree.owner, tree.spout, tree.message) in self.history.suspects:
                self.history.violated(8, f"task {task} processes {tree.message!r}, a suspect, and {len(roots) - 1} tuples more")

    # -- trees -----------------------------------------------------------------------------------------------------------

    def rows_routed(self, task: TaskId, target: TaskId, stream: int, columns: Columns) -> None:
        """Add edges to trees."""
        if not columns.roots:
            return
        history, is_spout = self.history, task in self._spouts
        edges = unpack_words(columns.edges)
        self.history.sent.setdefault((self._tasks[task].epoch, task, target, stream), deque()).extend(edges)
        for root, edge in zip(unpack_words(columns.roots), edges, strict=True):
            tree = history.trees.get(root)
            if tree is None or (tree.verdict and is_spout):
                tree = history.plant(root)
            elif tree.decided == "acked" and not is_spout:
                history.violated(3, f"task {task} emits for root {root:x}, whose tree an acker has found complete")
            tree.open[edge] = tree.open.get(edge, 0) + 1
            tree.edges += 1

    def frame_processed(self, task: TaskId, frame: Frame) -> None:
        """Check the order of rows, too: those that could not be carried are missing, and nothing else is."""
        super().frame_processed(task, frame)
        if frame.kind is not FrameKind.DATA or not frame.roots:
            return
        sent = self.history.sent.get((frame.epoch, frame.sender, task, frame.stream), deque())
        for edge in frame.edge_list():
            while sent and sent[0] != edge:
                sent.popleft()
            if not sent:
                self.history.violated(14, f"task {task} processed rows of task {frame.sender} in another order")
                return
            sent.popleft()

    def inputs_acked(self, task: TaskId, ids: Iterable[tuple[Sequence[int], Sequence[int]]], stale: int = 0) -> None:
        """Take edges out of trees. Whether a window bolt's inputs are acked too early, its results will show."""
        history = self.history
        if stale:
            history.count("stale tuple acked", stale)
        for roots, edges in ids:
            for root, edge in zip(roots, edges, strict=True):
                tree = history.trees.get(root)
                if tree is None or edge not in tree.open:
                    history.violated(6, f"a tuple of root {root:x} was acked twice")
                elif tree.open[edge] == 1:
                    del tree.open[edge]
                else:
                    tree.open[edge] -= 1

    # -- spouts ----------------------------------------------------------------------------------------------------------

    def messages_pending(self, task: TaskId, roots: Sequence[int], message_ids: Sequence[Any], now: float) -> None:
        """Note whose messages they are."""
        history, stood_still_s = self.history, self._stood_still[task]
        history.roots += len(roots)
        for root, message in zip(roots, message_ids, strict=True):
            tree = history.trees.get(root) or history.plant(root)
            tree.message, tree.emitted_at, tree.owner, tree.spout = message, now, self.process, task
            self._pending[task][root] = stood_still_s
            self._check_replay(task, message)

    def _check_replay(self, task: TaskId, message: Any) -> None:
        lost = self._lost[task]
        if message in lost:
            if lost[0] != message:
                self.history.violated(
                    14, f"spout task {task} replays {message!r} before {lost[0]!r}, which it had emitted earlier"
                )
            lost.remove(message)

    def messages_decided(self, task: TaskId, verdict: str, roots: Sequence[int], pending: Container[int]) -> None:
        """Check a verdict."""
        named, roots = len(roots), [root for root in roots if root in pending]
        if verdict == "reset" and task in self.history.replays_in_order:
            self._lost[task] = [] if self._has_suspects[task] else [self.history.trees[root].message for root in roots]
        if len(roots) < named:
            self.history.count("late verdict")
        for root in roots:
            if verdict == "acked":
                self.history.check_complete(root)
            self._decide(task, root, verdict)

    def messages_expired(self, task: TaskId, roots: Sequence[int], due: float, now: float) -> None:
        """Check that nothing times out too early or too late. Time in which the process stood still ages no message."""
        history, timeout_s, pending = self.history, self._timeouts[task], self._pending[task]
        self._stood_still[task] += now - due
        for root in roots:
            tree = history.trees[root]
            age = now - tree.emitted_at
            self._decide(task, root, "timed out")
            if not history.explains_timeouts():
                history.violated(2, f"{tree.message!r} timed out, and nothing had gone wrong; open edges: {len(tree.open)}")
            if timeout_s is not None and age < timeout_s - _SLACK_S:
                what = f"timed out after {age:.3f} s, before its timeout of {timeout_s:g} s"
                history.violated(2, f"{tree.message!r} {what}")
        for root, stood_before_s in pending.items():
            tree = history.trees[root]
            age = now - tree.emitted_at - (self._stood_still[task] - stood_before_s)
            if timeout_s is not None and age > timeout_s * 1.1 + _SLACK_S and not tree.touched:
                history.violated(2, f"{tree.message!r} has had no verdict for {age:.3f} s; its timeout is {timeout_s:g} s")

    def messages_kept(self, task: TaskId, roots: Iterable[int]) -> None:
        """Expect no timeout."""
        for root in roots:
            if root in self.history.trees:
                self.history.trees[root].touched = True

    def _decide(self, task: TaskId, root: int, verdict: str) -> None:
        self._pending[task].pop(root, None)
        self.history.message_decided(root, verdict)

    # -- ackers ----------------------------------------------------------------------------------------------------------

    def ids_received(self, task: TaskId, frame: Frame) -> None:
        """Note what overtakes the INIT of its root."""
        inits, fails = self._tasks[task].inits, self._tasks[task].fails
        roots = frame.root_list() if frame.kind in (FrameKind.INIT, FrameKind.ACK, FrameKind.FAIL) else ()
        if frame.kind is FrameKind.INIT:
            inits.update(roots)
            fails.update({root: self.process.time for root in roots if root in fails})
        elif frame.kind is FrameKind.ACK and not inits.issuperset(roots):
            self.history.count("ack before init")
        elif frame.kind is FrameKind.FAIL:
            if not inits.issuperset(roots):
                self.history.count("fail before init")
            for root in roots:
                tree = self.history.trees.get(root)
                if tree is not None and tree.open:
                    fails.setdefault(root, self.process.time)

    def verdicts_reached(self, task: TaskId, verdicts: Verdicts) -> None:
        """Check what an acker has decided."""
        history = self.history
        fails = self._tasks[task].fails
        for root in unpack_words(verdicts.failed):
            fails.pop(root, None)
            history.verdict_reached(root, "failed")
        for root in unpack_words(verdicts.acked):
            if fails.pop(root, None) is not None:
                history.violated(2, f"a task failed root {root:x}, and its acker found it acked")
            history.check_complete(root)
            history.verdict_reached(root, "acked")
        if verdicts.reset:
            history.count("timeout reset", len(verdicts.reset) // 8)

    def inspect(self) -> None:
        """Check that what a task has failed is answered as soon as its acker knows whose it is."""
        for task, mine in self._tasks.items():
            for root, at in mine.fails.items():
                tree = self.history.trees.get(root)
                is_owed = root in mine.inits and tree is not None and not tree.decided and not tree.verdict
                if is_owed and self.process.time > at + _PROMPT_S:
                    what = f"acker task {task} has had a FAIL of root {root:x} for {self.process.time - at:.3f} s"
                    self.history.violated(2, what)

    def trees_expired(self, task: TaskId, roots: Sequence[int], now: float) -> None:
        """Check that no spout waits for what its acker has forgotten."""
        timeout_s = self._longest_timeout_s
        for root in roots:
            tree = self.history.trees.get(root)
            if tree is not None and tree.owner is not None and tree.owner.is_alive and not tree.verdict:
                age = now - tree.emitted_at
                if timeout_s is not None and age < 2 * timeout_s - _SLACK_S:
                    self.history.violated(2, f"the acker forgot root {root:x} after {age:.3f} s, while its spout waits for it")
