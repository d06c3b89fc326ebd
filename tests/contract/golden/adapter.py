"""The only file here that names internals of topo: one task between neighbours that a script plays, and what it does as text.

A step that moves or renames internals adjusts this file, and no golden file. What a task does is logged in order:

    hand    the roots noted as in flight before user code runs
    user    a call of user code, with its arguments; written by the components of `scripts`
    send    a frame, to whose inbox it goes, and its content
    report  a message to the master
    stored  a part of a checkpoint, with all that is in it

Ids of messages are drawn by chance, so they are named in the order of their first appearance: r1, r2, ... for roots, with ! for a
replay. Of the XOR values that acks and inits carry the log says which edges they are made of: `in1` is the edge that the first
row fed to the task came with, `out1` the first edge that the task has drawn. Engine prose (why something failed) is left out, and
so are lines of tracebacks, lengths and checksums.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec

from topo import Topology
from topo.checkpoint.encoding import decode_snapshot, encode_snapshot, unpack
from topo.checkpoint.manifest import decode_manifest, encode_manifest
from topo.errors import TopoError
from topo.ids import Epoch, IdSource, Incarnation, TaskId
from topo.keys import KeyGroupRange
from topo.plan.physical import PhysicalPlan, physical_plan
from topo.storage.checkpoint_store import PartStore
from topo.storage.files import open_files
from topo.storage.snapshots import TaskSnapshots
from topo.task.commands import SendFrame, TaskCommand
from topo.task.context import make_context
from topo.task.environment import TaskEnvironment, TaskSpec
from topo.task.events import FrameArrived, Idle, Inbox, RoutesChanged, TaskEvent, Turn
from topo.task.factory import task_class
from topo.version import __version__
from topo.wire import control
from topo.wire.codec import Codec
from topo.wire.control import (
    Activate,
    BeginCheckpoint,
    CheckpointComplete,
    Close,
    Deactivate,
    DeadLetter,
    Go,
    PartToRead,
    Probe,
    Routes,
    SnapshotTaken,
    TaskRoute,
)
from topo.wire.control import DeadLettersStored as LettersStored
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
    pack_counts,
    pack_timestamps,
    pack_words,
    parse,
    signal_frame,
    watermark_frame,
)
from topo.wire.serializers import SerializerRegistry

INCARNATION = Incarnation(77)
REPLAY = 1 << 63
PROSE = {
    "why",
    "traceback",
    "line",
    "file",
    "length",
    "checksum",
    "at_ms",
    "sent",
    "received",
    "duration_ms",
    "pause_ms",
    "identity",
    "id",
}
"""Fields of messages that hold words of the engine, measurements, chance, or counts of frames."""

Entry = str | Callable[[], str]


class Log:
    """What happened, in order. Lines that name ids are written at the end, when all edges are known."""

    def __init__(self) -> None:
        self._entries: list[Entry] = []
        self._roots: dict[int, str] = {}
        self._edges: dict[int, list[tuple[str, int]]] = {}
        self._counts = {"in": 0, "out": 0}

    def add(self, entry: Entry) -> None:
        self._entries.append(entry)

    def user(self, text: str) -> None:
        self.add(f"  user   {text}")

    def root(self, root: int) -> str:
        """Return the name of a root; the first call for it gives it one."""
        base = root & ~REPLAY
        if base not in self._roots:
            self._roots[base] = f"r{len(self._roots) + 1}"
        return self._roots[base] + ("!" if root & REPLAY else "")

    def edge(self, kind: str, roots: Iterable[int], edge: int) -> None:
        """Note an edge, "in" or "out", of a row that descends from these roots."""
        self._counts[kind] += 1
        for root in roots:
            self._edges.setdefault(root, []).append((f"{kind}{self._counts[kind]}", edge))

    def edge_name(self, root: int, edge: int) -> str:
        """Return the name of one edge of a root."""
        return next((name for name, known in self._edges.get(root, []) if known == edge), "?")

    def made_of(self, root: int, value: int) -> str:
        """Return which edges of a root the XOR is made of; random edges leave one answer."""
        if not value:
            return "0"
        rows: list[tuple[int, frozenset[str]]] = []
        for name, edge in self._edges.get(root, []):
            names = frozenset({name})
            for other, mask in rows:
                if edge ^ other < edge:
                    edge, names = edge ^ other, names ^ mask
            if edge:
                rows.append((edge, names))
                rows.sort(reverse=True)
        found: frozenset[str] = frozenset()
        for edge, names in rows:
            if value ^ edge < value:
                value, found = value ^ edge, found ^ names
        return "^".join(sorted(found, key=lambda name: (name.rstrip("0123456789"), len(name), name))) if not value else "?"

    @property
    def text(self) -> str:
        return "".join(f"{entry if isinstance(entry, str) else entry()}".rstrip() + "\n" for entry in self._entries)


class Hand:
    """Logs what the task notes as in flight."""

    def __init__(self, log: Log) -> None:
        self._log = log

    def hold(self, _task: TaskId, roots: bytes) -> None:
        names = memoryview(roots).cast("Q").tolist()
        self._log.add(lambda: f"  hand   {' '.join(map(self._log.root, names))}")

    def release(self) -> None:
        """The note is cleared."""


class Coroutines:
    """Takes the coroutines of an async bolt, which wait for nothing; each runs when the script says so."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Any, Any]] = []

    def __call__(self, call: Any, done: Any, _on_blocked: Any) -> None:
        self.waiting.append((call, done))

    def complete(self, place: int) -> None:
        call, done = self.waiting.pop(place)
        try:
            call.send(None)
        except StopIteration as end:
            done(end.value, None)
        except Exception as error:
            done(None, error)
        else:
            raise AssertionError("the coroutine waits")

    def close(self) -> None:
        for call, _ in self.waiting:
            call.close()


