from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from topo.api.streams import TICK_STREAM, StreamDeclaration, declared_streams, direct
from topo.api.tuples import Origin, Tuple
from topo.emission.collectors import AnchoringCollector, BoltCollector, TrackedTuple, TupleState
from topo.emission.emitter import StreamRows
from topo.emission.message_collectors import MessageCollector
from topo.errors import EmitError, TupleStateError
from topo.wire.frames import MAX_ROOTS_PER_TUPLE

OUTPUTS = {"default": ("a", "b"), "side": ("x",), "to": direct("x")}
ORIGIN = Origin("source", 1, fields=("v",))
COLLECTORS = [AnchoringCollector, BoltCollector, MessageCollector]


def made(kind: Any, outputs: Any = OUTPUTS, report: Callable[[BaseException], None] = lambda error: None) -> Any:
    collector = kind("part", declared_streams(outputs), report)
    for stream in collector.streams:
        if stream.declaration.direct:
            stream.direct_targets = frozenset({7, 8})
    return collector


def tracked(*roots: int, timestamp: int | None = None) -> TrackedTuple:
    return TrackedTuple.made(("v",), ORIGIN, timestamp, 1, roots or (1,), tuple(root * 100 for root in roots or (1,)))


def rows(collector: Any) -> dict[str, list[Any]]:
    return {stream.declaration.name: stream.rows for stream in collector.streams if stream.rows}


# -- emits


@pytest.mark.parametrize("kind", COLLECTORS)
def test_what_is_emitted_is_written_down_by_stream(kind: Any) -> None:
    collector = made(kind)
    collector.emit((1, 2))
    collector.emit([3, 4])
    collector.emit(("s",), stream="side")
    collector.emit_direct(8, ("d",), stream="to")
    assert rows(collector) == {"default": [(1, 2), (3, 4)], "side": [("s",)], "to": [("d",)]}
    assert collector.streams[2].targets == [8]
    assert all(type(row) is tuple for stream in collector.streams for row in stream.rows)


@pytest.mark.parametrize("kind", COLLECTORS)
@pytest.mark.parametrize(
    ("emit", "text"),
    [
        (lambda c: c.emit((1, 2), stream="sid"), "emitted on stream 'sid', which it does not declare; did you mean 'side'?"),
        (
            lambda c: c.emit((1, 2), stream="zzz"),
            "emitted on stream 'zzz', which it does not declare; its outputs are 'default', 'side', 'to'",
        ),
        (lambda c: c.emit((1, 2), stream=None), "emitted on stream None, which it does not declare"),
        (
            lambda c: c.emit("a", stream="b"),
            "on stream 'b', which it does not declare; give all values as one tuple: emit(('a', 'b'))",
        ),
        (lambda c: c.emit("a", stream=[1]), "which it does not declare; give all values as one tuple: emit(('a', [1]))"),
        (lambda c: c.emit((1,), stream="to"), "stream 'to' is a direct stream; use emit_direct(task, values)"),
        (
            lambda c: c.emit_direct(7, (1, 2)),
            "stream 'default' is not a direct stream; use emit(values), or declare direct(...) fields",
        ),
        (lambda c: c.emit("word"), "emitted 'word' (str); emit a tuple of values, for one value emit(('word',))"),
        (lambda c: c.emit(5), "emitted 5 (int); emit a tuple of values"),
        (
            lambda c: c.emit("word" * 9999),
            "emitted 'wordwordword...dwordwordword' (str); emit a tuple of values, for one value emit(('wordwordword...",
        ),
        (
            lambda c: c.emit(w for w in "ab"),
            "(generator); emit a tuple of values, one a call: for value in ...: emit((value,))",
        ),
        (lambda c: c.emit({"a": 1}), "(dict); emit a tuple of values"),
        (lambda c: c.emit((1,)), "emitted 1 values on stream 'default', which has 2 fields: ('a', 'b')"),
        (lambda c: c.emit((1, 2), stream="side"), "emitted 2 values on stream 'side', which has 1 fields: ('x',)"),
        (
            lambda c: c.emit_direct(9, (1,), stream="to"),
            "emitted to task 9, which does not read the direct stream 'to'; its readers are [7, 8] (see context.tasks_of)",
        ),
        (lambda c: c.emit((1, 2), timestamp=1.5), "timestamp 1.5 (float); give whole milliseconds since the epoch"),
        (lambda c: c.emit((1, 2), timestamp="now"), "timestamp 'now' (str)"),
        (lambda c: c.emit((1, 2), timestamp=True), "timestamp True (bool)"),
        (lambda c: c.emit((1, 2), timestamp=1 << 63), "does not fit 64 bits"),
        (lambda c: c.emit((1, 2), timestamp=-(1 << 63)), "does not fit 64 bits"),
    ],
)
def test_a_wrong_emit_raises_where_it_is_made_and_says_what_to_do(kind: Any, emit: Callable[[Any], None], text: str) -> None:
    collector = made(kind)
    with pytest.raises(EmitError) as caught:
        emit(collector)
    assert "component 'part'" in str(caught.value)
    assert text in str(caught.value)
    assert rows(collector) == {}


