"""One task; the test plays its neighbours and the master."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from tests.rows import rows_of
from tests.tasks.environment import CODEC, INCARNATION, Calls, Clock, Hand, Store, make_env, make_task, routes
from topo.api.topology import Topology
from topo.checkpoint.alignment import Snapshot
from topo.hot import pack_counts, pack_timestamps, pack_words
from topo.ids import Epoch, Incarnation, TaskId
from topo.plan.physical import physical_plan
from topo.task.commands import SendFrame, TaskCommand, TellMaster
from topo.task.events import FrameArrived, Idle, RoutesChanged, TaskEvent, Turn
from topo.wire.control import CheckpointComplete, ComponentError, DeadLetter, FromTask, Go, PartToRead
from topo.wire.frames import (
    Anchoring,
    Columns,
    Frame,
    FrameKind,
    SenderStatus,
    barrier_frame,
    columns_frame,
    confirm_frame,
    data_frame,
    encode,
    open_frame,
    parse,
    signal_frame,
    watermark_frame,
)

M = TypeVar("M", bound=FromTask)


@dataclass
class RowIds:
    """The roots and edges of rows that a neighbour sends: a number, or a tuple of them, for each row."""

    roots: list[Any]
    edges: list[Any]

    @property
    def is_multi(self) -> bool:
        return any(isinstance(root, tuple) for root in self.roots)

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """Each root with its edge; rows of one root each."""
        return list(zip(self.roots, self.edges, strict=True))

    def columns(self, rows: list[Any], stamps: bytes = b"") -> Columns:
        if not self.roots:
            return Columns(Anchoring.NONE, rows, timestamps=stamps)
        if not self.is_multi:
            return Columns(Anchoring.SINGLE, rows, pack_words(self.roots), pack_words(self.edges), stamps)
        roots = [root for several in self.roots for root in several]
        edges = [edge for several in self.edges for edge in several]
        return Columns(Anchoring.MULTI, rows, pack_words(roots), pack_words(edges), stamps, pack_counts(map(len, self.roots)))


class Solo:
    """One task of a component ("": the acker), ready to work, between neighbours that the test plays.

    Every frame becomes bytes, both ways, and the task's invariants are checked after every event.

    Attributes:
        out: the commands of the task so far.
        store: keeps the snapshots, in a topology with checkpoints.
        load: of its worker, in percent.
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
        seed: bytes = b"seed",
        store: Store | None = None,
        hand: Hand | None = None,
    ) -> None:
        self.topology = topology
        self.plan = physical_plan(topology)
        self.clock = Clock()
        self.hand = hand or Hand()
        ids = self.plan.tasks_of(component) if component else self.plan.ackers
        self.calls = Calls()
        self.env = make_env(ids[index], self.clock, self.hand, seed, self.calls)
        self.load = 0
        self.env.load = lambda: self.load
        self.store = store or Store()
        if self.plan.config.delivery == "exactly_once":
            self.env.snapshots = self.store
        self.task: Any = make_task(topology, self.plan, ids[index], self.env)
        self.id = self.task.id
        self.local = frozenset(map(TaskId, local))
        self.epoch = Epoch(0)
        self.numbers: Counter[int] = Counter()
        self.out: list[TaskCommand] = []
        self.next_root = 1_000
        self.mark = 0
        """Set in the roots of rows that are fed."""
        if is_open:
            self.adopt(1, committed=committed, attempts=attempts)
            self.open_inputs()
            self.go()
            self.out.clear()

    # -- the master

    def handle(self, event: TaskEvent) -> list[TaskCommand]:
        """Give the task an event; return and keep its commands."""
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
        """Begin an epoch, at a checkpoint if one is named."""
        self.epoch = Epoch(epoch)
        self.numbers.clear()
        if more.get("checkpoint"):
            more.setdefault("restore", {self.id: [self.part()]})
        event = RoutesChanged(routes(self.plan, epoch, incarnations, **more), self.local, committed, attempts)
        return self.handle(event)

    def part(self) -> PartToRead:
        """The part of a checkpoint that the task reads."""
        return PartToRead("file", 1, "checksum", self.plan.task(self.id).component, self.id, 0, (1, 0), True)

    def go(self) -> None:
        self.handle(Go(self.epoch))

    def begin_epoch(self, epoch: int, **more: Any) -> None:
        """Begin an epoch, up to Go; forget earlier commands."""
        self.adopt(epoch, **more)
        self.open_inputs()
        self.out.clear()
        self.go()

    def restore(self, epoch: int, checkpoint: int, values: dict[str, Any], **more: Any) -> None:
        """Begin an epoch with a checkpoint that has these values of the task; forget earlier commands."""
        self.store.kept[checkpoint] = Snapshot(values=values)
        self.adopt(epoch, checkpoint=checkpoint, **more)
        self.open_inputs()
        self.out.clear()

    def complete(self, checkpoint: int) -> None:
        self.handle(CheckpointComplete(checkpoint))

    # -- the neighbours

    def senders(self) -> list[TaskId]:
        return list(self.task.inbound.edges)

    def sources(self) -> list[TaskId]:
        """The senders that are no ackers."""
        return [sender for sender in self.senders() if sender not in self.plan.ackers]

    def open_inputs(self, status: SenderStatus = SenderStatus.ACTIVE) -> None:
        """Have every sender open its edge."""
        for sender in self.senders():
            self.deliver(open_frame(self.stamp(sender), self.id, status))
            self.numbers[sender] += 1
        self.turn()

    def stamp(self, sender: int, *, epoch: int | None = None, incarnation: int = INCARNATION) -> Any:
        return (self.epoch if epoch is None else epoch, sender, incarnation)

    def deliver(self, frame: Frame) -> list[TaskCommand]:
        """Deliver a frame as bytes."""
        return self.handle(FrameArrived(encode(frame)))

    def next_number(self, sender: int) -> int:
        self.numbers[sender] += 1
        return self.numbers[sender] - 1

    def fresh(self, count: int) -> RowIds:
        """Unused roots and edges."""
        self.next_root += count
        roots = list(range(self.next_root - count, self.next_root))
        return RowIds([root | self.mark for root in roots], [root << 20 for root in roots])

    def feed(
        self,
        *values: Any,
        sender: int | None = None,
        ids: RowIds | None = None,
        tracked: bool = True,
        stream: int = 0,
        stamps: Sequence[int | None] | None = None,
        number: int | None = None,
        epoch: int | None = None,
        incarnation: int = INCARNATION,
    ) -> RowIds:
        """Deliver a frame of one-field rows (a tuple is taken as the whole row); return their ids. Runs nothing."""
        sender = sender if sender is not None else self.senders()[0]
        rows = [value if isinstance(value, tuple) else (value,) for value in values]
        ids = ids if ids is not None else self.fresh(len(rows)) if tracked else RowIds([], [])
        columns = ids.columns(rows, b"" if stamps is None else pack_timestamps(stamps))
        at = self.next_number(sender) if number is None else number
        stamp = self.stamp(sender, epoch=epoch, incarnation=incarnation)
        self.deliver(data_frame(stamp, self.id, at, stream, columns, CODEC.pack_rows(rows)))
        return ids

    def feed_local(self, *values: Any, sender: int | None = None, ids: RowIds | None = None) -> RowIds:
        """Deliver a frame of rows as a task of the same worker does: unpacked, so that they may hold anything. Runs nothing."""
        sender = sender if sender is not None else self.senders()[0]
        rows = [value if isinstance(value, tuple) else (value,) for value in values]
        ids = ids if ids is not None else self.fresh(len(rows))
        frame = data_frame(self.stamp(sender), self.id, self.next_number(sender), 0, ids.columns(rows))
        self.handle(FrameArrived(frame))
        return ids

    def feed_time(self, news: int | FrameKind, sender: int | None = None) -> None:
        """Deliver a watermark, or IDLE, ACTIVE or END, and run."""
        sender = sender if sender is not None else self.senders()[0]
        if isinstance(news, FrameKind):
            self.signal(news, sender)
        else:
            self.deliver(watermark_frame(self.stamp(sender), self.id, self.next_number(sender), news))
        self.run()

    def feed_ids(self, kind: FrameKind, roots: Sequence[int], values: Sequence[int] = (), sender: int | None = None) -> None:
        """Deliver ids to an acker, or verdicts to a spout or window."""
        sender = sender if sender is not None else self.senders()[0]
        number = self.next_number(sender)
        self.deliver(columns_frame(kind, self.stamp(sender), self.id, number, pack_words(roots), pack_words(values)))

    def verdict(self, kind: FrameKind, *values: Any) -> None:
        """Have the acker decide on the messages of a spout, and run."""
        self.feed_ids(kind, [self.root_of(value) for value in values])
        self.run()

    def signal(self, kind: FrameKind, sender: int | None = None) -> None:
        sender = sender if sender is not None else self.senders()[0]
        self.deliver(signal_frame(kind, self.stamp(sender), self.id, self.next_number(sender)))

    def barrier(self, checkpoint: int) -> None:
        """Deliver the barrier of a checkpoint from every source, under the checkpoint's number as its root, and run."""
        root = pack_words([checkpoint])
        for sender in self.sources():
            self.deliver(barrier_frame(self.stamp(sender), self.id, self.next_number(sender), checkpoint, root, root))
        self.run()

    def end_inputs(self) -> None:
        """Have every sender end."""
        for sender in self.senders():
            self.signal(FrameKind.END, sender)
        self.run()

    def confirm(self, target: int, number: int | None = None, load: int = 0, allowance: int = 0) -> None:
        """Have a receiver confirm up to a frame, without a number all that it has got; with its worker's load, and a grant."""
        last = self.task.outbound.outbox.edges[TaskId(target)].next_number - 1 if number is None else number
        self.deliver(confirm_frame(self.stamp(target), self.id, last, allowance, load))

    def confirm_all(self) -> None:
        for target in self.task.outbound.outbox.edges:
            while not self.task.outbound.outbox.edges[target].is_confirmed:
                self.confirm(target)

    # -- time

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

    # -- results

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

    def kinds(self, *kinds: FrameKind, to: int | None = None) -> list[str]:
        """The names of the kinds of these frames, in order; neighbours of one kind count once."""
        names = [frame.kind.name for frame in self.frames(*kinds, to=to)]
        return [name for place, name in enumerate(names) if place == 0 or names[place - 1] != name]

    def rows(self, to: int | None = None) -> list[tuple[Any, ...]]:
        """The rows sent so far."""
        return [row for frame in self.frames(FrameKind.DATA, to=to) for row in rows_of(frame, CODEC)]

    def values(self, to: int | None = None) -> list[Any]:
        """The first value of each row sent so far."""
        return [row[0] for row in self.rows(to)]

    def times(self) -> list[Any]:
        """The event time that the task has sent to its first consumer: watermarks, and kinds of signals."""
        kinds = (FrameKind.WATERMARK, FrameKind.IDLE, FrameKind.ACTIVE, FrameKind.END)
        frames = self.frames(*kinds, to=self.task.outbound.consumers[0])
        return [frame.mark if frame.kind is FrameKind.WATERMARK else frame.kind.name for frame in frames]

    def roots(self, *kinds: FrameKind) -> list[int]:
        """The roots named in frames of these kinds."""
        return [root for frame in self.frames(*kinds) for root in frame.root_list()]

    def root_of(self, value: Any) -> int:
        """The root under which a value was sent last."""
        found = 0
        for frame in self.frames(FrameKind.DATA):
            for row, root in zip(rows_of(frame, CODEC), frame.root_list(), strict=True):
                if row[0] == value:
                    found = root
        return found

    def acks(self) -> dict[int, int]:
        """By root: the XOR of all values sent in ACK frames."""
        return xor_by_root(self.frames(FrameKind.ACK))

    def owed(self, pairs: Iterable[tuple[int, int]]) -> dict[int, int]:
        """Of roots and edges of inputs: by root, the edges that no ACK has closed, those of sent rows included."""
        acks = self.acks()
        return {root: edge ^ acks.get(root, 0) for root, edge in pairs if edge ^ acks.get(root, 0)}

    def undecided(self, pairs: Iterable[tuple[int, int]]) -> list[int]:
        """Of roots and edges of inputs: the roots of trees that stay open here, neither failed nor acked but for sent rows."""
        failed, acks, sent = set(self.roots(FrameKind.FAIL)), self.acks(), xor_by_root(self.frames(FrameKind.DATA))
        return [root for root, edge in pairs if root not in failed and acks.get(root, 0) ^ sent.get(root, 0) != edge]

    def messages(self, kind: type[M]) -> list[M]:
        """The reports to the master of this kind."""
        return [c.message for c in self.out if isinstance(c, TellMaster) and isinstance(c.message, kind)]

    def errors(self) -> list[str]:
        """The errors reported to the master: kind and message of each."""
        return [f"{error.kind}: {error.message}" for error in self.messages(ComponentError)]

    def dead_letters(self) -> list[tuple[Any, int]]:
        """Values and attempts of the dead letters reported to the master."""
        return [(CODEC.unpack_value(dead.values), dead.attempts) for dead in self.messages(DeadLetter)]

    def dead_letter_errors(self) -> list[str]:
        """The causes of the dead letters reported to the master."""
        return [why for dead in self.messages(DeadLetter) for why in dead.errors]

    def given_up(self) -> list[Any]:
        """The values of the dead letters that wait for the next checkpoint."""
        *_, pending = self.task.guarantee.output.snapshot(1).values()
        return [CODEC.unpack_value(packed) for entries in pending.values() for _, packed, _, _ in entries]


def xor_by_root(frames: Iterable[Frame]) -> dict[int, int]:
    """Fold the ids of frames by root."""
    found: dict[int, int] = defaultdict(int)
    for frame in frames:
        for root, value in zip(frame.root_list(), frame.edge_list(), strict=True):
            found[root] ^= value
    return dict(found)
