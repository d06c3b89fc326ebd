"""The collectors of spouts: rows with message ids, and the signals between them: watermarks, idleness, the end of the input."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import chain, count
from math import inf
from typing import Any, Final, NamedTuple

from topo.api.streams import DEFAULT_STREAM, StreamDeclaration
from topo.emission.emitter import Emitter, ReportError, checked_timestamp
from topo.hot import EmitMessage, EmitMessageOne
from topo.operators.time.watermarks import InputStatus
from topo.wire.codec import Codec

REFUSED: Final = object()
"""Stands for the id of a message that is not sent."""


class PassedOver(NamedTuple):
    """A record that is no row: its message id, its values or bytes, and why it is a dead letter; None: it is none."""

    message: Any
    record: Any
    error: Exception | None


class MessageCollector(EmitMessage, Emitter):
    """For `Spout`: rows with message ids.

    Attributes:
        messages: for each stream, by row: the message id, or None for an untracked tuple.
        signals: signals since the last batch, in order: the number of rows on each stream at that moment, and a watermark,
            `InputStatus.IDLE`, None for the end of the input, a `PassedOver`, or a `PartitionSignal`.
        ended: whether `end_of_input` was called.
        wanted: how many rows there is room for, as the runner has set it for the calls of a burst.
        has_refused: whether REFUSED stands for the id of a message of the batch.
        silent_s: seconds for which the source has no message, by `nothing_before`; None without that call.
    """

    def __init__(
        self, component: str, streams: Sequence[StreamDeclaration], report: ReportError, codec: Codec | None = None
    ) -> None:
        super().__init__(component, streams, report, codec)
        self.messages: tuple[list[Any], ...] = tuple([] for _ in self.streams)
        default = self._by_name.get(DEFAULT_STREAM)
        self._messages: list[Any] = self.messages[default.index] if default is not None else []
        self.signals: list[tuple[list[int], Any]] = []
        self.ended = False
        self.wanted = 0
        self.has_refused = False
        self.silent_s: float | None = None

    elsewhere = "take a BlockingSpout, whose run may emit, or give the call to context.executor.execute(...)"

    def _emit_slow(self, values: Any, message_id: Any, stream: str, timestamp: int | None, task: int | None = None) -> None:
        self.messages[self._append(values, stream, timestamp, task).index].append(message_id)

    def emit_direct(
        self,
        task: int,
        values: Sequence[Any],
        message_id: Any = None,
        stream: str = DEFAULT_STREAM,
        timestamp: int | None = None,
    ) -> None:
        """Emit one tuple of a direct stream to the task with that id."""
        self.messages[self._append(values, stream, timestamp, task).index].append(message_id)

    def emit_watermark(self, timestamp: int) -> None:
        """Promise that no tuple with a timestamp <= `timestamp` follows."""
        self._signal(checked_timestamp(timestamp, f"component {self.component!r} emitted watermark"))

    def mark_idle(self) -> None:
        """Declare the source idle: readers do not wait for its watermarks until the next tuple or watermark."""
        self._signal(InputStatus.IDLE)

    def nothing_before(self, seconds: float) -> None:
        """Declare that the source has no message for that many seconds."""
        self.check_thread()
        if not isinstance(seconds, int | float) or not 0 <= seconds < inf:
            what = f"component {self.component!r}: nothing_before({seconds!r})"
            raise ValueError(f"{what} needs seconds from now, 0 or more: how long next_tuple has nothing to emit")
        self.silent_s = seconds

    def pass_over(self, message_id: Any, record: Any, error: Exception | None) -> None:
        """Pass over a record, in a call that emits nothing: as a dead letter, or without one where there is no error."""
        self._signal(PassedOver(message_id, record, error))

    def take_silence(self) -> float | None:
        """Return `silent_s`, once."""
        seconds, self.silent_s = self.silent_s, None
        return seconds

    def end_of_input(self) -> None:
        """Declare the end of the input."""
        self._signal(None)
        self.ended = True

    def _signal(self, signal: Any) -> None:
        self.check_thread()
        self.signals.append(([len(stream.rows) for stream in self.streams], signal))

    def roll_back(self, rows: list[int], signals: int) -> None:
        """Discard the rows and signals of a call that raised; the input had not ended before it.

        Args:
            rows: how many rows there were before it, by stream.
            signals: how many signals there were before it.
        """
        del self.signals[signals:]
        self.ended = False
        self.silent_s = None
        for stream, messages, kept in zip(self.streams, self.messages, rows, strict=True):
            stream.truncate(kept)
            del messages[kept:]

    def in_order(self) -> list[Any]:
        """Return the message ids in the order of emission; with several streams, of which only an `OrderedCollector` knows it,
        stream by stream."""
        return self.messages[0] if len(self.messages) == 1 else list(chain.from_iterable(self.messages))

    def _streams_in_order(self) -> Iterable[int]:
        """Return the stream of each id that `in_order` returns."""
        return [index for index, messages in enumerate(self.messages) for _ in messages]

    def refuse(self, places: Collection[int]) -> None:
        """Put REFUSED in the place of message ids, by their places in `in_order`."""
        self.has_refused = bool(places)
        if places:
            rows = [count() for _ in self.streams]
            for place, stream in enumerate(list(self._streams_in_order())):
                row = next(rows[stream])
                if place in places:
                    self.messages[stream][row] = REFUSED

    def clear(self) -> None:
        """Begin a new batch."""
        self.has_refused = False
        self.signals.clear()
        for stream, messages in zip(self.streams, self.messages, strict=True):
            stream.clear()
            messages.clear()


class OneFieldMessages(EmitMessageOne, MessageCollector):
    """For a main stream of one field."""


def message_collector(
    component: str,
    streams: Sequence[StreamDeclaration],
    report: ReportError,
    codec: Codec | None = None,
    *,
    has_order: bool = False,
) -> MessageCollector:
    """Return the collector of a `Spout` with these outputs; `has_order`: with the order of its messages over all streams."""
    main = next((one for one in streams if one.name == DEFAULT_STREAM and not one.direct and not one.columnar), None)
    is_narrow = main is not None and len(main.fields) == 1
    kind = OrderedCollector if has_order and len(streams) > 1 else OneFieldMessages if is_narrow else MessageCollector
    return kind(component, streams, report, codec)


class OrderedCollector(MessageCollector):
    """For a spout with positions and several streams: rows are kept by stream, and positions in the order over all of them."""

    def __init__(
        self, component: str, streams: Sequence[StreamDeclaration], report: ReportError, codec: Codec | None = None
    ) -> None:
        super().__init__(component, streams, report, codec)
        self._order: list[Any] = []
        self._streams_of: list[int] = []

    def emit(
        self, values: Sequence[Any], message_id: Any = None, stream: str = DEFAULT_STREAM, timestamp: int | None = None
    ) -> None:
        """Emit one tuple; tracked when it has a message id."""
        super().emit(values, message_id, stream, timestamp)
        self._emitted(message_id, stream)

    def emit_direct(
        self,
        task: int,
        values: Sequence[Any],
        message_id: Any = None,
        stream: str = DEFAULT_STREAM,
        timestamp: int | None = None,
    ) -> None:
        """Emit one tuple of a direct stream to the task with that id."""
        super().emit_direct(task, values, message_id, stream, timestamp)
        self._emitted(message_id, stream)

    def _emitted(self, message_id: Any, stream: str) -> None:
        self._order.append(message_id)
        self._streams_of.append(self._by_name[stream].index)

    def in_order(self) -> list[Any]:
        """Return the message ids in the order of emission."""
        return self._order

    def _streams_in_order(self) -> Iterable[int]:
        return self._streams_of

    def roll_back(self, rows: list[int], signals: int) -> None:
        """Discard the rows and signals of a call that raised."""
        super().roll_back(rows, signals)
        del self._order[sum(rows) :]
        del self._streams_of[sum(rows) :]

    def clear(self) -> None:
        """Begin a new batch."""
        super().clear()
        self._order.clear()
        self._streams_of.clear()
