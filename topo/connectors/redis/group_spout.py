"""A spout that reads a Redis stream as a member of a consumer group."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import partial
from heapq import heappop, heappush
from math import nan
from typing import Any, Literal

from topo.api.context import TaskContext
from topo.api.durations import duration_ms
from topo.api.spout import Spout, SpoutCollector
from topo.connectors.argument_checks import checks_arguments
from topo.connectors.record_decoder import Deserialize, deserializer_of
from topo.connectors.redis.client import RedisServer, is_unreachable
from topo.connectors.redis.entries import EntryDecoder, numbers_of
from topo.connectors.redis.group_member import GroupMember, Taken
from topo.connectors.server_link import RequestLine, ServerLink
from topo.connectors.ticker import Ticker
from topo.errors import ConfigError, TopoEnvironmentError

_MOST_EMITTED = 100
"""Entries of one call of `next_tuple`."""
_FIRST_RETRY_S, _LONGEST_RETRY_S = 0.1, 10.0


class RedisGroupSpout(Spout):
    """Emits the entries of one stream that a consumer group gives it: tasks, and other programs, share the stream.

        builder.set_spout("jobs", RedisGroupSpout("redis://localhost", "jobs", "topo", fields=("url",)), 4)

    | delivery | promise |
    | --- | --- |
    | `at_least_once` | no entry is missing; those that were under way repeat after a recovery |
    | `exactly_once` | each entry counts once, unless another task takes it over from a dead one |
    | `at_most_once` | entries can be missing |

    An entry is acknowledged when it is done, or covered by a checkpoint. There is no order. For a stream of which each topology
    is to see all, take `RedisStreamSpout`, which is faster and exact.
    """

    is_endless = True

    @checks_arguments
    def __init__(
        self,
        url: str,
        stream: str,
        group: str,
        *,
        start: Literal["earliest", "latest"] = "earliest",
        fields: Sequence[str] | None = None,
        metadata: Sequence[str] = (),
        value_deserializer: str | Deserialize = "text",
        timestamp: Literal["record"] | None = "record",
        claim_after: str | timedelta = "1m",
        dead_stream: str | None = None,
        batch: int = 1000,
        wait: str | timedelta = "200ms",
        timeout: str | timedelta = "5s",
        config: Mapping[str, Any] | None = None,
    ) -> None:
        """Keep what to read; nothing is connected yet.

        Args:
            url: see `RedisStreamSpout`, as fields, metadata, value_deserializer, timestamp, wait, timeout and config.
            stream: key of the stream; it is made if need be.
            group: name of the consumer group; it is made if need be.
            start: where a group that is made begins: with the first entry, or behind the last one.
            claim_after: entries that a consumer has held for so much time without a sign of life are taken over.
            dead_stream: entries that were given up are appended there: those that were delivered more often than `attempts`, and
                those that cannot be decoded. None: the stream's key and ":dead".
            batch: the most entries of one reply.

        Raises:
            ConfigError: an argument cannot be used, or the client of Redis is missing.
        """
        for name, value in {"stream": stream, "group": group}.items():
            if not isinstance(value, str) or not value:
                raise ConfigError(f"RedisGroupSpout: {name}={value!r} must be a text")
        if batch < 1:
            raise ConfigError(f"RedisGroupSpout: batch={batch!r} must be at least 1")
        if dead_stream == stream:
            raise ConfigError(f"RedisGroupSpout: dead_stream={dead_stream!r} must be another stream")
        self._wait_ms, self._claim_ms = duration_ms(wait), duration_ms(claim_after)
        if not 0 <= self._wait_ms < duration_ms(timeout):
            raise ConfigError(f"RedisGroupSpout: wait={wait!r} must be shorter than timeout={timeout!r}")
        if self._claim_ms < 1000:
            raise ConfigError(f"RedisGroupSpout: claim_after={claim_after!r} must be at least 1s")
        self._decoder = EntryDecoder(fields, metadata, deserializer_of(value_deserializer))
        self.outputs = self._decoder.outputs
        self._stream, self._group, self._start = stream, group, start
        self._dead_stream = dead_stream or f"{stream}:dead"
        self._has_time = timestamp == "record"
        self._batch = batch
        self._server = RedisServer("RedisGroupSpout", url, timeout, config or {})

    def open(self, context: TaskContext, collector: SpoutCollector) -> None:
        """Connect.

        Raises:
            ConfigError: the server refuses this user.
        """
        self._collector, self._clock, self._context = collector, context.clock, context
        self._epoch = context.epoch
        """That of the last `next_tuple`."""
        self._is_replayed = context.config.delivery != "exactly_once"
        self._attempts = context.config.attempts
        link = ServerLink(self._server, context, collector.report_error, is_unreachable, explained=self._server.explained)
        self._client = self._server.connect()
        self._member = GroupMember(
            self._client,
            (self._stream, self._group, self._dead_stream),
            f"{context.topology}.{context.component}.",
            (context.task_index, context.parallelism),
            "0" if self._start == "earliest" else "$",
            self._claim_ms,
            context.clock,
            link.explained,
        )
        self._requests: RequestLine[Taken] = RequestLine(context, link)
        self._most_wait_ms = self._wait_ms if context.has_helper_thread else 0
        self._ready: deque[tuple[str, Any]] = deque()
        self._open: dict[str, Any] = {}
        """Entries that were emitted, by id, until they are done."""
        self._failures: dict[str, int] = {}
        self._retries: list[tuple[float, str]] = []
        self._done: list[str] = []
        self._given_up: list[tuple[str, Any, str]] = []
        # In the test kit the clock stands still while nothing is called.
        self._ticker: Ticker | None = None
        if context.has_helper_thread and context.executor is not None:
            self._ticker = Ticker(context.executor, self._keep, self._claim_ms / 4000, "claims")
            self._ticker.start()
        metrics = context.metrics
        self._records, self._bad, self._dead = map(metrics.counter, ("records", "bad_records", "given_up"))

    def next_tuple(self) -> None:
        """Emit the entries that have come, and those that are to be repeated."""
        self._epoch = self._context.epoch
        self._take()
        while self._retries and self._retries[0][0] <= self._clock():
            entry_id = heappop(self._retries)[1]
            if entry_id in self._open:
                self._emit(entry_id, self._open[entry_id])
        for _ in range(min(_MOST_EMITTED, len(self._ready))):
            entry_id, flat = self._ready.popleft()
            if entry_id not in self._open:
                self._open[entry_id] = flat
                self._records.add()
                self._emit(entry_id, flat)
        self._ask(max(0, self._batch - len(self._ready)), self._most_wait_ms)
        self._take()

    def _keep(self) -> None:
        """Renew claims and acknowledge entries also while the spout may not emit; read nothing."""
        self._take()
        self._ask(0, 0)

    def _emit(self, entry_id: str, flat: Any) -> None:
        try:
            values = self._decoder.values(self._stream, (entry_id.encode(), flat))
        except Exception as error:
            self._bad.add()
            self._give_up(entry_id, f"it cannot be decoded: {error}")
            return
        try:
            self._collector.emit(values, entry_id, timestamp=numbers_of(entry_id.encode())[0] if self._has_time else None)
        except Exception as error:
            # Raised from here it would take the other rows of the call with it.
            self._bad.add()
            self._give_up(entry_id, f"it cannot be emitted: {error}")

    def _give_up(self, entry_id: str, why: str) -> None:
        flat = self._open.pop(entry_id)
        self._failures.pop(entry_id, None)
        self._dead.add()
        self._given_up.append((entry_id, flat, why))
        self._collector.report_error(
            TopoEnvironmentError(f"entry {entry_id} of stream {self._stream!r} goes to {self._dead_stream!r}: {why}")
        )

    def ack(self, message_id: Any) -> None:
        """Have the entry acknowledged with the next request."""
        self._failures.pop(message_id, None)
        if self._open.pop(message_id, None) is not None:
            self._done.append(message_id)

    def fail(self, message_id: Any) -> None:
        """Emit the entry again, after a wait that grows; after `attempts` times give it up. With `exactly_once` at once.

        At once also in a recovery, which fails all that is under way, and is no attempt.
        """
        if message_id not in self._open:
            return
        is_failure = self._is_replayed and self._context.epoch == self._epoch
        if not is_failure:
            heappush(self._retries, (self._clock(), message_id))
            return
        failures = self._failures[message_id] = self._failures.get(message_id, 0) + 1
        if failures >= self._attempts:
            self._give_up(message_id, f"it has failed {failures} times")
            return
        wait_s = min(_FIRST_RETRY_S * 2 ** (failures - 1), _LONGEST_RETRY_S)
        heappush(self._retries, (self._clock() + wait_s, message_id))

    def close(self) -> None:
        """Acknowledge entries that are done, and close the connections. Those under way stay with the consumer of this name."""
        if self._ticker is not None:
            self._ticker.stop()
        try:
            if self._done or self._given_up:
                errors = list[Exception]()
                self._member.settle(self._done, self._given_up, errors)
                for error in errors:
                    self._collector.report_error(error)
        except Exception as error:
            # These entries are emitted again, as after a crash.
            self._collector.report_error(error)
        finally:
            self._client.close()

    def _ask(self, room: int, most_wait_ms: int) -> None:
        if not self._requests.is_free:
            return
        done, given_up = tuple(self._done), tuple(self._given_up)
        wait_ms = 0 if self._ready or done or given_up else most_wait_ms
        held = (*self._open, *(entry_id for entry_id, _ in self._ready), *(entry_id for entry_id, _, _ in given_up))
        self._requests.ask(partial(self._member.turn, done, given_up, held, room, wait_ms), always_wakes=wait_ms > 0)

    def _take(self) -> None:
        answer = self._requests.take()
        if answer is None:
            return
        if isinstance(answer, Exception):
            self._collector.report_error(answer)
            return
        # More may have been done since the request was made.
        del self._done[: answer.settled[0]]
        del self._given_up[: answer.settled[1]]
        for error in answer.errors:
            self._collector.report_error(error)
        waiting = {entry_id for entry_id, _ in self._ready}
        for entry_id, flat, deliveries in answer.entries:
            if entry_id in self._open or entry_id in waiting:
                continue
            if deliveries > self._attempts and self._is_replayed:
                self._open[entry_id] = flat
                self._give_up(entry_id, f"it was delivered {deliveries} times, and not acknowledged")
            else:
                self._ready.append((entry_id, flat))
        # Made when it is known first: 0 would say that nothing is left to read. NaN is not shown.
        lag = nan if answer.waiting is None else answer.waiting + len(self._ready)
        self._context.metrics.gauge("lag").set(lag)
