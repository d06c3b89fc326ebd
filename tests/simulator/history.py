"""What a simulated run is seen to do: every tuple tree, every verdict, every frame processed; checked as it happens.

The history watches tasks from outside their decisions: what they put into their outboxes, which inputs user code has acked, what
they process, what ackers decide. It keeps tuple trees explicitly, edge by edge, and so knows what the ackers' XOR only infers.

Oracle numbers are those of `tests.simulator.oracles`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from topo.checkpoint.store_messages import StoreCommand
from topo.emission.collectors import TupleState
from topo.ids import TaskId
from topo.master.positions import SpoutProgress
from topo.task.batch import Batch
from topo.task.events import Inbox
from topo.task.flow_control import EdgeStatus, InEdge
from topo.task.runners.acker import AckerTask
from topo.task.runners.basic_bolt import BasicBoltTask
from topo.task.runners.bolt import AnchoringTask
from topo.task.runners.inputs import BoltTask
from topo.task.runners.spout import SpoutTask
from topo.task.runners.window import WindowTask
from topo.task.task import Task
from topo.tracking.ack_ledger import Verdicts
from topo.tracking.source_messages import Pending
from topo.wire import control
from topo.wire.frames import Columns, Frame, FrameKind, unpack_words

if TYPE_CHECKING:
    from tests.simulator.processes import SimulatedProcess

_SLACK_S = 1e-6


@dataclass(frozen=True, slots=True)
class Violation:
    """An oracle was broken.

    Attributes:
        oracle: its number.
        at: virtual seconds.
        what: in words.
    """

    oracle: int
    at: float
    what: str

    def __str__(self) -> str:
        return f"oracle {self.oracle} at {self.at:.6f} s: {self.what}"


@dataclass(slots=True)
class Tree:
    """The tuple tree of one root.

    Attributes:
        open: edges whose tuples have not been acked by user code, with how many have that id.
        edges: how many there ever were.
        epoch, emitted_at, owner: who emitted it when; 0 and None until it is pending at a spout.
        decided: what an acker has decided; "" as long as it has not.
        verdict: what the spout was told or decided; "" while the message is pending.
        touched: its timeout was started anew.
    """

    open: dict[int, int] = field(default_factory=dict)
    edges: int = 0
    epoch: int = 0
    emitted_at: float = 0.0
    message: Any = None
    owner: SimulatedProcess | None = None
    decided: str = ""
    verdict: str = ""
    touched: bool = False


class History:
    """Watches the tasks of all processes of one run.

    Attributes:
        violations: what was found wrong, in order.
        counts: how often each thing of interest occurred, by name.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self.violations: list[Violation] = []
        self.counts: dict[str, int] = {}
        self.trees: dict[int, Tree] = {}
        self.roots = 0
        self.has_lost: Callable[[int, int, int], bool] = lambda _epoch, _sender, _target: True
        """Whether the network has lost, or let overtake, frames of an edge in an epoch."""
        self.on_positions: Callable[[Mapping[TaskId, SpoutProgress]], None] = lambda _: None
        self.on_letters: Callable[[Iterable[control.DeadLetter]], None] = lambda _: None

    def violated(self, oracle: int, what: str) -> None:
        """An oracle was broken."""
        self.violations.append(Violation(oracle, self._now(), what))

    def count(self, name: str, times: int = 1) -> None:
        """Something of interest occurred."""
        self.counts[name] = self.counts.get(name, 0) + times

    # -- what is reported to it ------------------------------------------------------------------------------------------

    def told(self, process: SimulatedProcess, message: control.FromMaster) -> None:
        """A worker has taken a message of the master."""
        if not isinstance(message, control.Routes) or process.worker.epoch != message.epoch:
            return
        mine = {route.incarnation for route in message.routes if route.worker == process.id}
        if mine != {process.incarnation}:
            self.violated(9, f"worker {process.id} adopted epoch {message.epoch}, whose routes name another life of it")
        self.count("resumed from a position", len(message.positions))
        self.count("suspect", len(message.suspects))
        for task in process.tasks:
            if isinstance(task, SpoutTask):
                for root, (message_id, _, _) in task._open_messages.items():
                    self.violated(2, f"{message_id!r} is pending under root {root:x} of an epoch before {message.epoch}")
                    return

    def stored_positions(self, progress: Mapping[TaskId, SpoutProgress]) -> None:
        """The master has stored what spouts resume from."""
        self.on_positions(progress)

    def stored_letters(self, letters: Iterable[control.DeadLetter]) -> None:
        """The master has stored dead letters."""
        self.on_letters(letters)

    def asked_of_store(self, command: StoreCommand) -> None:
        """The master has asked for something to be done in the store of checkpoints."""

    def committed(self, checkpoint: int, problem: str) -> None:
        """A checkpoint is complete, or (with a problem) certainly not; the master is about to hear of it."""

    # -- watching tasks --------------------------------------------------------------------------------------------------

    def watch(self, process: SimulatedProcess) -> None:
        """Watch the tasks of a new process."""
        for task in process.tasks:
            self._watch_outbox(task)
            self._watch_input(process, task)
            if isinstance(task, SpoutTask):
                self._watch_spout(process, task)
            elif isinstance(task, AckerTask):
                self._watch_acker(process, task)
            elif isinstance(task, BasicBoltTask):
                self._watch_basic_bolt(task)
            elif isinstance(task, WindowTask):
                self._watch_window_bolt(task)
            elif isinstance(task, AnchoringTask):
                self._watch_tracking_bolt(task)

    def _watch_outbox(self, task: Task) -> None:
        trees, put, is_spout = self.trees, task.outbox.put, isinstance(task, SpoutTask)

        def watched_put(target: TaskId, stream: int, columns: Columns) -> None:
            if columns.roots:
                for root, edge in zip(unpack_words(columns.roots), unpack_words(columns.edges), strict=True):
                    tree = trees.get(root)
                    if tree is None or (tree.verdict and is_spout):
                        tree = trees[root] = Tree()
                    elif tree.decided == "acked" and not is_spout:
                        self.violated(3, f"task {task.id} emits for root {root:x}, whose tree an acker has found complete")
                    tree.open[edge] = tree.open.get(edge, 0) + 1
                    tree.edges += 1
            put(target, stream, columns)

        _replace(task.outbox, "put", watched_put)

    def _acked(self, roots: Iterable[int], edges: Iterable[int]) -> None:
        for root, edge in zip(roots, edges, strict=True):
            tree = self.trees.get(root)
            if tree is None or edge not in tree.open:
                self.violated(6, f"a tuple of root {root:x} was acked twice")
            elif tree.open[edge] == 1:
                del tree.open[edge]
            else:
                tree.open[edge] -= 1

    def _watch_basic_bolt(self, task: BasicBoltTask) -> None:
        execute = task._execute

        def watched_execute(batch: Batch, first: int, last: int) -> dict[int, Exception]:
            failures = execute(batch, first, last)
            for index in range(first, batch.done):
                if index - first not in failures:
                    self._acked(*batch.ids_at(index))
            return failures

        _replace(task, "_execute", watched_execute)

    def _watch_window_bolt(self, task: WindowTask) -> None:
        """Take inputs for acked when they are in their windows: whether they are acked too early, results will show."""
        run = task._run

        def watched_run(batch: Batch, first: int, last: int, now: float) -> None:
            run(batch, first, last, now)
            for index in range(first, batch.done):
                self._acked(*batch.ids_at(index))

        _replace(task, "_run", watched_run)

    def _watch_tracking_bolt(self, task: AnchoringTask) -> None:
        settle = task._settle

        def watched_settle(now: float) -> None:
            for tup in task._collector.acked:
                if tup.epoch == task.epoch:
                    assert tup.state == TupleState.ACKED
                    self._acked(tup.roots, tup.edges)
                else:
                    self.count("stale tuple acked")
            settle(now)

        _replace(task, "_settle", watched_settle)

    def _watch_acker(self, process: SimulatedProcess, task: AckerTask) -> None:
        acker = task.acker
        verdicts, on_time, on_ack, on_fail = acker.verdicts, acker.on_time, acker.on_ack, acker.on_fail
        words = acker.ledger._words

        def watched_verdicts() -> dict[TaskId, Verdicts]:
            found = verdicts()
            for told in found.values():
                for root in told.failed:
                    self._decide(root, "failed")
                for root in told.acked:
                    self._check_complete(root)
                    self._decide(root, "acked")
            return found

        def watched_on_time(now: float) -> list[int]:
            if acker.next_deadline is None or now < acker.next_deadline:
                return on_time(now)
            before = list(words)
            expired = on_time(now)
            for root in before:
                tree = self.trees.get(root)
                if root not in words and tree is not None and tree.owner is not None and tree.owner.is_alive:
                    age, timeout = now - tree.emitted_at, task.plan.longest_message_timeout_s
                    if not tree.verdict and timeout is not None and age < 2 * timeout - _SLACK_S:
                        self.violated(2, f"the acker forgot root {root:x} after {age:.3f} s, while its spout waits for it")
            return expired

        def watched_on_ack(roots: list[int], values: list[int]) -> None:
            if any(root not in words for root in roots):
                self.count("ack before init")
            on_ack(roots, values)

        def watched_on_fail(roots: list[int]) -> None:
            if any((words.get(root) or 0) >> 64 == 0 for root in roots):
                self.count("fail before init")
            on_fail(roots)

        _replace(acker, "verdicts", watched_verdicts)
        _replace(acker, "on_time", watched_on_time)
        _replace(acker, "on_ack", watched_on_ack)
        _replace(acker, "on_fail", watched_on_fail)

    def _decide(self, root: int, verdict: str) -> None:
        tree = self.trees.get(root)
        if tree is not None:
            if tree.decided:
                self.violated(2, f"an acker found root {root:x} {tree.decided}, and then {verdict}")
            tree.decided = verdict

    def _check_complete(self, root: int) -> None:
        tree = self.trees.get(root)
        if tree is None:
            self.violated(3, f"an acker completed root {root:x}, which nobody has emitted")
        elif tree.open:
            self.violated(3, f"an acker completed root {root:x} while {len(tree.open)} of its {tree.edges} edges are open")

    def _watch_spout(self, process: SimulatedProcess, task: SpoutTask) -> None:
        book, timeout = task._open_messages, task.config.message_timeout_s
        add, take, expire, drain, touch, keep = book.add, book.take, book.expire, book.drain, book.touch, book.keep
        stood_still_s, stood_before = 0.0, dict[int, float]()
        handle_frame = task._process
        kind = [FrameKind.ACKED]

        def watched_process(edge: InEdge, frame: Frame, now: float) -> bool:
            kind[0] = frame.kind
            return handle_frame(edge, frame, now)

        def watched_add(roots: list[int], records: Iterable[Pending]) -> None:
            kept = list(records)
            self.roots += len(kept)
            for root, record in zip(roots, kept, strict=True):
                tree = self.trees.setdefault(root, Tree())
                tree.message, tree.emitted_at, _ = record
                tree.epoch, tree.owner = task.epoch, process
                stood_before[root] = stood_still_s
            add(roots, kept)

        def watched_take(roots: list[int]) -> list[Pending]:
            pending = [root for root in roots if root in book._map]
            if len(pending) < len(roots):
                self.count("late verdict")
            for root in pending:
                if kind[0] is FrameKind.ACKED:
                    self._check_complete(root)
                self._verdict(task, root, "acked" if kind[0] is FrameKind.ACKED else "failed")
            return take(roots)

        def watched_expire(now: float) -> dict[int, Pending]:
            nonlocal stood_still_s
            if book.next_deadline is None or now < book.next_deadline:
                return expire(now)
            # Time in which the spout's process stood still ages no message.
            stood_still_s += now - book.next_deadline
            before = list(book.items())
            expired = expire(now)
            for root, (message, emitted_at, _) in before:
                tree = self.trees[root]
                age = now - emitted_at
                if root not in book._map:
                    self._verdict(task, root, "timed out")
                    if timeout is not None and age < timeout - _SLACK_S:
                        self.violated(2, f"{message!r} timed out after {age:.3f} s, before its timeout of {timeout:g} s")
                    continue
                age -= stood_still_s - stood_before[root]
                if timeout is not None and age > timeout * 1.1 + _SLACK_S and not tree.touched:
                    self.violated(2, f"{message!r} has had no verdict for {age:.3f} s; its timeout is {timeout:g} s")
            return expired

        def watched_drain() -> dict[int, Pending]:
            for root, _ in book.items():
                self._verdict(task, root, "reset")
            return drain()

        def watched_touch(root: int) -> bool:
            if root in self.trees:
                self.trees[root].touched = True
            self.count("timeout reset")
            return touch(root)

        def watched_keep(roots: Iterable[int]) -> None:
            roots = list(roots)
            for root in roots:
                if root in self.trees:
                    self.trees[root].touched = True
            keep(roots)

        _replace(task, "_process", watched_process)
        _replace(book, "keep", watched_keep)
        _replace(book, "add", watched_add)
        _replace(book, "take", watched_take)
        _replace(book, "expire", watched_expire)
        _replace(book, "drain", watched_drain)
        _replace(book, "touch", watched_touch)

    def _verdict(self, task: SpoutTask, root: int, verdict: str) -> None:
        tree = self.trees[root]
        if tree.verdict:
            self.violated(2, f"{tree.message!r}: root {root:x} was {tree.verdict}, and now it is {verdict}")
        tree.verdict = verdict
        self.count("verdict: " + verdict)

    def _watch_input(self, process: SimulatedProcess, task: Task) -> None:
        take, processed = task._take, task._processed
        done: dict[int, int] = {}
        epoch_of_done = [0]

        def watched_take(frame: Frame, inbox: Inbox, now: float) -> None:
            edge = task.inputs.get(TaskId(frame.sender))
            if edge is None or frame.kind is FrameKind.CONFIRM:
                take(frame, inbox, now)
                return
            if frame.epoch > task.epoch:
                self.count("frame of a newer epoch left unread")
            gaps, was_dead = task.counters.gaps, edge.status is EdgeStatus.DEAD
            is_gap = frame.epoch == task.epoch and frame.number > edge.expected
            take(frame, inbox, now)
            if task.counters.gaps > gaps:
                if not was_dead and not self.has_lost(task.epoch, frame.sender, task.id):
                    self.violated(11, f"task {task.id} found a gap before {frame!r}, where nothing was lost")
            elif is_gap:
                self.violated(6, f"task {task.id} did not count the gap before {frame!r}")

        def watched_processed(edge: InEdge, frame: Frame, now: float) -> None:
            if epoch_of_done[0] != task.epoch:
                epoch_of_done[0] = task.epoch
                done.clear()
            last = done.get(frame.sender, -1)
            if frame.epoch != task.epoch:
                self.violated(6, f"task {task.id} in epoch {task.epoch} processed {frame!r}")
            elif frame.number != last + 1:
                self.violated(6, f"task {task.id} processed {frame!r} after number {last}")
            elif task._incarnations.get(TaskId(frame.sender)) != frame.incarnation:
                self.violated(9, f"task {task.id} processed {frame!r} of a life that the routes do not name")
            done[frame.sender] = frame.number
            processed(edge, frame, now)

        _replace(task, "_take", watched_take)
        _replace(task, "_processed", watched_processed)

    # -- now and then ----------------------------------------------------------------------------------------------------

    def inspect(self, process: SimulatedProcess) -> None:
        """Check the invariants of a process between two turns, and that what it holds is bounded."""
        process.worker.validate()
        for task in process.tasks:
            config = task.config
            queued: dict[int, int] = {}
            for edge, _ in task.queue:
                # Verdicts have no window: the firings of a window bolt, or the messages of a spout, bound them.
                if edge.sender not in task.plan.ackers:
                    queued[edge.sender] = queued.get(edge.sender, 0) + 1
            if any(count > config.edge_window for count in queued.values()):
                self.violated(5, f"task {task.id} has {queued} frames queued; the window is {config.edge_window}")
            if task.outbox.waiting:
                self.count("an edge without room")
            if task.outbox.is_full:
                self.count("back-pressure")
            if isinstance(task, BoltTask) and task.outbox.waiting > config.outbox_limit + 64 * config.batch_size:
                self.violated(5, f"task {task.id} holds back {task.outbox.waiting} frames; its limit is {config.outbox_limit}")
            if isinstance(task, AckerTask):
                self._inspect_acker(task)
            if isinstance(task, SpoutTask) and self._pending_of(task) > (config.max_spout_pending or 1 << 60):
                self.violated(5, f"spout task {task.id} has {task._pending} messages pending of {config.max_spout_pending}")

    def _pending_of(self, task: SpoutTask) -> int:
        return task._pending

    def _inspect_acker(self, task: AckerTask) -> None:
        """What an acker holds open is open at a spout, or was until a timeout or a recovery: so spouts' limits bound it."""
        for root, word in task.acker.ledger._words.items():
            tree = self.trees.get(root)
            if word >> 64 > 0 and (tree is None or tree.verdict in ("acked", "failed")):
                whose = "nobody's" if tree is None else tree.verdict
                self.violated(5, f"acker task {task.id} holds root {root:x} open, which is {whose}")


def _replace(owner: Any, name: str, watched: Callable[..., Any]) -> None:
    """Put a watching function in front of a method of one object."""
    setattr(owner, name, watched)
