"""One task between neighbours that a script plays, and its actions as text.

What a task does is logged in order:

    hand    the roots noted as in flight before user code runs
    user    a call of user code, with its arguments; written by the components of `scripts`
    send    a frame, its target, whether it is data or control (verdicts, confirmations), and its content
    report  a message to the master
    stored  a part of a checkpoint, with all its content

Ids of messages are drawn by chance, so they are named in the order of their first appearance: r1, r2, ... for roots, with ! for a
replay. Of the XOR values that acks and inits carry the log names the edges: `in1` is the edge that the first row fed to the task
came with, `out1` the first edge that the task has drawn. Engine prose (why something failed) is left out, and so are lines of
tracebacks, lengths and checksums. A step that moves or renames internals adjusts this folder, and no golden file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.contract.golden.log import REPLAY, Log
from tests.contract.golden.transcript import Transcript
from tests.tasks.environment import Hand
from tests.tasks.solo import Solo
from topo import Topology
from topo.errors import TopoError
from topo.hot import pack_words
from topo.ids import TaskId
from topo.plan.physical import PhysicalPlan
from topo.storage.checkpoint_store import PartStore
from topo.storage.files import open_files
from topo.storage.snapshots import TaskSnapshots
from topo.task.commands import TaskCommand
from topo.task.events import TaskEvent
from topo.wire.control import Activate, BeginCheckpoint, Close, Deactivate, Probe
from topo.wire.control import DeadLettersStored as LettersStored
from topo.wire.frames import FrameKind, barrier_frame


class LoggedHand(Hand):
    """Logs the roots that the task notes as in flight."""

    def __init__(self, log: Log) -> None:
        super().__init__()
        self._log = log

    def hold(self, task: TaskId, roots: bytes) -> None:
        super().hold(task, roots)
        names = self.noted[-1]
        self._log.add(lambda: f"  hand   {' '.join(map(self._log.root, names))}")


class LoggedTask(Solo):
    """One task whose commands are logged, and whose errors of the engine or the user too instead of raised."""

    def __init__(
        self,
        topology: Topology,
        component: str,
        sources: Sequence[str],
        log: Log,
        note: Callable[[TaskCommand], None],
        seed: bytes,
    ) -> None:
        self._sources, self._log, self._note = sources, log, note
        super().__init__(topology, component, is_open=False, hand=LoggedHand(log), seed=seed)

    def tasks_of(self, component: str) -> Sequence[TaskId]:
        return self.plan.ackers if component == "__acker" else self.plan.tasks_of(component)

    def senders(self) -> list[TaskId]:
        """The senders that open their edges: not all, in some scripts."""
        return [task for source in self._sources for task in self.tasks_of(source)]

    def handle(self, event: TaskEvent) -> list[TaskCommand]:
        try:
            commands = super().handle(event)
        except TopoError as error:
            self._log.add(f"  raised {type(error).__name__}")
            return []
        for command in commands:
            self._note(command)
        return commands


class Rig:
    """One task. Every step is a method; it logs itself and all that the task does in it.

    Args:
        build: makes the topology, given the function that logs a call of user code.
        component: whose first task it is; "" for the acker.
        senders: who opens an edge to the task: names of components.
        folder: where checkpoints are.

    Attributes:
        drawn: names of the roots that the task has drawn itself, oldest first.
    """

    def __init__(self, build: Callable[[Callable[[str], None]], Topology], component: str, senders: Sequence[str], folder: Path):
        self.log = Log()
        self._build, self._component, self._senders, self._folder = build, component, senders, folder
        self._processes = 0
        self._written: list[Callable[[], None]] = []
        self._transcript = Transcript(self.log, folder)
        self.drawn = self._transcript.drawn
        self._make()

    def _make(self, before: LoggedTask | None = None) -> None:
        self._processes += 1
        note, seed = self._transcript.command, b"process %d" % self._processes
        self.solo = LoggedTask(self._build(self.log.user), self._component, self._senders, self.log, note, seed)
        if before is not None:
            self.solo.clock.now, self.solo.next_root = before.clock.now, before.next_root
        self.plan: PhysicalPlan = self.solo.plan
        self.id = self.solo.id
        self.coroutines = self.solo.calls
        self._transcript.plan, self._transcript.id = self.plan, self.id
        if self.solo.env.snapshots is not None:
            store = PartStore(open_files(str(self._folder)))
            self.solo.env.snapshots = TaskSnapshots(self.plan, self.id, store, self._transcript.types, self._written.append)

    # -- steps: the master

    def open(self, epoch: int = 1, checkpoint: int = 0, **more: Any) -> None:
        """Adopt an epoch, from a checkpoint if one is named, with all in-edges opened, and go."""
        self._transcript.last.clear()
        self._confirmed: dict[int, int] = {}
        self._step(f"epoch {epoch}" + (f" from checkpoint {checkpoint}" if checkpoint else ""))
        restore = {self.id: self._transcript.taken} if checkpoint else {}
        suspects = [self._root_of(name) for name in more.pop("suspects", ())]
        self.solo.adopt(epoch, checkpoint=checkpoint, restore=restore, suspects=suspects, **more)
        self.solo.open_inputs()
        self.solo.go()
        self.solo.run()

    def restart(self, epoch: int, checkpoint: int = 0, **more: Any) -> None:
        """Begin a new process of the task, in a later epoch."""
        self.coroutines.close()
        self._step("new process")
        self._make(self.solo)
        self.open(epoch, checkpoint, **more)

    def begin_checkpoint(self, number: int) -> None:
        self._order(f"begin checkpoint {number}", BeginCheckpoint(self.solo.epoch, number))

    def store(self) -> None:
        """Let the thread write the snapshots that were taken."""
        self._step("snapshot stored")
        while self._written:
            self._written.pop(0)()
        self.solo.run()

    def complete(self, number: int) -> None:
        self._step(f"checkpoint {number} complete")
        self.solo.complete(number)
        self.solo.run()

    def activate(self) -> None:
        self._order("activate", Activate())

    def deactivate(self) -> None:
        self._order("deactivate", Deactivate())

    def letters_stored(self) -> None:
        self._order("dead letters stored", LettersStored(self.id, list(self._transcript.dead)))

    def probe(self) -> None:
        self._step("probe")
        self.solo.handle(Probe(1, self.solo.epoch))

    def close(self) -> None:
        self._order("close", Close(self.solo.epoch))

    # -- steps: neighbours

    def rows(
        self, *values: Any, sender: str = "a", index: int = 0, stamps: Sequence[int | None] | None = None, run: bool = True
    ) -> None:
        """Deliver a frame of rows, each a separate message; a value that is no tuple is a row of one field."""
        task = self.solo.tasks_of(sender)[index]
        head = f"rows from {self._transcript.name(task)}: {' '.join(map(str, values))}"
        self._step(head + (f" at {list(stamps)}" if stamps else ""))
        ids = self.solo.fresh(len(values) if self.plan.config.delivery == "at_least_once" else 0)
        for root, edge in ids.pairs:
            self._known(root, edge)
        self.solo.feed(*values, sender=task, ids=ids, stamps=stamps)
        if run:
            self.solo.run()

    def watermark(self, time: int, sender: str = "a", index: int = 0) -> None:
        task = self.solo.tasks_of(sender)[index]
        self._step(f"watermark {time} from {self._transcript.name(task)}")
        self.solo.feed_time(time, task)

    def signal(self, kind: str, sender: str = "a", index: int = 0) -> None:
        """Deliver END, IDLE or ACTIVE."""
        task = self.solo.tasks_of(sender)[index]
        self._step(f"{kind} from {self._transcript.name(task)}")
        self.solo.feed_time(FrameKind[kind], task)

    def barrier(self, checkpoint: int, sender: str = "a", index: int = 0) -> None:
        task = self.solo.tasks_of(sender)[index]
        self._step(f"barrier {checkpoint} from {self._transcript.name(task)}")
        ((root, edge),) = self.solo.fresh(1).pairs
        self._known(root, edge)
        stamp, number = self.solo.stamp(task), self.solo.next_number(task)
        self.solo.deliver(barrier_frame(stamp, self.id, number, checkpoint, pack_words([root]), pack_words([edge])))
        self.solo.run()

    def ids(self, kind: str, roots: Sequence[str | int], values: Sequence[int] = (), sender: str = "__acker") -> None:
        """Deliver verdicts (or, to an acker, INIT, ACK, FAIL, RESET): roots by their names in the log, or as numbers."""
        task = self.solo.tasks_of(sender)[0]
        words = [self._root_of(root) if isinstance(root, str) else root for root in roots]
        head = f"{kind} of {' '.join(map(str, roots))} from {self._transcript.name(task)}"
        self._step(head + (f" with {list(values)}" if values else ""))
        self.solo.feed_ids(FrameKind[kind], words, values, task)
        self.solo.run()

    def confirm_all(self) -> None:
        """Have all receivers confirm all frames that they have got."""
        self._step("all confirm")
        last = self._transcript.last
        while any(number > self._confirmed.get(target, -1) for target, number in last.items()):
            for target, number in list(last.items()):
                if number > self._confirmed.get(target, -1):
                    self._confirmed[target] = number
                    self.solo.confirm(target, number)
            self.solo.run()

    def wait(self, seconds: float) -> None:
        """Let time pass, with a turn at every deadline on the way."""
        self._step(f"{seconds:g} s pass")
        self.solo.wait(seconds)

    def call_ends(self, place: int = 0) -> None:
        """Run one of the coroutines that wait."""
        self._step(f"coroutine {place} runs")
        self.coroutines.complete(place)
        self.solo.run()

    def settle(self) -> None:
        self._step("run")
        self.solo.run()

    # -- how

    def _step(self, text: str) -> None:
        self.log.add(f"> {text}")

    def _order(self, text: str, event: TaskEvent) -> None:
        self._step(text)
        self.solo.handle(event)
        self.solo.run()

    def _known(self, root: int, edge: int) -> None:
        """Name a root that the task has not drawn, and its edge."""
        self._transcript.named.add(self.log.root(root))
        self.log.edge("in", [root], edge)

    def _root_of(self, name: str) -> int:
        return self.log.root_called(name.rstrip("!")) | (REPLAY if name.endswith("!") else 0)


def played(script: Any, folder: Path) -> str:
    """Return the log of a script of `scripts`."""
    rig = Rig(script.build, script.component, script.senders, folder)
    try:
        script.play(rig)
    finally:
        rig.coroutines.close()
    return rig.log.text
