"""Groups elements into batches by count and time, and takes a batch apart that raises.

    open      takes elements; one for each key
    ready     full, or `wait_ms` old: waits for its call, in the order of its first element
    (halves)  a call that raised for several elements: each half is ready again, before everything else

A watermark or a change of idleness that arrives while elements are held waits until the batches that are open or ready at that
moment are done, so that nothing is late which was on time.

Pure. The driver decides when a ready batch is called (`run_one`), so that it can do other things between two calls.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Any, Protocol

from topo.api.batch_bolt import BatchSettings
from topo.operators.base import Operator
from topo.operators.time.clock import ClockTimer

MOST_HELD = 65_535
"""Elements that are held in open batches at most; beyond it the oldest batch is ready early."""


class BatchFunction(Protocol):
    """The functions that the operator calls."""

    def call(self, values: list[Any]) -> None:
        """Process a batch. An exception has left no trace: it is followed by calls for the parts of the batch."""

    def split(self, error: Exception) -> None:
        """The call for several elements has raised; each half is called next. Raise to fail the task."""

    def failed(self, value: Any, error: Exception) -> None:
        """The call for this element alone has raised; it is done. Raise to fail the task."""


class _Batch:
    __slots__ = ("key", "number", "timer", "values")

    def __init__(self, number: int, key: Any, values: list[Any]) -> None:
        self.number = number
        self.key = key
        self.values = values
        self.timer: ClockTimer | None = None


class BatchOperator(Operator):
    """Groups elements by key into batches of at most `size`, none older than `wait_ms`.

    Attributes:
        held: how many elements are in open and ready batches.
    """

    def __init__(self, function: BatchFunction, settings: BatchSettings) -> None:
        self.held = 0
        self._function = function
        self._settings = settings
        self._open: dict[Any, _Batch] = {}
        self._ready: deque[_Batch] = deque()
        self._number = 0
        """Of the batch that was opened last."""
        self._news: deque[tuple[int, int | bool]] = deque()
        """Watermarks (int) and changes of idleness (bool), each with the number of the last batch that it waits for."""

    @property
    def has_ready(self) -> bool:
        return bool(self._ready)

    def process_element(self, key: Any, value: Any, timestamp: int | None) -> None:
        batch = self._open.get(key)
        if batch is None:
            batch = self._open[key] = self._new(key, [])
            if self._settings.size > 1:
                clock = self.context.clock
                batch.timer = clock.register(clock.now_ms() + self._settings.wait_ms, lambda _due: self._close_batch(batch))
        batch.values.append(value)
        self.held += 1
        if len(batch.values) >= self._settings.size:
            self._close_batch(batch)
        elif self.held > MOST_HELD and self._open:
            self._close_batch(next(iter(self._open.values())))

    def process_alone(self, key: Any, value: Any) -> None:
        """Make the element a batch alone, behind the batches that are ready."""
        self._ready.append(self._new(key, [value]))
        self.held += 1

    def process_watermark(self, timestamp: int) -> None:
        """Pass the watermark on behind the elements that are held."""
        self._news.append((self._number, timestamp))
        self._pass_news()

    def process_idle(self, idle: bool) -> None:
        """Pass the change on behind the elements that are held."""
        self._news.append((self._number, idle))
        self._pass_news()

    def close_batches(self) -> None:
        """Make all open batches ready, the oldest first."""
        for batch in list(self._open.values()):
            self._close_batch(batch)

    def end_of_input(self) -> None:
        self.close_batches()
        while self._ready:
            self.run_one()

    def run_one(self) -> None:
        """Call for the batch that has been ready for longest."""
        batch = self._ready.popleft()
        values = batch.values
        try:
            self._function.call(values)
        except Exception as error:
            if len(values) > 1:
                middle = len(values) // 2
                for half in (values[middle:], values[:middle]):
                    self._ready.appendleft(_Batch(batch.number, batch.key, half))
                self._function.split(error)
                return
            self.held -= 1
            self._function.failed(values[0], error)
        else:
            self.held -= len(values)
        self._pass_news()

    def values(self) -> Iterator[Any]:
        for batch in (*self._open.values(), *self._ready):
            yield from batch.values

    @property
    def next_values(self) -> list[Any]:
        """The elements of the batch that `run_one` calls for next."""
        return self._ready[0].values

    def close(self) -> None:
        for batch in self._open.values():
            if batch.timer is not None:
                batch.timer.cancel()
        self._open.clear()
        self._ready.clear()
        self._news.clear()
        self.held = 0

    def _new(self, key: Any, values: list[Any]) -> _Batch:
        self._number += 1
        return _Batch(self._number, key, values)

    def _close_batch(self, batch: _Batch) -> None:
        if batch.timer is not None:
            batch.timer.cancel()
        del self._open[batch.key]
        self._ready.append(batch)

    def _pass_news(self) -> None:
        """Pass on what waits for no batch any more."""
        if not self._news:
            return
        # Open batches are in the order of their numbers, those that are ready need not be.
        oldest_open = [batch.number for batch in islice(self._open.values(), 1)]
        first = min((*oldest_open, *(batch.number for batch in self._ready)), default=self._number + 1)
        while self._news and self._news[0][0] < first:
            _, news = self._news.popleft()
            if isinstance(news, bool):
                super().process_idle(news)
            else:
                super().process_watermark(news)
