"""Typed streams: the calls with which a program is written. Each draws one node of the graph."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Generic, TypeGuard, overload

from topo.api.async_io import RetryStrategy
from topo.api.bolt import BasicBolt, Bolt
from topo.api.operator_bolts import OperatorBolt
from topo.api.windows import CountWindows
from topo.streams.aggregates import Aggregate, count, max_of, mean_of, min_of, sum_of
from topo.streams.functions import aggregated_type, generic, guarded_type, item_type, result_type
from topo.streams.graph import REST
from topo.streams.joins import CoProcess
from topo.streams.pairing import (
    BroadcastTable,
    Drawn,
    NoStream,
    connected,
    enriched,
    interval_joined,
    table_changes,
    table_joined,
    window_joined,
)
from topo.streams.process import First, KeyedProcess
from topo.streams.records import known_type
from topo.streams.results import EACH, Change, EmitWhen, SideOutput, Sortable, Windowed
from topo.streams.type_names import K2, R1, R2, R3, C, K, LateTags, N, Name, Of, R, S, SinkBolt, T, T_co, U, V, W
from topo.streams.windows import TimeWindows


class DrawnStream(Drawn):
    """What all streams have: the graph, the output of a node that they stand for, and its side outputs."""

    def side(self, tag: SideOutput[V]) -> Stream[V]:
        """Return a side output of the preceding operator. Raises UserError if it has none with this tag."""
        return Stream(self._graph, *self._side(tag))


class Stream(DrawnStream, Generic[T_co]):
    """Records of one type, without a key."""

    def map(self, function: Callable[[T_co], R], *, of: Of[R] = None, name: Name = None) -> Stream[R]:
        """Make a record from each record. `of` declares the type where the function does not."""
        return Stream(self._graph, self._add("map", function, record=of or result_type(function), name=name))

    def flat_map(self, function: Callable[[T_co], Iterable[R]], *, of: Of[R] = None, name: Name = None) -> Stream[R]:
        """Make any number of records from each record."""
        return Stream(self._graph, self._add("flat_map", function, record=of or item_type(result_type(function)), name=name))

    def filter(self, keep: Callable[[T_co], object], *, name: Name = None) -> Stream[T_co]:
        """Keep the records for which the function returns something true."""
        return Stream(self._graph, self._add("filter", keep, record=self._record, name=name))

    @overload
    def only(self, kind: type[S], *, name: Name = None) -> Stream[S]: ...
    @overload
    def only(self, kind: Callable[[T_co], TypeGuard[S]], *, name: Name = None) -> Stream[S]: ...
    def only(self, kind: Any, *, name: Name = None) -> Stream[Any]:
        """Keep the records of a class, or those for which a type guard holds."""
        return Stream(self._graph, self._add("only", kind, record=guarded_type(kind) or self._record, name=name))

    def branch(self, test: Callable[[T_co], object], *, name: Name = None) -> tuple[Stream[T_co], Stream[T_co]]:
        """Return two streams: the records for which the test holds, and the others. The test is called once for each record."""
        node = self._add("branch", test, record=self._record, name=name)
        return Stream(self._graph, node), Stream(self._graph, node, REST)

    def tap(self, look: Callable[[T_co], object], *, name: Name = None) -> Stream[T_co]:
        """Call a function with each record, and pass the record on."""
        return Stream(self._graph, self._add("tap", look, record=self._record, name=name))

    def parse_json(
        self: Stream[str | bytes], of: type[R], *, bad: SideOutput[str] | SideOutput[bytes] | None = None, name: Name = None
    ) -> Stream[R]:
        """Read each record as JSON of a type. Text that is not JSON of this type fails, or goes to the side output `bad`."""
        return Stream(self._graph, self._add("parse_json", record=of, name=name, sides=() if bad is None else (bad,)))

    def with_event_time(
        self, at: Callable[[T_co], int], *, disorder: str | timedelta = "0s", idle: str | timedelta | None = None
    ) -> Stream[T_co]:
        """Give each record a timestamp (ms), and the stream watermarks.

        Args:
            at: returns the timestamp of a record.
            disorder: how far a record may be behind the latest timestamp so far.
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
        records = {repr(getattr(one, "_record", one)) for one in (self, *others)}
        record = self._record if len(records) == 1 else None
        return Stream(self._graph, self._add("merge", record=record, also=others))

    def key_by(self, key: Callable[[T_co], K], *, parallelism: int = 1, name: Name = None) -> KeyedStream[K, T_co]:
        """Give each record a key. Records of a key meet in one of the `parallelism` tasks of the next operator with state."""
        node = self._add("key_by", key, record=self._record, name=name, keyed=True, parallelism=parallelism)
        return KeyedStream(self._graph, node)

    def gather(self) -> KeyedStream[None, T_co]:
        """Bring all records to one task, under the key None."""
        return KeyedStream(self._graph, self._add("gather", record=self._record, keyed=True, parallelism=1))

    def async_map(
        self, function: Callable[[T_co], Awaitable[R]], *, capacity: int = 100, timeout: str | timedelta | None = None,
        ordered: bool = True, retry: RetryStrategy | None = None, on_timeout: Callable[[T_co], R] | None = None,
        parallelism: int = 1, of: Of[R] = None, name: Name = None,
    ) -> Stream[R]:  # fmt: skip
        """Make a record from each record with an asynchronous call, with many calls in flight.

        Args:
            function: an `async def`. It must not block: use `asyncio.to_thread` for blocking calls.
            capacity: how many calls a task has in flight at most.
            timeout: for one record with all its attempts; None: no limit.
            ordered: results in the order of the records; False: as they complete.
            retry: when a call is made again, such as `ExponentialBackoffRetry(...)`; its `if_result` gets `[result]`.
            on_timeout: returns the result of a record whose call took too long; without it the record fails.
        """
        settings: dict[str, Any] = {"capacity": capacity, "timeout": timeout, "ordered": ordered, "retry": retry}
        settings |= {"on_timeout": on_timeout, "parallelism": parallelism}
        return Stream(self._graph, self._add("async_map", function, record=of or result_type(function), name=name, **settings))

    def batch(self, size: int, *, within: str | timedelta = "1s", name: Name = None) -> Stream[list[T_co]]:
        """Put the records of each task into lists of `size`; a list is also complete when `within` has passed since its first."""
        record = None if self._record is None else generic(list, self._record)
        return Stream(self._graph, self._add("batch", record=record, name=name, size=size, within=within))

    def broadcast(self, key: Callable[[T_co], K], *, deleted: Callable[[T_co], object] | None = None) -> BroadcastTable[K, T_co]:
        """Return the latest record of each key, in all tasks, for `enrich`; one for which `deleted` is true removes its key."""
        node = self._add("broadcast", key, record=self._record, deleted=deleted)
        return BroadcastTable(Drawn(self._graph, node))

    def enrich(
        self, table: BroadcastTable[K2, U], function: Callable[[T_co, Mapping[K2, U]], R], *, of: Of[R] = None, name: Name = None
    ) -> Stream[R]:
        """Call a function with each record and a table that all tasks have; the function leaves the table as it is."""
        return Stream(self._graph, enriched(self, table, function, of, name, keyed=False))

    def rebalance(self, *, parallelism: int, name: Name = None) -> Stream[T_co]:
        """Spread the records over `parallelism` tasks, before costly functions."""
        return Stream(self._graph, self._add("rebalance", record=self._record, name=name, parallelism=parallelism))

    @overload
    def through(
        self, bolt: SinkBolt, *, of: type[R], fields: Sequence[str] | None = None, stream: str = ...,
        parallelism: int = 1, name: Name = None,
    ) -> Stream[R]: ...  # fmt: skip
    @overload
    def through(
        self, bolt: SinkBolt, *, fields: Sequence[str] | None = None, stream: str = ..., parallelism: int = 1, name: Name = None
    ) -> Stream[tuple[Any, ...]]: ...
    def through(
        self, bolt: SinkBolt, *, of: Any = None, fields: Sequence[str] | None = None, stream: str = "default",
        parallelism: int = 1, name: Name = None,
    ) -> Stream[Any]:  # fmt: skip
        """Send the records through any bolt, as rows, and read its output.

        Args:
            bolt: it gets the fields of the records, or `fields`.
            of: the type of its rows; without it tuples of their values.
            fields: names of the values of records that are tuples, by place, or dicts, by key.
            stream: which of its streams to read.
        """
        more: Any = {"fields": fields, "stream": stream, "parallelism": parallelism}
        return Stream(self._graph, self._add("through", bolt, record=of, name=name, **more))

    def to(
        self, sink: SinkBolt | Callable[[T_co], object], *, fields: Sequence[str] | None = None, parallelism: int | None = None,
        name: Name = None,
    ) -> None:  # fmt: skip
        """End the stream in a bolt, or in a function, which is called in the task that has made the record.

        Args:
            sink: a bolt gets the fields of the records, or the field `value`.
            fields: for a bolt, names of the values of records that are tuples, by place, or dicts, by key.
            parallelism: of the bolt; 1 by default.
        """
        if isinstance(sink, Bolt | BasicBolt | OperatorBolt):
            self._add("sink", sink, name=name, fields=fields, parallelism=1 if parallelism is None else parallelism)
        else:
            self._add("call", sink, name=name, fields=fields, parallelism=parallelism)

    def collect(self, *, name: Name = None) -> list[T_co]:
        """Return a list that `run` fills with all results, when the program ends; a keyed stream has `entries().collect()`."""
        return self._collected(name)


