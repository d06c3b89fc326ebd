"""Drives one operator by hand: elements, watermarks and the clock in, outputs in order out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgpack

from topo.keys import KeyGroupRange
from topo.operators.base import Operator, OperatorContext, OperatorSnapshot
from topo.operators.mailbox.executor import MailboxExecutor
from topo.operators.mailbox.mailbox import TaskMailbox
from topo.operators.time.clock import ManualProcessingTime

END = 2**63 - 1
ALL_GROUPS = KeyGroupRange(0, 127)


class Recorder:
    """An output that keeps everything in order: (value, timestamp), (stream, value, timestamp), ("watermark", timestamp)."""

    def __init__(self) -> None:
        self.out: list[tuple[Any, ...]] = []

    def emit(self, value: Any, timestamp: int | None) -> None:
        self.out.append((value, timestamp))

    def side(self, stream: str, value: Any, timestamp: int | None) -> None:
        self.out.append((stream, value, timestamp))

    def watermark(self, timestamp: int) -> None:
        self.out.append(("watermark", timestamp))

    def mark_idle(self) -> None:
        self.out.append(("idle",))

    def mark_active(self) -> None:
        self.out.append(("active",))

    def taken(self) -> list[tuple[Any, ...]]:
        """Return the output since the last call."""
        out, self.out = self.out, []
        return out


class Rig:
    """One operator with a recorder, a manual clock and a mailbox.

    `while_waiting` is what happens elsewhere while the operator yields and there is no mail.
    """

    def __init__(
        self,
        operator: Operator,
        *,
        now_ms: int = 0,
        groups: KeyGroupRange = ALL_GROUPS,
        restore: OperatorSnapshot | None = None,
        open_now: bool = True,
        while_waiting: Callable[[], None] | None = None,
    ) -> None:
        self.operator = operator
        self.recorder = Recorder()
        self.clock = ManualProcessingTime(now_ms)
        self.mailbox = TaskMailbox(wait=while_waiting)
        operator.setup(OperatorContext(self.recorder, self.clock, MailboxExecutor(self.mailbox), 128, groups))
        if restore is not None:
            operator.restore(restore)
        if open_now:
            operator.open()

    def element(self, key: Any, value: Any, timestamp: int | None) -> list[tuple[Any, ...]]:
        """Feed one element; return what came out since the last look."""
        self.operator.process_element(key, value, timestamp)
        return self.taken()

    def watermark(self, timestamp: int) -> list[tuple[Any, ...]]:
        """Feed a watermark; return what came out, without the watermark itself."""
        self.operator.process_watermark(timestamp)
        return [one for one in self.taken() if one != ("watermark", timestamp)]

    def time(self, now_ms: int) -> list[tuple[Any, ...]]:
        """Set the clock; return what came out."""
        self.clock.advance_to(now_ms)
        return self.taken()

    def run_mails(self, most: int = 1_000_000) -> int:
        """Run mails until there are none, or `most`; return how many ran."""
        ran = 0
        while ran < most and (mail := self.mailbox.try_take(-1)) is not None:
            mail.run()
            ran += 1
        return ran

    def taken(self) -> list[tuple[Any, ...]]:
        """Return the output since the last call."""
        return self.recorder.taken()

    def snapshot(self) -> OperatorSnapshot:
        """Snapshot the operator and send it through its encoding, which makes windows plain tuples."""
        return encoded(self.operator.snapshot())


def encoded(snapshot: OperatorSnapshot) -> OperatorSnapshot:
    """Return a snapshot as it comes back from where it was stored."""

    def through(data: Any) -> Any:
        return msgpack.unpackb(msgpack.packb(data), use_list=False, strict_map_key=False)

    return OperatorSnapshot(through(snapshot.keyed), list(through(snapshot.own)))


def restored(build: Callable[[], Operator], snapshot: OperatorSnapshot, **options: Any) -> Rig:
    """Return a rig around a new operator that continues from a snapshot."""
    return Rig(build(), restore=snapshot, **options)
