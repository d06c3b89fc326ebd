"""Requests to Kafka besides reading: the topics that there are with their ids, and the offsets of places. All of them block."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from datetime import datetime
from typing import Any

from topo.api.partition_values import Partition
from topo.connectors.kafka.offsets import BEGINNING, Place
from topo.connectors.kafka.settings import explaining, refused_login
from topo.errors import NotFoundError

ANSWER_S = 15.0
"""How long a request may take before it has failed."""

_PROBE_S = 1.0
_PASSING = {"COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR", "UNSTABLE_OFFSET_COMMIT"}


def partition_of(topic: str, number: int) -> Partition:
    """Return a partition of a topic as the engine knows it."""
    return Partition(f"{topic}-{number}", topic, number)


def client_partition(partition: Partition, offset: int | None = None) -> Any:
    """Return a partition as the client knows it, with an offset where one is given."""
    from confluent_kafka import TopicPartition

    number = -1 if partition.number is None else partition.number
    return TopicPartition(partition.group, number) if offset is None else TopicPartition(partition.group, number, offset)


class Cluster:
    """The topics of a cluster, asked for by another client than that which reads. Threads may share it.

    Args:
        settings: of the client.
        topics: names; None: those that match the pattern.
        pattern: a regular expression.

    Attributes:
        revision: rises when a topic has another id.
        only_topic: its name; None: there may be several.
    """

    def __init__(self, settings: Mapping[str, Any], topics: Sequence[str] | None, pattern: str | None) -> None:
        from confluent_kafka.admin import AdminClient

        self._settings = settings
        # A client that gives up earlier is not waited for.
        self._answer_s = min(ANSWER_S, float(settings.get("socket.timeout.ms", 60_000)) / 1000)
        self._topics = topics
        self.only_topic = topics[0] if topics is not None and len(topics) == 1 else None
        self._pattern = None if pattern is None else re.compile(pattern)
        self._ids: dict[str, str] = {}
        self.revision = 0
        self._errors: list[Any] = []
        """Reported by the client: the reason why a request was not answered."""
        with explaining("Kafka's client cannot be made", settings):
            options: dict[str, Any] = {**settings, "error_cb": self._errors.append}
            self._admin = AdminClient(options)

    def partitions(self, *, all_named: bool) -> list[Partition]:
        """Return the partitions of the topics that are to be read and exist.

        Args:
            all_named: whether a topic that was named and does not exist is an error.

        Raises:
            TopoError: a topic is missing or cannot be read, or no broker answers; it has the fix.
        """
        self._errors.clear()
        names = self._names() if self._topics is None else self._topics
        found = self._described(names, all_named=all_named and self._topics is not None)
        return [partition_of(topic.name, number) for topic in found for number in sorted(one.id for one in topic.partitions)]

    def id_of(self, name: str) -> str:
        """Return the id of a topic as of the last look; looks where there was none. Raises as `partitions` does."""
        known = self._ids.get(name)
        return self.looked_up(name) if known is None else known

    def looked_up(self, name: str) -> str:
        """Return the id of a topic as it is now. Raises as `partitions` does."""
        return _id_of(self._described([name], all_named=True)[0])

    def forget(self, name: str) -> None:
        """Have `id_of` look once more."""
        self._ids.pop(name, None)

    def ends(self, partitions: Sequence[Partition]) -> dict[str, int]:
        """Return, by partition, the offset behind the last record that is committed. Raises KafkaException."""
        from confluent_kafka import IsolationLevel, admin

        # The module does not declare that name for type checkers.
        specification: Any = admin
        asked = {client_partition(one): specification.OffsetSpec.latest() for one in partitions}
        options = {"isolation_level": IsolationLevel.READ_COMMITTED, "request_timeout": self._answer_s}
        answers = self._admin.list_offsets(asked, **options)
        return {partition_of(one.topic, one.partition).name: answer.result().offset for one, answer in answers.items()}

    def bounds(self, partition: Partition, isolation: str) -> tuple[int, int]:
        """Return the first offset that a partition has, and that behind its last record. Raises KafkaException."""
        from confluent_kafka import IsolationLevel, admin

        specification: Any = admin
        asked = client_partition(partition)
        level = IsolationLevel.READ_COMMITTED if isolation == "read_committed" else IsolationLevel.READ_UNCOMMITTED
        options = {"isolation_level": level, "request_timeout": self._answer_s}
        kinds = specification.OffsetSpec.earliest(), specification.OffsetSpec.latest()
        low, high = (self._admin.list_offsets({asked: kind}, **options)[asked].result().offset for kind in kinds)
        return low, high

    def committed(self, group: str, partitions: Sequence[Partition]) -> dict[str, int]:
        """Return, by partition, the offset of a group, or BEGINNING where it has none. Raises KafkaException."""
        from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException

        if not partitions:
            return {}
        # A consumer would be asked in vain: it does not say that the user has no right to the group.
        asked = ConsumerGroupTopicPartitions(group, [client_partition(one) for one in partitions])
        until = time.monotonic() + self._answer_s
        while True:
            try:
                answer = self._admin.list_consumer_group_offsets([asked], require_stable=True, request_timeout=self._answer_s)
                places = answer[group].result().topic_partitions
                break
            except KafkaException as error:
                if not (error.args[0].retriable() or error.args[0].name() in _PASSING) or time.monotonic() > until:
                    raise
                time.sleep(0.1)
        for one in places:
            if one.error is not None:
                raise KafkaException(one.error)
        return {partition_of(one.topic, one.partition).name: one.offset if one.offset >= 0 else BEGINNING for one in places}

    def probe(self, topic: str) -> None:
        """Ask a broker for a topic. Raises KafkaException when none answers."""
        self._admin.list_topics(topic, timeout=_PROBE_S)

    def _names(self) -> list[str]:
        assert self._pattern is not None
        with explaining("the topics cannot be listed", self._settings, self._errors):
            known = self._admin.list_topics(timeout=self._answer_s).topics
        return sorted(name for name in known if self._pattern.search(name) and not name.startswith("__"))

    def _described(self, names: Sequence[str], *, all_named: bool) -> list[Any]:
        from confluent_kafka import TopicCollection

        if not names:
            return []
        with explaining("the topics cannot be looked up", self._settings, self._errors):
            answers = self._admin.describe_topics(TopicCollection(list(names)), request_timeout=self._answer_s)
        found = []
        for name in names:
            try:
                topic = self._answered(name, answers[name])
            except NotFoundError:
                if all_named:
                    raise
                continue
            found.append(topic)
            if self._ids.get(name) != _id_of(topic):
                self._ids[name] = _id_of(topic)
                self.revision += 1
        return found

    def _answered(self, name: str, answer: Future[Any]) -> Any:
        until = time.monotonic() + 2 * self._answer_s
        with explaining(f"topic {name!r} cannot be read", self._settings, self._errors):
            while True:
                try:
                    return answer.result(0.2)
                except FutureTimeoutError:
                    # It calls back only then.
                    self._admin.poll(0)
                    # A wrong password is reported at once, and the request would wait for its whole time.
                    if time.monotonic() > until or refused_login(self._errors) is not None:
                        from confluent_kafka import KafkaError, KafkaException

                        raise KafkaException(KafkaError(KafkaError._TIMED_OUT)) from None


def _id_of(topic: Any) -> str:
    """Return the id of a topic that the client describes; "" where the broker has no ids."""
    return str(topic.topic_id or "")


def next_offsets(consumer: Any, place: Place, partitions: Sequence[Partition]) -> dict[str, int]:
    """Return, by partition, the offset of the first record at or behind a place; BEGINNING for the first that there is.

    Args:
        consumer: a client.
        place: "earliest", "latest", a moment, or offsets by partition; where these leave one out it is BEGINNING.
        partitions: they exist.

    Raises:
        KafkaException: a request was refused or not answered.
    """
    asked: Callable[..., Any]
    if not partitions or place is None or place == "earliest":
        return {one.name: BEGINNING for one in partitions}
    if isinstance(place, Mapping):
        return {one.name: place.get(one.name, BEGINNING) for one in partitions}
    if isinstance(place, datetime):
        moment, asked = int(place.timestamp() * 1000), consumer.offsets_for_times
        answers = asked([client_partition(one, moment) for one in partitions], timeout=ANSWER_S)
    else:
        return {one.name: _end(consumer, one) for one in partitions}
    found = {}
    for one in answers:
        if one.error is not None:
            from confluent_kafka import KafkaException

            raise KafkaException(one.error)
        partition = partition_of(one.topic, one.partition)
        # No record is as late as that moment: the end.
        found[partition.name] = one.offset if one.offset >= 0 else _end(consumer, partition)
    return found


def _end(consumer: Any, partition: Partition) -> int:
    end: int = consumer.get_watermark_offsets(client_partition(partition), timeout=ANSWER_S)[1]
    return end
