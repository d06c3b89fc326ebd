"""From the bolts that users declare to the operators that run them; the same in a task and in a test."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from topo.api.operator_bolts import AsyncBolt, WindowBolt
from topo.api.tuples import Origin, Tuple
from topo.hot import stays
from topo.operators.async_wait import AsyncFunction, ResultHandle
from topo.operators.state.deep_copy import independent
from topo.operators.windows.assigners import Draw
from topo.operators.windows.builder import build_window_operator
from topo.operators.windows.operator import WindowOperator
from topo.operators.windows.rows import WindowRows, source_name

StartCall = Callable[[Coroutine[Any, Any, Any], Callable[[Any, BaseException | None], None]], object]
"""Runs a coroutine on an event loop; the function is called there with its result or its error."""


def window_operator_of(bolt: WindowBolt, inputs: Sequence[Origin], draw: Draw | None = None) -> WindowOperator:
    """Return the operator of a window bolt, which puts out rows: key fields, window start and end, result fields.

    Args:
        bolt: the user's declaration.
        inputs: the streams that it reads; without `sources` all have the same fields.
        draw: as for `build_window_operator`.

    Raises:
        UserError: the parts of the bolt do not go together, or an aggregate is of a field that the input does not have.
    """
    keys, width, fields = len(bolt.key), bolt.result_width, inputs[0].fields
    keeps_rows = bolt.aggregate is None and bolt.reduce is None
    origins = {source_name(origin.component, origin.stream): origin for origin in inputs} if keeps_rows else None

    def result_of(key: Any, window: Any, result: Any) -> tuple[Any, ...]:
        bounds = (getattr(window, "start", None), getattr(window, "end", None))
        values = (result,) if width == 1 else tuple(result)
        return (*((key,) if keys == 1 else key if keys else ()), *bounds, *values)

    return build_window_operator(
        bolt.window,
        trigger=bolt.trigger,
        evictor=bolt.evictor,
        reduce=bolt.reduce,
        aggregate=None if bolt.aggregate is None else bolt.aggregate.bind(fields),
        process=bolt.process,
        allowed_lateness_ms=bolt.allowed_lateness_ms,
        late_stream=bolt.late_stream,
        keyed=bool(bolt.key) or bolt.per_task,
        rows=WindowRows(origins, bolt.sources),
        shows_key=not bolt.per_task,
        result_of=result_of,
        draw=draw,
    )


def as_rows(result: Any) -> list[Any]:
    """Return what a call gave as a list of rows: None is none, a tuple is one."""
    if result is None:
        return []
    return [result] if isinstance(result, tuple) else list(result)


def _own(tup: Tuple) -> Tuple:
    return tup if all(map(stays, tup.values)) else Tuple(independent(tup.values), tup.origin, tup.timestamp)


class BoltCalls(AsyncFunction):
    """Begins the calls of an async bolt. A call may change values in place: each gets the tuple as it arrived.

    Args:
        run: runs a call on the event loop.
    """

    def __init__(self, bolt: AsyncBolt, run: StartCall) -> None:
        self._bolt = bolt
        self._run = run

    def invoke(self, value: Any, handle: ResultHandle) -> None:

        async def call() -> list[Any]:
            return as_rows(await self._bolt.call(_own(value)))

        def done(rows: Any, error: BaseException | None) -> None:
            if error is not None:
                handle.complete_exceptionally(error)
            else:
                handle.complete(rows)

        self._run(call(), done)

    def timeout(self, value: Any, handle: ResultHandle) -> None:
        try:
            handle.complete(as_rows(self._bolt.on_timeout(_own(value))))
        except Exception as error:
            handle.complete_exceptionally(error)