class KeyedStream(DrawnStream, Generic[K, T_co]):
    """Records with a key. `map`, `filter` and `flat_map` keep the key."""

    def map(self, function: Callable[[T_co], R], *, of: Of[R] = None, name: Name = None) -> KeyedStream[K, R]:
        """Make a record from each record."""
        return KeyedStream(self._graph, self._add("map", function, record=of or result_type(function), name=name, keyed=True))

    def flat_map(self, function: Callable[[T_co], Iterable[R]], *, of: Of[R] = None, name: Name = None) -> KeyedStream[K, R]:
        """Make any number of records from each record."""
        record = of or item_type(result_type(function))
        return KeyedStream(self._graph, self._add("flat_map", function, record=record, name=name, keyed=True))

    def filter(self, keep: Callable[[T_co], object], *, name: Name = None) -> KeyedStream[K, T_co]:
        """Keep the records for which the function returns something true."""
        return KeyedStream(self._graph, self._add("filter", keep, record=self._record, name=name, keyed=True))

    def map_keyed(self, function: Callable[[K, T_co], R], *, of: Of[R] = None, name: Name = None) -> Stream[R]:
        """Make a record from each key and record, without a key."""
        return Stream(self._graph, self._add("map_keyed", function, record=of or result_type(function), name=name))

    def entries(self) -> Stream[tuple[K, T_co]]:
        """Return pairs of key and record."""
        record = None if self._record is None else generic(tuple, Any, self._record)
        return Stream(self._graph, self._add("entries", record=record))

    def values(self) -> Stream[T_co]:
        """Return the records without their keys."""
        return Stream(self._graph, self._add("values", record=self._record))

    def key_by(self, key: Callable[[T_co], K2], *, parallelism: int = 1, name: Name = None) -> KeyedStream[K2, T_co]:
        """Give each record another key."""
        node = self._add("key_by", key, record=self._record, name=name, keyed=True, parallelism=parallelism)
        return KeyedStream(self._graph, node)

    def count(self, *, emit: EmitWhen = EACH, name: Name = None) -> KeyedStream[K, int]:
        """Count the records of each key."""
        return KeyedStream(self._graph, self._add("count", record=int, name=name, keyed=True, emit=emit))

    def reduce(
        self: KeyedStream[K, T], function: Callable[[T, T], T], *, emit: EmitWhen = EACH, name: Name = None
    ) -> KeyedStream[K, T]:
        """Combine the records of each key: `function(so_far, record)`; the first record is the first result."""
        return KeyedStream(self._graph, self._add("reduce", function, record=self._record, name=name, keyed=True, emit=emit))

    def fold(
        self, initial: R, function: Callable[[R, T_co], R], *, of: Of[R] = None, emit: EmitWhen = EACH, name: Name = None
    ) -> KeyedStream[K, R]:
        """Combine the records of each key, beginning with a value: `function(so_far, record)`."""
        record = of or known_type(initial)
        node = self._add("fold", function, record=record, name=name, keyed=True, emit=emit, initial=initial)
        return KeyedStream(self._graph, node)

    def dedupe(self, *, within: str | timedelta | None = None, name: Name = None) -> KeyedStream[K, T_co]:
        """Keep the first record of each key; with `within` also the first one after that time by the clock, and so on."""
        record = self._record
        return KeyedStream(self._graph, self._add("dedupe", First(within), record=record, name=name, keyed=True, within=within))

    def process(self, process: KeyedProcess[K, T_co, R], *, of: Of[R] = None, name: Name = None) -> KeyedStream[K, R]:
        """Run a function with state and timers for each key. Its side outputs are read with `side(tag)`."""
        return KeyedStream(self._graph, self._add("process", process, record=of, name=name, keyed=True, sides=None))

    def window(
        self: KeyedStream[K, T], window: TimeWindows | CountWindows, *, lateness: str | timedelta = "0s",
        late: SideOutput[T] | None = None, early: str | timedelta | None = None,
    ) -> WindowedStream[K, T]:  # fmt: skip
        """Put the records of each key into windows.

        Args:
            window: `Tumbling`, `Sliding`, `Session` or `Rows`.
            lateness: how long after its end a window of event time still takes records, and gives its result again.
            late: tag of the side output for records that are too late; without it they are dropped and counted.
            early: how long after a record, by the clock, a window gives a result with it before its end.
        """
        sides = () if late is None else (late,)
        return WindowedStream(self, {"window": window, "lateness": lateness, "sides": sides, "early": early})

    def to(
        self, sink: SinkBolt | Callable[[tuple[K, T_co]], object], *, parallelism: int | None = None, name: Name = None
    ) -> None:
        """End the stream in a bolt, which gets `key` and the fields of the records, or in a function of (key, record)."""
        if isinstance(sink, Bolt | BasicBolt | OperatorBolt):
            self._add("sink", sink, name=name, parallelism=1 if parallelism is None else parallelism)
        else:
            self.entries().to(sink, parallelism=parallelism, name=name)

    def enrich(
        self, table: BroadcastTable[K2, U], function: Callable[[T_co, Mapping[K2, U]], R], *, of: Of[R] = None, name: Name = None
    ) -> KeyedStream[K, R]:
        """Call a function with each record and a table that all tasks have; the function leaves the table as it is."""
        return KeyedStream(self._graph, enriched(self, table, function, of, name, keyed=True))

    def connect(self, other: KeyedStream[K, U]) -> ConnectedStreams[K, T_co, U]:
        """Connect two streams to one operator: `connect(other).process(CoProcess())`."""
        return ConnectedStreams(self, other)

    def join(
        self: KeyedStream[K, T], other: KeyedStream[K, U], function: Callable[[T, U], R], *, window: TimeWindows,
        late: LateTags[T, U] = None, of: Of[R] = None, name: Name = None,
    ) -> KeyedStream[K, R]:  # fmt: skip
        """Call a function for each pair of a key and a window, when the window ends. `late`: tags for this side and the other."""
        return KeyedStream(self._graph, window_joined(self, other, function, window, late, of, name, False, False))

    def left_join(
        self: KeyedStream[K, T], other: KeyedStream[K, U], function: Callable[[T, U | None], R], *, window: TimeWindows,
        late: LateTags[T, U] = None, of: Of[R] = None, name: Name = None,
    ) -> KeyedStream[K, R]:  # fmt: skip
        """Join as `join`; a record of this stream without a partner comes with None."""
        return KeyedStream(self._graph, window_joined(self, other, function, window, late, of, name, True, False))

    def outer_join(
        self: KeyedStream[K, T], other: KeyedStream[K, U], function: Callable[[T | None, U | None], R], *, window: TimeWindows,
        late: LateTags[T, U] = None, of: Of[R] = None, name: Name = None,
    ) -> KeyedStream[K, R]:  # fmt: skip
        """Join as `join`; a record of either stream without a partner comes with None."""
        return KeyedStream(self._graph, window_joined(self, other, function, window, late, of, name, True, True))

    def interval_join(
        self: KeyedStream[K, T], other: KeyedStream[K, U], function: Callable[[T, U], R], *, before: str | timedelta = "0s",
        after: str | timedelta = "0s", late: LateTags[T, U] = None, of: Of[R] = None,
        name: Name = None,
    ) -> KeyedStream[K, R]:  # fmt: skip
        """Call a function for each pair of a key where the other's time is within [this - before, this + after]."""
        return KeyedStream(self._graph, interval_joined(self, other, function, before, after, late, of, name, outer=False))

    def left_interval_join(
        self: KeyedStream[K, T], other: KeyedStream[K, U], function: Callable[[T, U | None], R], *,
        before: str | timedelta = "0s", after: str | timedelta = "0s",
        late: LateTags[T, U] = None, of: Of[R] = None, name: Name = None,
    ) -> KeyedStream[K, R]:  # fmt: skip
        """Join as `interval_join`; a record without a partner comes with None when the watermark has passed its interval."""
        return KeyedStream(self._graph, interval_joined(self, other, function, before, after, late, of, name, outer=True))

    def latest(self, *, deleted: Callable[[T_co], object] | None = None) -> Table[K, T_co]:
        """Return the latest record of each key as a table; one for which `deleted` is true removes its key."""
        return Table(self, deleted)

    def join_table(
        self: KeyedStream[K, T], table: Table[K, U], function: Callable[[T, U], R], *, as_of: bool = False,
        late: SideOutput[T] | None = None, of: Of[R] = None, name: Name = None,
    ) -> KeyedStream[K, R]:  # fmt: skip
        """Call a function with each record and the row of its key at that moment; without a row the record is left out.

        With `as_of` it is the row that held at the record's event time: the record waits until the watermark has passed it. Late
        records go to the side output `late`, or are dropped and counted.
        """
        return KeyedStream(self._graph, table_joined(self, table, function, as_of, late, of, name, outer=False))

    def left_join_table(
        self: KeyedStream[K, T], table: Table[K, U], function: Callable[[T, U | None], R], *, as_of: bool = False,
        late: SideOutput[T] | None = None, of: Of[R] = None, name: Name = None,
    ) -> KeyedStream[K, R]:  # fmt: skip
        """Join as `join_table`; without a row the function gets None."""
        return KeyedStream(self._graph, table_joined(self, table, function, as_of, late, of, name, outer=True))


