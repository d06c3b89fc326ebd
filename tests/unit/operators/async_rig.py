"""An async operator under test: an async function whose invocations the test completes by hand."""

from __future__ import annotations

from typing import Any

from tests.unit.operators.rig import Rig
from topo.api.async_io import AsyncMode, AsyncSettings
from topo.operators.async_wait import AsyncFunction, AsyncWaitOperator, ResultHandle

ORDERED, UNORDERED = AsyncMode.ORDERED, AsyncMode.UNORDERED


class Manual(AsyncFunction):
    """Keeps the handle of every invocation, by value, for the test to complete."""

    def __init__(self) -> None:
        self.handles: dict[Any, list[ResultHandle]] = {}
        self.invoked: list[Any] = []

    def invoke(self, value: Any, handle: ResultHandle) -> None:
        self.invoked.append(value)
        self.handles.setdefault(value, []).append(handle)

    def done(self, value: Any, *results: Any, attempt: int = -1) -> None:
        self.handles[value][attempt].complete(list(results) or [value])

    def failed(self, value: Any, error: BaseException | None = None, attempt: int = -1) -> None:
        self.handles[value][attempt].complete_exceptionally(error or ValueError(f"no {value}"))


class Substituting(Manual):
    """Answers a timeout with a value."""

    timeouts = 0

    def timeout(self, value: Any, handle: ResultHandle) -> None:
        self.timeouts += 1
        handle.complete([f"timeout {value}"])


def build(function: AsyncFunction, mode: AsyncMode = ORDERED, **settings: Any) -> AsyncWaitOperator:
    return AsyncWaitOperator(function, AsyncSettings(mode, **settings))


def rig(mode: AsyncMode = ORDERED, function: Manual | None = None, **settings: Any) -> tuple[Rig, Manual]:
    function = function or Manual()
    return Rig(build(function, mode, **settings)), function


def in_flight(r: Rig) -> int:
    assert isinstance(r.operator, AsyncWaitOperator)
    return r.operator.in_flight


def feed(r: Rig, *values: Any) -> None:
    """Feed elements "a1" (timestamp 1) and watermarks (int)."""
    for value in values:
        if isinstance(value, int):
            r.operator.process_watermark(value)
        else:
            r.operator.process_element(None, value, int(value[1:]))
