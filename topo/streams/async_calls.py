"""The bolt of `async_map`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from inspect import isawaitable
from typing import Any

from topo.api.async_io import AsyncMode, ResultPredicate, RetryStrategy
from topo.api.context import TaskContext
from topo.api.operator_bolts import AsyncBolt
from topo.api.tuples import Tuple
from topo.streams.chain import opener
from topo.streams.records import Layout


class _RetryOfRecords(RetryStrategy):
    """A user's strategy, whose predicate of results takes records, for the rows that they are here."""

    def __init__(self, given: RetryStrategy, asks: ResultPredicate, record: Callable[[Any], Any]) -> None:
        self._given = given
        self.error_predicate = given.error_predicate
        self.result_predicate = lambda rows: asks([record(row) for row in rows])

    def can_retry(self, attempt: int) -> bool:
        return self._given.can_retry(attempt)

    def backoff_ms(self, attempt: int) -> int:
        return self._given.backoff_ms(attempt)


class AsyncCall(AsyncBolt):
    """Makes a record of each record by a call of an async function.

    Args:
        function: the user's; an object with `open(context)` is opened once in each task, as that of `on_timeout` is.
        layout: of the records that it reads.
        results: layout of the results.
        settings: the arguments of `async_map`.
        place: of the operator, for errors.
    """

    def __init__(
        self, function: Callable[[Any], Awaitable[Any]], layout: Layout, results: Layout, settings: Mapping[str, Any], place: str
    ) -> None:
        mode = AsyncMode.ORDERED if settings["ordered"] else AsyncMode.UNORDERED
        retry: RetryStrategy | None = settings["retry"]
        if retry is not None and retry.result_predicate is not None:
            retry = _RetryOfRecords(retry, retry.result_predicate, results.unpacker(0))
        super().__init__(mode, settings["capacity"], settings["timeout"], retry)
        self.outputs = results.fields
        self._function, self._layout, self._results, self._place = function, layout, results, place
        self._on_timeout: Callable[[Any], Any] | None = settings["on_timeout"]

    async def open(self, context: TaskContext) -> None:
        """Compile how records are read and written."""
        self._record = self._layout.unpacker(0)
        self._pack = self._results.packer(self._place)
        for one in {id(one): one for one in (self._function, self._on_timeout)}.values():
            if (begin := opener(one)) is not None and isawaitable(opening := begin(context)):
                await opening

    async def call(self, tup: Tuple) -> Any:
        """Call the function."""
        return [self._row(await self._function(self._record(tup.values)))]

    def on_timeout(self, tup: Tuple) -> Any:
        """Return the result that the user gives in place of the call's."""
        if self._on_timeout is None:
            return super().on_timeout(tup)
        return [self._row(self._on_timeout(self._record(tup.values)))]

    def _row(self, record: Any) -> tuple[Any, ...]:
        packed = self._pack(record)
        return packed if self._results.attributes else (packed,)
