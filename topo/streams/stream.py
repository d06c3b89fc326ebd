"""Typed streams: the calls with which a program is written. Each draws one node of the graph."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import date, time, timedelta
from decimal import Decimal
from typing import Any, Generic, TypeAlias, TypeGuard, TypeVar, overload
from uuid import UUID

from topo.api.async_io import RetryStrategy
from topo.api.bolt import BasicBolt, Bolt
from topo.api.operator_bolts import OperatorBolt
from topo.errors import UserError
from topo.streams.aggregates import Aggregate, count, max_of, mean_of, min_of, sum_of
from topo.streams.functions import generic, item_type, result_type
from topo.streams.graph import MAIN, REST, SIDE, Graph, Node, calling_site
from topo.streams.process import KeyedProcess
from topo.streams.records import known_type
from topo.streams.results import EACH, EmitWhen, SideOutput, Windowed
from topo.streams.windows import TimeWindows

StreamKey: TypeAlias = str | int | float | bytes | date | time | timedelta | Decimal | UUID | tuple["StreamKey", ...] | None
"""Types of keys: values whose hash is equal in all processes."""

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
U = TypeVar("U")
V = TypeVar("V")
W = TypeVar("W")
S = TypeVar("S")
R = TypeVar("R")
R1 = TypeVar("R1")
R2 = TypeVar("R2")
R3 = TypeVar("R3")
R4 = TypeVar("R4")
R5 = TypeVar("R5")
K = TypeVar("K", bound=StreamKey)
K2 = TypeVar("K2", bound=StreamKey)
N = TypeVar("N", int, float)
C = TypeVar("C", int, float, str, bytes)

SinkBolt: TypeAlias = Bolt | BasicBolt | OperatorBolt


class DrawnStream:
    """What all streams have: the graph, and the output of a node that they stand for."""

    def __init__(self, graph: Graph, node: Node, output: str = MAIN) -> None:
        self._graph, self._node, self._output = graph, node, output
        self._record = node.record_of(output)

    def _add(
        self,
        kind: str,
        function: Any = None,
        *,
        record: Any = None,
        name: str | None = None,
        also: Sequence[DrawnStream] = (),
        keyed: bool = False,
        **settings: Any,
    ) -> Node:
        inputs = tuple((one._node, one._output) for one in (self, *also))
        if others := {one._graph.name for one in also if one._graph is not self._graph}:
            mine = self._graph.name
            what = f"{kind} at {calling_site()}: streams of {mine!r} and {sorted(others)[0]!r}"
            raise UserError(f"{what}; draw them with one StreamBuilder")
        return self._graph.add(Node(kind, inputs, calling_site(), name, function, record, settings, keyed))

    def side(self, tag: SideOutput[V]) -> Stream[V]:
        """Return a side output of the operator before.

        Raises:
            UserError: the operator has no side output of that tag.
        """
        sides: Any = self._node.settings.get("sides", ())
        if sides is not None and tag not in sides:
            has = ", ".join(repr(one.name) for one in sides) or "none"
            raise UserError(f"{self._node} has no side output {tag.name!r}; it has {has} ({calling_site()})")
        output = f"{SIDE}{tag.name}"
        self._node.side_records[output] = tag.of
        return Stream(self._graph, self._node, output)


class Stream(DrawnStream, Generic[T_co]):
    """Records of one type, without a key."""

    def map(self, function: Callable[[T_co], R], *, of: type[R] | None = None, name: str | None = None) -> Stream[R]:
        """Make a record of each record. `of` declares the type where the function does not."""
        return Stream(self._graph, self._add("map", function, record=of or result_type(function), name=name))

    def flat_map(
        self, function: Callable[[T_co], Iterable[R]], *, of: type[R] | None = None, name: str | None = None
    ) -> Stream[R]:
        """Make any number of records of each record."""
        record = of or item_type(result_type(function))
        return Stream(self._graph, self._add("flat_map", function, record=record, name=name))

    def filter(self, keep: Callable[[T_co], object], *, name: str | None = None) -> Stream[T_co]:
        """Keep the records for which the function returns something true."""
        return Stream(self._graph, self._add("filter", keep, record=self._record, name=name))

    @overload
    def only(self, kind: type[S], *, name: str | None = None) -> Stream[S]: ...
    @overload
    def only(self, kind: Callable[[T_co], TypeGuard[S]], *, name: str | None = None) -> Stream[S]: ...
    def only(self, kind: Any, *, name: str | None = None) -> Stream[Any]:
        """Keep the records of a class, or those for which a type guard holds."""
        return Stream(self._graph, self._add("only", kind, record=kind if isinstance(kind, type) else None, name=name))

    def branch(self, test: Callable[[T_co], object], *, name: str | None = None) -> tuple[Stream[T_co], Stream[T_co]]:
        """Return two streams: the records for which the test holds, and the others. The test is called once for each record."""
        node = self._add("branch", test, record=self._record, name=name)
        return Stream(self._graph, node), Stream(self._graph, node, REST)

    def tap(self, look: Callable[[T_co], object], *, name: str | None = None) -> Stream[T_co]:
        """Call a function with each record, and pass the record on."""
        return Stream(self._graph, self._add("tap", look, record=self._record, name=name))

    def parse_json(
        self: Stream[str | bytes], of: type[R], *, bad: SideOutput[Any] | None = None, name: str | None = None
    ) -> Stream[R]:
        """Read each record as JSON of a type. Text that is none fails, or goes to the side output `bad`."""
        sides = () if bad is None else (bad,)
        return Stream(self._graph, self._add("parse_json", record=of, name=name, sides=sides))

    def with_event_time(
        self, at: Callable[[T_co], int], *, disorder: str | timedelta = "0s", idle: str | timedelta | None = None
    ) -> Stream[T_co]:
        """Give each record a timestamp (ms), and the stream watermarks.

        Args:
            at: returns the timestamp of a record.
            disorder: how far a record comes behind the latest timestamp before it, at most.
            idle: after this time without a record no reader waits for the stream; None: never.
        """
        return Stream(self._graph, self._add("with_event_time", at, record=self._record, disorder=disorder, idle=idle))

    @overload
    def merge(self, other: Stream[U], /) -> Stream[T_co | U]: ...
    @overload
    def merge(self, other: Stream[U], third: Stream[V], /) -> Stream[T_co | U | V]: ...
    @overload
    def merge(self, other: Stream[U], third: Stream[V], fourth: Stream[W], /) -> Stream[T_co | U | V | W]: ...
    def merge(self, *others: Stream[Any]) -> Stream[Any]:
        """Take the records of several streams together."""
        records = {repr(one._record): one._record for one in (self, *others)}
        record = self._record if len(records) == 1 else None
        return Stream(self._graph, self._add("merge", record=record, also=others))

    def key_by(self, key: Callable[[T_co], K], *, parallelism: int = 1, name: str | None = None) -> KeyedStream[K, T_co]:
        """Give each record a key. Records of a key meet in one task of the next operator with state.

        Args:
            key: returns the key of a record.
            parallelism: number of tasks of the operators with state that read the result.
        """
        node = self._add("key_by", key, record=self._record, name=name, keyed=True, parallelism=parallelism)
        return KeyedStream(self._graph, node)

    def gather(self) -> KeyedStream[None, T_co]:
        """Bring all records to one task, under the key None."""
        return KeyedStream(self._graph, self._add("gather", record=self._record, keyed=True, parallelism=1))

    def async_map(
        self, function: Callable[[T_co], Awaitable[R]], *, capacity: int = 100, timeout: str | timedelta | None = None,
        ordered: bool = True, retry: RetryStrategy | None = None, on_timeout: Callable[[T_co], R] | None = None,
        parallelism: int = 1, of: type[R] | None = None, name: str | None = None,
    ) -> Stream[R]:  # fmt: skip
        """Make a record of each record by an asynchronous call, with many calls in flight.

        Args:
            function: an `async def`. It must not block: what blocks goes to `asyncio.to_thread`.
            capacity: how many calls a task has in flight at most.
            timeout: for one record with all its attempts; None for none.
            ordered: results in the order of the records; False: as they complete.
            retry: when a call is made again, such as `ExponentialBackoffRetry(...)`.
            on_timeout: returns the result of a record whose call took too long; without it the record fails.
        """
        settings: dict[str, Any] = {"capacity": capacity, "timeout": timeout, "ordered": ordered, "retry": retry}
        settings |= {"on_timeout": on_timeout, "parallelism": parallelism}
        return Stream(self._graph, self._add("async_map", function, record=of or result_type(function), name=name, **settings))

    def rebalance(self, *, parallelism: int, name: str | None = None) -> Stream[T_co]:
        """Spread the records over as many tasks, for costly functions behind it."""
        return Stream(self._graph, self._add("rebalance", record=self._record, name=name, parallelism=parallelism))

    @overload
    def through(
        self, bolt: SinkBolt, *, of: type[R], fields: Sequence[str] | None = None, stream: str = ...,
        parallelism: int = 1, name: str | None = None,
    ) -> Stream[R]: ...  # fmt: skip
    @overload
    def through(
        self, bolt: SinkBolt, *, fields: Sequence[str] | None = None, stream: str = ...,
        parallelism: int = 1, name: str | None = None,
    ) -> Stream[tuple[Any, ...]]: ...  # fmt: skip
    def through(
        self, bolt: SinkBolt, *, of: Any = None, fields: Sequence[str] | None = None, stream: str = "default",
        parallelism: int = 1, name: str | None = None,
    ) -> Stream[Any]:  # fmt: skip
        """Send the records through any bolt, as rows, and read its output.

        Args:
            bolt: it gets the fields of the records, or `fields`.
            of: what its rows are; without it tuples of their values.
            fields: names for records that are tuples, one for each value.
            stream: which of its streams to read.
        """
        settings: dict[str, Any] = {"fields": fields, "stream": stream, "parallelism": parallelism}
        return Stream(self._graph, self._add("through", bolt, record=of, name=name, **settings))

    def to(
        self,
        sink: SinkBolt | Callable[[T_co], object],
        *,
        fields: Sequence[str] | None = None,
        parallelism: int | None = None,
        name: str | None = None,
    ) -> None:
        """End the stream in a bolt, or in a function, which is called in the task that has made the record.

        Args:
            sink: a bolt gets the fields of the records, or the field `value`.
            fields: for a bolt, names for records that are tuples, one for each value.
            parallelism: of the bolt; 1 by default.
        """
        if isinstance(sink, Bolt | BasicBolt | OperatorBolt):
            self._add("sink", sink, name=name, fields=fields, parallelism=1 if parallelism is None else parallelism)
        else:
            self._add("call", sink, name=name, fields=fields, parallelism=parallelism)


class KeyedStream(DrawnStream, Generic[K, T_co]):
    """Records with a key. `map`, `filter` and `flat_map` keep the key."""

    def map(self, function: Callable[[T_co], R], *, of: type[R] | None = None, name: str | None = None) -> KeyedStream[K, R]:
        """Make a record of each record."""
        return KeyedStream(self._graph, self._add("map", function, record=of or result_type(function), name=name, keyed=True))

    def flat_map(
        self, function: Callable[[T_co], Iterable[R]], *, of: type[R] | None = None, name: str | None = None
    ) -> KeyedStream[K, R]:
        """Make any number of records of each record."""
        record = of or item_type(result_type(function))
        return KeyedStream(self._graph, self._add("flat_map", function, record=record, name=name, keyed=True))

    def filter(self, keep: Callable[[T_co], object], *, name: str | None = None) -> KeyedStream[K, T_co]:
        """Keep the records for which the function returns something true."""
        return KeyedStream(self._graph, self._add("filter", keep, record=self._record, name=name, keyed=True))

    def map_keyed(self, function: Callable[[K, T_co], R], *, of: type[R] | None = None, name: str | None = None) -> Stream[R]:
        """Make a record of each key and record; the key goes."""
        return Stream(self._graph, self._add("map_keyed", function, record=of or result_type(function), name=name))

    def entries(self) -> Stream[tuple[K, T_co]]:
        """Return pairs of key and record."""
        record = None if self._record is None else generic(tuple, Any, self._record)
        return Stream(self._graph, self._add("entries", record=record))

    def values(self) -> Stream[T_co]:
        """Return the records alone."""
        return Stream(self._graph, self._add("values", record=self._record))

    def key_by(self, key: Callable[[T_co], K2], *, parallelism: int = 1, name: str | None = None) -> KeyedStream[K2, T_co]:
        """Give each record another key."""
        node = self._add("key_by", key, record=self._record, name=name, keyed=True, parallelism=parallelism)
        return KeyedStream(self._graph, node)

    def count(self, *, emit: EmitWhen = EACH, name: str | None = None) -> KeyedStream[K, int]:
        """Count the records of each key."""
        return KeyedStream(self._graph, self._add("count", record=int, name=name, keyed=True, emit=emit))

    def reduce(
        self: KeyedStream[K, T], function: Callable[[T, T], T], *, emit: EmitWhen = EACH, name: str | None = None
    ) -> KeyedStream[K, T]:
        """Combine the records of each key: `function(so_far, record)`; the first record is the first result."""
        return KeyedStream(self._graph, self._add("reduce", function, record=self._record, name=name, keyed=True, emit=emit))

    def fold(
        self, initial: R, function: Callable[[R, T_co], R], *, of: type[R] | None = None, emit: EmitWhen = EACH,
        name: str | None = None,
    ) -> KeyedStream[K, R]:  # fmt: skip
        """Combine the records of each key, beginning with a value: `function(so_far, record)`."""
        record = of or known_type(initial)
        node = self._add("fold", function, record=record, name=name, keyed=True, emit=emit, initial=initial)
        return KeyedStream(self._graph, node)

    def process(
        self, process: KeyedProcess[K, T_co, R], *, of: type[R] | None = None, name: str | None = None
    ) -> KeyedStream[K, R]:
        """Run a function with state and timers for each key. Its side outputs are read with `side(tag)`."""
        return KeyedStream(self._graph, self._add("process", process, record=of, name=name, keyed=True, sides=None))

    def window(
        self: KeyedStream[K, T], window: TimeWindows, *, lateness: str | timedelta = "0s", late: SideOutput[T] | None = None
    ) -> WindowedStream[K, T]:
        """Put the records of each key into windows.

        Args:
            window: `Tumbling`, `Sliding` or `Session`.
            lateness: how long after its end a window of event time still takes records, and gives its result again.
            late: tag of the side output for records that are too late; without it they are dropped and counted.
        """
        settings: dict[str, Any] = {"window": window, "lateness": lateness, "sides": () if late is None else (late,)}
        return WindowedStream(self, settings)

    def to(
        self,
        sink: SinkBolt | Callable[[tuple[K, T_co]], object],
        *,
        parallelism: int | None = None,
        name: str | None = None,
    ) -> None:
        """End the stream in a bolt, which gets `key` and the fields of the records, or in a function of (key, record)."""
        if isinstance(sink, Bolt | BasicBolt | OperatorBolt):
            self._add("sink", sink, name=name, parallelism=1 if parallelism is None else parallelism)
        else:
            self.entries().to(sink, parallelism=parallelism, name=name)


class WindowedStream(Generic[K, T]):
    """Records of each key in windows; its methods choose the result of a window."""

    def __init__(self, keyed: KeyedStream[K, T], settings: dict[str, Any]) -> None:
        self._keyed, self._settings = keyed, settings

    def count(self, *, name: str | None = None) -> KeyedStream[K, Windowed[int]]:
        """Count the records."""
        return self._aggregated("count", None, (count(),), name, Windowed[int])

    def sum(self, of: Callable[[T], N], *, name: str | None = None) -> KeyedStream[K, Windowed[N]]:
        """Sum a value of each record."""
        return self._aggregated("sum", of, (sum_of(of),), name)

    def mean(self, of: Callable[[T], float], *, name: str | None = None) -> KeyedStream[K, Windowed[float]]:
        """Return the arithmetic mean of a value of each record."""
        return self._aggregated("mean", of, (mean_of(of),), name)

    def min(self, of: Callable[[T], C], *, name: str | None = None) -> KeyedStream[K, Windowed[C]]:
        """Return the smallest value."""
        return self._aggregated("min", of, (min_of(of),), name)

    def max(self, of: Callable[[T], C], *, name: str | None = None) -> KeyedStream[K, Windowed[C]]:
        """Return the greatest value."""
        return self._aggregated("max", of, (max_of(of),), name)

    def top_n(self, n: int, by: Callable[[T], C], *, name: str | None = None) -> KeyedStream[K, Windowed[list[T]]]:
        """Return the `n` records with the greatest values, the greatest first."""
        inner = self._keyed._record
        record = Windowed[Any] if inner is None else generic(Windowed, generic(list, inner))
        return self._windowed("top_n", by, name, record, n=n)

    def reduce(self, function: Callable[[T, T], T], *, name: str | None = None) -> KeyedStream[K, Windowed[T]]:
        """Combine the records: `function(so_far, record)`, which must be associative."""
        inner = self._keyed._record
        return self._windowed("reduce", function, name, generic(Windowed, Any if inner is None else inner))

    @overload
    def aggregate(self, first: Aggregate[T, R1], /, *, name: str | None = None) -> KeyedStream[K, Windowed[R1]]: ...
    @overload
    def aggregate(
        self, first: Aggregate[T, R1], second: Aggregate[T, R2], /, *, name: str | None = None
    ) -> KeyedStream[K, Windowed[tuple[R1, R2]]]: ...
    @overload
    def aggregate(
        self, first: Aggregate[T, R1], second: Aggregate[T, R2], third: Aggregate[T, R3], /, *, name: str | None = None
    ) -> KeyedStream[K, Windowed[tuple[R1, R2, R3]]]: ...
    @overload
    def aggregate(
        self, first: Aggregate[T, R1], /, *, into: Callable[[R1], R], name: str | None = None
    ) -> KeyedStream[K, Windowed[R]]: ...
    @overload
    def aggregate(
        self, first: Aggregate[T, R1], second: Aggregate[T, R2], /, *, into: Callable[[R1, R2], R], name: str | None = None
    ) -> KeyedStream[K, Windowed[R]]: ...
    @overload
    def aggregate(
        self, first: Aggregate[T, R1], second: Aggregate[T, R2], third: Aggregate[T, R3], /, *,
        into: Callable[[R1, R2, R3], R], name: str | None = None,
    ) -> KeyedStream[K, Windowed[R]]: ...  # fmt: skip
    def aggregate(
        self, *parts: Aggregate[Any, Any], into: Callable[..., Any] | None = None, name: str | None = None
    ) -> KeyedStream[K, Any]:
        """Run one to three aggregates over the records; `into` makes the result of theirs, else it is theirs, or a tuple."""
        inner = result_type(into) if into is not None else None
        record = generic(Windowed, Any if inner is None else inner)
        return self._aggregated("aggregate", into, parts, name, record, into=into)

    def process(
        self, function: Callable[[K, Windowed[Sequence[T]]], Iterable[R]], *, of: type[R] | None = None, name: str | None = None
    ) -> KeyedStream[K, R]:
        """Call a function with the key and all records of a window; it returns any number of records."""
        return self._windowed("process", function, name, of or item_type(result_type(function)))

    def _aggregated(
        self, result: str, function: Any, parts: Sequence[Aggregate[Any, Any]], name: str | None,
        record: Any = Windowed[Any], **more: Any,
    ) -> KeyedStream[K, Any]:  # fmt: skip
        return self._windowed(result, function, name, record, parts=parts, **more)

    def _windowed(self, result: str, function: Any, name: str | None, record: Any, **more: Any) -> KeyedStream[K, Any]:
        keyed = self._keyed
        settings = {**self._settings, **more, "result": result}
        return KeyedStream(keyed._graph, keyed._add("window", function, record=record, name=name, keyed=True, **settings))
