"""The tracer of a worker: whom it marks, and its bounds."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from topo.api.tuples import Origin
from topo.hot import pack_words
from topo.ids import TRACED_BIT, Epoch, Incarnation, TaskId
from topo.task.batch import Batch
from topo.task.flow_control import Arrival
from topo.wire.frames import Anchoring, Columns, Frame, FrameKind
from topo.worker.tracer import MOST_ANCHORED, MOST_OPEN, MOST_SPANS_S, Tracer

SPOUT, OTHER, BOLT = TaskId(1), TaskId(2), TaskId(3)


class Time:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time() -> Time:
    return Time()


def tracer_at(
    time: Time,
    rate: float = 1.0,
    mark_s: float = 60.0,
    share: float = 0.0,
    attend: Callable[[TaskId, bool], None] = lambda *_: None,
) -> Tracer:
    return Tracer(5, rate, mark_s, {SPOUT: share}, (), (), attend, time, lambda: time() + 1000)


def drawn(tracer: Tracer, count: int = 50, first: int = 7) -> list[int]:
    """Return those of some roots that the tracer marks."""
    roots = list(range(first, first + count))
    tracer.roots_drawn(SPOUT, roots)
    tracer.messages_pending(SPOUT, roots, [f"id {root}" for root in roots], 0.0)
    assert [root & ~TRACED_BIT for root in roots] == list(range(first, first + count))
    return [root for root in roots if root & TRACED_BIT]


@pytest.mark.parametrize("rate", [0.5, 1.0, 5.0])
@pytest.mark.parametrize("every_s", [0.01, 0.25])
def test_as_many_messages_are_marked_as_are_asked_for_however_many_pass(time: Time, rate: float, every_s: float) -> None:
    tracer, marked = tracer_at(time, rate), 0
    for _ in range(round(20 / every_s)):
        time.now += every_s
        marked += len(drawn(tracer))
    assert 20 * rate - 1 <= marked <= 20 * rate + max(1, rate)


def test_spouts_do_not_all_begin_at_once_and_none_marks_when_its_time_is_up(time: Time) -> None:
    tracer = tracer_at(time, mark_s=3.0, share=0.5)
    assert not drawn(tracer)
    time.now += 0.5
    assert len(drawn(tracer)) == 1
    time.now += 2.5
    assert not drawn(tracer)


def test_a_burst_is_marked_anywhere_and_a_spout_of_another_worker_not(time: Time) -> None:
    places = {drawn(tracer_at(time), first=first)[0] & ~TRACED_BIT for first in range(7, 700, 3)}
    assert len({place % 50 for place in places}) > 10
    tracer, roots = tracer_at(time), [1, 2, 3]
    for _ in range(3):
        tracer.roots_drawn(OTHER, roots)
        time.now += 10
    assert roots == [1, 2, 3] and tracer.reports() == []


def test_a_message_is_reported_with_its_verdict_and_wall_times(time: Time) -> None:
    tracer = tracer_at(time)
    (root,) = drawn(tracer, count=1)
    time.now += 0.25
    tracer.messages_decided(SPOUT, "acked", [3, root], {3, root})
    (report,) = tracer.reports()
    assert (report.seen, report.matched) == (1, 1)
    assert report.rows == [
        {"kind": "message", "at": 1_100_000_000, "message": f"id {root}", "task": SPOUT, "root": f"{root:016x}", "out": []},
        {"kind": "end", "task": SPOUT, "root": f"{root:016x}", "at": 1_100_250_000, "outcome": "acked"},
    ]
    assert tracer.reports() == []


def frame(*roots: int) -> Frame:
    edges = pack_words(range(1, len(roots) + 1))
    stamp = (Epoch(1), SPOUT, Incarnation(1))
    return Frame(FrameKind.DATA, stamp, BOLT, 0, 0, len(roots), Anchoring.SINGLE, pack_words(roots), edges)


def test_spans_are_bounded_and_those_beyond_are_counted(time: Time) -> None:
    tracer = tracer_at(time)
    many = frame(*[TRACED_BIT | 9] * (MOST_SPANS_S + 20))
    tracer.frame_taken(BOLT, many, Arrival.NEXT)
    tracer.frame_taken(BOLT, frame(*[9] * 1000), Arrival.NEXT)
    tracer.frame_taken(BOLT, many, Arrival.DUPLICATE)
    assert sum(report.dropped for report in tracer.reports()) == 20
    time.now += 1
    tracer.frame_taken(BOLT, many, Arrival.NEXT)
    assert sum(report.dropped for report in tracer.reports()) == 20


def test_messages_that_get_no_verdict_are_bounded_and_it_is_said(time: Time) -> None:
    tracer = tracer_at(time, rate=1e9)
    time.now += 1
    marked = len(drawn(tracer, count=MOST_OPEN))
    time.now += 1
    assert marked == MOST_OPEN and not drawn(tracer, first=MOST_OPEN + 7)
    (report,) = tracer.reports()
    assert report.problem == "2,000 traced messages of a spout task have no verdict; no more begin"
    tracer.messages_decided(SPOUT, "acked", [TRACED_BIT | 7], ())
    time.now += 1
    assert len(drawn(tracer, count=1, first=MOST_OPEN + 7)) == 1


def test_what_is_known_of_rows_before_they_are_routed_is_bounded(time: Time) -> None:
    tracer = tracer_at(time)
    (root,) = drawn(tracer, count=1)
    many = MOST_ANCHORED + 50
    tracer.rows_anchored(SPOUT, [()] * many, [1] * many, [root] * many, range(many))
    assert len(tracer._anchored) == MOST_ANCHORED


def test_a_tuple_without_a_span_leaves_those_behind_it_theirs(time: Time) -> None:
    tracer, first, last = tracer_at(time), TRACED_BIT | 1, TRACED_BIT | 2
    # As if there had been no room for a span of the first.
    tracer.frame_taken(BOLT, frame(5, 6, last), Arrival.NEXT)
    batch = Batch(frame(first, 6, last), [(1,), (2,), (3,)], Origin("source", SPOUT, fields=("n",)))
    assert tracer.slice_begins(BOLT, batch, 0, 3) == 2
    assert tracer.slice_begins(BOLT, batch, 2, 3) == 3
    tracer.inputs_acked(BOLT, [batch.ids_at(2)])
    assert [row["outcome"] for report in tracer.reports() for row in report.rows] == ["acked"]


class Unread(list[int]):
    """Ids of a batch that must not be looked at one by one."""

    def __iter__(self) -> Iterator[int]:
        raise AssertionError("a batch without a traced tuple is read")

    __getitem__ = __contains__ = lambda *_: pytest.fail("a batch without a traced tuple is read")  # type: ignore[assignment]


def test_a_batch_costs_nothing_by_tuple_while_no_message_is_traced(time: Time) -> None:
    tracer, ids = tracer_at(time, share=1.0), Unread([1, 2, 3])
    tracer.roots_drawn(SPOUT, [1, 2, 3])
    tracer.messages_pending(SPOUT, ids, ids, 0.0)
    tracer.messages_decided(SPOUT, "acked", ids, ids)
    tracer.messages_expired(SPOUT, ids, 0.0, 0.0)
    tracer.rows_anchored(BOLT, ids, ids, ids, ids)  # type: ignore[arg-type]
    tracer.rows_routed(BOLT, OTHER, 0, Columns(Anchoring.SINGLE, [], ids, ids))  # type: ignore[arg-type]
    tracer.inputs_acked(BOLT, ids)  # type: ignore[arg-type]


def test_tasks_are_attended_while_traced_messages_are_in_them(time: Time) -> None:
    attended: dict[TaskId, bool] = {}
    tracer = tracer_at(time, attend=attended.__setitem__)
    (root,) = drawn(tracer, count=1)
    assert attended == {SPOUT: True}
    tracer.roots_drawn(SPOUT, [1, 2])
    tracer.frame_taken(BOLT, frame(4, 5), Arrival.NEXT)
    assert attended == {SPOUT: True}
    tracer.frame_taken(BOLT, frame(root, 5), Arrival.NEXT)
    assert attended == {SPOUT: True, BOLT: True}
    batch = Batch(frame(root, 5), [(1,), (2,)], Origin("source", SPOUT, fields=("n",)))
    assert tracer.running(BOLT) == []
    assert tracer.slice_begins(BOLT, batch, 0, 2) == 1
    assert tracer.running(BOLT) == [f"{root:016x}"]
    tracer.inputs_acked(BOLT, [batch.ids_at(0)])
    assert attended[BOLT] and tracer.running(BOLT) == []
    assert tracer.slice_begins(BOLT, batch, 1, 2) == 2
    assert not attended[BOLT]
    tracer.messages_decided(SPOUT, "acked", [root], {root})
    assert attended[SPOUT]
    tracer.roots_drawn(SPOUT, [1, 2])
    assert not attended[SPOUT]
