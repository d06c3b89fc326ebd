"""What a sink asks Kafka besides writing: the topics that there are, and what they take."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from importlib import import_module
from math import inf
from typing import Any

from topo.connectors.kafka.outgoing import TopicLimits
from topo.connectors.kafka.settings import explaining, is_unanswered, refused_login
from topo.errors import SinkBlockedError

ANSWER_S = 15.0
_SLICE_S = 0.5
_BROKER_BYTES = 1_048_588
"""`max.message.bytes` where nothing else is set."""


class Targets:
    """The topics of a sink, asked for once each.

    Args:
        settings: of the client.
        progress: called while a broker does not answer.
    """

    def __init__(self, settings: Mapping[str, Any], progress: Callable[[], object]) -> None:
        from confluent_kafka.admin import AdminClient

        self._settings = settings
        self._progress = progress
        self._limits: dict[str, TopicLimits] = {}
        self._reported: list[Any] = []
        # A client that may write asks for the right to write, and cannot be used any more without it.
        options: dict[str, Any] = {**settings, "enable.idempotence": False, "error_cb": self._reported.append}
        with explaining("Kafka's client cannot be made", settings):
            self._admin = AdminClient(options)

    def limits(self, topic: str, partition: int = 0) -> TopicLimits:
        """Return the limits of a topic; it is asked for once more when it has had no such partition.

        Raises:
            SinkBlockedError: no broker answers.
            TopoError: there is no such topic, or it may not be written. Both have the fix.
        """
        found = self._limits.get(topic)
        if found is None or partition >= found.partitions:
            found = self._limits[topic] = TopicLimits(self._partitions(topic), *self._settings_of(topic))
        return found

    def is_missing(self, topic: str) -> bool:
        """Whether the brokers answer that they do not have a topic: the client reports only that a record is late."""
        from confluent_kafka import KafkaException

        try:
            error = self._admin.list_topics(topic, timeout=_SLICE_S).topics[topic].error
        except KafkaException:
            return False
        return error is not None and error.name() == "UNKNOWN_TOPIC_OR_PART"

    def _partitions(self, topic: str) -> int:
        from confluent_kafka import KafkaException

        until = time.monotonic() + ANSWER_S
        self._reported.clear()
        # A topic of a tuple may be asked for at any time: the tuple is not at fault.
        with explaining(f"topic {topic!r} cannot be written", self._settings, self._reported, SinkBlockedError):
            while True:
                try:
                    found = self._admin.list_topics(topic, timeout=_SLICE_S).topics[topic]
                    if found.error is not None:
                        raise KafkaException(found.error)
                    return len(found.partitions)
                except KafkaException as error:
                    # Errors of the connection come only here.
                    self._admin.poll(0)
                    is_passing = error.args[0].name() in ("_TRANSPORT", "_TIMED_OUT", "LEADER_NOT_AVAILABLE")
                    if not is_passing or refused_login(self._reported) is not None or time.monotonic() > until:
                        raise
                    self._progress()

    def _settings_of(self, topic: str) -> tuple[int, bool, float, float, float]:
        # The client's types leave this name out.
        kinds: Any = import_module("confluent_kafka.admin")
        resource = kinds.ConfigResource(kinds.ConfigResource.Type.TOPIC, topic)
        until = time.monotonic() + ANSWER_S + _SLICE_S
        with explaining(f"the limits of topic {topic!r} cannot be looked up", self._settings, self._reported, SinkBlockedError):
            answer = self._admin.describe_configs([resource], request_timeout=ANSWER_S)[resource]
            while not answer.done() and time.monotonic() < until:
                self._admin.poll(0.01)
            try:
                found = answer.result(0)
                past_ms, future_ms, kept_ms = inf, inf, inf
                policies, is_own_time = (
                    found["cleanup.policy"].value.split(","),
                    found["message.timestamp.type"].value == "CreateTime",
                )
                # Brokers before 3.6 have one setting for both.
                if is_own_time and "message.timestamp.after.max.ms" in found:
                    past_ms = float(found["message.timestamp.before.max.ms"].value)
                    future_ms = float(found["message.timestamp.after.max.ms"].value)
                # -1 is for ever.
                if is_own_time and "delete" in policies and (limit_ms := float(found["retention.ms"].value)) >= 0:
                    kept_ms = limit_ms
                return int(found["max.message.bytes"].value), "compact" in policies, past_ms, future_ms, kept_ms
            except Exception as error:
                # Who may write need not have the right to see this. Then other settings of a topic are found out by its refusals.
                if is_unanswered(error):
                    raise
        return _BROKER_BYTES, False, inf, inf, inf
