"""Transactions of one writer: rows and marker in one Kafka transaction, which lives no longer than `commit`.

First fence, then read the marker, then commit. A new producer fences the former process of the writer, which may be alive, and
ends the transaction that it had open; before that the marker cannot be read. So a commit with an unknown end needs nothing else:
the producer is given up, and the next one finds out by the marker.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, wait
from contextlib import suppress
from threading import Thread
from typing import Any, TypeVar

from topo.connectors.kafka.deliveries import fatal_error
from topo.connectors.kafka.marker import CommitMarker
from topo.connectors.kafka.outgoing import OutgoingRecord
from topo.errors import TopoEnvironmentError

T = TypeVar("T")
PATIENCE_S = 15.0
"""How long a step is tried while no broker answers. Then `commit` raises, and is repeated later: other tasks wait meanwhile."""
_SLICE_S = 0.5
_ANSWER_S = 2.0
_PREFIX = "topo."
_PASSING = {
    "_ALL_BROKERS_DOWN",
    "_TIMED_OUT",
    "_TIMED_OUT_QUEUE",
    "_TRANSPORT",
    "_WAIT_COORD",
    "COORDINATOR_LOAD_IN_PROGRESS",
    "COORDINATOR_NOT_AVAILABLE",
    "NOT_COORDINATOR",
    "UNSTABLE_OFFSET_COMMIT",
}
"""Errors of requests outside of transactions that pass."""

_FENCED = {"_FATAL", "_FENCED", "INVALID_PRODUCER_EPOCH", "INVALID_PRODUCER_ID_MAPPING", "PRODUCER_FENCED"}


def is_fenced(error: Any) -> bool:
    """Whether a KafkaException means that a producer of the same writer was made since, or that the broker has forgotten it."""
    cause = error.args[0]
    return bool(cause.fatal() or cause.name() in _FENCED)


def hanging(group: str, topic: str) -> TopoEnvironmentError:
    """Return the error of a marker in a transaction that the brokers do not end."""
    return TopoEnvironmentError(
        f"the brokers answer, but hold a transaction open that has the marker of group {group!r} for topic {topic!r}; nothing is "
        "published meanwhile, since it is unknown which records are published. If this lasts, the transaction "
        "hangs: see the limits in docs/connectors/kafka-sink.md"
    )


class Transactions:
    """The producer of one writer.

    Args:
        settings: of the client, for a producer.
        writer: its name.
        marker_topic: an existing topic, whose partition 0 the marker is stored for.
        progress: called while a broker does not answer.

    Attributes:
        marker: the last published transaction.

    Raises:
        KafkaException: no broker answers, or it refuses.
        TopoEnvironmentError: the brokers hold a transaction with the marker open, which the producer has not ended.
    """

    def __init__(self, settings: Mapping[str, Any], writer: str, marker_topic: str, progress: Callable[[], object]) -> None:
        from confluent_kafka import Producer

        self._progress = progress
        self._topic = marker_topic
        name = _PREFIX + writer
        self._producer = Producer({**settings, "transactional.id": name, "delivery.report.only.error": True})
        # Without a connection the client tries the next step every half second.
        self._patiently(lambda timeout: self._producer.list_topics(marker_topic, timeout))
        self._patiently(self._producer.init_transactions)
        self.marker, self._group = self._read_marker(settings, name)

    def _read_marker(self, settings: Mapping[str, Any], group: str) -> tuple[CommitMarker, Any]:
        from confluent_kafka import Consumer, KafkaException, TopicPartition

        shared = {**settings, "group.id": group, "enable.auto.commit": False}
        place = TopicPartition(self._topic, 0)
        # The published transactions are known by stable offsets alone: the client waits for them with this level.
        consumer = Consumer({**shared, "isolation.level": "read_committed"})
        try:
            (found,) = self._patiently(lambda timeout: _committed(consumer, place, timeout))
            if found.error is not None:
                raise KafkaException(found.error)
            marker = CommitMarker(found.offset, found.metadata or "") if found.offset >= 0 else CommitMarker()
            return marker, consumer.consumer_group_metadata()
        except KafkaException as error:
            if error.args[0].name() == "_TIMED_OUT" and self._answers({**shared, "isolation.level": "read_uncommitted"}, place):
                raise hanging(group, self._topic) from None
            raise
        finally:
            consumer.close()

    def _answers(self, settings: Mapping[str, Any], place: Any) -> bool:
        """Whether the offset of a group is answered where those in open transactions are passed over."""
        from confluent_kafka import Consumer, KafkaException

        self._progress()
        consumer = Consumer(settings)
        try:
            (found,) = consumer.committed([place], timeout=_ANSWER_S)
            return found.error is None
        except KafkaException:
            return False
        finally:
            consumer.close()

    def commit(self, number: int, name: str, records: Iterable[OutgoingRecord]) -> None:
        """Publish records, and the marker with them.

        Raises:
            KafkaException: they are not published, or it is unknown whether they are. This producer is of no use any more.
            Exception: that of `records`; they are not published.
        """
        from confluent_kafka import TopicPartition

        producer = self._producer
        producer.begin_transaction()
        try:
            call = producer.produce
            for topic, value, key, partition, timestamp, headers in records:
                sent = (topic, value, key, partition, None, None, timestamp, [*headers] if headers else None)
                try:
                    call(*sent)
                except BufferError:
                    # The client's queue is full.
                    self._flush()
                    call(*sent)
            self._flush()
            offset = TopicPartition(self._topic, 0, number, metadata=name)
            self._patiently(_beside(lambda: producer.send_offsets_to_transaction([offset], self._group)))
            self._patiently(producer.commit_transaction)
        except BaseException:
            with suppress(Exception):
                # Readers wait behind an open transaction. Whether it could be ended shows when the next producer is made.
                producer.purge()
                producer.abort_transaction(_SLICE_S)
            raise
        self.marker = CommitMarker(number, name)

    def _flush(self) -> None:
        from confluent_kafka import KafkaError, KafkaException

        until = time.monotonic() + PATIENCE_S
        left = None
        try:
            while remaining := self._producer.flush(_SLICE_S):
                if remaining != left:
                    left, until = remaining, time.monotonic() + PATIENCE_S
                if time.monotonic() > until:
                    raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
                self._progress()
        except SystemError as error:
            # So the client reports that the producer was fenced meanwhile, or may not write.
            raise fatal_error(error) from None

    def _patiently(self, call: Callable[[float], T]) -> T:
        from confluent_kafka import KafkaException

        until = time.monotonic() + PATIENCE_S
        while True:
            try:
                return call(_SLICE_S)
            except KafkaException as error:
                cause = error.args[0]
                is_repeatable = cause.retriable() or cause.name() in _PASSING
                if not is_repeatable or cause.txn_requires_abort() or cause.fatal() or time.monotonic() > until:
                    raise
                self._progress()

    def close(self) -> None:
        """Give the producer up. It has no open transaction, but after an error."""
        with suppress(Exception):
            self._producer.purge()
            self._producer.flush(0)


def _committed(consumer: Any, place: Any, timeout: float) -> Any:
    """Return the offset of a group. A refusal comes as an event of the consumer, while the request waits for its whole time."""
    from confluent_kafka import KafkaException

    try:
        return consumer.committed([place], timeout=timeout)
    except KafkaException:
        for event in consumer.consume(10, 0):
            if event.error().name() == "GROUP_AUTHORIZATION_FAILED":
                raise KafkaException(event.error()) from None
        raise


def _beside(call: Callable[[], T]) -> Callable[[float], T]:
    """Return a step for `_patiently` that makes a call on a thread, which is left behind when it takes too long.

    The client keeps to no timeout while the group's coordinator cannot be reached: with several brokers it waits for another
    to be elected. A call that is left behind ends at the latest when the next producer fences this one.
    """
    from confluent_kafka import KafkaError, KafkaException

    running: list[Future[T]] = []

    def run(done: Future[T]) -> None:
        try:
            done.set_result(call())
        except BaseException as error:
            done.set_exception(error)

    def step(timeout: float) -> T:
        if not running:
            running.append(Future())
            Thread(target=run, args=running, name="kafka-offsets", daemon=True).start()
        if not wait(running, timeout).done:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "no coordinator of the group of the marker answers"))
        return running.pop().result()

    return step