class Rig:
    """One task. Every step is a method; it logs itself and all that the task does in it.

    Args:
        build: makes the topology, given what logs a call of user code.
        component: whose first task it is; "" for the acker.
        senders: who has an edge to the task: names of components.
        folder: where checkpoints are.
    """

    def __init__(self, build: Callable[[Callable[[str], None]], Topology], component: str, senders: Sequence[str], folder: Path):
        self.log = Log()
        self._build, self._component, self._folder = build, component or "__acker", folder
        self._now = 1000.0
        self._epoch = 0
        self._processes = 0
        self._written: list[Callable[[], None]] = []
        self._taken: list[PartToRead] = []
        self._roots = 1_000
        self.named: set[str] = set()
        self.drawn: list[str] = []
        """Names of the roots that the task has drawn itself, oldest first."""
        self._letters: list[int] = []
        self._types = SerializerRegistry()
        self._codec = Codec()
        self._make()
        self._senders = [task for sender in senders for task in self._ids(sender)]

    def _ids(self, component: str) -> Sequence[TaskId]:
        return self.plan.ackers if component == "__acker" else self.plan.tasks_of(component)

    def _make(self) -> None:
        self._processes += 1
        topology = self._build(self.log.user)
        self.plan: PhysicalPlan = physical_plan(topology)
        self.id = self._ids(self._component)[0]
        self.coroutines = Coroutines()
        component: Any = None if self.id in self.plan.ackers else topology.component(self._component).make()
        strategy = None if component is None else topology.component(self._component).watermarks
        store = PartStore(open_files(str(self._folder)))
        ports = TaskEnvironment(
            IdSource(b"process %d" % self._processes), lambda: self._now, self._codec, Hand(self.log), lambda: 1_700_000_000_000
        )
        if self.plan.config.delivery == "exactly_once":
            snapshots = TaskSnapshots(self.plan, self.id, store, self._types, self._written.append)
            ports = replace(ports, snapshots=snapshots)
        ports.run_async = self.coroutines
        config = self.plan.config_of(self._component)
        setup = TaskSpec(self.id, self.plan, config, component, make_context(self.plan, self.id), {}, strategy)
        self._task = task_class(self.plan, self.id, component)(setup, ports)

    # -- steps: the master

    def open(self, epoch: int = 1, checkpoint: int = 0, position: Any = None, **more: Any) -> None:
        """Adopt an epoch, from a checkpoint if one is named, with all in-edges opened, and go."""
        self._epoch, self._numbers, self._last = epoch, dict.fromkeys(self._all(), 0), {}
        self._confirmed: dict[int, int] = {}
        self._step(f"epoch {epoch}" + (f" from checkpoint {checkpoint}" if checkpoint else ""))
        entries = [TaskRoute(t.id, self.plan.worker_of(t.id), INCARNATION, "", "") for t in self.plan.tasks]
        restore = {self.id: self._taken} if checkpoint else {}
        suspects = [self._root_of(name) for name in more.pop("suspects", ())]
        routes = Routes(1, Epoch(epoch), entries, checkpoint=checkpoint, restore=restore, suspects=suspects, **more)
        committed = None if position is None else self._codec.pack_value(position)
        self._handle(RoutesChanged(routes, frozenset(), committed))
        for sender in self._senders:
            self._deliver(open_frame(self._stamp(sender), self.id, SenderStatus.ACTIVE))
            self._numbers[sender] += 1
        self._handle(Turn())
        self._handle(Go(Epoch(epoch)))
        self._settle()

    def restart(self, epoch: int, checkpoint: int = 0, **more: Any) -> None:
        """Begin a new process of the task, in a later epoch."""
        self.coroutines.close()
        self._step("new process")
        self._make()
        self.open(epoch, checkpoint, **more)

    def begin_checkpoint(self, number: int) -> None:
        self._step(f"begin checkpoint {number}")
        self._handle(BeginCheckpoint(Epoch(self._epoch), number))
        self._settle()

    def store(self) -> None:
        """Let the thread write the snapshots that were taken."""
        self._step("snapshot stored")
        while self._written:
            self._written.pop(0)()
        self._settle()

    def complete(self, number: int) -> None:
        self._step(f"checkpoint {number} complete")
        self._handle(CheckpointComplete(number))
        self._settle()

    def activate(self) -> None:
        self._step("activate")
        self._handle(Activate())
        self._settle()

    def deactivate(self) -> None:
        self._step("deactivate")
        self._handle(Deactivate())
        self._settle()

    def letters_stored(self) -> None:
        self._step("dead letters stored")
        self._handle(LettersStored(self.id, list(self._letters)))
        self._settle()

    def probe(self) -> None:
        self._step("probe")
        self._handle(Probe(1, Epoch(self._epoch)))

    def close(self) -> None:
        self._step("close")
        self._handle(Close(Epoch(self._epoch)))
        self._settle()

    # -- steps: neighbours

    def rows(
        self, *values: Any, sender: str = "a", index: int = 0, stamps: Sequence[int | None] | None = None, run: bool = True
    ) -> None:
        """Deliver a frame of rows, each a message of its own; a value that is no tuple is a row of one field."""
        task = self._ids(sender)[index]
        rows = [value if isinstance(value, tuple) else (value,) for value in values]
        self._step(f"rows from {self._name(task)}: {' '.join(map(str, values))}" + (f" at {list(stamps)}" if stamps else ""))
        packed = b"" if stamps is None else pack_timestamps(stamps)
        if self.plan.config.delivery == "at_least_once":
            roots = [self._fresh() for _ in rows]
            edges = [root * 0x9E3779B97F4A7C15 & (1 << 64) - 1 for root in roots]
            for root, edge in zip(roots, edges, strict=True):
                self.log.edge("in", [root], edge)
            columns = Columns(Anchoring.SINGLE, rows, pack_words(roots), pack_words(edges), packed)
        else:
            columns = Columns(Anchoring.NONE, rows, timestamps=packed)
        self._deliver(data_frame(self._stamp(task), self.id, self._next(task), 0, columns, self._codec.pack_rows(rows)))
        if run:
            self._settle()

    def watermark(self, time: int, sender: str = "a", index: int = 0) -> None:
        task = self._ids(sender)[index]
        self._step(f"watermark {time} from {self._name(task)}")
        self._deliver(watermark_frame(self._stamp(task), self.id, self._next(task), time))
        self._settle()

    def signal(self, kind: str, sender: str = "a", index: int = 0) -> None:
        """Deliver END, IDLE or ACTIVE."""
        task = self._ids(sender)[index]
        self._step(f"{kind} from {self._name(task)}")
        self._deliver(signal_frame(FrameKind[kind], self._stamp(task), self.id, self._next(task)))
        self._settle()

    def barrier(self, checkpoint: int, sender: str = "a", index: int = 0) -> None:
        task = self._ids(sender)[index]
        self._step(f"barrier {checkpoint} from {self._name(task)}")
        root = self._fresh()
        edge = root * 0x9E3779B97F4A7C15 & (1 << 64) - 1
        self.log.edge("in", [root], edge)
        frame = barrier_frame(self._stamp(task), self.id, self._next(task), checkpoint, pack_words([root]), pack_words([edge]))
        self._deliver(frame)
        self._settle()

    def ids(self, kind: str, roots: Sequence[str | int], values: Sequence[int] = (), sender: str = "__acker") -> None:
        """Deliver verdicts (or, to an acker, INIT, ACK, FAIL, RESET): roots by their names in the log, or as numbers."""
        task = self._ids(sender)[0]
        words = [self._root_of(root) if isinstance(root, str) else root for root in roots]
        self._step(f"{kind} of {' '.join(map(str, roots))} from {self._name(task)}" + (f" with {list(values)}" if values else ""))
        self._deliver(
            columns_frame(FrameKind[kind], self._stamp(task), self.id, self._next(task), pack_words(words), pack_words(values))
        )
        self._settle()

    def confirm_all(self) -> None:
        """Have all receivers confirm all that they were sent."""
        self._step("all confirm")
        while any(number > self._confirmed.get(target, -1) for target, number in self._last.items()):
            for target, number in list(self._last.items()):
                if number > self._confirmed.get(target, -1):
                    self._confirmed[target] = number
                    self._deliver(confirm_frame(self._stamp(target), self.id, number), Inbox.CONTROL)
            self._settle()

    def wait(self, seconds: float) -> None:
        """Let time pass, with a turn at every deadline on the way."""
        self._step(f"{seconds:g} s pass")
        until = self._now + seconds
        for _ in range(10_000):
            deadline = self._task.next_deadline(self._now)
            if deadline is None or deadline > until:
                break
            self._now = max(self._now, deadline)
            self._settle()
        else:
            raise AssertionError("the task never rests")
        self._now = until
        self._settle()

    def call_ends(self, place: int = 0) -> None:
        """Run one of the coroutines that wait."""
        self._step(f"coroutine {place} runs")
        self.coroutines.complete(place)
        self._settle()

    def settle(self) -> None:
        self._step("run")
        self._settle()

    # -- how

    def _all(self) -> list[TaskId]:
        return [task.id for task in self.plan.tasks]

    def _step(self, text: str) -> None:
        self.log.add(f"> {text}")

    def _settle(self) -> None:
        for _ in range(10_000):
            deadline = self._task.next_deadline(self._now)
            if not self._task.has_work and not (deadline is not None and deadline <= self._now):
                break
            self._handle(Turn())
        else:
            raise AssertionError("the task never rests")
        self._handle(Idle())

    def _deliver(self, frame: Frame, inbox: Inbox = Inbox.DATA) -> None:
        self._handle(FrameArrived(encode(frame), inbox))

    def _handle(self, event: TaskEvent) -> None:
        try:
            commands = self._task.handle(event, self._now)
        except TopoError as error:
            self.log.add(f"  raised {type(error).__name__}")
            return
        for command in commands:
            self._note(command)
        self._task.validate()

    def _stamp(self, sender: int) -> tuple[int, int, int]:
        return (self._epoch, sender, INCARNATION)

    def _next(self, sender: TaskId) -> int:
        self._numbers[sender] += 1
        return self._numbers[sender] - 1

    def _fresh(self) -> int:
        self._roots += 1
        self.named.add(self.log.root(self._roots))
        return self._roots

    def _root_of(self, name: str) -> int:
        for base, known in self.log._roots.items():
            if known == name.rstrip("!"):
                return base | (REPLAY if name.endswith("!") else 0)
        raise AssertionError(f"no root is called {name}: {self.log._roots}")

    def _name(self, task: int) -> str:
        spec = self.plan.task(TaskId(task))
        return f"{spec.component}.{spec.index}"

    # -- what a command says

    def _note(self, command: TaskCommand) -> None:
        if isinstance(command, SendFrame):
            frame = parse(command.frame) if isinstance(command.frame, bytes) else command.frame
            if frame.kind is not FrameKind.CONFIRM:
                self._last[frame.target] = frame.number
            self._note_frame(frame, command.inbox.value)
            return
        message = command.message
        if isinstance(message, DeadLetter):
            self._letters.append(message.id)
        fields = {name: getattr(message, name) for name in type(message).__struct_fields__}
        names = self._fields(fields)
        self.log.add(lambda: f"  report {type(message).__name__}" + "".join(f" {name}={value()}" for name, value in names))
        if isinstance(message, SnapshotTaken):
            self._note_part(message)

    def _fields(self, fields: Mapping[str, Any]) -> list[tuple[str, Callable[[], str]]]:
        found: list[tuple[str, Callable[[], str]]] = []
        for name, value in fields.items():
            if name in PROSE or (name == "task" and value == self.id):
                continue
            if isinstance(value, bytes):
                value = unpack(value, self._types) if value else None
            if name == "root":
                found.append((name, lambda value=value: self.log.root(value) if value else "0"))
            elif name == "earlier":
                found.append((name, lambda value=value: str([self.log.root(root) if root else 0 for _, root in value])))
            elif name == "causes":
                found.append(
                    (name, lambda value=value: str([(_cause(c), [self.log.root(r) for r in roots]) for c, roots in value]))
                )
            elif name == "errors":
                found.append((name, lambda value=value: str(len(value))))
            elif name == "message" and not fields.get("kind", "").endswith(("ValueError",)):
                continue
            else:
                found.append((name, lambda value=value: str(value)))
        return found

    def _note_part(self, message: SnapshotTaken) -> None:
        spec = self.plan.task(self.id)
        part = PartToRead(message.file, message.length, message.checksum, spec.component, self.id, spec.index, (0, 127), True)
        self._taken = [part]
        data = (self._folder / message.file).read_bytes()
        snapshot = decode_snapshot(
            lambda start, count: data[start : start + count], message.file, self._types, KeyGroupRange(0, 127)
        )
        for name, value in sorted(snapshot.values.items()):
            if name == "letters":
                # (identity, values, why, attempts) each; why is prose.
                value = [[packed, attempts] for _, packed, _, attempts in value["letters"]]
            self.log.add(lambda name=name, value=value: f"  stored {name}: {self._shown(value)}")
        for group, packed in sorted(snapshot.key_groups.items()):
            content = unpack(packed, self._types)
            self.log.add(lambda group=group, content=content: f"  stored key group {group}: {self._shown(content)}")

    def _shown(self, value: Any) -> str:
        """Return stored state as text, the same in every run."""
        if isinstance(value, Mapping):
            items = sorted(value.items(), key=lambda item: str(item[0]))
            return "{" + ", ".join(f"{key!r}: {self._shown(one)}" for key, one in items) + "}"
        if isinstance(value, tuple | list):
            return "(" + ", ".join(map(self._shown, value)) + ")"
        if isinstance(value, bytes):
            try:
                return "packed " + self._shown(msgspec.msgpack.decode(value))
            except msgspec.DecodeError:
                return repr(value)
        return repr(value)

    def _note_frame(self, frame: Frame, inbox: str) -> None:
        roots, edges = frame.root_list(), frame.edge_list()
        self.drawn += [name for name in map(self.log.root, roots) if name not in self.named]
        self.named.update(self.drawn)
        head = f"  send   {frame.kind.name} -> {self._name(frame.target)} {inbox}"
        if frame.kind is FrameKind.CONFIRM:
            self.log.add(f"{head} up to {frame.number}")
            return
        head += f" #{frame.number}"
        if frame.kind in (FrameKind.DATA, FrameKind.BARRIER):
            self._note_rows(frame, head, roots, edges)
        elif frame.kind in (FrameKind.OPEN, FrameKind.WATERMARK):
            status = f" {frame.status.name}" if frame.kind is FrameKind.OPEN else ""
            self.log.add(f"{head}{status} at {_time(frame.mark)}")
        elif edges:
            values = list(zip(roots, edges, strict=True))
            self.log.add(
                lambda: head + "".join(f" {self.log.root(root)}={self.log.made_of(root, value)}" for root, value in values)
            )
        else:
            self.log.add(lambda: head + "".join(f" {self.log.root(root)}" for root in roots))

    def _note_rows(self, frame: Frame, head: str, roots: list[int], edges: list[int]) -> None:
        if frame.kind is FrameKind.BARRIER:
            # The same edge goes with each root.
            for root, edge in zip(roots, edges, strict=True):
                self.log.edge("out", [root], edge)
            named = list(zip(roots, edges, strict=True))
            self.log.add(
                lambda: f"{head} {frame.mark}" + "".join(f" {self.log.root(r)}:{self.log.edge_name(r, e)}" for r, e in named)
            )
            return
        rows, stamps = frame.decode_rows(self._codec), frame.timestamp_list() or [None] * frame.count
        counts = frame.count_list() if frame.anchoring is Anchoring.MULTI else [1 if roots else 0] * frame.count
        stream = f" stream {frame.stream}" if frame.stream else ""
        self.log.add(head + stream)
        at = 0
        for row, stamp, count in zip(rows, stamps, counts, strict=True):
            mine = list(zip(roots[at : at + count], edges[at : at + count], strict=True))
            at += count
            for root, edge in mine:
                self.log.edge("out", [root], edge)
            self._note_row(row, stamp, mine)

    def _note_row(self, row: Any, stamp: int | None, ids: list[tuple[int, int]]) -> None:
        time = "" if stamp is None else f" at {stamp}"
        self.log.add(
            lambda: (
                f"           {row}{time}"
                + "".join(f" {self.log.root(root)}:{self.log.edge_name(root, edge)}" for root, edge in ids)
            )
        )


