"""Reads the partitions of one task over one client, which is assigned its partitions and joins no group.

A partition of the client is read while it is assigned here and not paused. Each one has the offset that is read next; whatever
disturbs the order of its records ends with the client being assigned that offset once more, so there is one way back for a
pause, a checkpoint, a loss and a wait that was overtaken.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import inf
from operator import methodcaller
from typing import Any

from topo.api.context import TaskContext
from topo.api.partition_values import Partition, PartitionOutput
from topo.connectors.kafka.cluster import Cluster, client_partition, next_offsets, partition_of
from topo.connectors.kafka.connection import BrokerConnection
from topo.connectors.kafka.group_offsets import GroupOffsets
from topo.connectors.kafka.idle_wait import IdleWait, close_client
from topo.connectors.kafka.offsets import (
    BEGINNING,
    Continuation,
    Loss,
    Place,
    TopicPosition,
    checked_position,
    continuation,
    cut_of,
    era_of,
    is_other_topic,
    loss_error,
    next_era,
)
from topo.connectors.kafka.records import Bad, RecordFormat, SchemaMissing, by_partition, positions
from topo.connectors.kafka.schema_waits import SchemaWaits
from topo.connectors.kafka.settings import explained, explaining
from topo.connectors.kafka.topic_reading import TopicReading

ENDS_S = 5.0
"""Between two looks at the ends of the partitions, for the lag."""


class KafkaReader:
    """A `PartitionReader`.

    Args:
        settings: of the client.
        context: of the task.
        format: makes rows of records.
        cluster: knows the ids of the topics.
        start, stop: see `KafkaSpout`.
        report: takes an error of the source as a whole.
        commits: whether the positions go to the group, too.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        context: TaskContext,
        format: RecordFormat,
        cluster: Cluster,
        start: Place,
        stop: Place,
        report: Callable[[BaseException], None],
        *,
        commits: bool,
    ) -> None:
        from confluent_kafka import Consumer, KafkaError

        self._settings, self._context, self._format, self._cluster = settings, context, format, cluster
        self._start, self._stop, self._report = start, stop, report
        self._begins: dict[str, int] = {}
        self._stops: dict[str, int] = {}
        self._readings: dict[str, TopicReading] = {}
        self._cuts: dict[str, tuple[str, int]] = {}
        """Of partitions whose leader has other records than were read: the era, and the offset from which on."""
        self._answers: deque[tuple[TopicReading, int, Continuation | Exception]] = deque()
        """Of the helper thread: where a partition continues whose offset, the second, the broker does not have."""
        self._ends: dict[str, int] | None = None
        """Behind the last record of each partition, as of the last look."""
        self._ends_at = -inf
        self._is_asking_ends = False
        self._has_losses = False
        self._revision = cluster.revision
        self._eof, self._no_offset = KafkaError._PARTITION_EOF, KafkaError._AUTO_OFFSET_RESET
        metrics = context.metrics
        self._bytes, self._age = metrics.counter("bytes"), metrics.histogram("age_ms")
        self._connection = BrokerConnection(settings, context, report, cluster.probe)
        self._offsets = GroupOffsets(settings, report) if commits else None
        callbacks = {"error_cb": self._connection.failed, **({"on_commit": self._offsets.taken} if self._offsets else {})}
        with explaining("Kafka's client cannot be made", settings):
            # Without `logger=`: the client calls it in its own threads, with locks that other calls wait for with the GIL.
            self._consumer = Consumer({**settings, **callbacks})
        self._schemas: SchemaWaits[TopicReading] = SchemaWaits(context, report)
        self._wait = None if context.executor is None else IdleWait(self._consumer.consume, self._wake, self._send_offsets)

    def _send_offsets(self) -> None:
        if self._offsets is not None:
            self._offsets.send(self._consumer)

    def _wake(self) -> None:
        if self._context.executor is not None:
            self._context.executor.execute(lambda: None, "records have come")

    @property
    def is_waiting(self) -> bool:
        """Whether there is nothing to read until the task is woken."""
        return self._wait is not None and self._wait.is_waiting

    def prepare(self, partitions: Sequence[Partition], known: Mapping[str, Any]) -> None:
        """Look up where partitions begin and end: all at once, before they are assigned. Blocks.

        Args:
            partitions: those of this task.
            known: those of them that have a position.

        Raises:
            TopoError: no broker answers, or it refuses a request.
        """
        new = [one for one in partitions if one.name not in known]
        self._overtake()
        with explaining(f"start={self._start!r} cannot be looked up", self._settings):
            if self._start == "committed":
                self._begins |= self._cluster.committed(str(self._settings["group.id"]), new)
            else:
                self._begins |= next_offsets(self._consumer, self._start, new)
        if self._stop is not None:
            with explaining(f"stop={self._stop!r} cannot be looked up", self._settings):
                ends = next_offsets(self._consumer, self._stop, partitions)
            # A partition that the mapping leaves out has no end.
            self._stops |= {name: offset for name, offset in ends.items() if offset != BEGINNING}

    # -- called by the engine ------------------------------------------------------------------------------------------------

    def assign(self, partition: Partition, position: Any, found_later: bool) -> TopicPosition:
        topic_id = self._cluster.id_of(partition.group)
        if position is None:
            offset = BEGINNING if found_later else self._beginning(partition)
            reading = self._hold(partition, era_of(0, topic_id), offset)
            # The place in front of that record.
            position = (reading.era, max(offset - 1, BEGINNING))
        else:
            era, last = position = checked_position(partition.name, position)
            reading = self._hold(partition, era, BEGINNING if last == BEGINNING else last + 1)
            if is_other_topic(era, topic_id):
                self._lose(reading, Continuation(Loss.OTHER_TOPIC, next_era(era, topic_id), BEGINNING))
            elif (cut := self._cuts.get(partition.name)) is not None and cut[0] == era and reading.next > cut[1]:
                # The client finds it once.
                self._lose(reading, Continuation(Loss.CUT, next_era(era, topic_id), cut[1]))
            else:
                self._cuts.pop(partition.name, None)
        if reading.found is None:
            self._read_from(reading)
        known: TopicPosition = position
        return known

    def _beginning(self, partition: Partition) -> int:
        if partition.name not in self._begins:
            self.prepare([partition], {})
        return self._begins[partition.name]

    def _hold(self, partition: Partition, era: str, offset: int) -> TopicReading:
        reading = self._readings[partition.name] = TopicReading(partition, era, offset, self._stops.get(partition.name))
        return reading

    def _lose(self, reading: TopicReading, found: Continuation) -> None:
        """Have the next poll report a loss."""
        reading.found = (max(reading.next, 0), found)
        self._has_losses = True

    def _look_for_other_topics(self) -> None:
        self._revision = self._cluster.revision
        for reading in self._readings.values():
            topic_id = self._cluster.id_of(reading.partition.group)
            if is_other_topic(reading.era, topic_id):
                self._lose(reading, Continuation(Loss.OTHER_TOPIC, next_era(reading.era, topic_id), BEGINNING))

    def release(self, partition: Partition) -> None:
        reading = self._readings.pop(partition.name, None)
        if reading is not None and not reading.is_paused:
            self._read_no_more(reading)

    def pause(self, partition: Partition, paused: bool) -> None:
        reading = self._readings[partition.name]
        if reading.is_paused != paused:
            reading.is_paused = paused
            if paused or not reading.is_waiting:
                (self._read_no_more if paused else self._read_from)(reading)

    def poll(self, output: PartitionOutput) -> None:
        self._connection.look(next(iter(self._readings.values())).partition.group if self._readings else None)
        if self._offsets is not None:
            self._offsets.look()
            if not self.is_waiting:
                self._offsets.send(self._consumer)
        if self._cluster.revision != self._revision:
            self._look_for_other_topics()
        if self._answers:
            self._take_answers(output)
        for reading in self._schemas.ready():
            self._continue(reading)
        if self._has_losses or self._stop is not None:
            self._has_losses = False
            for reading in list(self._readings.values()):
                self._check(reading, output)
        wait = self._wait
        if wait is not None and wait.is_waiting:
            return
        messages: list[Any] = []
        if wait is not None and (waited := wait.take()):
            if wait.is_stale:
                self._read_once_more(waited)
            else:
                messages += waited
        if output.room > len(messages):
            messages += self._consumer.consume(output.room - len(messages), 0)
        if messages:
            self._give(messages, output)
        elif wait is not None:
            wait.begin()

    def committed(self, positions: Mapping[str, Any]) -> None:
        if self._offsets is not None:
            self._offsets.add(positions)
            # Else the thread that waits sends them within a slice.
            if not self.is_waiting:
                self._send_offsets()

    def lag(self) -> int | None:
        # The client knows the ends as well, but may stand still when it is asked while another thread is in `consume`.
        if not self._readings:
            return 0
        if not self._is_asking_ends and self._context.clock() >= self._ends_at:
            self._is_asking_ends = True
            self._context.run_beside(partial(self._ask_ends, [one.partition for one in self._readings.values()]))
        if self._ends is None:
            return None
        total = 0
        for name, reading in self._readings.items():
            end = self._ends.get(name, 0)
            total += max(0, (end if reading.stop is None else min(end, reading.stop)) - max(reading.next, 0))
        return total

    def _ask_ends(self, partitions: Sequence[Partition]) -> None:
        """Look up where partitions end. On the helper thread."""
        try:
            self._ends = self._cluster.ends(partitions)
        except Exception as error:
            # `connected` shows it where it lasts.
            self._context.logger.debug("the ends of partitions were not found: %s", error)
        self._ends_at = self._context.clock() + ENDS_S
        self._is_asking_ends = False

    def close(self) -> None:
        if self._wait is not None:
            self._wait.close()
        self._readings.clear()
        self._send_offsets()
        close_client(self._consumer)
        self._format.close()

    # -- the client ----------------------------------------------------------------------------------------------------------

    def _read_from(self, reading: TopicReading) -> None:
        from confluent_kafka import OFFSET_BEGINNING

        offset = OFFSET_BEGINNING if reading.next == BEGINNING else reading.next
        self._overtake()
        with explaining(f"partition {reading.partition.name!r} cannot be read", self._settings):
            self._consumer.incremental_assign([client_partition(reading.partition, offset)])
        reading.is_read, reading.is_waiting = True, False

    def _read_no_more(self, reading: TopicReading) -> None:
        from confluent_kafka import KafkaException

        if not reading.is_read:
            return
        reading.is_read = False
        self._overtake()
        try:
            self._consumer.incremental_unassign([client_partition(reading.partition)])
        except KafkaException as error:
            # The client has left it already.
            self._context.logger.debug("partition %s is not released: %s", reading.partition.name, error)

    def _overtake(self) -> None:
        if self._wait is not None:
            self._wait.interrupt()

    def _read_once_more(self, messages: Sequence[Any]) -> None:
        """Have the partitions of records read from their positions: the records may be of before an assignment."""
        for message in messages:
            reading = self._readings.get(partition_of(message.topic(), message.partition()).name)
            if reading is not None and reading.is_read:
                self._read_no_more(reading)
                self._read_from(reading)

    # -- records -------------------------------------------------------------------------------------------------------------

    def _give(self, messages: list[Any], output: PartitionOutput) -> None:
        if any(map(_error, messages)):
            for message in messages:
                if message.error() is not None:
                    self._take_error(message, output)
            # An event of a partition is behind its records, and moves `next` further than they do.
            messages = [message for message in messages if message.error() is None]
        if not messages:
            return
        values = list(map(_value, messages))
        self._bytes.add(sum(map(len, filter(None, values))))
        for (topic, number), records, of_records in by_partition(messages, values, self._cluster.only_topic):
            reading = self._readings.get(partition_of(topic, number).name)
            # Also while a loss is looked into: these are in front of it.
            if reading is not None and reading.is_read:
                self._give_records(reading, records, of_records, output)

    def _give_records(
        self, reading: TopicReading, records: Sequence[Any], values: Sequence[bytes | None], output: PartitionOutput
    ) -> None:
        partition, era, stop = reading.partition, reading.era, reading.stop
        last = records[-1].offset()
        if stop is not None and last >= stop:
            pairs = [(record, value) for record, value in zip(records, values, strict=True) if record.offset() < stop]
            records, values = [record for record, _ in pairs], [value for _, value in pairs]
        for decoded in self._format.decoded(records, values):
            if isinstance(decoded, Bad):
                output.bad(partition, (era, decoded.offset), decoded.record, decoded.error)
            elif isinstance(decoded, SchemaMissing):
                self._read_no_more(reading)
                # A loss behind it is met again.
                reading.next, reading.is_waiting, reading.is_asking = decoded.offset, True, False
                self._schemas.add(reading, decoded.needed)
                return
            else:
                output.rows(partition, decoded.values, positions(era, decoded.offsets), decoded.timestamps)
        if records:
            kind, stamp = records[0].timestamp()
            if kind and stamp >= 0:
                self._age.record(max(0.0, time.time() * 1000 - stamp), len(records))
        reading.next = max(reading.next, last + 1)
        if stop is not None and reading.next >= stop:
            self._end(reading, output)

    def _end(self, reading: TopicReading, output: PartitionOutput) -> None:
        self.release(reading.partition)
        output.ended(reading.partition)

    def _check(self, reading: TopicReading, output: PartitionOutput) -> None:
        """Report a loss, and continue behind it; end a partition that is behind its stop."""
        if reading.found is not None:
            (asked, found), reading.found = reading.found, None
            output.lost(reading.partition, found.count, loss_error(reading.partition.name, asked, found))
            reading.era, reading.next = found.era, found.offset
            if not reading.is_paused:
                self._read_no_more(reading)
                self._read_from(reading)
        if reading.stop is not None and max(reading.next, 0) >= reading.stop:
            self._end(reading, output)

    # -- events and errors of partitions -------------------------------------------------------------------------------------

    def _take_error(self, message: Any, output: PartitionOutput) -> None:
        error, topic = message.error(), message.topic()
        reading = None if topic is None else self._readings.get(partition_of(topic, message.partition()).name)
        if error.code() == self._eof:
            if reading is not None and reading.is_read:
                # Control records and compacted ones have no message: the end may be further than the last record.
                reading.next = max(reading.next, message.offset())
        elif reading is None:
            if topic is None and self._offsets is not None and error.name() == "GROUP_AUTHORIZATION_FAILED":
                self._offsets.taken(error, [])
            elif topic is None:
                self._connection.failed(error)
        elif error.code() == self._no_offset:
            if not reading.is_asking:
                reading.is_asking = True
                offset, cut = cut_of(error.str()) or (message.offset(), None)
                if cut is not None:
                    self._cuts[reading.partition.name] = reading.era, cut
                self._context.run_beside(partial(self._ask, reading, offset, cut))
        else:
            # The topic may be another one when the partition is assigned next.
            self._cluster.forget(reading.partition.group)
            what = f"partition {reading.partition.name!r} cannot be read"
            output.failed(reading.partition, explained(error, what, self._settings))

    def _ask(self, reading: TopicReading, offset: int, cut: int | None) -> None:
        """Look up why the broker does not have an offset. On the helper thread."""
        partition = reading.partition
        found: Continuation | Exception
        try:
            topic_id = self._cluster.looked_up(partition.group)
            with explaining(f"the offsets of partition {partition.name!r} cannot be looked up", self._settings):
                low, high = self._cluster.bounds(partition, self._settings["isolation.level"])
            found = continuation(reading.era, offset, topic_id, low, high, cut)
        except Exception as error:
            found = error
        self._answers.append((reading, offset, found))
        self._wake()

    def _take_answers(self, output: PartitionOutput) -> None:
        while self._answers:
            reading, offset, found = self._answers.popleft()
            was_asking, reading.is_asking = reading.is_asking, False
            if self._readings.get(reading.partition.name) is not reading or not (was_asking and reading.is_read):
                continue
            if isinstance(found, Exception):
                output.failed(reading.partition, found)
            elif found.loss is not None:
                reading.next = offset
                self._lose(reading, found)
            else:
                self._continue(reading)

    def _continue(self, reading: TopicReading) -> None:
        """Read a partition on from where it is, if it is still assigned."""
        reading.is_waiting = False
        if self._readings.get(reading.partition.name) is reading and not reading.is_paused:
            self._read_no_more(reading)
            self._read_from(reading)


_error, _value = methodcaller("error"), methodcaller("value")
