"""Spouts under observation: what they emit is checked and written down, and so is what becomes of their messages."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from topo.api.context import TaskContext
from topo.api.partition_values import Partition, StoredPartitions
from topo.api.partitions import PartitionedSpout
from topo.api.spout import RetryingSpout, Spout, SpoutCollector
from topo.api.streams import DEFAULT_STREAM
from topo.emission.batch_messages import given_collector
from topo.emission.partition_messages import PartitionMessages
from topo.errors import UnsupportedValueError
from topo.testing.recording import Checked, Watch

PATIENCE = 10
"""Calls of `next_tuple` in a row that emit nothing after which a spout counts as having nothing to emit."""


class SpoutState:
    """What a test must know of a spout to see whether anything is still to come.

    Attributes:
        pending: messages that were emitted and are not settled.
        fresh: those that the present call has emitted.
        has_ended: whether the spout has reported the end of its input.
        empty_calls: how often in a row `next_tuple` has emitted nothing.
    """

    def __init__(self) -> None:
        self.pending: dict[Any, None] = {}
        self.fresh: list[Any] = []
        self.has_ended = False
        self.empty_calls = 0

    def restart(self) -> None:
        self.pending.clear()
        self.fresh.clear()
        self.has_ended = False
        self.empty_calls = 0

    @property
    def is_silent(self) -> bool:
        """Whether it has nothing to emit and nothing in flight."""
        return not self.pending and (self.has_ended or self.empty_calls >= PATIENCE)


class CheckedSpoutCollector(Checked):
    """A `SpoutCollector` that refuses what cannot be carried, and knows the messages."""

    def __init__(self, inner: SpoutCollector, watch: Watch, state: SpoutState) -> None:
        super().__init__(inner, watch.carrier, watch.note)
        self._inner = inner
        self.emit_watermark = inner.emit_watermark
        self.mark_idle = inner.mark_idle
        self.nothing_before = inner.nothing_before
        self._partitions: Any = inner
        if isinstance(inner, PartitionMessages):
            self.expect_partition = inner.expect_partition
            self.begin_partition, self.end_partition = inner.begin_partition, inner.end_partition
            self.partitions_found, self.forget_partition = inner.partitions_found, inner.forget_partition
            self.count = inner.count
        self._state = state
        self._messages = watch.record.messages.setdefault(watch.component, {})

    def emit(
        self, values: Sequence[Any], message_id: Any = None, stream: str = DEFAULT_STREAM, timestamp: int | None = None
    ) -> None:
        self.emitted(lambda: self._inner.emit(values, message_id, stream, timestamp), values, stream)
        self._emitted(message_id)

    def emit_direct(
        self, task: int, values: Sequence[Any], message_id: Any = None, stream: str = DEFAULT_STREAM, timestamp: int | None = None
    ) -> None:
        self.emitted(lambda: self._inner.emit_direct(task, values, message_id, stream, timestamp), values, stream)
        self._emitted(message_id)

    def emit_rows(
        self, partition: str, values: Sequence[Any], positions: Sequence[Any], stamps: Sequence[int] | None = None
    ) -> None:
        """Emit rows of a partition, as a `PartitionedSpout` does."""
        for place, (row, position) in enumerate(zip(values, positions, strict=True)):
            stamp = None if stamps is None else [stamps[place]]
            try:
                self.emitted(partial(self._partitions.emit_rows, partition, [row], [position], stamp), row, DEFAULT_STREAM)
            except UnsupportedValueError as error:
                # In a cluster, too, it is a dead letter, and the rows around it are emitted.
                self.report_error(error)
                self.give_up(partition, position, row, error)
            else:
                self._emitted((partition, position))

    def give_up(self, partition: str, position: Any, record: Any, error: Exception | None) -> None:
        """Pass over a record of a partition; as a dead letter it is a message until that is stored."""
        self._partitions.give_up(partition, position, record, error)

    def pass_over(self, message_id: Any, record: Any, error: Exception | None) -> None:
        """Pass over a record, as an `IterableSpout` does with an item that it cannot emit."""
        # The spout has come further by it; `next_tuple` adds one.
        self._state.empty_calls = -1
        self._partitions.pass_over(message_id, record, error)

    def end_of_input(self) -> None:
        self._inner.end_of_input()
        self._state.has_ended = True

    @property
    def wanted(self) -> int:
        """How many rows there is room for, in a spout with partitions."""
        return int(self._partitions.wanted)

    def _emitted(self, message_id: Any) -> None:
        # An id that is not hashable is for the engine to refuse.
        if message_id is not None:
            with suppress(TypeError):
                self._messages[message_id] = self._state.pending[message_id] = None
                self._state.fresh.append(message_id)


class SpoutWatch(Spout):
    """What both kinds of watched spout share."""

    def __init__(self, inner: Spout, watch: Watch) -> None:
        self.state = SpoutState()
        self._inner = inner
        self._watch = watch
        self._acked = watch.record.acked.setdefault(watch.component, [])
        self.is_open: Callable[[Any], bool] = lambda _message_id: False
        # The engine reads it of the spout it is given.
        self.wants_values = inner.wants_values  # type: ignore[misc]

    def open(self, context: TaskContext, collector: SpoutCollector) -> None:
        """Give the spout a collector that checks; a spout that is opened again goes back to where a checkpoint has it."""
        self.state.restart()
        checked = CheckedSpoutCollector(collector, self._watch, self.state)
        given = given_collector(self._inner, checked, self._watch.component, self._watch.carrier.streams)
        self._watch.call(self._inner.open, context, given)

    def next_tuple(self) -> None:
        """Let the spout emit; emits and signals of a call that raises are taken back."""
        state, before = self.state, len(self._watch.record.emissions)
        state.fresh.clear()
        try:
            self._watch.call(self._inner.next_tuple)
        except BaseException:
            for message_id in state.fresh:
                state.pending.pop(message_id, None)
            # It is asked only while its input has not ended.
            state.has_ended = False
            raise
        has_emitted = len(self._watch.record.emissions) > before
        state.empty_calls = 0 if has_emitted else state.empty_calls + 1

    def ack(self, message_id: Any, *values: Any) -> None:
        self._acked.append(message_id)
        self._settled(message_id)
        self._inner.ack(message_id, *values)

    def fail(self, message_id: Any, *values: Any) -> None:
        self._settled(message_id)
        self._inner.fail(message_id, *values)

    def refused(self, message_id: Any) -> None:
        """The engine refuses a message for its id; one of the same id may be in flight."""
        self._watch.record.refused.append((self._watch.component, message_id))
        with suppress(TypeError):
            if not self.is_open(message_id):
                self._settled(message_id)

    def _settled(self, message_id: Any) -> None:
        self.state.pending.pop(message_id, None)
        # After a verdict the spout may have something to emit.
        self.state.empty_calls = 0

    def activate(self) -> None:
        self._inner.activate()

    def deactivate(self) -> None:
        self._inner.deactivate()

    def close(self) -> None:
        self._inner.close()


class WatchedSpout(SpoutWatch):
    """A plain `Spout` under observation."""

    def fail(self, message_id: Any, *values: Any) -> None:
        """Pass it on: the message failed."""
        self._watch.record.failed.setdefault(self._watch.component, []).append(message_id)
        super().fail(message_id, *values)


class WatchedRetryingSpout(SpoutWatch, RetryingSpout):
    """A `RetryingSpout` under observation. That a message failed and is retried, its task knows alone."""


class WatchedPartitionedSpout(SpoutWatch, PartitionedSpout):
    """A `PartitionedSpout` under observation."""

    def __init__(self, inner: PartitionedSpout, watch: Watch) -> None:
        super().__init__(inner, watch)
        self._partitioned = inner
        # The engine reads it of the spout it is given.
        self.max_drift = inner.max_drift

    def partitions(self) -> Iterable[Partition | str]:
        return self._partitioned.partitions()

    def restart(self, stored: StoredPartitions | None) -> None:
        self.state.restart()
        self._watch.call(self._partitioned.restart, stored)

    def set_ahead(self, names: Collection[str]) -> None:
        self._partitioned.set_ahead(names)

    def on_committed(self, positions: Mapping[str, Any]) -> None:
        self._watch.call(self._partitioned.on_committed, positions)