def played(script: Any, folder: Path) -> str:
    """Return the log of a script of `scripts`."""
    rig = Rig(script.build, script.component, script.senders, folder)
    try:
        script.play(rig)
    finally:
        rig.coroutines.close()
    return rig.log.text


def _cause(cause: Any) -> str:
    return f"{cause.kind}: {cause.message}" if cause.kind else "words"


def _time(mark: int) -> str:
    return {-(2**63): "the beginning", 2**63 - 1: "the end"}.get(mark, str(mark))


def rewritten_manifest(data: bytes) -> bytes:
    """Read a manifest and write it again."""
    return encode_manifest(decode_manifest(data, "manifest.json"))


def rewritten_part(data: bytes) -> tuple[bytes, bytes]:
    """Read a part of a checkpoint and write it again.

    Returns:
        What the file has and what would be written, both without the header if another version of topo has written it.
    """
    header = msgspec.msgpack.decode(data[_START:][: int.from_bytes(data[_START - 4 : _START], "little")])
    topology, checkpoint, version = header[0], header[5], header[6]
    types = SerializerRegistry()
    snapshot = decode_snapshot(lambda start, count: data[start : start + count], "part", types)
    written = encode_snapshot(snapshot, topology, checkpoint, types)
    if version == __version__:
        return data, written.data
    body = b"".join(written.sections[2:])
    return data[-len(body) :], body


