"""A program of streams under test, step by step: typed inputs and outputs, on a manual clock."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, Generic, TypeVar, overload

from topo.api.spout import RetryingSpout
from topo.api.two_phase import TwoPhaseSink
from topo.emission.emitter import checked_timestamp
from topo.errors import UserError
from topo.master.commands import RecordError
from topo.plan.parallelism import with_parallelism
from topo.streams import KeyedStream, SideOutput, Stream, StreamBuilder, WindowedStream
from topo.streams.checks import is_value
from topo.streams.functions import problem_of
from topo.streams.records import Layout, layout_of
from topo.streams.results import StreamKey
from topo.streams.stream import DrawnStream
from topo.testing.clock import ClockDuration
from topo.testing.script import END, IDLE, WATERMARK, Marker, Script, message
from topo.testing.topology_test import DeadLetter, TopologyTest, check_seed, in_short, known_component

T = TypeVar("T")
K = TypeVar("K", bound=StreamKey)
V = TypeVar("V")

_CHECKPOINTS = "10ms"
_UNTIL_PUBLISHED = "30ms"
"""Of the clock: in this time a checkpoint begins and completes."""


class StreamInput(Generic[T]):
    """A source of a test. Made by `StreamTest.source`.

    Attributes:
        stream: its records, to write the program on.
    """

    def __init__(self, test: StreamTest, name: str, of: type[T]) -> None:
        self._test, self._name, self._has_ended = test, name, False
        layout = layout_of(of)
        self._pack, self._is_record = layout.packer(f"source {name!r}"), bool(layout.attributes)
        self.stream: Stream[T] = test.flow.from_spout(_TestSpout(layout.attributes or layout.fields), of=of, name=name)

    def send(self, *records: T, at: int | None = None) -> None:
        """Emit records, with a timestamp (ms) if one is given, and let the program work until nothing is under way.

        Raises:
            UserError: the source has ended. So for `watermark` and `idle`.
        """
        self._check_open("send")
        if at is not None:
            checked_timestamp(at, f"source {self._name!r} was given at")
        for record in records:
            packed = self._pack(record)
            self._test._feed(self._name, packed if self._is_record else (packed,), at)
        self._test._work()

    def watermark(self, timestamp: int) -> None:
        """Promise that no record with a timestamp <= `timestamp` follows. A `with_event_time` behind makes its own instead."""
        self._check_open("watermark")
        checked_timestamp(timestamp, f"source {self._name!r} was given the watermark")
        self._mark(WATERMARK(timestamp))

    def idle(self) -> None:
        """Fall silent: no reader waits for watermarks of this source."""
        self._check_open("idle")
        self._mark(IDLE)

    def end(self) -> None:
        """End the input; nothing happens when it has ended."""
        if not self._has_ended:
            self._has_ended = True
            self._mark(END)

    def _check_open(self, call: str) -> None:
        if self._has_ended:
            raise UserError(f"{call} comes after the end of source {self._name!r}")

    def _mark(self, marker: Marker) -> None:
        self._test._script(self._name).entries.append(marker)
        self._test._work()


class Seen(Generic[T]):
    """The results of a stream, each once, as a reader of committed results sees them. Made by `StreamTest.collect`."""

    def __init__(self, test: StreamTest, published: list[Any]) -> None:
        self._test, self._published = test, published
        self._taken = 0

    @property
    def all(self) -> list[T]:
        """All results so far. A checkpoint passes before: 30 ms of the clock."""
        self._test.advance(_UNTIL_PUBLISHED)
        return list(self._published)

    def take(self) -> list[T]:
        """Return the results since the last call. A checkpoint passes before, as for `all`."""
        new = self.all[self._taken :]
        self._taken += len(new)
        return new


class StreamTest:
    """Runs a function from streams to streams with the engine's own task code, in virtual time, every value through the codec.

        with StreamTest() as test:
            clicks = test.source(Click)
            seen = test.collect(visits(clicks.stream))
            clicks.send(Click("ann", "/"), at=0)
            clicks.watermark(30_000)
            assert seen.take() == [...]

    The program runs `exactly_once`. It is built at the first call that lets it work. At the end of the block an error of the
    program raises AssertionError, unless `errors` was called.

    Args:
        seed: of the scheduling order and of all ids.
        parallelism: numbers of tasks by component, in place of those in the program.
        settings: of the topology.
    """

    def __init__(self, *, seed: int = 0, parallelism: Mapping[str, int] | None = None, **settings: Any) -> None:
        check_seed(seed)
        if parallelism is not None and not isinstance(parallelism, Mapping):
            raise UserError(
                f"StreamTest was given parallelism={parallelism!r:.60}; give numbers by component, such as {{'visits': 2}}"
            )
        self.flow = StreamBuilder("test")
        self.seed, self._parallelism = seed, dict(parallelism or {})
        often = {"checkpoint_interval": _CHECKPOINTS, "checkpoint_pause": _CHECKPOINTS}
        self._settings = {"delivery": "exactly_once", **often, **settings}
        self._names: list[str] = []
        self._sinks = 0
        self._sent = 0
        self._has_looked = False
        self._running: TopologyTest | None = None

    def source(self, of: type[T], name: str | None = None) -> StreamInput[T]:
        """Return a source of records of a type; by default its name is `source`, `source-2`, ..."""
        self._check_open("source")
        if is_value(of):
            raise UserError(f"source takes the type of its records, such as str; got {of!r:.60}")
        given = name or ("source" if not self._names else f"source-{len(self._names) + 1}")
        self._names.append(given)
        return StreamInput(self, given, of)

    @classmethod
    def every_seed(
        cls, seeds: Iterable[int], *, parallelism: Mapping[str, int] | None = None, **settings: Any
    ) -> Callable[[Callable[[StreamTest], None]], Callable[[], None]]:
        """Decorate a test that takes a `StreamTest`: it runs for each seed, in another order of work each time.

            @StreamTest.every_seed(range(20))
            def test_visits(test: StreamTest) -> None: ...

        Other arguments are those of `StreamTest`. An exception of the test gets a note with the seed.
        """

        if not isinstance(seeds, Iterable):
            raise UserError(f"every_seed takes seeds, such as range(20); got {seeds!r:.60}")

        def decorated(body: Callable[[StreamTest], None]) -> Callable[[], None]:
            if (problem := problem_of(body, "every_seed", 1, "test")) is not None:
                raise UserError(problem)

            def run() -> None:
                for seed in seeds:
                    try:
                        with cls(seed=seed, parallelism=parallelism, **settings) as test:
                            body(test)
                    except Exception as error:
                        error.add_note(f"with seed={seed}")
                        raise

            # Not functools.wraps: pytest would take the parameter for a fixture.
            run.__name__, run.__doc__, run.__module__ = body.__name__, body.__doc__, body.__module__
            return run

        return decorated

    def side(self, stream: DrawnStream, tag: SideOutput[V]) -> Seen[V]:
        """Return what an operator gives to a side output."""
        return self.collect(_drawn(stream, "side").side(tag))

    @overload
    def collect(self, stream: Stream[T]) -> Seen[T]: ...
    @overload
    def collect(self, stream: KeyedStream[K, T]) -> Seen[tuple[K, T]]: ...
    def collect(self, stream: Any) -> Seen[Any]:
        """Return the results of a stream; of a keyed one pairs of key and record."""
        self._check_open("collect")
        stream = _drawn(stream, "collect")
        self._sinks += 1
        if isinstance(stream, KeyedStream):
            stream = stream.entries()
        shelf = _Shelf(layout_of(stream._record))
        stream.to(_SeenSink(shelf), name=f"seen-{self._sinks}")
        return Seen(self, shelf.published)

    def advance(self, by: ClockDuration) -> None:
        """Let time pass."""
        self._run()
        self._topology().advance(by)

    def crash(self, component: str, task_index: int = 0) -> None:
        """Kill the worker of a component's task; `flow.explain()` shows the ids. Its state comes back from the checkpoint."""
        self._run()
        self._topology().crash(component, task_index)
        self._run()

    def counters(self, component: str) -> dict[str, int]:
        """Return the counters of a component's own, as `topo status` shows them; a new process begins at 0.

        Raises:
            NotFoundError: there is no such component.
        """
        self._run()
        test = self._topology()
        found = {one["component"]: one["user"]["counters"] for one in test.status()["components"]}
        return dict(found[known_component(test.plan, component)])

    def errors(self) -> list[RecordError]:
        """Return what `topo errors` would show."""
        self._has_looked = True
        self._run()
        return self._topology().errors()

    def dead_letters(self) -> list[DeadLetter]:
        """Return the records that were given up."""
        self._run()
        return self._topology().dead_letters()

    def __enter__(self) -> StreamTest:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is not None or self._has_looked or self._running is None:
            return
        self._run()
        own = [one for one in self._running.errors() if one.kind != "WorkerLost"]
        if own:
            raise AssertionError(f"the program has failed: {'; '.join(map(in_short, own))}")

    def _check_open(self, call: str) -> None:
        if self._running is not None:
            raise UserError(f"{call} comes before the first send; the program runs already")

    def _topology(self) -> TopologyTest:
        if self._running is None:
            sources: dict[str, list[Any]] = {name: [] for name in self._names}
            topology = self.flow.build()
            topology = with_parallelism(topology, self._parallelism, topology.config)
            self._running = TopologyTest(topology, sources, self.seed, **self._settings)
        return self._running

    def _script(self, name: str) -> Script:
        return self._topology().script(name)

    def _feed(self, name: str, row: tuple[Any, ...], at: int | None) -> None:
        self._sent += 1
        self._script(name).entries.append(message(*row, message_id=self._sent, timestamp=at))

    def _work(self) -> None:
        # Waiting for the checkpoint of each record would take most of the time of a test.
        self._topology().run(committed=False)

    def _run(self) -> None:
        # With `at_least_once` time would pass until the messages that windows hold have failed.
        test = self._topology()
        test.run(committed=test.plan.config.delivery != "at_least_once")


