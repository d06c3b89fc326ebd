"""The contents of a window: the elements or aggregates that it keeps, and the view that its function gets.

Three shapes: one accumulator (reduce, aggregate), the elements (process), or the elements with their timestamps (an evictor). All
live in keyed state, under the current key and the window's namespace.

One element may be in several windows, and in several firings of each. Reduce, aggregate and process functions may change what
they are given in place, so they get copies of elements that can change. Whether there are any is looked up once for each batch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from topo.api.aggregates import AggregateFunction, Count, Mean, Sum, Together, leaves_elements, over_fields
from topo.api.evictors import Evictor, TimestampedValue
from topo.hot import AddField, FieldPlace
from topo.operators.state.deep_copy import all_stay, independent
from topo.operators.state.keyed_state import AggregatingState, KeyedState, ListState, ReducingState

CONTENTS_STATE = "__window-contents"

Apply = Callable[[Sequence[Any]], None]
Reduce = Callable[[Any, Any], Any]
Summarise = Callable[[Sequence[Any]], Sequence[Any]]
Evicted = Callable[[Sequence[int]], None]
"""Called with the positions, in order of arrival, of the elements that left the buffer."""


class WindowContents(ABC):
    """The contents of all windows of one operator. Goes by the current key; `namespace` is the window that holds the contents.

    Attributes:
        handle: the state, which merges itself.
        may_change: the function's argument may hold values that can be changed in place, and has to be copied for user code.
        copies: elements are copied when they are added.
    """

    handle: ReducingState | AggregatingState | ListState
    may_change = False
    copies = False

    @abstractmethod
    def open(self, state: KeyedState) -> None:
        pass

    def look_at(self, values: Sequence[Any]) -> None:
        """Note whether values that are added next can be changed in place."""
        self.may_change = self.may_change or not all_stay(values)

    def restored(self) -> None:
        """The state is that of a snapshot: no value has been checked."""
        self.may_change = True

    def add(self, namespace: Any, value: Any, timestamp: int | None) -> None:
        self.handle.namespace = namespace
        self.handle.add(value)

    @abstractmethod
    def read(self, namespace: Any) -> Sequence[Any] | None:
        """Return the argument of the function, or None without contents."""

    def clear(self, namespace: Any) -> None:
        self.handle.namespace = namespace
        self.handle.clear()

    def merge(self, target: Any, sources: Sequence[Any]) -> None:
        self.handle.merge_namespaces(target, sources)

    def fire(self, namespace: Any, window: Any, apply: Apply, evicted: Evicted) -> None:
        """Call `apply` with the contents, unless empty; `evicted` with the elements that have left the buffer, if any."""
        elements = self.read(namespace)
        if elements is not None:
            apply(elements)


class Accumulated(WindowContents):
    """One value for each window, changed by each element.

    Attributes:
        first: makes the stored value of the first element.
        more: makes the stored value of a further element and the former value.
        result: makes the function's argument of the stored value.
        is_atomic: a call of `more` that raises has not changed the former value.
        is_result: the stored value is the function's argument.
    """

    first: Callable[[Any], Any]
    more: Callable[[Any, Any], Any]
    result: Callable[[Any], Any]
    handle: ReducingState | AggregatingState
    is_atomic = False
    is_result = False
    may_change = True
    calls_user = True
    """Elements are given to user code when they are added."""

    def look_at(self, values: Sequence[Any]) -> None:
        self.copies = self.calls_user and not all_stay(values)

    def add(self, namespace: Any, value: Any, timestamp: int | None) -> None:
        self.handle.namespace = namespace
        self.handle.add(independent(value) if self.copies else value)

    def read(self, namespace: Any) -> Sequence[Any] | None:
        self.handle.namespace = namespace
        value = self.handle.get()
        return None if value is None else (value,)


class Reduced(Accumulated):
    """Elements reduced in order of arrival."""

    def __init__(self, reduce: Reduce) -> None:
        self._reduce = reduce
        self.first = self.result = lambda value: value
        self.more = lambda value, kept: reduce(kept, value)

    def open(self, state: KeyedState) -> None:
        self.handle = state.reducing(CONTENTS_STATE, self._reduce)


class Aggregated(Accumulated):
    """Elements added to an accumulator."""

    def __init__(self, aggregate: AggregateFunction) -> None:
        self._aggregate = aggregate
        self.is_atomic = aggregate.is_atomic
        self.calls_user = not leaves_elements(aggregate)
        self.first = lambda value: aggregate.add(value, aggregate.create_accumulator())
        self.more = aggregate.add
        self.result = aggregate.get_result
        if (place := _place(over_fields(aggregate))) != ():
            self.first = self.more = AddField(place)
            self.is_atomic = True
            self.is_result = type(place) is not tuple

    def open(self, state: KeyedState) -> None:
        self.handle = state.aggregating(CONTENTS_STATE, self._aggregate)


def _place(aggregate: AggregateFunction) -> FieldPlace:
    """Return the place of an `AddField` that does the same as `add` of an aggregate; () for all others."""
    if type(aggregate) is Count:
        return None
    if type(aggregate) is Together:
        places = tuple([_place(part) for part in aggregate.parts])
        return () if () in places else places
    if type(aggregate) in (Sum, Mean) and type(field := getattr(aggregate, "field", None)) is int and field >= 0:
        return field if type(aggregate) is Sum else (field, None)
    return ()


class Elements(WindowContents):
    """All elements, in order of arrival."""

    def open(self, state: KeyedState) -> None:
        self.handle = state.list(CONTENTS_STATE)

    def read(self, namespace: Any) -> Sequence[Any] | None:
        self.handle.namespace = namespace
        return self.handle.get() or None


class Evicting(WindowContents):
    """All elements with their timestamps; after each firing only those that the evictor left.

    Args:
        summarise: makes the function's argument of the remaining values.
        times: gives the watermark and the clock.
        by_arrival: whether an element without a timestamp has that of its arrival by the clock.
    """

    handle: ListState

    def __init__(
        self, evictor: Evictor, summarise: Summarise, times: Callable[[], tuple[int, int]], by_arrival: bool = False
    ) -> None:
        self._by_arrival = by_arrival
        self._evictor = evictor
        self._summarise = summarise
        self._times = times

    def open(self, state: KeyedState) -> None:
        self.handle = state.list(CONTENTS_STATE)

    def add(self, namespace: Any, value: Any, timestamp: int | None) -> None:
        if timestamp is None and self._by_arrival:
            _, timestamp = self._times()
        self.handle.namespace = namespace
        self.handle.add((value, timestamp))

    def read(self, namespace: Any) -> Sequence[TimestampedValue] | None:
        self.handle.namespace = namespace
        return [TimestampedValue(value, timestamp) for value, timestamp in self.handle.get()] or None

    def fire(self, namespace: Any, window: Any, apply: Apply, evicted: Evicted) -> None:
        there = self.read(namespace)
        if there is None:
            return
        rest = list(there)
        self._evictor.evict_before(rest, window, *self._times())
        values = [element.value for element in rest]
        apply(self._summarise(independent(values) if self.may_change else values))
        self._evictor.evict_after(rest, window, *self._times())
        self.handle.namespace = namespace
        self.handle.replace([(element.value, element.timestamp) for element in rest])
        if len(rest) < len(there):
            # Equal elements are distinguished by identity, for the evictor may have taken the one and left the other.
            left = {id(element) for element in rest}
            evicted([position for position, element in enumerate(there) if id(element) not in left])


def reduced_at_fire(reduce: Reduce) -> Summarise:
    """Return a function that reduces a list to at most one value, in order."""

    def summarise(values: Sequence[Any]) -> Sequence[Any]:
        rest = iter(values)
        for result in rest:
            for value in rest:
                result = reduce(result, value)
            return (result,)
        return ()

    return summarise


def aggregated_at_fire(aggregate: AggregateFunction) -> Summarise:
    """Return a function that aggregates a list to one value, also an empty one."""

    def summarise(values: Sequence[Any]) -> Sequence[Any]:
        accumulator = aggregate.create_accumulator()
        for value in values:
            accumulator = aggregate.add(value, accumulator)
        return (aggregate.get_result(accumulator),)

    return summarise