@pytest.mark.parametrize("kind", COLLECTORS)
def test_a_component_without_outputs_is_told_so(kind: Any) -> None:
    with pytest.raises(EmitError, match="its outputs are empty"):
        made(kind, ()).emit(())


@pytest.mark.parametrize("kind", COLLECTORS)
def test_a_direct_default_stream_is_no_plain_one(kind: Any) -> None:
    with pytest.raises(EmitError, match="is a direct stream"):
        made(kind, {"default": direct("a")}).emit((1,))


@pytest.mark.parametrize("kind", COLLECTORS)
def test_a_refused_emit_leaves_no_timestamp_to_the_next_one(kind: Any) -> None:
    collector = made(kind)
    with pytest.raises(EmitError):
        collector.emit_direct(9, (1,), stream="to", timestamp=5)
    collector.emit_direct(7, (2,), stream="to")
    assert collector.streams[2].stamps == {}
    assert collector.streams[2].targets == [7]


@pytest.mark.parametrize("kind", COLLECTORS)
def test_timestamps_are_kept_by_row(kind: Any) -> None:
    collector = made(kind)
    collector.emit((1, 2))
    collector.emit((3, 4), timestamp=99)
    assert collector.streams[0].stamps == {1: 99}


@pytest.mark.parametrize("kind", COLLECTORS)
def test_a_reported_error_goes_to_whoever_watches(kind: Any) -> None:
    reported: list[BaseException] = []
    collector = made(kind, report=reported.append)
    error = ValueError("seen")
    collector.report_error(error)
    assert reported == [error]


# -- a bolt's own anchors and acks


def test_a_row_remembers_its_anchors() -> None:
    collector, first, second = made(BoltCollector), tracked(1), tracked(2)
    collector.emit((1, 2))
    collector.emit((1, 2), anchors=first)
    collector.emit((1, 2), anchors=[first, second])
    collector.emit(("s",), anchors=(second,), stream="side")
    assert collector.anchors == ([(), (first,), (first, second)], [(second,)], [])


def test_a_row_inherits_the_timestamp_of_its_first_anchor_unless_it_has_its_own() -> None:
    collector = made(BoltCollector)
    collector.emit((1, 2), anchors=[tracked(1, timestamp=10), tracked(2, timestamp=20)])
    collector.emit((1, 2), anchors=[tracked(1, timestamp=10)], timestamp=30)
    collector.emit((1, 2), anchors=[tracked(1)])
    assert collector.streams[0].stamps == {0: 10, 1: 30}


def test_a_tick_anchors_acks_and_fails_nothing() -> None:
    collector, tick = made(BoltCollector), Tuple((), Origin("__system", 0, TICK_STREAM))
    collector.emit((1, 2), anchors=tick)
    for call in (collector.ack, collector.ack, collector.fail, collector.reset_timeout):
        call(tick)
    assert collector.anchors[0] == [()]
    assert (collector.acked, collector.failed, collector.touched) == ([], [], [])


@pytest.mark.parametrize(("anchors", "shown"), [(["v"], "'v'"), ("v", "'v'"), (5, "5"), ([None], "None")])
def test_only_input_tuples_can_be_anchors(anchors: Any, shown: str) -> None:
    with pytest.raises(EmitError) as caught:
        made(BoltCollector).emit((1, 2), anchors=anchors)
    assert f"component 'part' anchored a tuple on {shown}, which is not an input tuple" in str(caught.value)


@pytest.mark.parametrize("call", ["ack", "fail", "reset_timeout"])
def test_only_input_tuples_can_be_acked_failed_or_given_time(call: str) -> None:
    with pytest.raises(TupleStateError) as caught:
        getattr(made(BoltCollector), call)(("v",))
    assert "('v',), which is not an input tuple" in str(caught.value)


def test_acks_and_fails_are_kept_in_order() -> None:
    collector, first, second, third = made(BoltCollector), tracked(1), tracked(2), tracked(3)
    collector.ack(first)
    collector.fail(second)
    collector.ack(third)
    assert (collector.acked, collector.failed) == ([first, third], [second])