_START = 14
"""Bytes of a part before its header, the last four the header's length."""


def frames() -> dict[str, Frame]:
    """Return one frame of each kind and anchoring, with every field set to a value of its own."""
    stamp, words = (3, 7, 0x1122334455667788), pack_words
    rows = [("a", 1), (None, b"\xff"), (("nested", 2.5), {"k": [True, -7]})]
    payload = Codec().pack_rows(rows)
    one, two = [1, 1 << 63 | 2, 3], [4, 5, (1 << 64) - 1]
    stamps = pack_timestamps([10, None, -3])
    several = Columns(Anchoring.MULTI, rows, words([1, 2, 3, 4]), words([5, 6, 7, 8]), b"", pack_counts([2, 0, 2]))
    bare = {kind: signal_frame(FrameKind[kind], stamp, 9, 4) for kind in ("IDLE", "ACTIVE", "END")}
    return {
        **{f"OPEN {status.name}": open_frame(stamp, 9, status, 1234) for status in SenderStatus},
        "DATA none": data_frame(stamp, 9, 2, 1, Columns(Anchoring.NONE, rows), payload),
        "DATA single, timestamps": data_frame(
            stamp, 9, 2, 1, Columns(Anchoring.SINGLE, rows, words(one), words(two), stamps), payload
        ),
        "DATA multi": data_frame(stamp, 9, 2, 1, several, payload),
        **{kind: columns_frame(FrameKind[kind], stamp, 9, 5, words(one), words(two)) for kind in ("INIT", "ACK")},
        **{
            kind: columns_frame(FrameKind[kind], stamp, 9, 5, words(one))
            for kind in ("FAIL", "RESET", "ACKED", "FAILED", "TOUCHED")
        },
        **bare,
        "WATERMARK": watermark_frame(stamp, 9, 6, -5),
        "CONFIRM": confirm_frame(stamp, 9, 7, 300),
        "BARRIER": barrier_frame(stamp, 9, 8, 12, words(one), words(two)),
        "BARRIER unanchored": barrier_frame(stamp, 9, 8, 12),
    }


