"""What a task does, as lines of the log: frames it sends, reports to the master, stored parts of checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from tests.contract.golden.log import Log
from tests.rows import rows_of
from tests.tasks.environment import CODEC
from topo.checkpoint.encoding import decode_snapshot, unpack
from topo.ids import TaskId
from topo.keys import KeyGroupRange
from topo.plan.physical import PhysicalPlan
from topo.task.commands import SendFrame, TaskCommand
from topo.wire.control import DeadLetter, PartToRead, SnapshotTaken
from topo.wire.frames import Anchoring, Frame, FrameKind, parse
from topo.wire.serializers import SerializerRegistry

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


class Transcript:
    """Writes the commands of a task to a log.

    Attributes:
        last: number of the last frame to each task.
        drawn: names of the roots that the task has drawn itself, oldest first.
        taken: the parts of the last checkpoint.
        dead: numbers of the dead letters that were reported.
    """

    def __init__(self, log: Log, folder: Path) -> None:
        self._log, self._folder = log, folder
        self.plan: PhysicalPlan
        self.id: TaskId
        self.types = SerializerRegistry()
        self.last: dict[int, int] = {}
        self.drawn: list[str] = []
        self.named: set[str] = set()
        self.taken: list[PartToRead] = []
        self.dead: list[int] = []

    def name(self, task: int) -> str:
        spec = self.plan.task(TaskId(task))
        return f"{spec.component}.{spec.index}"

    def command(self, command: TaskCommand) -> None:
        if isinstance(command, SendFrame):
            frame = parse(command.frame) if isinstance(command.frame, bytes) else command.frame
            if frame.kind is not FrameKind.CONFIRM:
                self.last[frame.target] = frame.number
            self._note_frame(frame)
            return
        message = command.message
        if isinstance(message, DeadLetter):
            self.dead.append(message.id)
        fields = {name: getattr(message, name) for name in type(message).__struct_fields__}
        names = self._fields(fields)
        self._log.add(lambda: f"  report {type(message).__name__}" + "".join(f" {name}={value()}" for name, value in names))
        if isinstance(message, SnapshotTaken):
            self._note_part(message)

    def _fields(self, fields: Mapping[str, Any]) -> list[tuple[str, Callable[[], str]]]:
        found: list[tuple[str, Callable[[], str]]] = []
        for name, value in fields.items():
            if name in PROSE or (name == "task" and value == self.id):
                continue
            if isinstance(value, bytes):
                value = unpack(value, self.types) if value else None
            if name == "root":
                found.append((name, lambda value=value: self._log.root(value) if value else "0"))
            elif name == "earlier":
                found.append((name, lambda value=value: str([self._log.root(root) if root else 0 for _, root in value])))
            elif name == "causes":
                found.append(
                    (name, lambda value=value: str([(_cause(c), [self._log.root(r) for r in roots]) for c, roots in value]))
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
        self.taken = [part]
        data = (self._folder / message.file).read_bytes()
        snapshot = decode_snapshot(
            lambda start, count: data[start : start + count], message.file, self.types, KeyGroupRange(0, 127)
        )
        for name, value in sorted(snapshot.values.items()):
            if name == "letters":
                # (identity, values, why, attempts) each; why is prose.
                value = [[packed, attempts] for _, packed, _, attempts in value["letters"]]
            self._log.add(lambda name=name, value=value: f"  stored {name}: {self._shown(value)}")
        for group, packed in sorted(snapshot.key_groups.items()):
            content = unpack(packed, self.types)
            self._log.add(lambda group=group, content=content: f"  stored key group {group}: {self._shown(content)}")

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

    def _note_frame(self, frame: Frame) -> None:
        is_control = frame.kind is FrameKind.CONFIRM or frame.sender in self.plan.ackers
        roots, edges = frame.root_list(), frame.edge_list()
        self.drawn += [name for name in map(self._log.root, roots) if name not in self.named]
        self.named.update(self.drawn)
        head = f"  send   {frame.kind.name} -> {self.name(frame.target)} {'control' if is_control else 'data'}"
        if frame.kind is FrameKind.CONFIRM:
            self._log.add(f"{head} up to {frame.number}")
            return
        head += f" #{frame.number}"
        if frame.kind in (FrameKind.DATA, FrameKind.BARRIER):
            self._note_rows(frame, head, roots, edges)
        elif frame.kind in (FrameKind.OPEN, FrameKind.WATERMARK):
            status = f" {frame.status.name}" if frame.kind is FrameKind.OPEN else ""
            self._log.add(f"{head}{status} at {_time(frame.mark)}")
        elif edges:
            values = list(zip(roots, edges, strict=True))
            self._log.add(
                lambda: head + "".join(f" {self._log.root(root)}={self._log.made_of(root, value)}" for root, value in values)
            )
        else:
            self._log.add(lambda: head + "".join(f" {self._log.root(root)}" for root in roots))

    def _note_rows(self, frame: Frame, head: str, roots: list[int], edges: list[int]) -> None:
        if frame.kind is FrameKind.BARRIER:
            # The same edge goes with each root.
            for root, edge in zip(roots, edges, strict=True):
                self._log.edge("out", [root], edge)
            named = list(zip(roots, edges, strict=True))
            self._log.add(
                lambda: f"{head} {frame.mark}" + "".join(f" {self._log.root(r)}:{self._log.edge_name(r, e)}" for r, e in named)
            )
            return
        rows, stamps = rows_of(frame, CODEC), frame.timestamp_list() or [None] * frame.count
        counts = frame.count_list() if frame.anchoring is Anchoring.MULTI else [1 if roots else 0] * frame.count
        stream = f" stream {frame.stream}" if frame.stream else ""
        self._log.add(head + stream)
        at = 0
        for row, stamp, count in zip(rows, stamps, counts, strict=True):
            mine = list(zip(roots[at : at + count], edges[at : at + count], strict=True))
            at += count
            for root, edge in mine:
                self._log.edge("out", [root], edge)
            self._note_row(row, stamp, mine)

    def _note_row(self, row: Any, stamp: int | None, ids: list[tuple[int, int]]) -> None:
        time = "" if stamp is None else f" at {stamp}"
        self._log.add(
            lambda: (
                f"           {row}{time}"
                + "".join(f" {self._log.root(root)}:{self._log.edge_name(root, edge)}" for root, edge in ids)
            )
        )


def _cause(cause: Any) -> str:
    return f"{cause.kind}: {cause.message}" if cause.kind else "words"


def _time(mark: int) -> str:
    return {-(2**63): "the beginning", 2**63 - 1: "the end"}.get(mark, str(mark))