@pytest.mark.parametrize("before", ["ack", "fail"])
@pytest.mark.parametrize("after", ["ack", "fail"])
def test_a_tuple_is_acked_or_failed_once(before: str, after: str) -> None:
    collector, tup = made(BoltCollector), tracked(1)
    getattr(collector, before)(tup)
    with pytest.raises(TupleStateError) as caught:
        getattr(collector, after)(tup)
    assert str(caught.value) == f"component 'part' {after}ed {tup!r}, which it has {before}ed already: do either once"
    assert len(collector.acked) + len(collector.failed) == 1


@pytest.mark.parametrize("before", ["ack", "fail"])
def test_nothing_is_anchored_on_a_tuple_that_is_done(before: str) -> None:
    collector, tup = made(BoltCollector), tracked(1)
    getattr(collector, before)(tup)
    with pytest.raises(TupleStateError, match=r"after its ack or fail: emit first, then ack"):
        collector.emit((1, 2), anchors=tup)
    assert rows(collector) == {}


def test_the_timeout_of_a_tuple_that_is_done_is_left_alone() -> None:
    collector, tup = made(BoltCollector), tracked(1)
    collector.reset_timeout(tup)
    collector.ack(tup)
    collector.reset_timeout(tup)
    assert collector.touched == [tup]


def test_a_row_cannot_descend_from_more_messages_than_a_frame_can_name() -> None:
    collector = made(BoltCollector)
    many = [tracked(root) for root in range(1, MAX_ROOTS_PER_TUPLE + 2)]
    with pytest.raises(EmitError, match="descends from 65536 messages; at most 65535 are tracked"):
        collector.emit((1, 2), anchors=many)
    collector.emit((1, 2), anchors=many[1:])
    collector.emit((1, 2), anchors=[*many[1:], *many[1:]])
    assert len(collector.streams[0].rows) == 2


# -- an exception


def test_a_call_that_raised_leaves_nothing_behind_and_its_input_failed() -> None:
    collector, before, tup = made(BoltCollector), tracked(1), tracked(2)
    collector.emit((0, 0), anchors=before, timestamp=1)
    collector.ack(before)
    mark = collector.mark()
    collector.emit((1, 2), anchors=tup, timestamp=2)
    collector.emit(("s",), anchors=tup, stream="side")
    collector.emit_direct(7, ("d",), stream="to")
    collector.roll_back(mark, tup)
    assert rows(collector) == {"default": [(0, 0)]}
    assert collector.anchors == ([(before,)], [], [])
    assert collector.streams[0].stamps == {0: 1}
    assert collector.streams[2].targets == []
    assert (collector.acked, collector.failed) == ([before], [tup])
    assert tup.state == TupleState.FAILED


def test_acks_of_a_call_that_raised_are_undone_and_fail() -> None:
    collector, held, tup = made(BoltCollector), tracked(1), tracked(2)
    mark = collector.mark()
    collector.ack(held)
    collector.ack(tup)
    collector.roll_back(mark, tup)
    assert collector.acked == []
    assert collector.failed == [held, tup]
    assert held.state == tup.state == TupleState.FAILED


def test_what_a_call_that_raised_has_failed_itself_fails_once() -> None:
    collector, tup = made(BoltCollector), tracked(1)
    mark = collector.mark()
    collector.fail(tup)
    collector.roll_back(mark, tup)
    assert collector.failed == [tup]


# -- a spout's messages


def test_message_ids_are_kept_by_row() -> None:
    collector = made(MessageCollector)
    collector.emit((1, 2), 10)
    collector.emit([3, 4])
    collector.emit(("s",), "x", stream="side")
    collector.emit_direct(7, ("d",), 11, stream="to")
    assert collector.messages == ([10, None], ["x"], [11])
    assert collector.count() == 4


def test_a_call_of_a_spout_that_raised_is_forgotten() -> None:
    collector = made(MessageCollector)
    collector.emit((1, 2), 10)
    collector.emit((3, 4), 11, timestamp=5)
    collector.emit_direct(7, ("d",), 12, stream="to")
    collector.roll_back([1, 0, 0], 0)
    assert rows(collector) == {"default": [(1, 2)]}
    assert collector.messages == ([10], [], [])
    assert collector.streams[0].stamps == {}
    assert collector.streams[2].targets == []


def test_timestamps_are_those_of_their_rows_in_whatever_order_they_were_set() -> None:
    rows = StreamRows(0, StreamDeclaration("default", ("value",)))
    rows.rows += [("a",), ("b",), ("c",)]
    assert rows.stamp_list() is None
    rows.stamps = {1: 77}
    assert rows.stamp_list() == [None, 77, None]
    rows.stamps |= {0: 1000, 2: 3000}
    assert rows.stamp_list() == [1000, 77, 3000]
    rows.stamps = {0: 5, 1: 6, 2: 7}
    assert rows.stamp_list() == [5, 6, 7]
