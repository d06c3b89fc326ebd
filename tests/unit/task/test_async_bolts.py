"""Async bolts as tasks: the calls under way, their results, timeouts, repetitions and the end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.tasks.components import CHECKPOINTED, TRACKED
from tests.tasks.solo import RowIds, Solo
from tests.unit.task.operators import between, time
from topo.api.async_io import FixedDelayRetry
from topo.api.operator_bolts import AsyncBolt
from topo.ids import Epoch
from topo.wire.control import Close, ComponentError, TuplesFailed
from topo.wire.frames import FrameKind

MADE: list[Solo] = []


@pytest.fixture(autouse=True)
def no_call_is_left() -> Iterator[None]:
    yield
    for solo in MADE:
        solo.calls.close()
    MADE.clear()


class Enrich(AsyncBolt):
    outputs = ("key", "found")

    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        self.calls: list[Any] = []

    async def call(self, tup: Any) -> Any:
        self.calls.append(tup["value"])
        value = tup["value"]
        if isinstance(value, Exception):
            raise value
        return value(tup) if callable(value) else (tup["key"], value)

    def on_timeout(self, tup: Any) -> Any:
        return (tup["key"], "too late")


class NoHandler(Enrich):
    def on_timeout(self, tup: Any) -> Any:
        return AsyncBolt.on_timeout(self, tup)


def enriching(bolt: Enrich | None = None, *, opens: bool = True, delivery: str = TRACKED, **more: Any) -> Solo:
    solo = between(bolt or Enrich(**more), delivery=delivery)
    MADE.append(solo)
    if opens:
        end_calls(solo, 1)
    return solo


def feed(solo: Solo, *values: Any) -> RowIds:
    """Deliver tuples of any values in one frame, and run."""
    ids = solo.fresh(len(values) if solo.plan.config.delivery == TRACKED else 0)
    solo.feed_local(*[("k", value) for value in values], ids=ids)
    solo.run()
    return ids


def end_calls(solo: Solo, count: int = 0) -> None:
    """Have the first calls end, or all calls under way, and run."""
    for _ in range(count or len(solo.calls.waiting)):
        solo.calls.complete()
    solo.run()


def raising(*answers: Any) -> Any:
    """A call that gives these answers one after the other, the last again and again; exceptions are raised."""
    left = list(answers)

    def answer(_tup: Any) -> Any:
        one = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(one, Exception):
            raise one
        return one

    return answer


def test_no_call_begins_before_open_has_returned() -> None:
    solo = enriching(opens=False)
    feed(solo, 1)
    assert len(solo.calls.waiting) == 1 and solo.task.inbound.queue
    end_calls(solo)
    assert len(solo.calls.waiting) == 1 and not solo.task.inbound.queue


def test_a_bolt_with_all_its_calls_under_way_takes_no_further_input() -> None:
    solo = enriching(capacity=2)
    ids = feed(solo, *range(7))
    assert len(solo.calls.waiting) == 2 and not solo.task.has_work
    assert solo.task.statistics().levels["async_in_flight"] == 2.0
    for _ in range(7):
        assert len(solo.calls.waiting) <= 2
        end_calls(solo, 1)
    assert [row[1] for row in solo.rows()] == list(range(7))
    assert solo.undecided(ids.pairs) == [] and solo.task.counters.executed == 7


# -- results


def test_a_call_may_return_one_row_several_or_none() -> None:
    solo = enriching()
    ids = feed(solo, 1, lambda tup: [("k", 2), ("k", 3)], lambda tup: None)
    end_calls(solo)
    assert solo.rows() == [("k", 1), ("k", 2), ("k", 3)]
    assert list(solo.owed(ids.pairs)) == ids.roots[:2] and solo.undecided(ids.pairs) == []


@pytest.mark.parametrize("result", [5, "text", ("k", 1, "one too many"), [("k", 1), ("k",)], {"a": 1}])
def test_a_call_that_returns_no_rows_fails_its_input_alone(result: Any) -> None:
    solo = enriching()
    ids = feed(solo, lambda tup: result, lambda tup: ("k", "fine"))
    end_calls(solo)
    assert solo.rows() == [("k", "fine")] and solo.roots(FrameKind.FAIL) == ids.roots[:1]
    assert len(solo.errors()) == 1


def one_too_few(tup: Any) -> Any:
    return (tup["key"],)


@pytest.mark.parametrize("delivery", [TRACKED, CHECKPOINTED])
def test_the_cause_of_a_result_of_the_wrong_width_names_the_call(delivery: str) -> None:
    solo = enriching(delivery=delivery)
    ids = feed(solo, one_too_few, 2)
    end_calls(solo)
    begins = Enrich.call.__code__.co_firstlineno
    fields = "component 'b' emitted 1 values on stream 'default', which has 2 fields: ('key', 'found')"
    why = f"EmitError: {fields} (test_async_bolts.py:{begins}, component 'b')"
    if delivery == TRACKED:
        (report,) = solo.messages(TuplesFailed)
        ((cause, roots),) = report.causes
        assert (str(cause), roots) == (why, ids.roots[:1])
    else:
        solo.complete(1)
        assert solo.dead_letter_errors() == [why]
    assert solo.rows() == [("k", 2)] and solo.task.counters.failed == 1
    (error,) = solo.messages(ComponentError)
    assert (error.file, error.line) == (__file__, begins)


def test_a_result_of_the_wrong_width_fails_alone_when_a_watermark_emits_it() -> None:
    solo = enriching()
    ids = feed(solo, 1, one_too_few)
    solo.calls.complete(1)
    solo.calls.complete()
    # The mail that has emitted the first result has posted one for the second; the watermark comes before that.
    time(solo, 10)
    assert solo.rows() == [("k", 1)] and solo.roots(FrameKind.FAIL) == ids.roots[1:]
    assert solo.times() == [10] and len(solo.errors()) == 1


# -- timeouts and repetitions


@pytest.mark.parametrize("kind", [Enrich, NoHandler])
def test_a_call_that_takes_too_long_gives_the_result_of_on_timeout_or_fails(kind: type[Enrich]) -> None:
    solo = enriching(kind(timeout="1s"))
    ids = feed(solo, 1)
    solo.wait(0.9)
    assert solo.rows() == []
    solo.wait(0.2)
    end_calls(solo)
    assert solo.rows() == ([("k", "too late")] if kind is Enrich else []), "its own result is ignored"
    assert solo.roots(FrameKind.FAIL) == ([] if kind is Enrich else ids.roots)


def patient() -> Enrich:
    return Enrich(retry=FixedDelayRetry(5, "1s", if_error=lambda error: isinstance(error, OSError)))


@pytest.mark.parametrize("delivery", [TRACKED, CHECKPOINTED])
def test_the_end_of_the_input_waits_for_all_attempts_and_their_pauses(delivery: str) -> None:
    bolt = patient()
    solo = enriching(bolt, delivery=delivery)
    ids = feed(solo, raising(OSError("always")), raising(OSError("once"), OSError("twice"), ("k", "at last")))
    time(solo, FrameKind.END)
    for _ in range(6):
        assert not solo.task.is_quiet
        end_calls(solo)
        assert not solo.calls.waiting
        assert solo.times() == ([] if len(bolt.calls) < 9 else ["END"])
        solo.wait(1.1)
    assert solo.rows() == [("k", "at last")] and solo.roots(FrameKind.FAIL) == ids.roots[:1]
    assert len(bolt.calls) == 9 and solo.times() == ["END"] and solo.errors() == ["OSError: always"]
    if delivery == CHECKPOINTED:
        solo.complete(1)
        line = raising.__code__.co_firstlineno + 7
        assert solo.dead_letter_errors() == [f"OSError: always (test_async_bolts.py:{line}, component 'b')"]


def test_a_replay_after_the_end_of_the_input_has_all_its_attempts() -> None:
    solo = enriching(patient())
    time(solo, FrameKind.END)
    feed(solo, raising(OSError("once")))
    end_calls(solo)
    solo.wait(1.1)
    assert len(solo.calls.waiting) == 1 and solo.roots(FrameKind.FAIL) == []


# -- event time


def test_idleness_follows_the_calls_under_way_and_the_output_stays_idle() -> None:
    solo = enriching()
    feed(solo, 1)
    time(solo, 5)
    time(solo, FrameKind.IDLE)
    assert solo.times() == []
    end_calls(solo)
    assert solo.times() == [5, "IDLE"]
    time(solo, FrameKind.ACTIVE)
    time(solo, 6)
    assert solo.times() == [5, "IDLE", "ACTIVE", 6]


def test_an_idle_input_that_ends_during_a_call_sends_its_end_alone() -> None:
    solo = enriching()
    feed(solo, 1)
    time(solo, FrameKind.IDLE)
    time(solo, FrameKind.END)
    end_calls(solo)
    assert solo.times() == ["END"]


# -- life cycle


def test_an_open_that_raises_ends_the_process_as_prepare_does() -> None:
    class Broken(Enrich):
        async def open(self, context: Any) -> None:
            raise RuntimeError("no server")

    solo = enriching(Broken(), opens=False)
    solo.calls.complete()
    with pytest.raises(RuntimeError, match="no server"):
        solo.turn()


def test_close_is_awaited_at_an_orderly_end() -> None:
    closed: list[str] = []

    class Closing(Enrich):
        async def close(self) -> None:
            closed.append("closed")

    solo = enriching(Closing())
    solo.handle(Close(Epoch(1)))
    solo.calls.complete_all()
    assert closed == ["closed"]


def test_a_blocking_call_is_reported_as_an_error() -> None:
    solo = enriching()
    feed(solo, 1)
    _, _, on_blocked = solo.calls.waiting[0]
    on_blocked(ValueError("it blocks"))
    solo.run()
    assert solo.errors() == ["ValueError: it blocks"] and solo.roots(FrameKind.FAIL) == []
