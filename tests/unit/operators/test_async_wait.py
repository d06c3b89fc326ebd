"""The async operator: order of results, capacity, the end, snapshots."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tests.unit.operators.async_rig import ORDERED, UNORDERED, Manual, build, feed, in_flight, rig
from tests.unit.operators.rig import restored
from topo.api.async_io import (
    AsyncMode,
    AsyncSettings,
)
from topo.api.operator_bolts import AsyncBolt
from topo.errors import UserError
from topo.operators.async_wait import ResultHandle, joined_inputs
from topo.operators.base import OperatorSnapshot

# Order


class Silent(AsyncBolt):
    """Emits nothing."""

    async def call(self, tup: Any) -> None:
        """Return at once."""


def test_the_order_of_results_may_be_given_as_text() -> None:
    assert [Silent(mode).settings.mode for mode in ("ordered", "unordered")] == [ORDERED, UNORDERED]
    with pytest.raises(ValueError, match="'sorted' is not a valid AsyncMode"):
        Silent("sorted")


@pytest.mark.parametrize("mode", [ORDERED, UNORDERED])
def test_watermarks_never_overtake_and_are_never_overtaken(mode: AsyncMode) -> None:
    #  a1 b2 | W | c3 d4
    r, function = rig(mode)
    feed(r, "a1", "b2", 10, "c3", "d4")
    for value in ("d4", "c3", "b2"):
        function.done(value)
    r.run_mails()
    assert ("watermark", 10) not in r.recorder.out
    function.done("a1")
    r.run_mails()
    out = r.taken()
    assert set(out[:2]) == {("a1", 1), ("b2", 2)}
    assert out[2] == ("watermark", 10)
    assert set(out[3:]) == {("c3", 3), ("d4", 4)}


@pytest.mark.parametrize("mode", [ORDERED, UNORDERED])
def test_idleness_waits_for_what_is_in_flight(mode: AsyncMode) -> None:
    r, function = rig(mode)
    feed(r, "a1", 5)
    r.operator.process_idle(True)
    r.run_mails()
    assert r.taken() == []
    function.done("a1")
    r.run_mails()
    assert r.taken() == [("a1", 1), ("watermark", 5), ("idle",)]
    r.operator.process_idle(False)
    assert r.taken() == [("active",)]


def test_idleness_that_nothing_precedes_is_told_at_once() -> None:
    r, _ = rig()
    r.operator.process_idle(True)
    assert r.taken() == [("idle",)]


def test_idleness_that_ends_before_it_was_told_is_not_told() -> None:
    r, function = rig()
    feed(r, "a1")
    r.operator.process_idle(True)
    r.operator.process_idle(False)
    function.done("a1")
    r.run_mails()
    assert r.taken() == [("a1", 1)]


def test_an_element_that_comes_while_idleness_waits_goes_before_it() -> None:
    r, function = rig()
    feed(r, "a1")
    r.operator.process_idle(True)
    function.done("a1")
    r.run_mails(1)
    feed(r, "b2")
    r.run_mails()
    assert r.taken() == [("a1", 1)]
    function.done("b2")
    r.run_mails()
    assert r.taken() == [("b2", 2), ("idle",)]


def test_idleness_is_told_behind_a_failure_too() -> None:
    r, function = rig()
    feed(r, "a1")
    r.operator.process_idle(True)
    function.failed("a1")
    with pytest.raises(ValueError, match="no a1"):
        r.run_mails()
    r.run_mails()
    assert r.taken() == [("idle",)]


def test_idleness_waits_for_what_was_restored() -> None:
    r, _ = rig()
    feed(r, "a1", 5)
    later = Manual()
    again = restored(lambda: build(later), r.snapshot())
    again.operator.process_idle(True)
    later.done("a1")
    again.run_mails()
    assert again.taken() == [("a1", 1), ("watermark", 5), ("idle",)]


def test_watermarks_that_follow_each_other_leave_in_order() -> None:
    r, function = rig(UNORDERED)
    feed(r, "a1", 10, 20)
    assert r.taken() == []
    function.done("a1")
    r.run_mails()
    assert r.taken() == [("a1", 1), ("watermark", 10), ("watermark", 20)]


@pytest.mark.parametrize("mode", [ORDERED, UNORDERED])
def test_a_watermark_that_nothing_precedes_leaves_at_once(mode: AsyncMode) -> None:
    r, _ = rig(mode)
    feed(r, 10, 20)
    assert r.taken() == [("watermark", 10), ("watermark", 20)]


def test_an_element_without_timestamp_gives_results_without() -> None:
    r, function = rig()
    r.operator.process_element(None, "a", None)
    function.done("a")
    r.run_mails()
    assert r.taken() == [("a", None)]


# Capacity


@pytest.mark.parametrize("mode", [ORDERED, UNORDERED])
def test_a_full_queue_yields_to_the_mailbox_until_there_is_room(mode: AsyncMode) -> None:
    r, function = rig(mode, capacity=1)
    feed(r, "a1")
    function.done("a1")
    feed(r, "b2")
    assert r.taken() == [("a1", 1)]
    assert function.invoked == ["a1", "b2"]


def test_a_watermark_yields_for_room_as_an_element_does() -> None:
    r, function = rig(capacity=1)
    feed(r, "a1")
    function.done("a1")
    feed(r, 10)
    assert r.taken() == [("a1", 1), ("watermark", 10)]


def test_an_element_that_waits_for_room_is_not_invoked_yet_and_is_in_the_snapshot() -> None:
    r, function = rig(capacity=1)
    feed(r, "a1")
    seen: list[Any] = []

    def look() -> None:
        seen.append((list(function.invoked), [one["value"] for one in r.operator.snapshot().own]))
        function.done("a1")

    r.operator.context.executor.execute(look)
    feed(r, "b2")
    assert seen == [(["a1"], ["a1", "b2"])]


@pytest.mark.parametrize(("settings", "message"), [({"capacity": 0}, "capacity"), ({"timeout_ms": -1}, "timeout")])
def test_settings_that_cannot_work_are_refused(settings: dict[str, int], message: str) -> None:
    with pytest.raises(UserError, match=message):
        AsyncSettings(**settings)  # type: ignore[arg-type]


# Handles


def test_only_the_first_completion_counts() -> None:
    r, function = rig()
    feed(r, "a1")
    function.done("a1", "first")
    function.done("a1", "second")
    function.failed("a1")
    r.run_mails()
    assert r.taken() == [("first", 1)]


def test_of_many_threads_exactly_one_completes() -> None:
    r, function = rig()
    feed(r, "a1")
    barrier = threading.Barrier(8)

    def complete(number: int) -> None:
        barrier.wait()
        function.done("a1", number)

    threads = [threading.Thread(target=complete, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert r.run_mails() == 1
    assert len(r.taken()) == 1


def test_a_completion_does_nothing_before_its_mail_runs() -> None:
    r, function = rig()
    feed(r, "a1")
    function.done("a1")
    assert r.taken() == []
    assert in_flight(r) == 1


@pytest.mark.parametrize("result", [None, "text", 7])
def test_a_result_that_is_no_list_is_an_error_and_fails_the_element(result: Any) -> None:
    r, function = rig()
    feed(r, "a1")
    with pytest.raises(UserError, match="list of results"):
        function.handles["a1"][0].complete(result)
    with pytest.raises(UserError, match="list of results"):
        r.run_mails()
    assert in_flight(r) == 0


# The end


def test_closing_drops_results_silently() -> None:
    r, function = rig(timeout_ms=50)
    feed(r, "a1", "b2")
    function.done("a1")
    r.operator.close()
    function.done("b2")
    r.run_mails()
    r.time(60)
    assert r.taken() == []


def test_a_completion_after_the_mailbox_has_closed_is_dropped_silently() -> None:
    r, function = rig()
    feed(r, "a1")
    r.mailbox.close()
    function.done("a1")
    assert r.taken() == []


# Snapshot and restore


def inputs(snapshot: OperatorSnapshot) -> list[Any]:
    return [one["watermark"] if "watermark" in one else one["value"] for one in snapshot.own]


def test_a_snapshot_holds_all_inputs_in_order_completed_ones_and_watermarks_too() -> None:
    r, function = rig()
    feed(r, "a1", 10, "b2")
    function.done("b2")
    r.run_mails()
    assert inputs(r.snapshot()) == ["a1", 10, "b2"]


def test_a_snapshot_leaves_out_a_failed_element_that_keeps_its_place_behind_another() -> None:
    r, function = rig()
    feed(r, "a1", "b2")
    function.failed("b2")
    with pytest.raises(ValueError, match="no b2"):
        r.run_mails()
    assert inputs(r.snapshot()) == ["a1"], "its failure is known already: called again, it would fail again"


def test_an_unordered_snapshot_has_the_completed_of_each_segment_first() -> None:
    r, function = rig(UNORDERED)
    feed(r, "a1", "b2", 10, "c3", "d4")
    function.done("d4")
    r.run_mails()
    assert inputs(r.snapshot()) == ["a1", "b2", 10, "d4", "c3"]


@pytest.mark.parametrize("mode", [ORDERED, UNORDERED])
def test_restored_inputs_are_invoked_again_before_anything_new(mode: AsyncMode) -> None:
    r, function = rig(mode)
    feed(r, "a1", 10, "b2")
    function.done("b2")
    r.run_mails()
    later = Manual()
    again = restored(lambda: build(later, mode), r.snapshot())
    feed(again, "c3")
    assert later.invoked == ["a1", "b2", "c3"]
    for value in ("b2", "a1", "c3"):
        later.done(value)
    again.run_mails()
    assert again.taken()[:2] == [("a1", 1), ("watermark", 10)]


def test_restoring_as_many_as_the_capacity_does_not_block() -> None:
    r, _ = rig(capacity=3)
    feed(r, "a1", "b2", "c3")
    later = Manual()
    again = restored(lambda: build(later, capacity=3), r.snapshot())
    assert in_flight(again) == 3


def test_restoring_more_than_the_capacity_yields_for_room() -> None:
    class Immediate(Manual):
        def invoke(self, value: Any, handle: ResultHandle) -> None:
            handle.complete([value])

    r, _ = rig(capacity=5)
    feed(r, "a1", "b2", 10, "c3")
    again = restored(lambda: build(Immediate(), capacity=1), r.snapshot())
    again.run_mails()
    assert again.taken() == [("a1", 1), ("b2", 2), ("watermark", 10), ("c3", 3)]


def test_what_was_restored_but_not_opened_yet_is_in_the_next_snapshot() -> None:
    r, _ = rig()
    feed(r, "a1", 10)
    again = restored(lambda: build(Manual()), r.snapshot(), open_now=False)
    assert inputs(again.snapshot()) == ["a1", 10]


def test_joined_queues_of_tasks_let_no_element_fall_behind_a_watermark() -> None:
    first = [{"key": None, "value": "a", "timestamp": 1}, {"watermark": 5}, {"key": None, "value": "b", "timestamp": 6}]
    second = [{"key": None, "value": "c", "timestamp": 4}, {"watermark": 5}]
    assert [one["value"] for one in joined_inputs([first, second])] == ["a", "b", "c"]
    assert joined_inputs([[], first]) == first
    assert joined_inputs([[], []]) == []
