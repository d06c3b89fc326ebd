"""The tuple that a bolt is given: values in order, and where they come from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from typing import Any, overload

from topo.api.streams import DEFAULT_STREAM, TICK_STREAM
from topo.errors import NotFoundError


class Origin:
    """The origin of tuples. One object is shared by all tuples of a batch; it never changes.

    Attributes:
        component: id of the component that emitted them.
        task: id of the task that emitted them.
        stream: the stream they were emitted on.
        fields: names of the stream's fields, in order.
        index: field name to position in the values.
        is_tick: whether they are tick tuples.
        columnar: whether they are batches of columns.
    """

    __slots__ = ("columnar", "component", "fields", "index", "is_tick", "stream", "task")

    def __init__(
        self, component: str, task: int, stream: str = DEFAULT_STREAM, fields: Sequence[str] = (), *, columnar: bool = False
    ) -> None:
        self.component = component
        self.task = task
        self.stream = stream
        self.fields = tuple(fields)
        self.index = {name: position for position, name in enumerate(self.fields)}
        self.is_tick = stream == TICK_STREAM
        self.columnar = columnar

    def __repr__(self) -> str:
        return f"Origin({self.component!r}, task={self.task}, stream={self.stream!r}, fields={self.fields!r})"


class Tuple:
    """One tuple: `tup["word"]`, `tup[0]`, `for value in tup`, `len(tup)`.

    Two tuples are equal only if they are the same object: each is one node of a tuple tree, whatever its values. Values are
    not changed after they are emitted, since tasks of one worker share them.

    Attributes:
        values: the values, in the order of the stream's fields.
        origin: component, task, stream and fields; shared by the batch.
        timestamp: event time in milliseconds since the epoch, or None.
    """

    __slots__ = ("origin", "timestamp", "values")

    def __init__(self, values: Sequence[Any], origin: Origin, timestamp: int | None = None) -> None:
        self.values = tuple(values)
        self.origin = origin
        self.timestamp = timestamp

    @overload
    def __getitem__(self, key: str | int) -> Any: ...
    @overload
    def __getitem__(self, key: slice) -> tuple[Any, ...]: ...
    def __getitem__(self, key: str | int | slice) -> Any:
        """Return the value of a field, by name or position, or a slice of the values.

        Raises:
            NotFoundError: the stream has no field of that name.
            IndexError: the stream has no field at that position.
        """
        if isinstance(key, str):
            try:
                return self.values[self.origin.index[key]]
            except KeyError:
                raise self._unknown_field(key) from None
        return self.values[key]

    def _unknown_field(self, name: str) -> NotFoundError:
        origin = self.origin
        has = ", ".join(map(repr, origin.fields)) or "no fields"
        where = f"a tuple of stream {origin.stream!r} from {origin.component!r}"
        return NotFoundError(f"{where} has no field {name!r}; it has {has}.", tuple(get_close_matches(name, origin.fields, n=2)))

    def __iter__(self) -> Iterator[Any]:
        return iter(self.values)

    def __len__(self) -> int:
        return len(self.values)

    def __bool__(self) -> bool:
        return True

    def __contains__(self, name: object) -> bool:
        """Return whether the stream has a field of that name."""
        return name in self.origin.index

    @property
    def component(self) -> str:
        """Id of the component that emitted it."""
        return self.origin.component

    @property
    def task(self) -> int:
        """Id of the task that emitted it."""
        return self.origin.task

    @property
    def stream(self) -> str:
        """Name of the stream it was emitted on."""
        return self.origin.stream

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of its fields, in the order of the values."""
        return self.origin.fields

    @property
    def is_tick(self) -> bool:
        """Whether it is a tick tuple, which the engine sends every `tick_interval`. A tick belongs to no tuple tree."""
        return self.origin.is_tick

    def as_dict(self) -> dict[str, Any]:
        """Return the values by field name."""
        return dict(zip(self.origin.fields, self.values, strict=False))

    def __repr__(self) -> str:
        origin = self.origin
        named = ", ".join(f"{name}={value!r}" for name, value in self.as_dict().items())
        return f"Tuple({origin.component}#{origin.task}:{origin.stream} {named})"
