"""Drives one operator by hand: a manual clock, and everything it put out in one list."""

from __future__ import annotations

import copy
from typing import Any

from topo.keys import KeyGroupRange
from topo.operators.base import Operator, OperatorContext, OperatorSnapshot
from topo.operators.mailbox.executor import MailboxExecutor
from topo.operators.mailbox.mailbox import TaskMailbox
from topo.operators.time.clock import ManualProcessingTime

ALL_GROUPS = KeyGroupRange(0, 127)


class RecordingOutput:
    """Keeps (kind, ...) of each call, in order."""

    def __init__(self) -> None:
        self.seen: list[tuple[Any, ...]] = []

    def emit(self, value: Any, timestamp: int | None) -> None:
        self.seen.append(("emit", value, timestamp))

    def side(self, stream: str, value: Any, timestamp: int | None) -> None:
        self.seen.append(("side", stream, value, timestamp))

    def watermark(self, timestamp: int) -> None:
        self.seen.append(("watermark", timestamp))

    def mark_idle(self) -> None:
        self.seen.append(("idle",))

    def mark_active(self) -> None:
        self.seen.append(("active",))

    def take(self) -> list[tuple[Any, ...]]:
        seen, self.seen = self.seen, []
        return seen


class Driver:
    """An operator with its surroundings; opened unless told otherwise."""

    def __init__(
        self,
        operator: Operator,
        now_ms: int = 0,
        restored: OperatorSnapshot | None = None,
        key_groups: KeyGroupRange = ALL_GROUPS,
    ) -> None:
        self.operator = operator
        self.out = RecordingOutput()
        self.clock = ManualProcessingTime(now_ms)
        operator.setup(OperatorContext(self.out, self.clock, MailboxExecutor(TaskMailbox()), 128, key_groups))
        if restored is not None:
            operator.restore(restored)
        operator.open()

    def snapshot(self) -> OperatorSnapshot:
        return copy.deepcopy(self.operator.snapshot())
