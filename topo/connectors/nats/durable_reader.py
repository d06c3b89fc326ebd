"""Reads a durable consumer for one task, whose one partition it is. Positions are counted."""

from __future__ import annotations

import re
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from topo.api.context import TaskContext
from topo.api.partition_values import Partition, PartitionOutput
from topo.connectors.counted_messages import CountedMessages
from topo.connectors.nats.durable_consumer import DurableConsumer, DurableMessage, TurnOutcome
from topo.connectors.nats.subject_feed import NatsMessage, NatsPosition
from topo.connectors.server_link import RequestLine, ServerLink
from topo.connectors.ticker import Ticker

_MOST_DONE = 20_000
"""Messages that are remembered when they are done: the server may not have seen that, and give them again."""


class DurableReader:
    """A `PartitionReader`.

    Args:
        consumer: gives the messages.
        link: to the server.
        context: of the task.
        report: takes errors.
        row_of: returns the values of a message.
        has_time: whether the time at which the server has stored it is its event time.
        batch: the most messages that are fetched ahead.
        ack_wait_s: of the consumer.
        close: closes the connection.
    """

    def __init__(
        self,
        consumer: DurableConsumer,
        link: ServerLink,
        context: TaskContext,
        report: Callable[[BaseException], object],
        row_of: Callable[[NatsMessage], tuple[Any, ...]],
        *,
        has_time: bool,
        batch: int,
        ack_wait_s: float,
        close: Callable[[], object],
    ) -> None:
        self._consumer, self._context, self._report, self._close = consumer, context, report, close
        self._batch = batch
        self._line: RequestLine[TurnOutcome] = RequestLine(context, link)
        self._messages: CountedMessages[DurableMessage] = CountedMessages(
            lambda one: row_of(one.message),
            lambda one: one.message.data,
            (lambda one: one.message.timestamp) if has_time else None,
        )
        self._ready: deque[DurableMessage] = deque()
        self._held: OrderedDict[int, DurableMessage] = OrderedDict()
        """Those that are not done, by sequence number, in the order of their rows."""
        self._done: list[str] = []
        """Replies of those that are done, and not acknowledged yet."""
        self._sent = 0
        """How many of them are in the request that is under way."""
        self._was_done: OrderedDict[int, NatsPosition] = OrderedDict()
        self._lag: int | None = None
        self._refusal = ""
        """The last one of the server, which was reported, without numbers."""
        self._partition: Partition | None = None
        self._is_paused = False
        metrics = context.metrics
        self._bytes = metrics.counter("bytes")
        self._ticker: Ticker | None = None
        if context.has_helper_thread and context.executor is not None:
            # The server is to know that messages are held also while the spout may not emit.
            self._ticker = Ticker(context.executor, self._keep, ack_wait_s / 4, "held messages")
            self._ticker.start()

    # -- called by the engine ------------------------------------------------------------------------------------------------

    def assign(self, partition: Partition, position: Any, _found_later: bool) -> Any:
        """Read; polled messages that were not taken are given again."""
        self._partition = partition
        return self._messages.back_to(position)

    def release(self, _partition: Partition) -> None:
        """Read no more for now."""
        self._partition, self._is_paused = None, False

    def pause(self, _partition: Partition, paused: bool) -> None:
        """Give no messages for a while."""
        self._is_paused = paused

    def poll(self, output: PartitionOutput) -> None:
        """Give the messages that have come, and ask for more."""
        self._take()
        if self._partition is not None and not self._is_paused:
            self._messages.give(output, self._partition, self._next)
            self._ask(max(0, self._batch - len(self._ready)))
            # In the test kit the answer has come.
            self._take()

    def committed(self, positions: Mapping[str, Any]) -> None:
        """Have messages acknowledged with the next request."""
        for position in positions.values():
            while self._held and 0 < (first := next(iter(self._held.values()))).position <= (position or 0):
                sequence = first.message.sequence
                del self._held[sequence]
                self._done.append(first.reply)
                self._was_done[sequence] = first.message.position
        while len(self._was_done) > _MOST_DONE:
            self._was_done.popitem(last=False)

    def lag(self) -> int | None:
        """Return how many messages wait here; the first task adds those that the consumer has not given to any."""
        if self._context.task_index:
            return len(self._ready)
        return None if self._lag is None else self._lag + len(self._ready)

    def close(self) -> None:
        """Acknowledge done messages, and close the connection. The consumer gives the rest again, to any of its readers."""
        if self._ticker is not None:
            self._ticker.stop()
        # Behind a request that is under way.
        self._context.run_beside(partial(self._end, tuple(self._done)))

    def _end(self, done: tuple[str, ...]) -> None:
        try:
            if done:
                self._consumer.turn(done, (), 0)
        except Exception as error:
            # They are given to a reader once more, as after a crash.
            self._context.logger.info("done messages are not acknowledged: %s", error)
        finally:
            self._close()

    # -- requests ------------------------------------------------------------------------------------------------------------

    def _keep(self) -> None:
        self._take()
        self._ask(0)

    def _ask(self, room: int) -> None:
        if not self._line.is_free:
            return
        done = tuple(self._done)
        self._sent = len(done)
        held = [*(one.reply for one in self._held.values()), *(one.reply for one in self._ready)]
        self._line.ask(partial(self._consumer.turn, done, held, room), always_wakes=False)

    def _take(self) -> None:
        answer = self._line.take()
        if answer is None:
            return
        refusal = answer if isinstance(answer, Exception) else answer.refusal
        # That of an acknowledgement has the numbers of its message.
        text = re.sub(r"\d+", "", str(refusal or ""))
        if refusal is not None and text != self._refusal:
            self._report(refusal)
        self._refusal = text
        if isinstance(answer, Exception):
            return
        # More may be done since the request was made.
        del self._done[: self._sent]
        self._sent = 0
        self._lag = self._lag if answer.lag is None else answer.lag
        self._ready += answer.messages

    def _next(self, room: int) -> Iterator[DurableMessage]:
        for _ in range(min(room, len(self._ready))):
            one = self._ready.popleft()
            sequence = one.message.sequence
            held = self._held.get(sequence)
            known = held.message.position if held is not None else self._was_done.get(sequence)
            if known is not None and known != one.message.position:
                self._begin_again()
                held = None
            if held is not None:
                # It was held longer than the consumer waits: it has been given again, and is acknowledged there.
                held.reply = one.reply
            elif sequence in self._was_done:
                self._done.append(one.reply)
            else:
                self._held[sequence] = one
                self._bytes.add(len(one.message.data))
                yield one

    def _begin_again(self) -> None:
        """Forget all messages: the stream was made again, where their acknowledgements would be those of other messages."""
        self._held.clear()
        self._was_done.clear()
        self._done.clear()
        self._sent = 0
