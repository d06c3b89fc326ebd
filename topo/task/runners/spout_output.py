"""Passes the messages that a spout emits to its guarantee: refuses ids, and sends event time between rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby
from typing import Any

from topo.api.partitions import PartitionedSpout
from topo.api.spout import RetryingSpout, Spout
from topo.emission.emission import Emission
from topo.emission.emitter import Emitter, StreamRows
from topo.emission.message_collectors import REFUSED, MessageCollector, PassedOver, message_collector
from topo.emission.partition_messages import (
    PartitionExpected,
    PartitionForgotten,
    PartitionMessages,
    PartitionOver,
    PartitionsFound,
    PartitionSignal,
)
from topo.emission.time_cuts import send_in_pieces
from topo.errors import TopoInternalError
from topo.operators.time.clock import PausableClock
from topo.operators.time.watermarks import InputStatus
from topo.task.chained_emission import ChainedEmission
from topo.task.guarantees.source import SourceGuarantee, SourcePartitions
from topo.task.output import TaskOutput
from topo.task.parts import TaskParts
from topo.user_errors import blame


class SpoutOutput(TaskOutput):
    """The output of one spout task.

    Args:
        parts: of the task.
        spout: the user's component.
        floor: returns the least timestamp of the messages that wait for a replay; None without any.

    Attributes:
        collector: takes rows from the spout.
        idle_clock: stands while the spout is kept from emitting: idleness is about the source.
        chained: the emission, where the rows of the spout go through a chain; else None.
    """

    def __init__(self, parts: TaskParts, spout: Spout, floor: Callable[[], int | None] | None = None) -> None:
        state, clock, reports = parts.state, parts.env.clock, parts.reports
        streams, has_order = state.plan.emitted_streams(state.component_id), isinstance(spout, RetryingSpout)
        self._has_partitions = isinstance(spout, PartitionedSpout)
        self.collector: MessageCollector = (
            PartitionMessages(state.component_id, streams, reports.record_misuse, parts.env.codec)
            if self._has_partitions
            else message_collector(state.component_id, streams, reports.record_misuse, parts.env.codec, has_order=has_order)
        )
        self.chained: ChainedEmission | None = None
        self.idle_clock = PausableClock(lambda: int(clock() * 1000))
        super().__init__(parts, self.collector, self.idle_clock.now_ms, floor, by_partition=self._has_partitions)
        self._spout = spout
        self._state = state
        self._reports = reports

    def _emission(self, parts: TaskParts, collector: Emitter) -> Emission:
        if parts.spec.chain is None:
            return super()._emission(parts, collector)
        self.chained = ChainedEmission(parts, collector, self.watermarks, self._send_time)
        return self.chained

    def _send_time(self, news: Sequence[int | InputStatus]) -> None:
        self.then(partial(super()._send_time, news))

    def then(self, action: Callable[[], object]) -> None:
        """Do something behind all rows that the spout has emitted so far."""
        action() if self.chained is None else self.chained.then(action)

    @property
    def is_behind(self) -> bool:
        """Whether rows wait for the chain."""
        return self.chained is not None and self.chained.is_behind

    @property
    def has_news(self) -> bool:
        """Whether the spout has emitted rows or event time that is not sent."""
        return bool(self.collector.signals or self.collector.count())

    def send(self, source: SourceGuarantee, now: float, *, first_time: bool) -> None:
        """Send the contents of the collector, and empty it.

        Args:
            source: takes the messages over.
            now: monotonic seconds.
            first_time: the spout has just emitted them; else they are replays.
        """
        collector, time = self.collector, self.watermarks
        if first_time:
            self._state.counters.emitted += collector.count()
        for error in self.emission.read_messages(collector.streams, is_replay=not first_time):
            self._reports.user_error(error, now)
        if first_time and not self._has_partitions:
            self._judge_ids(source, now)
        send_rows = partial(self._send_rows, source, first_time, now)
        if first_time and (collector.signals or time.is_used or time.is_idle):
            send_in_pieces(collector, time, send_rows, self.send_event_time, partial(self._on_signal, source))
        else:
            send_rows()
        collector.clear()
        if self._outbound.is_flush_due(now):
            source.flush(now)

    def _on_signal(self, source: SourceGuarantee, signal: PassedOver | PartitionSignal) -> None:
        """Take a change of partitions, or a record that is passed over, at its place between the rows."""
        if isinstance(signal, PassedOver):
            source.pass_over(signal.message, signal.record, signal.error)
        elif source.partitions is None:
            raise TopoInternalError(f"{signal!r} from a spout without partitions")
        else:
            self._on_partition(source.partitions, signal)

    def _on_partition(self, partitions: SourcePartitions, signal: PartitionSignal) -> None:
        time = self.watermarks
        if isinstance(signal, PartitionExpected):
            if time.partitions is not None:
                time.partitions.expect(signal.name, signal.watermark)
        elif isinstance(signal, PartitionOver):
            time.end_partition(signal.name)
        elif isinstance(signal, PartitionForgotten):
            partitions.forget_partition(signal.name)
        elif isinstance(signal, PartitionsFound):
            partitions.partitions_found()
        else:
            partitions.begin_partition(signal.partition, signal.position, self._state.now)
            if time.partitions is not None:
                time.partitions.begin()
            else:
                time.mark_active()

    def _judge_ids(self, source: SourceGuarantee, now: float) -> None:
        """Refuse the messages whose ids cannot be used: they count, and are reported."""
        state, collector = self._state, self.collector
        ids = collector.in_order()
        refused = source.ids.refused(ids)
        state.counters.refused += len(refused)
        if state.observer is not None and refused:
            state.observer.messages_refused(state.id, [ids[place] for place in refused])
        collector.refuse(refused)
        if source.is_retrying:
            source.note_order([one for place, one in enumerate(ids) if place not in refused] if refused else ids)
        for error in refused.values():
            blame(error, self._spout.next_tuple)
            self._reports.user_error(error, now)

    def _send_rows(self, source: SourceGuarantee, first_time: bool, now: float) -> None:
        collector = self.collector
        for stream, messages in zip(collector.streams, collector.messages, strict=True):
            if not stream.rows:
                continue
            if collector.has_refused:
                stream.keep([row for row, message in enumerate(messages) if message is not REFUSED])
                messages[:] = [message for message in messages if message is not REFUSED]
                if not messages:
                    continue
            if self._has_partitions and first_time:
                # In pieces, so that records that are passed over have their places in the order.
                source.note_order(messages)
            # None is no position: `MessageIds` has refused those.
            if source.is_retrying or None not in messages:
                source.admit(stream, messages, first_time=first_time, now=now)
            else:
                self._send_mixed(source, stream, messages, first_time, now)

    def _send_mixed(self, source: SourceGuarantee, stream: StreamRows, messages: list[Any], first_time: bool, now: float) -> None:
        """Send runs of tracked and of untracked rows."""
        contents = stream.contents()
        start = 0
        for is_tracked, run in groupby(messages, key=lambda message: message is not None):
            chosen = list(run)
            end = start + len(chosen)
            stream.hold(contents, start, end)
            if is_tracked:
                source.admit(stream, chosen, first_time=first_time, now=now)
            else:
                source.admit_untracked(stream)
            start = end
