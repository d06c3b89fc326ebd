"""The XOR that a task sends to the ackers is what a walk over everything it received and emitted comes to."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.rows import rows_of
from tests.tasks.components import Manual, Plain, Scripted, Sink
from tests.tasks.environment import CODEC
from tests.tasks.solo import RowIds, Solo
from topo.api.groupings import CustomGrouping
from topo.api.streams import direct
from topo.api.topology import Topology
from topo.builder import TopologyBuilder
from topo.keys import route_of
from topo.wire.frames import Anchoring, Frame, FrameKind

OUTPUTS = {"default": ("key", "n"), "side": ("key", "n"), "to": direct("key", "n")}
GROUPINGS = ["shuffle", "local_or_shuffle", "fields", "partial_key", "all", "global", "none", "custom"]


class Several(CustomGrouping):
    """None, one or several targets, by the row."""

    def prepare(self, context: Any, stream: str, target_tasks: Sequence[int]) -> None:
        self.targets = len(target_tasks)

    def choose(self, values: tuple[Any, ...]) -> Sequence[int]:
        return [position for position in range(self.targets) if (values[1] >> position) & 1]


readers = st.lists(
    st.tuples(st.sampled_from(["default", "side"]), st.sampled_from(GROUPINGS), st.integers(1, 4)), min_size=0, max_size=4
)


def subscribe(builder: TopologyBuilder, subscribed: list[tuple[str, str, int]]) -> None:
    """Add a sink for each stream of b, grouping and parallelism."""
    for number, (stream, grouping, parallelism) in enumerate(subscribed):
        declarer = builder.set_bolt(f"c{number}", Sink, parallelism=parallelism)
        if grouping == "custom":
            declarer.custom_grouping("b", Several(), stream)
        elif grouping in ("fields", "partial_key"):
            getattr(declarer, f"{grouping}_grouping")("b", "key", stream=stream)
        else:
            getattr(declarer, f"{grouping}_grouping")("b", stream)


def topology(bolt: Any, subscribed: list[tuple[str, str, int]], batch_size: int, ackers: int) -> Topology:
    builder = TopologyBuilder("routes").config(batch_size=batch_size, ackers=ackers, edge_window=1000)
    builder.set_spout("a", Scripted())
    builder.set_bolt("b", bolt).shuffle_grouping("a")
    subscribe(builder, subscribed)
    for name in ("d1", "d2"):
        builder.set_bolt(name, Sink, parallelism=2).direct_grouping("b", "to")
    return builder.build()


def emitted_edges(frames: list[Frame]) -> dict[int, int]:
    """By root: the XOR of every edge that left."""
    found: dict[int, int] = defaultdict(int)
    for frame in frames:
        for root, edge in zip(frame.root_list(), frame.edge_list(), strict=True):
            found[root] ^= edge
    return found


def input_edges(ids: list[RowIds]) -> dict[int, int]:
    found: dict[int, int] = defaultdict(int)
    for one in ids:
        for roots, edges in zip(one.roots, one.edges, strict=True):
            pairs = zip(roots, edges, strict=True) if isinstance(roots, tuple) else [(roots, edges)]
            for root, edge in pairs:
                found[root] ^= edge
    return found


def check_routes(task: Solo, subscribed: list[tuple[str, str, int]], emitted: dict[str, list[tuple[Any, ...]]]) -> None:
    """Every row went to the number of tasks of its grouping, and keys to their owners."""
    for number, (stream, grouping, parallelism) in enumerate(subscribed):
        targets = task.plan.tasks_of(f"c{number}")
        index = task.plan.stream_index("b", stream)
        got: dict[int, list[tuple[Any, ...]]] = {target: [] for target in targets}
        for frame in task.frames(FrameKind.DATA):
            if frame.target in got and frame.stream == index:
                got[frame.target] += rows_of(frame, CODEC)
        everything = Counter(row for rows in got.values() for row in rows)
        rows = emitted[stream]
        if grouping == "all":
            assert all(Counter(received) == Counter(rows) for received in got.values())
        elif grouping == "custom":
            assert everything == Counter(row for row in rows for position in range(parallelism) if (row[1] >> position) & 1)
        else:
            assert everything == Counter(rows)
        if grouping == "fields":
            assert all(targets[route_of(row[0], 128, parallelism)] == target for target in targets for row in got[target])
        if grouping == "global":
            assert not any(got[target] for target in targets[1:])


one_root = st.integers(1, 5)
inputs = st.one_of(
    st.lists(one_root, min_size=1, max_size=12),
    st.lists(st.lists(one_root, unique=True, max_size=3).map(tuple), min_size=1, max_size=12),
    st.integers(1, 12),
)
seeds = st.integers(0, 1 << 32)


def some_rows(chance: Random) -> list[tuple[str, tuple[int, int]]]:
    """Streams and rows that a call emits."""
    count = chance.choice([0, 1, 1, 1, 2, 5])
    return [(chance.choice(["default", "side", "to"]), (chance.randrange(7), chance.randrange(16))) for _ in range(count)]


@settings(max_examples=200)
@given(seed=seeds, subscribed=readers, batches=st.lists(inputs, min_size=1, max_size=3), ackers=st.integers(1, 3))
def test_a_basic_bolt_acks_its_inputs_and_all_it_emitted_for_them(
    seed: int, subscribed: list[tuple[str, str, int]], batches: list[Any], ackers: int
) -> None:
    chance = Random(seed)
    emitted: dict[str, list[tuple[Any, ...]]] = {name: [] for name in OUTPUTS}
    broken: set[int] = set()

    def run(tup: Any, collector: Any) -> None:
        fails = chance.randrange(10) == 0
        for stream, row in some_rows(chance):
            if not fails:
                emitted[stream].append(row)
            if stream == "to":
                collector.emit_direct(chance.choice(direct_targets), row, stream="to")
            else:
                collector.emit(row, stream=stream, timestamp=chance.choice([None, 5]))
        if fails:
            broken.update(tup.values[1])
            raise RuntimeError("on purpose")

    task = Solo(topology(Plain(run, OUTPUTS), subscribed, chance.randint(1, 6), ackers), "b")
    direct_targets = [*task.plan.tasks_of("d1"), *task.plan.tasks_of("d2")]
    fed = feed(task, batches)
    task.run()
    sent = emitted_edges(task.frames(FrameKind.DATA))
    expected = {root: edge ^ sent[root] for root, edge in input_edges(fed).items()}
    acked, failed = task.acks(), set(task.roots(FrameKind.FAIL))
    assert failed == broken
    assert {r: v for r, v in acked.items() if r not in failed} == {r: v for r, v in expected.items() if r not in failed}
    assert {frame.target for frame in task.frames(FrameKind.ACK)} <= set(task.plan.ackers)
    for frame in task.frames(FrameKind.ACK, FrameKind.FAIL):
        assert all(task.plan.ackers[root % ackers] == frame.target for root in frame.root_list())
    check_routes(task, subscribed, emitted)


@settings(max_examples=200)
@given(seed=seeds, subscribed=readers, batches=st.lists(inputs, min_size=1, max_size=3))
def test_a_bolt_that_anchors_acks_its_inputs_and_all_that_was_anchored_on_them(
    seed: int, subscribed: list[tuple[str, str, int]], batches: list[Any]
) -> None:
    chance = Random(seed)
    emitted: dict[str, list[tuple[Any, ...]]] = {name: [] for name in OUTPUTS}
    held: list[Any] = []

    def run(tup: Any, collector: Any) -> None:
        held.append(tup)
        if tup is bolt.tuples[-1] and tup.values[0] == "last":
            for waiting in held:
                collector.ack(waiting)
            return
        for stream, row in some_rows(chance):
            anchors = chance.choices(held, k=chance.randrange(4)) if held else []
            emitted[stream].append(row)
            if stream == "to":
                collector.emit_direct(chance.choice(direct_targets), row, anchors, stream="to")
            else:
                collector.emit(row, anchors=anchors, stream=stream)
        for done in [waiting for waiting in held if chance.random() < 0.5]:
            held.remove(done)
            collector.ack(done)

    bolt = Manual(run, OUTPUTS)
    task = Solo(topology(bolt, subscribed, chance.randint(1, 6), 1), "b")
    direct_targets = [*task.plan.tasks_of("d1"), *task.plan.tasks_of("d2")]
    fed = feed(task, batches)
    task.feed(("last", ()), tracked=False)
    task.run()
    sent = emitted_edges(task.frames(FrameKind.DATA))
    assert task.acks() == {root: edge ^ sent[root] for root, edge in input_edges(fed).items()}
    assert sent.keys() <= input_edges(fed).keys()
    check_routes(task, subscribed, emitted)


@settings(max_examples=150)
@given(seed=seeds, subscribed=readers, count=st.integers(1, 30), ackers=st.integers(1, 3))
def test_a_spout_inits_each_message_with_all_it_emitted_for_it(
    seed: int, subscribed: list[tuple[str, str, int]], count: int, ackers: int
) -> None:
    chance = Random(seed)
    streams = chance.choices(["default", "side"], k=count)
    rows = [(chance.randrange(7), number) for number in range(count)]
    tracked = chance.choices([True, False], k=count)

    def emit(collector: Any) -> None:
        for stream, row, is_tracked in zip(streams, rows, tracked, strict=True):
            collector.emit(row, message_id=row if is_tracked else None, stream=stream)

    spout = Scripted([emit], ends=False)
    spout.outputs = {"default": ("key", "n"), "side": ("key", "n")}
    builder = TopologyBuilder("routes").config(batch_size=chance.randint(1, 6), ackers=ackers, edge_window=1000)
    builder.set_spout("b", spout)
    subscribe(builder, subscribed)
    task = Solo(builder.build(), "b")
    task.run()
    inits = {
        root: value
        for frame in task.frames(FrameKind.INIT)
        for root, value in zip(frame.root_list(), frame.edge_list(), strict=True)
    }
    sent = emitted_edges(task.frames(FrameKind.DATA))
    assert {root: value for root, value in inits.items() if value} == sent
    read = {stream for stream, _, _ in subscribed}
    assert len(inits) == sum(is_tracked and stream in read for is_tracked, stream in zip(tracked, streams, strict=True))
    emitted = {name: [row for row, stream in zip(rows, streams, strict=True) if stream == name] for name in OUTPUTS}
    check_routes(task, subscribed, emitted)


def feed(task: Solo, batches: list[Any]) -> list[RowIds]:
    """Feed frames of inputs; each input carries its own roots as its second value."""
    fed: list[RowIds] = []
    edge = 1 << 32
    for batch in batches:
        if isinstance(batch, int):
            task.feed(*[(number, ()) for number in range(batch)], tracked=False)
            continue
        ids = RowIds([], [])
        for roots in batch:
            several = isinstance(roots, tuple)
            edges = [edge * 17 + number for number in range(1, 1 + (len(roots) if several else 1))]
            edge += 1 << 8
            ids.roots.append(roots)
            ids.edges.append(tuple(edges) if several else edges[0])
        rows = [(number, roots if isinstance(roots, tuple) else (roots,)) for number, roots in enumerate(batch)]
        fed.append(task.feed(*rows, ids=ids))
    return fed


# -- what travels with the rows


def test_the_edges_of_a_batch_are_distinct_and_none_is_zero() -> None:
    task = Solo(topology(Plain(lambda t, c: [c.emit((1, 1)) for _ in range(20)], OUTPUTS), [("default", "all", 4)], 7, 1), "b")
    task.feed(*[(number, ()) for number in range(10)])
    task.run()
    edges = [edge for frame in task.frames(FrameKind.DATA) for edge in frame.edge_list()]
    assert len(set(edges)) == len(edges) == 800
    assert 0 not in edges


def test_rows_with_one_root_each_travel_without_a_counts_column() -> None:
    task = Solo(topology(Manual(outputs={**OUTPUTS, "default": ("a", "b")}), [("default", "shuffle", 1)], 7, 1), "b")
    task.feed((1, 1), (2, 2), ids=RowIds([(1,), (2,)], [(10,), (20,)]))
    task.run()
    assert [frame.anchoring for frame in task.frames(FrameKind.DATA)] == [Anchoring.SINGLE]


def held_together(anchors: Callable[[list[Any]], list[Any]], ids: RowIds) -> Solo:
    """A task that has emitted one row for two inputs, which it holds until then."""

    def run(tup: Any, collector: Any) -> None:
        if tup.values[0] == 2:
            collector.emit((0, 0), anchors=anchors(bolt.tuples))
            for held in bolt.tuples:
                collector.ack(held)

    bolt = Manual(run, OUTPUTS)
    task = Solo(topology(bolt, [("default", "shuffle", 1)], 7, 1), "b")
    task.feed((1, 1), (2, 2), ids=ids)
    task.run()
    return task


def test_a_row_with_two_anchors_of_one_root_carries_the_xor_of_two_ids() -> None:
    task = held_together(lambda held: [*held, held[0]], RowIds([9, 9], [10, 20]))
    (frame,) = task.frames(FrameKind.DATA)
    assert frame.root_list() == [9]
    assert task.acks() == {9: 10 ^ 20 ^ frame.edge_list()[0]}


def test_a_row_with_anchors_of_two_roots_carries_both() -> None:
    task = held_together(list, RowIds([8, 9], [10, 20]))
    (frame,) = task.frames(FrameKind.DATA)
    assert (frame.anchoring, frame.count_list(), frame.root_list()) == (Anchoring.MULTI, [2], [8, 9])
    first, second = frame.edge_list()
    assert task.acks() == {8: 10 ^ first, 9: 20 ^ second}
