"""What a spout emits with: rows with message ids, and what it says of event time and of its end."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import chain, count
from typing import Any, Final

from topo.api.streams import DEFAULT_STREAM, StreamDeclaration
from topo.emission.emitter import Emitter, ReportError, checked_timestamp
from topo.operators.state.deep_copy import ATOMS
from topo.operators.time.watermarks import InputStatus
from topo.wire.codec import Codec

REFUSED: Final = object()
"""Stands for the id of a message that is not sent."""


class MessageCollector(Emitter):
    """For `Spout`: rows with message ids.

    Attributes:
        messages: for each stream, by row: the message id, or None for an untracked tuple.
        said: what was said besides rows since the last batch, in order: the number of rows on each stream at that moment, and a
            watermark, `InputStatus.IDLE`, or None for the end of the input.
        ended: whether `end_of_input` was called.
        has_refused: whether REFUSED stands for the id of a message of the batch.
    """

    def __init__(
        self, component: str, streams: Sequence[StreamDeclaration], report: ReportError, codec: Codec | None = None
    ) -> None:
        super().__init__(component, streams, report, codec)
        self.messages: tuple[list[Any], ...] = tuple([] for _ in self.streams)
        default = self._by_name.get(DEFAULT_STREAM)
        self._messages: list[Any] = self.messages[default.index] if default is not None else []
        self.said: list[tuple[list[int], int | InputStatus | None]] = []
        self.ended = False
        self.has_refused = False

    elsewhere = "take a BlockingSpout, whose run may emit, or give the call to context.executor.execute(...)"

    def emit(
        self, values: Sequence[Any], message_id: Any = None, stream: str = DEFAULT_STREAM, timestamp: int | None = None
    ) -> None:
        """Emit one tuple; tracked when it has a message id."""
        if stream is DEFAULT_STREAM and type(values) is tuple and len(values) == self._width:
            for value in values:
                kind = type(value)
                if kind is not str and kind is not int and kind not in ATOMS:
                    break
            else:
                if self._mine._is_owned():
                    if timestamp is not None:
                        self._main.stamps[len(self._rows)] = self._checked(timestamp)
                    self._rows.append(values)
                    self._messages.append(message_id)
                    return
        self.messages[self._append(values, stream, timestamp).index].append(message_id)

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
        self._say(checked_timestamp(timestamp, f"component {self.component!r} emitted watermark"))

    def mark_idle(self) -> None:
        """Say that nobody is to wait for watermarks until the next tuple or watermark."""
        self._say(InputStatus.IDLE)

    def end_of_input(self) -> None:
        """Say that the source has no more."""
        self._say(None)
        self.ended = True

    def _say(self, one: int | InputStatus | None) -> None:
        self.check_thread()
        self.said.append(([len(stream.rows) for stream in self.streams], one))

    def roll_back(self, rows: list[int], said: int) -> None:
        """Discard what a call that raised has emitted and said; the input had not ended before it.

        Args:
            rows: how many rows there were before it, by stream.
            said: how many entries of `said` there were.
        """
        del self.said[said:]
        self.ended = False
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
        self.said.clear()
        for stream, messages in zip(self.streams, self.messages, strict=True):
            stream.clear()
            messages.clear()


class OneFieldMessages(MessageCollector):
    """The same without a loop, for a main stream of one field: the common source, of lines or records."""

    def emit(
        self, values: Sequence[Any], message_id: Any = None, stream: str = DEFAULT_STREAM, timestamp: int | None = None
    ) -> None:
        """Emit one tuple; tracked when it has a message id."""
        if stream is DEFAULT_STREAM and timestamp is None and type(values) is tuple:
            try:
                (one,) = values
            except ValueError:
                pass
            else:
                if (type(one) is str or type(one) in ATOMS) and self._mine._is_owned():
                    self._rows.append(values)
                    self._messages.append(message_id)
                    return
        super().emit(values, message_id, stream, timestamp)


def message_collector(
    component: str,
    streams: Sequence[StreamDeclaration],
    report: ReportError,
    codec: Codec | None = None,
    *,
    has_order: bool = False,
) -> MessageCollector:
    """Return the collector of a `Spout` with these outputs; `has_order`: with the order of its messages over all streams."""
    main = next((stream for stream in streams if stream.name == DEFAULT_STREAM and not stream.direct), None)
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

    def roll_back(self, rows: list[int], said: int) -> None:
        """Discard what a call that raised has emitted and said."""
        super().roll_back(rows, said)
        del self._order[sum(rows) :]
        del self._streams_of[sum(rows) :]

    def clear(self) -> None:
        """Begin a new batch."""
        super().clear()
        self._order.clear()
        self._streams_of.clear()
