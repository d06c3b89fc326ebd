"""Functions of a firing window: emit the aggregate as it is, or call a user's function with the contents."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct

from topo.api.metrics import Metrics
from topo.api.streams import DEFAULT_STREAM
from topo.api.tuples import Tuple
from topo.api.windows import ProcessWindowFunction
from topo.errors import UserError
from topo.operators.base import Output
from topo.operators.state.deep_copy import independent
from topo.operators.state.keyed_state import KeyedState
from topo.operators.time.timers import TimerClocks, TimerService
from topo.operators.windows.contents import WindowContents
from topo.operators.windows.rows import WindowRows, difference
from topo.user_errors import call_for_effect

if TYPE_CHECKING:
    from topo.api.aggregates import AggregateFunction
    from topo.operators.state.keyed_state import AggregatingState, ListState, MapState, ReducingState, ValueState

PREVIOUS_STATE = "__previous-firing"
H = TypeVar("H", "ValueState", "ListState", "MapState", "ReducingState", "AggregatingState")
ResultOf = Callable[[Any, Any, Any], Any]
"""Makes the row to emit of key, window and result."""
PutResult = Callable[[Any, Any, Any, Callable[[Any], None]], None]
"""Puts the rows of a result out, of key, window, the result, and a function that takes a row."""


class FunctionContext(Struct, frozen=True):
    """The parts of a window operator that its function uses.

    Attributes:
        output: takes the results.
        timers: for the times that a user's function may ask for.
        state: the operator's keyed state.
        is_merging: windows merge, so there is no state by window.
        metrics: of the task.
    """

    output: Output
    timers: TimerService
    state: KeyedState
    contents: WindowContents
    is_merging: bool
    metrics: Metrics


class WindowFunction(ABC):
    """Puts out what a window gives, always with the last timestamp of the window.

    Attributes:
        put_result: in place of `apply` for a result whose rows go to the main stream and need no context; None where that is
            not so. The caller copies the accumulator before, where user code may change the result.
    """

    put_result: PutResult | None = None

    def open(self, context: FunctionContext) -> None:
        """Called once, before the first element."""
        self.output = context.output

    @abstractmethod
    def apply(self, key: Any, window: Any, elements: Sequence[Any]) -> None:
        """Called for each firing with contents; `elements` is one value where the contents are accumulated."""

    def clear(self, key: Any, window: Any) -> None:  # noqa: B027
        """Called when the window is cleaned up."""

    def close(self) -> None:  # noqa: B027
        """Called once, after the last element."""


class EmitResult(WindowFunction):
    """Puts out each value, as `result_of` shapes it."""

    def __init__(self, result_of: ResultOf) -> None:
        self.result_of = result_of
        self.put_result = lambda key, window, value, put: put(result_of(key, window, value))

    def apply(self, key: Any, window: Any, elements: Sequence[Any]) -> None:
        for value in elements:
            self.output.emit(self.result_of(key, window, value), window.max_timestamp)


class CallUser(WindowFunction):
    """Calls a `ProcessWindowFunction`.

    Args:
        rows: reads the elements.
        shows_key: False where the key is the operator's own, and the user's is None.
    """

    def __init__(self, function: ProcessWindowFunction, rows: WindowRows, shows_key: bool = True) -> None:
        self._function = function
        self._rows = rows
        self._shows_key = shows_key

    def open(self, context: FunctionContext) -> None:
        super().open(context)
        keeps = self._function.keeps_previous
        previous = None if keeps is None else context.state.value(PREVIOUS_STATE, ttl=keeps)
        self._context = _Context(context, self._rows, previous)
        self._function.open()
        self.put_result = self._function.put_result if self._shows_key and previous is None else None

    def apply(self, key: Any, window: Any, elements: Sequence[Any]) -> None:
        context = self._context
        context.window, context.elements = window, elements
        shown = key if self._shows_key else None
        call_for_effect(self._function.process, shown, context.own(self._rows.plain(elements)), context, context)
        if context.previous is not None:
            context.previous.set(list(elements))

    def clear(self, key: Any, window: Any) -> None:
        self._context.window = window
        self._function.clear(self._context)

    def close(self) -> None:
        self._function.close()


class _Context(TimerClocks):
    """Context and collector of the user's function; one object for all, pointed at the window at hand before each call."""

    def __init__(self, context: FunctionContext, rows: WindowRows, previous: ValueState | None) -> None:
        super().__init__(context.timers)
        self.window: Any = None
        self.elements: Sequence[Any] = ()
        self.metrics = context.metrics
        self.previous = previous
        """The elements of the last firing for this key."""
        self._rows = rows
        self._context = context
        self._output = context.output

    @property
    def window_state(self) -> NamespacedState:
        if self._context.is_merging:
            raise UserError("windows that merge have no state of their own; keep it per key (global_state)")
        return NamespacedState(self._context.state, self.window)

    @property
    def global_state(self) -> NamespacedState:
        return NamespacedState(self._context.state, None)

    @property
    def rows(self) -> list[Tuple]:
        return self._rows.tuples(self.own(self.elements))

    @property
    def new(self) -> list[Tuple]:
        return self._rows.tuples(self.own(difference(self.elements, self._last())))

    @property
    def expired(self) -> list[Tuple]:
        return self._rows.tuples(self.own(difference(self._last(), self.elements)))

    def own(self, elements: Sequence[Any]) -> Sequence[Any]:
        """Return the elements for user code, which may change them: other windows and firings have them, too."""
        return independent(elements) if self._context.contents.may_change else elements

    def _last(self) -> Sequence[Any]:
        if self.previous is None:
            raise UserError('new and expired need the last firing: set keeps_previous in the class, such as "1h"')
        return self.previous.get() or ()

    def emit(self, values: Any, stream: str = DEFAULT_STREAM) -> None:
        if stream == DEFAULT_STREAM:
            self._output.emit(values, self.window.max_timestamp)
        elif stream:
            self._output.side(stream, values, self.window.max_timestamp)
        else:
            raise UserError("a side output needs the name of a stream")


class NamespacedState:
    """The keyed state of one namespace: handles as `KeyedState` gives them, pointed at the namespace."""

    def __init__(self, state: KeyedState, namespace: Any) -> None:
        self._state = state
        self._namespace = namespace

    def value(self, name: str, **options: Any) -> ValueState:
        return self._pointed(self._state.value(name, **options))

    def list(self, name: str, **options: Any) -> ListState:
        return self._pointed(self._state.list(name, **options))

    def map(self, name: str, **options: Any) -> MapState:
        return self._pointed(self._state.map(name, **options))

    def reducing(self, name: str, reduce: Callable[[Any, Any], Any], **options: Any) -> ReducingState:
        return self._pointed(self._state.reducing(name, reduce, **options))

    def aggregating(self, name: str, aggregate: AggregateFunction, **options: Any) -> AggregatingState:
        return self._pointed(self._state.aggregating(name, aggregate, **options))

    def _pointed(self, handle: H) -> H:
        handle.namespace = self._namespace
        return handle
