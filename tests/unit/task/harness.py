"""One task with its neighbours played by the test, or all tasks of a topology joined by hand. Time stands still unless told."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from topo.api.bolt import BasicBolt, Bolt
from topo.api.context import TaskContext
from topo.api.groupings import Custom
from topo.api.spout import RetryingSpout, Spout
from topo.api.topology import Topology
from topo.builder import TopologyBuilder
from topo.checkpoint.alignment import Snapshot, StoredPart
from topo.ids import Epoch, IdSource, Incarnation, TaskId
from topo.plan.physical import PhysicalPlan, physical_plan
from topo.task.commands import SendFrame, TaskCommand, TellMaster
from topo.task.environment import TaskEnvironment, TaskSpec
from topo.task.events import FrameArrived, Idle, Inbox, RoutesChanged, TaskEvent, Turn
from topo.task.factory import task_class
from topo.task.task import Task
from topo.wire.codec import Codec
from topo.wire.control import ComponentError, FromTask, Go, Quiet, Routes, TaskReady, TaskRoute
from topo.wire.frames import (
    Anchoring,
    Columns,
    Frame,
    FrameKind,
    SenderStatus,
    columns_frame,
    confirm_frame,
    data_frame,
    encode,
    open_frame,
    pack_counts,
    pack_timestamps,
    pack_words,
    parse,
    signal_frame,
    watermark_frame,
)

M = TypeVar("M", bound=FromTask)
INCARNATION = Incarnation(77)
CODEC = Codec()


# -- components --------------------------------------------------------------------------------------------------------------


class Scripted(Spout):
    """Each `next_tuple` takes the next step of a script: rows to emit, a call to make, an exception to raise."""

    outputs: Any = ("value",)

    def __init__(self, steps: Iterable[Any] = (), *, ends: bool = True) -> None:
        self.steps = list(steps)
        self.ends = ends
        self.calls: list[tuple[Any, ...]] = []

    def open(self, context: TaskContext, collector: Any) -> None:
        self.context, self.collector = context, collector
        self.calls.append(("open", context.committed_position))

    def next_tuple(self) -> None:
        if not self.steps:
            if self.ends:
                self.collector.end_of_input()
            return
        step = self.steps.pop(0)
        if isinstance(step, Exception):
            raise step
        if callable(step):
            step(self.collector)
        elif step is not None:
            self.collector.emit((step,), message_id=step)

    def ack(self, message_id: Any) -> None:
        self.calls.append(("ack", message_id))

    def fail(self, message_id: Any) -> None:
        self.calls.append(("fail", message_id))

    def activate(self) -> None:
        self.calls.append(("activate",))

    def deactivate(self) -> None:
        self.calls.append(("deactivate",))

    def close(self) -> None:
        self.calls.append(("close",))

    def told(self, *verbs: str) -> list[Any]:
        """The calls of these kinds: their argument for `ack` and `fail`, else their name."""
        return [call[-1] for call in self.calls if call[0] in verbs]


class Replaying(Scripted, RetryingSpout):
    """The same, replayed by the engine."""


class Plain(BasicBolt):
    """Runs a function for each input; without one it passes the values on."""

    outputs: Any = ("value",)

    def __init__(self, run: Callable[[Any, Any], None] | None = None, outputs: Any = ("value",)) -> None:
        self.run = run or (lambda tup, collector: collector.emit(tup.values))
        self.outputs = outputs
        self.seen: list[Any] = []
        self.calls: list[str] = []

    def prepare(self, context: TaskContext) -> None:
        self.context = context
        self.calls.append("prepare")

    def execute(self, tup: Any, collector: Any) -> None:
        self.seen.append("tick" if tup.is_tick else tup.values[0] if tup.values else ())
        self.run(tup, collector)

    def end_of_input(self, collector: Any) -> None:
        self.calls.append("end_of_input")

    def on_reset(self) -> None:
        self.calls.append("on_reset")

    def cleanup(self) -> None:
        self.calls.append("cleanup")


class Manual(Bolt):
    """Runs a function for each input, with the collector; without one it passes the values on and acks."""

    outputs: Any = ("value",)

    def __init__(self, run: Callable[[Any, Any], None] | None = None, outputs: Any = ("value",)) -> None:
        self.run = run or self.relay
        self.outputs = outputs
        self.seen: list[Any] = []
        self.tuples: list[Any] = []
        self.calls: list[str] = []

    @staticmethod
    def relay(tup: Any, collector: Any) -> None:
        collector.emit(tup.values, anchors=tup)
        collector.ack(tup)

    def prepare(self, context: TaskContext, collector: Any) -> None:
        self.context, self.collector = context, collector
        self.calls.append("prepare")

    def execute(self, tup: Any) -> None:
        self.seen.append("tick" if tup.is_tick else tup.values[0])
        self.tuples.append(tup)
        self.run(tup, self.collector)

    def end_of_input(self) -> None:
        self.calls.append("end_of_input")

    def on_reset(self) -> None:
        self.calls.append("on_reset")

    def cleanup(self) -> None:
        self.calls.append("cleanup")


class Sink(Plain):
    """Keeps the first value of each input."""

    def __init__(self) -> None:
        super().__init__(lambda tup, collector: None, outputs=())


def chain(*components: Any, groupings: Sequence[str] = (), **settings: Any) -> Topology:
    """A spout and bolts one after the other, named a, b, c, ...; shuffled, or by the named grouping without arguments."""
    builder = TopologyBuilder("chain").config(**settings)
    builder.set_spout("a", components[0])
    for place, bolt in enumerate(components[1:], 1):
        declarer = builder.set_bolt(chr(ord("a") + place), bolt)
        kind = groupings[place - 1] if groupings else "shuffle"
        getattr(declarer, f"{kind}_grouping")(chr(ord("a") + place - 1))
    return builder.build()


def fan(
    sink: Any, parallelism: int, bolt: Any = None, *, grouping: str = "shuffle", by: Sequence[str] = (), **settings: Any
) -> Topology:
    """Spout a, bolt b, and a sink c with several tasks."""
    builder = TopologyBuilder("fan").config(**settings)
    builder.set_spout("a", Scripted())
    builder.set_bolt("b", bolt or Plain()).shuffle_grouping("a")
    getattr(builder.set_bolt("c", sink, parallelism=parallelism), f"{grouping}_grouping")("b", *by)
    return builder.build()


# -- one task ----------------------------------------------------------------------------------------------------------------


class Clock:
    """A monotonic clock that moves when it is told to."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class Calls:
    """Takes the coroutines of async bolts. Nothing runs before the test says so; then each runs to its end at once."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Any, Any, Any]] = []

    def close(self) -> None:
        """Give up what waits."""
        for call, _, _ in self.waiting:
            call.close()

    def __call__(self, call: Any, done: Any, on_blocked: Any) -> None:
        self.waiting.append((call, done, on_blocked))

    def complete(self, place: int = 0) -> None:
        """Run one of the coroutines that wait, which must not wait for anything itself."""
        call, tell, _ = self.waiting.pop(place)
        try:
            call.send(None)
        except StopIteration as end:
            tell(end.value, None)
        except Exception as error:
            tell(None, error)
        else:
            raise AssertionError("the coroutine waits")

    def complete_all(self) -> None:
        while self.waiting:
            self.complete()


class Hand:
    """Remembers what was noted as in hand."""

    def __init__(self) -> None:
        self.noted: list[list[int]] = []
        self.holds = False

    def hold(self, task: TaskId, roots: bytes) -> None:
        self.noted.append(memoryview(roots).cast("Q").tolist())
        self.holds = True

    def release(self) -> None:
        self.holds = False


def make_task(
    topology: Topology,
    plan: PhysicalPlan,
    task: TaskId,
    clock: Callable[[], float],
    hand: Any,
    seed: bytes = b"seed",
    calls: Any = None,
    wait: Callable[[], None] | None = None,
) -> Task:
    """A task as a worker process makes it."""
    spec = plan.task(task)
    component: Any = None if task in plan.ackers else topology.component(spec.component).make()
    config = plan.config_of(spec.component)
    context = TaskContext(
        plan.name, spec.component, task, spec.index, plan.component(spec.component).parallelism, config, plan.task_ids
    )
    customs = {
        (reader.id, number): declared.grouping.grouping
        for reader in topology.components
        for number, declared in enumerate(reader.inputs)
        if declared.source == spec.component and isinstance(declared.grouping, Custom)
    }
    watermarks = None if task in plan.ackers else topology.component(spec.component).watermarks
    setup = TaskSpec(task, plan, config, component, context, customs, watermarks)
    ports = TaskEnvironment(
        IdSource(seed + bytes([task])), clock, CODEC, hand, lambda: 1_700_000_000_000, run_async=calls, wait=wait
    )
    return task_class(plan, task, component)(setup, ports)


def routes(
    plan: PhysicalPlan, epoch: int, incarnations: Mapping[TaskId, Incarnation] | None = None, term: int = 1, **more: Any
) -> Routes:
    """Routes in which every task has the usual incarnation unless another is given."""
    lives = incarnations or {}
    entries = [TaskRoute(t.id, plan.worker_of(t.id), lives.get(t.id, INCARNATION), "", "") for t in plan.tasks]
    return Routes(term, Epoch(epoch), entries, **more)


@dataclass
class Ids:
    """The roots and edges of rows that a neighbour sends."""

    roots: list[Any]
    edges: list[Any]

    @property
    def is_multi(self) -> bool:
        return any(isinstance(root, tuple) for root in self.roots)


class Solo:
    """One task; the test plays its neighbours and the master.

    Every frame goes through bytes, both ways, and the task's invariants are checked after every event.
    """

    def __init__(
        self,
        topology: Topology,
        component: str = "",
        *,
        index: int = 0,
        is_open: bool = True,
        committed: bytes | None = None,
        attempts: bytes | None = None,
        local: Iterable[int] = (),
    ) -> None:
        self.topology = topology
        self.plan = physical_plan(topology)
        self.clock = Clock()
        self.hand = Hand()
        ids = self.plan.tasks_of(component) if component else self.plan.ackers
        self.calls = Calls()
        self.task = make_task(topology, self.plan, ids[index], self.clock, self.hand, calls=self.calls)
        self.id = self.task.id
        self.local = frozenset(map(TaskId, local))
        self.epoch = Epoch(0)
        self.numbers: Counter[int] = Counter()
        self.out: list[TaskCommand] = []
        self._roots = 1_000
        if is_open:
            self.adopt(1, committed=committed, attempts=attempts)
            self.open_inputs()
            self.handle(Go(Epoch(1)))
            self.out.clear()

    # -- events

    def handle(self, event: TaskEvent) -> list[TaskCommand]:
        """Give the task an event; what it asks for is returned and kept."""
        try:
            commands = self.task.handle(event, self.clock.now)
        finally:
            self.task.validate()
        self.out += commands
        return commands

    def adopt(
        self,
        epoch: int,
        *,
        incarnations: Mapping[TaskId, Incarnation] | None = None,
        committed: bytes | None = None,
        attempts: bytes | None = None,
        **more: Any,
    ) -> list[TaskCommand]:
        self.epoch = Epoch(epoch)
        self.numbers.clear()
        event = RoutesChanged(routes(self.plan, epoch, incarnations, **more), self.local, committed, attempts)
        return self.handle(event)

    def open_inputs(self, status: SenderStatus = SenderStatus.ACTIVE) -> None:
        """Have every sender open its edge."""
        for sender in self.senders():
            self.deliver(open_frame(self.stamp(sender), self.id, status))
            self.numbers[sender] += 1
        self.turn()

    def senders(self) -> list[TaskId]:
        return list(self.task.inbound.edges)

    def stamp(self, sender: int, *, epoch: int | None = None, incarnation: int = INCARNATION) -> tuple[int, int, int]:
        return (self.epoch if epoch is None else epoch, sender, incarnation)

    def deliver(self, frame: Frame, inbox: Inbox = Inbox.DATA) -> list[TaskCommand]:
        """Deliver a frame as bytes."""
        return self.handle(FrameArrived(encode(frame), inbox))

    def next_number(self, sender: int) -> int:
        self.numbers[sender] += 1
        return self.numbers[sender] - 1

    def fresh(self, count: int) -> Ids:
        """Roots and edges that nobody has used."""
        self._roots += count
        roots = list(range(self._roots - count, self._roots))
        return Ids(list(roots), [root << 20 for root in roots])

    def feed(
        self,
        *values: Any,
        sender: int | None = None,
        ids: Ids | None = None,
        tracked: bool = True,
        stream: int = 0,
        stamps: Sequence[int | None] | None = None,
        number: int | None = None,
        epoch: int | None = None,
        incarnation: int = INCARNATION,
    ) -> Ids:
        """Deliver a frame of one-field rows (a tuple is taken as the whole row); returns their ids. Runs nothing."""
        sender = sender if sender is not None else self.senders()[0]
        rows = [value if isinstance(value, tuple) else (value,) for value in values]
        ids = ids if ids is not None else self.fresh(len(rows)) if tracked else Ids([], [])
        packed_stamps = b"" if stamps is None else pack_timestamps(stamps)
        if not ids.roots:
            columns = Columns(Anchoring.NONE, rows, timestamps=packed_stamps)
        elif ids.is_multi:
            flat_roots = [root for roots in ids.roots for root in roots]
            flat_edges = [edge for edges in ids.edges for edge in edges]
            counts = pack_counts(map(len, ids.roots))
            columns = Columns(Anchoring.MULTI, rows, pack_words(flat_roots), pack_words(flat_edges), packed_stamps, counts)
        else:
            columns = Columns(Anchoring.SINGLE, rows, pack_words(ids.roots), pack_words(ids.edges), packed_stamps)
        at = self.next_number(sender) if number is None else number
        stamp = self.stamp(sender, epoch=epoch, incarnation=incarnation)
        self.deliver(data_frame(stamp, self.id, at, stream, columns, CODEC.pack_rows(rows)))
        return ids

    def feed_time(self, news: int | FrameKind, sender: int | None = None) -> None:
        """Deliver a watermark, or IDLE, ACTIVE or END, and run what comes of it."""
        sender = sender if sender is not None else self.senders()[0]
        number = self.next_number(sender)
        if isinstance(news, FrameKind):
            self.deliver(signal_frame(news, self.stamp(sender), self.id, number))
        else:
            self.deliver(watermark_frame(self.stamp(sender), self.id, number, news))
        self.run()

    def told_time(self) -> list[Any]:
        """The event time that the task has sent to its first consumer: watermarks, and kinds of signals."""
        kinds = (FrameKind.WATERMARK, FrameKind.IDLE, FrameKind.ACTIVE, FrameKind.END)
        frames = self.frames(*kinds, to=self.task.outbound.consumers[0])
        return [frame.mark if frame.kind is FrameKind.WATERMARK else frame.kind.name for frame in frames]

    def feed_ids(self, kind: FrameKind, roots: Sequence[int], values: Sequence[int] = (), sender: int | None = None) -> None:
        """Deliver ids to an acker, or verdicts to a spout."""
        sender = sender if sender is not None else self.senders()[0]
        number = self.next_number(sender)
        self.deliver(columns_frame(kind, self.stamp(sender), self.id, number, pack_words(roots), pack_words(values)))

    def signal(self, kind: FrameKind, sender: int | None = None) -> None:
        sender = sender if sender is not None else self.senders()[0]
        self.deliver(signal_frame(kind, self.stamp(sender), self.id, self.next_number(sender)))

    def end_inputs(self) -> None:
        """Have every sender end."""
        for sender in self.senders():
            self.signal(FrameKind.END, sender)
        self.run()

    def confirm(self, target: int, number: int | None = None) -> None:
        """Have a receiver confirm; without a number, all that it was sent."""
        last = self.task.outbox.edges[TaskId(target)].next_number - 1 if number is None else number
        self.deliver(confirm_frame(self.stamp(target), self.id, last), Inbox.CONTROL)

    def confirm_all(self) -> None:
        for target in self.task.outbox.edges:
            while not self.task.outbox.edges[target].is_confirmed:
                self.confirm(target)

    def turn(self) -> None:
        self.handle(Turn())

    def run(self) -> None:
        """Turns until there is no work at this moment, then one idle."""
        for _ in range(10_000):
            deadline = self.task.next_deadline(self.clock.now)
            if not self.task.has_work and not (deadline is not None and deadline <= self.clock.now):
                break
            self.turn()
        else:
            raise AssertionError("the task never rests")
        self.handle(Idle())

    def wait(self, seconds: float) -> None:
        """Let time pass as a worker would: a turn at every deadline on the way."""
        until = self.clock.now + seconds
        self.run()
        for _ in range(100_000):
            deadline = self.task.next_deadline(self.clock.now)
            if deadline is None or deadline > until:
                break
            self.clock.now = max(self.clock.now, deadline)
            self.run()
        else:
            raise AssertionError("the task never rests")
        self.clock.now = until
        self.run()

    # -- what came of it

    def frames(self, *kinds: FrameKind, to: int | None = None) -> list[Frame]:
        """The frames sent so far of these kinds (all but confirmations when none is given), decoded."""
        found = []
        for command in self.out:
            if isinstance(command, SendFrame):
                frame = parse(command.frame) if isinstance(command.frame, bytes) else command.frame
                assert frame.target == command.target
                wanted = frame.kind in kinds if kinds else frame.kind is not FrameKind.CONFIRM
                if wanted and to in (None, frame.target):
                    found.append(frame)
        return found

    def rows(self, to: int | None = None) -> list[tuple[Any, ...]]:
        """The rows sent so far."""
        return [row for frame in self.frames(FrameKind.DATA, to=to) for row in frame.decode_rows(CODEC)]

    def values(self, to: int | None = None) -> list[Any]:
        """The first value of each row sent so far."""
        return [row[0] for row in self.rows(to)]

    def roots(self, *kinds: FrameKind) -> list[int]:
        """The roots named in frames of these kinds."""
        return [root for frame in self.frames(*kinds) for root in frame.root_list()]

    def acks(self) -> dict[int, int]:
        """By root: the XOR of all values sent in ACK frames."""
        return xor_by_root(self.frames(FrameKind.ACK))

    def messages(self, kind: type[M]) -> list[M]:
        """What the master was told."""
        return [c.message for c in self.out if isinstance(c, TellMaster) and isinstance(c.message, kind)]

    def errors(self) -> list[str]:
        """The messages of the errors that the master was told, the kind in front."""
        return [f"{error.kind}: {error.message}" for error in self.messages(ComponentError)]


def several(*values: Any) -> Any:
    """A step that emits several messages, each under its value as its id."""

    def emit(collector: Any) -> None:
        for value in values:
            collector.emit((value,), message_id=value)

    return emit


def root_of(task: Solo, value: Any) -> int:
    """The root under which a value was sent last."""
    found = 0
    for frame in task.frames(FrameKind.DATA):
        for row, root in zip(frame.decode_rows(CODEC), frame.root_list(), strict=True):
            if row[0] == value:
                found = root
    return found


def verdict(task: Solo, kind: FrameKind, *values: Any) -> None:
    """Have the acker decide on messages."""
    task.feed_ids(kind, [root_of(task, value) for value in values])
    task.run()


def xor_by_root(frames: Iterable[Frame]) -> dict[int, int]:
    """Fold the ids of frames by root."""
    found: dict[int, int] = defaultdict(int)
    for frame in frames:
        for root, value in zip(frame.root_list(), frame.edge_list(), strict=True):
            found[root] ^= value
    return dict(found)


# -- all tasks ---------------------------------------------------------------------------------------------------------------


class Ring:
    """All tasks of a topology, joined by hand: frames wait in inboxes until the test lets the tasks read them."""

    def __init__(self, topology: Topology, *, local: bool = False, seed: bytes = b"ring") -> None:
        self.topology = topology
        self.plan = physical_plan(topology)
        self.clock = Clock()
        self.calls = Calls()
        self.tasks = {t.id: make_task(topology, self.plan, t.id, self.clock, Hand(), seed, self.calls) for t in self.plan.tasks}
        self.inboxes: dict[tuple[TaskId, Inbox], list[Any]] = {(t, i): [] for t in self.tasks for i in Inbox}
        self.told: list[FromTask] = []
        self.local = frozenset(self.tasks) if local else frozenset[TaskId]()
        self.lose: Callable[[TaskId, Frame], bool] = lambda target, frame: False

    def start(self, epoch: int = 1, **more: Any) -> Ring:
        """Open all edges and let the spouts go."""
        for task in self.tasks:
            self.handle(task, RoutesChanged(routes(self.plan, epoch, **more), self.local))
        self.settle()
        ready = {message.task for message in self.told if isinstance(message, TaskReady) and message.epoch == epoch}
        assert ready == set(self.tasks), f"not ready: {set(self.tasks) - ready}"
        for task in self.tasks:
            self.handle(task, Go(Epoch(epoch)))
        return self

    def handle(self, task: TaskId, event: TaskEvent) -> None:
        for command in self.tasks[task].handle(event, self.clock.now):
            if isinstance(command, TellMaster):
                self.told.append(command.message)
                continue
            frame = command.frame if isinstance(command.frame, Frame) else parse(command.frame)
            if not self.lose(command.target, frame):
                self.inboxes[command.target, command.inbox].append(command.frame)
        self.tasks[task].validate()

    def step(self, task: TaskId) -> bool:
        """Let one task read what it wants and take a turn; False when there was nothing to do."""
        did = False
        for inbox in (Inbox.CONTROL, Inbox.DATA):
            waiting = self.inboxes[task, inbox]
            while waiting and (inbox is Inbox.CONTROL or self.tasks[task].wants_data):
                self.handle(task, FrameArrived(waiting.pop(0), inbox))
                did = True
        deadline = self.tasks[task].next_deadline(self.clock.now)
        if self.tasks[task].has_work or (deadline is not None and deadline <= self.clock.now):
            self.handle(task, Turn())
            did = True
        return did

    def settle(self) -> None:
        """Step all tasks until nothing is left to do at this moment."""
        for _ in range(100_000):
            if not sum(self.step(task) for task in self.tasks):
                before = sum(map(len, self.inboxes.values()))
                for task in self.tasks:
                    self.handle(task, Idle())
                if before == sum(map(len, self.inboxes.values())) and not any(task.has_work for task in self.tasks.values()):
                    return
        raise AssertionError("the tasks never rest")

    def run(self, seconds: float = 60.0, until: Callable[[], bool] | None = None) -> None:
        """Let time pass from deadline to deadline until all tasks have ended and are quiet, or `until` says so."""
        end = self.clock.now + seconds
        stop = until or (lambda: self.is_over)
        self.settle()
        while not stop() and self.clock.now < end:
            deadlines = [at for task in self.tasks.values() if (at := task.next_deadline(self.clock.now)) is not None]
            if not deadlines:
                break
            self.clock.now = max(self.clock.now, min(deadlines))
            self.settle()

    @property
    def is_over(self) -> bool:
        """Whether every task has last said that it has ended and is quiet."""
        last = {message.task: message for message in self.told if isinstance(message, Quiet)}
        return last.keys() == self.tasks.keys() and all(quiet.ended and quiet.quiet for quiet in last.values())

    def messages(self, kind: type[M]) -> list[M]:
        return [message for message in self.told if isinstance(message, kind)]


# -- checkpoints -------------------------------------------------------------------------------------------------------------


class Storing:
    """A store that stores at once, and keeps what it is given."""

    def __init__(self) -> None:
        self.kept: dict[int, Snapshot] = {}

    def write(self, checkpoint: int, snapshot: Snapshot, stored: Any) -> None:
        self.kept[checkpoint] = snapshot
        stored(StoredPart("file", 1, "checksum"), None)

    def read(self, _folder: str, checkpoint: int, _parts: Any) -> list[Snapshot]:
        return [self.kept[checkpoint]]


def with_store(solo: Solo) -> Solo:
    store: Any = Storing()
    solo.task.ports.snapshots = store
    return solo