def frame_bytes(frame: Frame) -> bytes:
    return encode(frame)


def frame_meaning(data: bytes) -> str:
    """Return what a frame says, as text."""
    frame = parse(data)
    said = {
        "kind": frame.kind.name, "anchoring": frame.anchoring.name, "status": frame.status.name, "stream": frame.stream,
        "epoch": frame.epoch, "sender": frame.sender, "target": frame.target, "incarnation": frame.incarnation,
        "number": frame.number, "mark": frame.mark, "count": frame.count, "roots": frame.root_list(),
        "edges": frame.edge_list(), "timestamps": frame.timestamp_list(), "counts": frame.count_list(),
        "rows": frame.decode_rows(Codec()) if frame.kind is FrameKind.DATA else None,
    }  # fmt: skip
    return repr(said)


def control_messages() -> dict[str, tuple[Any, Callable[[bytes], Any]]]:
    """Return each control message with a value of its own in every field, and what reads it."""
    kinds = [(control.FromWorker, control.decode_from_worker), (control.FromMaster, control.decode_from_master)]
    found = {kind.__name__: (_filled(kind), read) for union, read in kinds for kind in get_args(union)}
    found["Request"] = (_filled(control.Request), control.decode_request)
    found["Reply"] = (_filled(control.Reply), control.decode_reply)
    return found


def control_bytes(message: Any) -> bytes:
    return control.encode(message)


def _filled(kind: Any) -> Any:
    hints = get_type_hints(kind)
    return kind(*(_value(hints[name], number) for number, name in enumerate(kind.__struct_fields__, 1)))


def _value(hint: Any, number: int) -> Any:
    """Return a value of a type, another one for each number."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hasattr(hint, "__supertype__"):
        return _value(hint.__supertype__, number)
    if origin in (Union, UnionType):
        return _value(arguments[0], number)
    if origin is list:
        return [_value(arguments[0], number)]
    if origin is dict:
        return {_value(arguments[0], number): _value(arguments[1], number)}
    if origin is tuple:
        return tuple(_value(one, number + at) for at, one in enumerate(arguments))
    if hasattr(hint, "__struct_fields__"):
        return _filled(hint)
    return {int: number, float: number + 0.5, str: f"text {number}", bytes: b"\xc0", bool: True, Any: f"any {number}"}[hint]
