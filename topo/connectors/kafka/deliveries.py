"""Records that are written outside of transactions, in batches: each one is delivered, or comes back with the reason."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from topo.connectors.kafka.outgoing import OutgoingRecord

_SLICE_S = 0.5
_OF_A_BATCH = {"MSG_SIZE_TOO_LARGE", "INVALID_RECORD", "_INVALID_DIFFERENT_RECORD", "INVALID_MSG", "INVALID_TIMESTAMP"}
"""Errors of all records of a batch that are the fault of one, as the client names them."""


def fatal_error(error: Exception) -> Any:
    """Return the client's own error: of a SystemError, which Python makes of one in front of a callback, its cause."""
    from confluent_kafka import KafkaError, KafkaException

    cause = error.__cause__ if isinstance(error, SystemError) else error
    if isinstance(cause, KafkaException):
        return cause
    return KafkaException(KafkaError(KafkaError._FATAL, "the producer cannot be used any more"))


class Deliveries:
    """An idempotent producer.

    Args:
        settings: of the client.
        progress: called while a broker does not answer.
    """

    def __init__(self, settings: Mapping[str, Any], progress: Callable[[], object]) -> None:
        self._settings = {**settings, "delivery.report.only.error": True}
        self._progress = progress
        self._open()

    def _open(self) -> None:
        from confluent_kafka import Producer

        self._producer = Producer(self._settings)

    def send(self, records: Sequence[OutgoingRecord]) -> dict[int, Any]:
        """Write records and wait until each is delivered or given up, which `delivery.timeout.ms` bounds.

        Returns:
            By place in `records`, the client's errors of those that were not delivered.
        """
        from confluent_kafka import KafkaException

        failed: dict[int, Any] = {}
        try:
            self._send(range(len(records)), records, failed)
            # The broker refuses a batch for one of its records. Each is tried alone, so that the others do not fail with it.
            for place in [place for place, error in failed.items() if error.name() in _OF_A_BATCH]:
                del failed[place]
                self._send([place], records, failed)
        except (KafkaException, SystemError) as error:
            # So the client reports that it cannot be used any more. Which records were delivered is not known.
            failed = dict.fromkeys(range(len(records)), fatal_error(error).args[0])
        if any(error.fatal() or error.name() == "_FATAL" for error in failed.values()):
            self.close()
            self._open()
        return failed

    def _send(self, places: Iterable[int], records: Sequence[OutgoingRecord], failed: dict[int, Any]) -> None:
        from confluent_kafka import KafkaException

        def reported(place: int, error: Any, _message: Any) -> None:
            if error is not None:
                failed[place] = error

        call = self._producer.produce
        for place in places:
            topic, value, key, partition, timestamp, headers = records[place]
            sent = (topic, value, key, partition, partial(reported, place), None, timestamp, [*headers] if headers else None)
            try:
                try:
                    call(*sent)
                except BufferError:
                    # The client's queue is full.
                    self._flush()
                    call(*sent)
            except KafkaException as error:
                failed[place] = error.args[0]
        self._flush()

    def _flush(self) -> None:
        while self._producer.flush(_SLICE_S):
            self._progress()

    def close(self) -> None:
        """Give up the records that were not delivered."""
        with suppress(Exception):
            self._producer.purge()
            self._producer.flush(0)