def _drawn(stream: Any, call: str) -> DrawnStream:
    if isinstance(stream, DrawnStream):
        return stream
    windowed = "; end its windows before, as by .count() or .process(...)" if isinstance(stream, WindowedStream) else ""
    raise UserError(f"{call} takes a stream; got a {type(stream).__name__}{windowed}")


class _TestSpout(RetryingSpout):
    """Stands for a source in the topology; its script runs in its place."""

    stamps_all_streams = True

    def __init__(self, fields: tuple[str, ...]) -> None:
        self.outputs = fields

    def next_tuple(self) -> None:
        """Never called."""


class _Shelf:
    """Rows of one sink, staged and published. All copies of the sink share it, as they would share a disk."""

    def __init__(self, layout: Layout) -> None:
        self.unpack = layout.unpacker(0)
        self.staged: dict[int, list[Any]] = {}
        self.published: list[Any] = []
        self.tokens = 0

    def __deepcopy__(self, memo: dict[int, Any]) -> _Shelf:
        return self


class _SeenSink(TwoPhaseSink):
    """Publishes rows with their checkpoint, or before `Seen` reads them."""

    outputs = ()
    flush_interval = "20ms"

    def __init__(self, shelf: _Shelf) -> None:
        super().__init__()
        self._shelf = shelf
        self._rows: list[Any] = []

    def begin(self) -> None:
        self._rows = []

    def write(self, tup: Any) -> None:
        self._rows.append(self._shelf.unpack(tup.values))

    def pre_commit(self) -> int | None:
        if not self._rows:
            return None
        self._shelf.tokens += 1
        self._shelf.staged[self._shelf.tokens] = self._rows
        return self._shelf.tokens

    def commit(self, token: Any) -> None:
        self._shelf.published += self._shelf.staged.pop(token, [])

    def abort(self, token: Any) -> None:
        self._shelf.staged.pop(token, None)
        self._rows = []
