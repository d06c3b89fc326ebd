"""Traces against the trees that user code has emitted: splits, copies, joins of two messages, held inputs, failures."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from tests.simulator.observers import TreeObserver
from tests.simulator.random_scenarios import draw_scenario
from topo import (
    BasicBolt,
    BasicCollector,
    Bolt,
    Collector,
    ColumnBatch,
    ColumnBolt,
    ColumnCollector,
    IterableSpout,
    TaskContext,
    TopologyBuilder,
    Tuple,
    WindowBolt,
    aggregates,
)
from topo.api.topology import Topology
from topo.api.windows import CountWindows
from topo.hot import traced_places, unpack_words
from topo.ids import REPLAYED_BIT, TRACED_BIT, TaskId
from topo.operate.traces import Traces
from topo.plan.physical import physical_plan
from topo.task.batch import Batch
from topo.task.task import Task
from topo.testing import END, TopologyTest, in_process
from topo.wire.control import Observe
from topo.wire.frames import Columns
from topo.worker.tracer import TaskTraces, Tracer

SEEDS = 25
Path = str
MADE: dict[tuple[str, Path], set[Path]] = {}
"""By component and tuple that user code has emitted: the tuples it was emitted for."""
PATHS: dict[str, Path] = {}
"""By edge."""


class Split(BasicBolt):
    """Emits some tuples for each."""

    outputs = ("path",)

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        for part in range(len(tup["path"]) % 4):
            path = f"{tup['path']}{part}"
            MADE["split", path] = {tup["path"]}
            collector.emit((path,))


class Join(Bolt):
    """Holds inputs back; emits for some of them together, then acks them."""

    outputs = ("path",)

    def __init__(self, size: int) -> None:
        self.size = size

    def prepare(self, context: TaskContext, collector: Collector) -> None:
        self.collector, self.held, self.name = collector, list[Tuple](), f"join{context.task_index}"

    def execute(self, tup: Tuple) -> None:
        self.held.append(tup)
        if len(self.held) >= self.size:
            self.end_of_input()

    def end_of_input(self) -> None:
        if self.held:
            path = f"{self.name}({'+'.join(tup['path'] for tup in self.held)})"
            MADE["join", path] = {tup["path"] for tup in self.held}
            self.collector.emit((path,), self.held)
        for tup in self.held:
            self.collector.ack(tup)
        self.held = []


class Tail(BasicBolt):
    """Emits for inputs that descend from several messages."""

    outputs = ("path",)

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        for path in (f"{tup['path']}!", f"{tup['path']}?"):
            MADE["tail", path] = {tup["path"]}
            collector.emit((path,))


class End(BasicBolt):
    outputs = ()

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        pass


class Recorder(Tracer):
    """Knows the path of each edge."""

    def rows_routed(self, task: TaskId, target: TaskId, stream: int, columns: Columns) -> None:
        super().rows_routed(task, target, stream, columns)
        counts = memoryview(columns.counts).cast("H").tolist() if columns.counts else [1] * len(columns.rows)
        paths = [row[0] for row, count in zip(columns.rows, counts, strict=True) for _ in range(count)]
        if columns.roots:
            PATHS.update({f"{edge:016x}": path for edge, path in zip(unpack_words(columns.edges), paths, strict=True)})


def build(random: Random) -> Topology:
    builder = TopologyBuilder("traced")
    builder.config(batch_size=random.choice((1, 3, 100)), edge_window=random.choice((1, 8)), ackers=random.choice((1, 2)))
    builder.config(message_timeout="60s", tick_interval=None)
    for name in ("left", "right"):
        builder.set_spout(name, IterableSpout([], fields=("path",)), max_spout_pending=random.choice((10, 100)))
    builder.set_bolt("split", Split(), parallelism=2).shuffle_grouping("left")
    builder.set_bolt("join", Join(random.choice((2, 3))), parallelism=2).shuffle_grouping("split").shuffle_grouping("right")
    builder.set_bolt("tail", Tail()).shuffle_grouping("join")
    builder.set_bolt("end", End(), parallelism=2).all_grouping("tail").shuffle_grouping("left")
    return builder.build()


READERS = {"left": {"split": 1, "end": 1}, "right": {"join": 1}, "split": {"join": 1}, "join": {"tail": 1}, "tail": {"end": 2}}


def traced(monkeypatch: pytest.MonkeyPatch, topology: Topology, seed: int, *, rate: float = 1e6, **sources: list[Any]) -> Traces:
    """Run a topology, and trace its messages: all, or at a rate a second of each spout."""
    plan, watches, tasks = physical_plan(topology), [], []
    whole = in_process.Host.hosts

    def hosts(host: Any, task: Task, *others: Any) -> None:
        clock = task.state.clock
        observe = Observe(1, "trace", [task.id], {"rate": rate, "settle_s": 0.0, "spouts": plan.spouts}, 1e6)
        watches.append(TaskTraces({task.id: task}, plan, clock, lambda: clock() + 1e9).begin(observe))
        tasks.append(task)
        whole(host, task, *others)

    MADE.clear(), PATHS.clear()
    monkeypatch.setattr(in_process.Host, "hosts", hosts)
    monkeypatch.setattr("topo.worker.tracer.Tracer", Recorder)
    monkeypatch.setattr("topo.worker.tracer.MOST_SPANS_S", 1e9)
    test = TopologyTest(topology, sources=sources, seed=seed)
    test.run()
    assert not test.errors() or "odd" in topology.name, test.errors()
    rows = [row for watch in watches for report in watch.reports() for row in report.rows]
    for watch in watches:
        watch.end()
    assert all(task.state.observer is task.state.lookout is None for task in tasks)
    Random(seed).shuffle(rows)
    traces = Traces({task.id: (task.component, task.index) for task in plan.tasks})
    traces.take(rows)
    return traces


def expected_spans(source: str, message: Path) -> dict[tuple[str, Path], tuple[int, set[Path]]]:
    """Return, by component and tuple, how many tuples it gets, and for which tuples each of them was emitted."""
    found: dict[tuple[str, Path], tuple[int, set[Path]]] = {}
    emitted = [(source, message)]
    known = {message}
    while emitted:
        component, path = emitted.pop()
        parents = MADE.get((component, path), set()) & known
        for reader, copies in READERS[component].items():
            found[reader, path] = (copies, parents)
            if reader in READERS:
                emitted += [one for one, on in MADE.items() if one[0] == reader and path in on and one not in emitted]
        known.add(path)
    return found


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("rate", [1e6, 100.0])
def test_a_trace_is_the_tree_that_user_code_has_emitted(seed: int, rate: float, monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(seed)
    left = [(f"m{number}", (chr(97 + number) * random.randint(1, 4),)) for number in range(12)]
    right = [(f"n{number}", (f"R{number}",)) for number in range(9)]
    traces = traced(monkeypatch, build(random), seed, rate=rate, left=[*left, END], right=[*right, END])
    messages = {("left", one): path for one, (path,) in left} | {("right", one): path for one, (path,) in right}
    known = traces.all()
    assert len(known) == len(messages) if rate > 1000 else 1 <= len(known) < len(messages)
    for trace in known:
        source = traces.tasks[trace.task][0]
        path = messages[source, trace.message]
        assert trace.outcome == "acked" and not trace.unseen
        assert int(trace.root, 16) & (TRACED_BIT | REPLAYED_BIT) == TRACED_BIT
        wanted = expected_spans(source, path)
        found: dict[tuple[str, Path], tuple[int, set[Path]]] = {}
        for span in trace.spans.values():
            key = traces.tasks[span.task][0], PATHS[span.edge]
            parents = {PATHS[sent.parent] for sent in span.sent if sent.parent}
            found[key] = (found.get(key, (0, set()))[0] + 1, parents)
            assert span.outcome == "acked"
            assert trace.at <= span.left <= span.arrived <= span.began <= span.ended <= trace.ended
        assert found == wanted
        assert sum(us for _, _, us in trace.breakdown()) == trace.took


class Odd(BasicBolt):
    """Raises for some inputs."""

    outputs = ("path",)

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        if tup["path"] == "bad":
            raise ValueError("bad")
        collector.emit((tup["path"],))


def test_a_message_that_fails_has_the_tuple_at_which_it_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    builder = TopologyBuilder("odd")
    builder.config(tick_interval=None, attempts=2, backoff="10ms")
    builder.set_spout("left", IterableSpout([], fields=("path",)))
    builder.set_bolt("odd", Odd()).shuffle_grouping("left")
    builder.set_bolt("end", End()).shuffle_grouping("odd")
    traces = traced(monkeypatch, builder.build(), 0, left=[("m0", ("bad",)), ("m1", ("good",)), END])
    found = [(trace.message, trace.outcome, [span.outcome for span in trace.spans.values()]) for trace in traces.all()]
    # A replay is another message.
    assert sorted(found) == [("m0", "failed", ["failed"])] * 2 + [("m1", "acked", ["acked", "acked"])]
    replays = [bool(int(trace.root, 16) & REPLAYED_BIT) for trace in traces.all() if trace.message == "m0"]
    assert replays == [False, True]


class Rows(ColumnBolt):
    """Gathers four tuples into a batch."""

    outputs = ("path",)

    def __init__(self) -> None:
        super().__init__(size=4)

    def execute_batch(self, batch: ColumnBatch, collector: ColumnCollector) -> None:
        collector.emit_batch(batch)


def test_a_batch_of_columns_is_one_span_although_its_rows_run_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    builder = TopologyBuilder("columns")
    builder.config(tick_interval=None)
    builder.set_spout("left", IterableSpout([], fields=("path",)))
    builder.set_bolt("rows", Rows()).shuffle_grouping("left")
    builder.set_bolt("tail", Tail()).shuffle_grouping("rows")
    builder.set_bolt("end", End()).shuffle_grouping("tail")
    traces = traced(monkeypatch, builder.build(), 0, left=[*((f"m{number}", (f"p{number}",)) for number in range(4)), END])
    assert len(traces.all()) == 4
    for trace in traces.all():
        names = ("rows", "tail", "end")
        spans = {name: [span for span in trace.spans.values() if traces.tasks[span.task][0] == name] for name in names}
        assert [len(some) for some in spans.values()] == [1, 1, 8]
        assert {sent.parent for span in spans["end"] for sent in span.sent} == {spans["tail"][0].edge}
        assert {span.outcome for span in trace.spans.values()} == {"acked"} and not trace.unseen


def test_a_trace_ends_in_a_window(monkeypatch: pytest.MonkeyPatch) -> None:
    builder = TopologyBuilder("windows")
    builder.config(tick_interval=None, delivery="at_least_once")
    builder.set_spout("left", IterableSpout([], fields=("path",)))
    windows = WindowBolt(key="path", window=CountWindows.of(2), max_wait="5s", aggregate=aggregates.Count())
    builder.set_bolt("window", windows).fields_grouping("left", "path")
    builder.set_bolt("end", End()).shuffle_grouping("window")
    traces = traced(monkeypatch, builder.build(), 0, left=[("m0", ("a",)), ("m1", ("a",)), END])
    for trace in traces.all():
        (span,) = trace.spans.values()
        assert (traces.tasks[span.task][0], span.outcome, trace.outcome) == ("window", "in a window", "acked")
    assert len(traces.all()) == 2


def test_no_promise_is_broken_while_messages_are_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Losses, restarts and time-outs with marks in half of the roots, and slices cut at them."""
    marked = 0

    def roots_drawn(self: TreeObserver, task: TaskId, roots: list[int]) -> None:
        nonlocal marked
        for place in range(0, len(roots), 2):
            roots[place] |= TRACED_BIT
            marked += 1

    def slice_begins(self: TreeObserver, task: TaskId, batch: Batch, first: int, last: int) -> int:
        return min(last, first + 1) if traced_places(batch.packed_roots(first, last)) else last

    monkeypatch.setattr(TreeObserver, "roots_drawn", roots_drawn)
    monkeypatch.setattr(TreeObserver, "slice_begins", slice_begins)
    for seed in range(2):
        scenario = draw_scenario(seed)
        assert scenario.run().violations == [], scenario.describe()
    assert marked > 100