class Table(NoStream, Generic[K, T_co]):
    """The latest record of each key. Made by `latest`."""

    def __init__(self, stream: KeyedStream[K, T_co], deleted: Callable[[T_co], object] | None) -> None:
        self._stream, self._deleted = stream, deleted

    def changes(self, *, name: Name = None) -> KeyedStream[K, Change[T_co]]:
        """Return the row before and the row after, for each record of the table."""
        return KeyedStream(self._stream._graph, table_changes(self, name))


class ConnectedStreams(NoStream, Generic[K, T, U]):
    """Two streams with keys of one type. Made by `connect`."""

    def __init__(self, left: KeyedStream[K, T], right: KeyedStream[K, U]) -> None:
        self._left, self._right = left, right

    def process(self, process: CoProcess[K, T, U, R], *, of: Of[R] = None, name: Name = None) -> KeyedStream[K, R]:
        """Run a function of the records of both streams, with state and timers for each key."""
        return KeyedStream(self._left._graph, connected(self._left, self._right, process, of, name))


class WindowedStream(NoStream, Generic[K, T]):
    """Records of each key in windows; its methods choose the result of a window."""

    def __init__(self, keyed: KeyedStream[K, T], settings: dict[str, Any]) -> None:
        self._keyed, self._settings = keyed, settings

    def count(self, *, name: Name = None) -> KeyedStream[K, Windowed[int]]:
        """Count the records."""
        return self._windowed("count", None, name, Windowed[int], parts=(count(),))

    def sum(self, of: Callable[[T], N], *, name: Name = None) -> KeyedStream[K, Windowed[N]]:
        """Sum a value of each record."""
        return self._windowed("sum", of, name, parts=(sum_of(of),))

    def mean(self, of: Callable[[T], float], *, name: Name = None) -> KeyedStream[K, Windowed[float]]:
        """Return the arithmetic mean of a value of each record."""
        return self._windowed("mean", of, name, parts=(mean_of(of),))

    def min(self, of: Callable[[T], C], *, name: Name = None) -> KeyedStream[K, Windowed[C]]:
        """Return the smallest value, ignoring None."""
        return self._windowed("min", of, name, parts=(min_of(of),))

    def max(self, of: Callable[[T], C], *, name: Name = None) -> KeyedStream[K, Windowed[C]]:
        """Return the largest value, ignoring None."""
        return self._windowed("max", of, name, parts=(max_of(of),))

    def top_n(self, n: int, by: Callable[[T], Sortable], *, name: Name = None) -> KeyedStream[K, Windowed[list[T]]]:
        """Return the `n` records with the largest values, the largest first."""
        inner = self._keyed._record
        record = Windowed[Any] if inner is None else generic(Windowed, generic(list, inner))
        return self._windowed("top_n", by, name, record, n=n)

    def reduce(self, function: Callable[[T, T], T], *, name: Name = None) -> KeyedStream[K, Windowed[T]]:
        """Combine the records: `function(so_far, record)`, which must be associative."""
        inner = self._keyed._record
        return self._windowed("reduce", function, name, generic(Windowed, Any if inner is None else inner))

    @overload
    def aggregate(self, first: Aggregate[T, R1], /, *, name: Name = None) -> KeyedStream[K, Windowed[R1]]: ...
    @overload
    def aggregate(
        self, first: Aggregate[T, R1], second: Aggregate[T, R2], /, *, name: Name = None
    ) -> KeyedStream[K, Windowed[tuple[R1, R2]]]: ...
    @overload
    def aggregate(
        self, first: Aggregate[T, R1], second: Aggregate[T, R2], third: Aggregate[T, R3], /, *, name: Name = None
    ) -> KeyedStream[K, Windowed[tuple[R1, R2, R3]]]: ...
    @overload
    def aggregate(
        self, first: Aggregate[T, R1], /, *, into: Callable[[R1], R], name: Name = None
    ) -> KeyedStream[K, Windowed[R]]: ...
    @overload
    def aggregate(
        self, first: Aggregate[T, R1], second: Aggregate[T, R2], /, *, into: Callable[[R1, R2], R], name: Name = None
    ) -> KeyedStream[K, Windowed[R]]: ...
    @overload
    def aggregate(
        self, first: Aggregate[T, R1], second: Aggregate[T, R2], third: Aggregate[T, R3], /, *,
        into: Callable[[R1, R2, R3], R], name: Name = None,
    ) -> KeyedStream[K, Windowed[R]]: ...  # fmt: skip
    def aggregate(
        self, *parts: Aggregate[Any, Any], into: Callable[..., Any] | None = None, name: Name = None
    ) -> KeyedStream[K, Any]:
        """Run one to three aggregates over the records; `into` combines their results, by default two or three as a tuple."""
        return self._windowed("aggregate", into, name, generic(Windowed, aggregated_type(parts, into)), parts=parts)

    def process(
        self, function: Callable[[K, Windowed[Sequence[T]]], Iterable[R]], *, of: Of[R] = None, name: Name = None
    ) -> KeyedStream[K, R]:
        """Call a function with the key and all records of a window; it returns any number of records."""
        return self._windowed("process", function, name, of or item_type(result_type(function)))

    def _windowed(self, result: str, function: Any, name: Name, record: Any = Windowed[Any], **more: Any) -> KeyedStream[K, Any]:
        keyed = self._keyed
        settings = {**self._settings, **more, "result": result}
        return KeyedStream(keyed._graph, keyed._add("window", function, record=record, name=name, keyed=True, **settings))
