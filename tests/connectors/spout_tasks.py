"""A task that runs a spout without a topology: a mailbox, and a collector that keeps all output. Tests call `ack` and `fail`."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from topo import Spout, TaskContext, TopologyConfig
from topo.errors import EmitError
from topo.operators.mailbox.executor import MailboxExecutor
from topo.operators.mailbox.mailbox import TaskMailbox
from topo.testing.partition_harness import PartitionHarness
from topo.worker.helper_thread import HelperThread

PATIENCE_S = 20.0


class SpoutTask:
    """One task of a spout.

    Attributes:
        rows: id and values of each emitted row, in order.
        errors: reported errors.
        refused: ids whose emit raises.
        position: where a spout with positions begins.
    """

    def __init__(
        self, spout: Spout, position: Any = None, task_index: int = 0, *, has_helper: bool = False, **config: Any
    ) -> None:
        self.spout = spout
        self.rows: list[tuple[Any, tuple[Any, ...]]] = []
        self.errors: list[BaseException] = []
        self.refused: set[Any] = set()
        self.mailbox = TaskMailbox()
        self.context = TaskContext(
            "topology",
            "spout",
            1,
            task_index,
            config=TopologyConfig(**config),
            committed_position=position,
            executor=MailboxExecutor(self.mailbox),
            clock=time.monotonic,
            **({"run_beside": HelperThread().run} if has_helper else {}),
        )
        spout.open(self.context, self)  # type: ignore[arg-type]
        spout.activate()

    # -- the collector ---------------------------------------------------------------------------------------------------

    def emit(self, values: Any, message_id: Any = None, stream: str = "default", timestamp: int | None = None) -> None:
        if message_id in self.refused:
            raise EmitError(f"planted: {message_id!r} is refused")
        self.rows.append((message_id, tuple(values)))

    def nothing_before(self, seconds: float) -> None:
        assert seconds >= 0

    def report_error(self, error: BaseException) -> None:
        self.errors.append(error)

    # -- the task --------------------------------------------------------------------------------------------------------

    def turn(self) -> None:
        """Run what other threads have posted, then call `next_tuple`."""
        self.run_mails()
        self.spout.next_tuple()

    def run_mails(self) -> None:
        """Run what other threads have posted, as a task does that may not emit."""
        while self.context.executor is not None and self.context.executor.try_yield():
            pass

    def until(self, condition: Callable[[], object], what: str = "") -> None:
        """Take turns until a condition holds."""
        end = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < end, f"gave up waiting for {what or condition}; rows {self.rows[-3:]}, errors {self.errors}"
            self.turn()
            time.sleep(0.002)

    def values(self) -> list[Any]:
        """The values of rows; of one field, the value."""
        return [row[0] if len(row) == 1 else row for _, row in self.rows]

    def counter(self, name: str) -> int:
        return self.context.metrics.counter(name).value

    def gauge(self, name: str) -> float:
        return self.context.metrics.gauge(name).value


def resumed(harness: PartitionHarness) -> list[str]:
    """Start the task again; returns its errors."""
    harness.errors.clear()
    harness.start(1)
    harness.turns()
    return [str(error) for error in harness.errors]


def turns_until(harness: PartitionHarness, count: int, seconds: float = 20) -> None:
    """Give turns until that many rows were read."""
    until = time.monotonic() + seconds
    while len(harness.all_rows()) < count:
        assert time.monotonic() < until, f"{len(harness.all_rows())} of {count} rows; {harness.errors}"
        harness.clock.advance("100ms")
        harness.turns(1)


def until(harness: PartitionHarness, condition: Callable[[], object]) -> None:
    """Give turns, and let the clock run, until a condition holds."""
    end = time.monotonic() + 3 * PATIENCE_S
    while not condition():
        assert time.monotonic() < end, f"gave up waiting; rows {harness.all_rows()[-3:]}, errors {harness.errors}"
        harness.clock.advance("100ms")
        harness.turns(1)
