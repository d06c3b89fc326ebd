"""Functions with state and timers for each key, written by users: `KeyedProcess` and the state that its class declares."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import is_dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar, overload

from topo.api.operator_bolts import TimerContext
from topo.errors import UserError
from topo.streams.records import SCALARS, layout_of
from topo.streams.results import SideOutput

K = TypeVar("K")
K_co = TypeVar("K_co", covariant=True)
T = TypeVar("T")
R = TypeVar("R")
R_contra = TypeVar("R_contra", contravariant=True)
V = TypeVar("V")
_ABSENT: Final = object()
OUT_EMIT: Final = "use out.emit(...) and return None"


class StreamContext(TimerContext, Protocol[K_co]):
    """The context of a `KeyedProcess` during a call: that of a `ProcessBolt`, with a typed key."""

    @property
    def key(self) -> K_co:
        """The key of the record or of the timer."""


class StreamOutput(Protocol[R_contra]):
    """Takes the results of a `KeyedProcess`."""

    def emit(self, record: R_contra) -> None:
        """Emit one result, with the timestamp of the current record or timer."""

    def side(self, tag: SideOutput[V], record: V) -> None:
        """Emit a record to a side output. Without a reader of the tag it is dropped."""


class KeyedProcess(ABC, Generic[K, T, R]):
    """A function of each record, with state by key and timers. State is declared on the class:

        class Fraud(KeyedProcess[str, Payment, Alert]):
            small = KeyedValue(int)

    One instance serves all keys of a task; the state that a call sees is that of its key.
    """

    _emits_state = True
    """Whether a record that it emits may be an object of its state."""

    def _prepare(self) -> None:
        """Called before `open`, which classes of users override."""

    def open(self) -> None:
        """Called once in each task before everything else. State has no key yet."""

    @abstractmethod
    def process(self, record: T, context: StreamContext[K], out: StreamOutput[R]) -> None:
        """Called for each record."""

    def on_timer(self, timestamp: int, context: StreamContext[K], out: StreamOutput[R]) -> None:
        """Called when a timer is due, with its moment and its key."""

    def close(self) -> None:
        """Called at an orderly end."""


class KeyedDeclaration(Generic[V]):
    """State declared on the class of a `KeyedProcess`. In a task the engine's handle of that name stands in its place.

    Args:
        of: type of the values. Records and lists come back as this type.
        ttl: how long a value is kept after it was last written, by the clock, such as "1h"; None: until it is cleared.
    """

    method = ""

    def __init__(self, of: type[V], *, ttl: str | timedelta | None = None) -> None:
        self.of: Any = of
        self.ttl = ttl
        self.name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    if not TYPE_CHECKING:  # mypy refuses the assignment

        def __set__(self, process: object, value: object) -> None:
            # Without a __get__ beside it reading costs nothing: it finds the handle, which is in the object's own dict.
            call = {"list": "add", "map": "put"}.get(self.method, "set")
            what = f"the state {self.name!r} was assigned {value!r:.80}, which all keys would share"
            raise UserError(f"{what}; use self.{self.name}.{call}(...)")

    def installed(self, state: Any, place: str) -> Any:
        """Return the handle for a task.

        Args:
            state: gives the engine's handles (`ProcessContext.state`).
            place: of the state, for errors.
        """
        options = {} if self.ttl is None else {"ttl": self.ttl}
        handle = getattr(state, self.method)(self.name, **options)
        key = self._key_reader()
        if self.of in SCALARS and key is None:
            return handle
        return _Converting(handle, self.method == "list", *layout_of(self.of).keeper(place), key)

    def _key_reader(self) -> Callable[[Any], Any] | None:
        """Return the function that gives keys their type, which state has not kept; None where it has."""
        return None

    def _handle(self) -> Any:
        raise UserError(f"the state {self.name!r} exists in a running task only; use it in process and on_timer")


class KeyedValue(KeyedDeclaration[V]):
    """One value for each key."""

    method = "value"

    def get(self) -> V | None:
        """Return the value of the key; None when there is none. Give a changed value to `set`: else the change may be lost."""
        return self._handle()  # type: ignore[no-any-return]

    def set(self, value: V) -> None:
        """Replace the value of the key."""
        self._handle()

    def clear(self) -> None:
        """Forget the value of the key."""
        self._handle()


class KeyedList(KeyedDeclaration[V]):
    """A list for each key, in the order in which values were added."""

    method = "list"

    def get(self) -> Sequence[V]:
        """Return a list of the values of the key; empty when there are none. Changing it does not change the state."""
        return self._handle()  # type: ignore[no-any-return]

    def add(self, value: V) -> None:
        """Append a value."""
        self._handle()

    def clear(self) -> None:
        """Forget the values of the key."""
        self._handle()


class KeyedMap(KeyedDeclaration[V], Generic[K, V]):
    """A dict for each key."""

    method = "map"

    def __init__(self, keys: type[K], of: type[V], *, ttl: str | timedelta | None = None) -> None:
        super().__init__(of, ttl=ttl)
        self.keys_of: Any = keys

    def _key_reader(self) -> Callable[[Any], Any] | None:
        # A checkpoint keeps dataclasses as they are, and of a NamedTuple or an IntEnum the plain value, which is equal to it.
        layout = layout_of(self.keys_of)
        is_kept = is_dataclass(self.keys_of) or not (layout.attributes or any(layout.kinds))
        return None if is_kept else layout.unpacker()

    @overload
    def get(self, key: K) -> V | None: ...
    @overload
    def get(self, key: K, default: V) -> V: ...
    def get(self, key: K, default: V | None = None) -> V | None:
        """Return the value under a key of the dict, or the default. Give a changed value to `put`: else it may be lost."""
        return self._handle()  # type: ignore[no-any-return]

    def put(self, key: K, value: V) -> None:
        """Set the value under a key of the dict."""
        self._handle()

    def remove(self, key: K) -> None:
        """Remove a key of the dict; nothing happens when it is not in it."""
        self._handle()

    def items(self) -> Mapping[K, V]:
        """Return a copy of the dict. Changing it does not change the state."""
        return self._handle()  # type: ignore[no-any-return]

    def clear(self) -> None:
        """Forget the dict."""
        self._handle()


class First:
    """The state of `dedupe`: whether a record of the key was seen, and within which time by the clock."""

    def __init__(self, within: str | timedelta | None) -> None:
        self.seen = KeyedValue(bool, ttl=within)
        self.seen.name = "seen"


def declared_state(process: KeyedProcess[Any, Any, Any]) -> list[KeyedDeclaration[Any]]:
    """Return the state that the class of a process declares."""
    members = {name: one for cls in reversed(type(process).__mro__) for name, one in vars(cls).items()}
    return [one for one in members.values() if isinstance(one, KeyedDeclaration)]


def install(process: KeyedProcess[Any, Any, Any], state: Any) -> None:
    """Put the engine's handles in the place of the declarations.

    Args:
        state: gives the handles (`ProcessContext.state`).
    """
    for declared in declared_state(process):
        place = f"the state {declared.name!r} of {type(process).__name__}"
        vars(process)[declared.name] = declared.installed(state, place)


class _Converting:
    """A handle whose values are records: they are kept as plain values. `key` gives the keys of a map their type."""

    def __init__(self, handle: Any, is_list: bool, pack: Any, unpack: Any, key: Callable[[Any], Any] | None) -> None:
        self._handle, self._is_list, self._pack, self._unpack = handle, is_list, pack, unpack
        self._key = key or (lambda key: key)
        self.clear = handle.clear
        if hasattr(handle, "remove"):
            self.remove = handle.remove

    def get(self, *key: Any) -> Any:
        if len(key) > 1:
            found = self._handle.get(key[0], _ABSENT)
            return key[1] if found is _ABSENT else self._unpack(found)
        found = self._handle.get(*key)
        if self._is_list:
            return [self._unpack(one) for one in found]
        return None if found is None else self._unpack(found)

    def set(self, value: Any) -> None:
        self._handle.set(self._pack(value))

    def add(self, value: Any) -> None:
        self._handle.add(self._pack(value))

    def put(self, key: Any, value: Any) -> None:
        self._handle.put(key, self._pack(value))

    def items(self) -> Mapping[Any, Any]:
        return {self._key(key): self._unpack(value) for key, value in self._handle.items().items()}
