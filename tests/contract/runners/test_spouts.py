"""The promises that each kind of spout keeps, under each guarantee."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

import pytest

from tests.tasks.components import CHECKPOINTED, MODES, TRACKED, Replaying, Scripted, Sink, chain, several
from tests.tasks.solo import Solo
from topo.api.watermarks import WatermarkStrategy
from topo.builder import TopologyBuilder
from topo.errors import EmitError
from topo.ids import Epoch
from topo.wire.control import (
    Activate,
    BarrierAcked,
    BeginCheckpoint,
    Close,
    Closed,
    Deactivate,
    DeadLetter,
    Go,
    Probe,
    Quiet,
)
from topo.wire.frames import FrameKind

KINDS = {"spout": Scripted, "retrying_spout": Replaying}
PAIRS = [(kind, guarantee) for kind in KINDS for guarantee in MODES]
ALL = pytest.mark.parametrize(("kind", "guarantee"), PAIRS)


class Neighbours:
    """One spout task before a sink; the test plays the sink, the ackers and the master."""

    def __init__(
        self, kind: str, guarantee: str, steps: Iterable[Any] = (), *, ends: bool = False, goes: bool = True, **settings: Any
    ) -> None:
        self.guarantee = guarantee
        self.spout = KINDS[kind](steps, ends=ends)
        self.solo = Solo(chain(self.spout, Sink(), delivery=guarantee, **settings), "a", is_open=False)
        self.task = self.solo.task
        self.checkpoint = 0
        self._acked = 0
        self.solo.adopt(1)
        if goes:
            self.go(1)

    def go(self, epoch: int) -> None:
        self.solo.open_inputs()
        self.solo.handle(Go(Epoch(epoch)))
        self.solo.run()

    def finish(self) -> None:
        """Have all messages that were emitted done: acked by the ackers, or covered by a checkpoint."""
        self.solo.confirm_all()
        if self.guarantee == CHECKPOINTED:
            self.checkpoint += 1
            self.solo.handle(BeginCheckpoint(self.solo.epoch, self.checkpoint))
        inits = self.solo.roots(FrameKind.INIT)[self._acked :]
        self._acked += len(inits)
        if inits:
            self.solo.feed_ids(FrameKind.ACKED, inits)
        self.solo.run()
        if self.guarantee == CHECKPOINTED:
            self.solo.complete(self.checkpoint)
        self.solo.confirm_all()
        self.solo.run()

    @property
    def values(self) -> list[Any]:
        """Values sent to the sink, in order."""
        return self.solo.values()

    @property
    def calls(self) -> list[str]:
        """Names of the calls of the spout that are no verdicts."""
        return [call[0] for call in self.spout.calls if call[0] not in ("ack", "fail")]


@ALL
def test_messages_are_sent_in_order_and_done_once_each(kind: str, guarantee: str) -> None:
    task = Neighbours(kind, guarantee, range(50), ends=True, batch_size=8)
    task.finish()
    assert task.values == list(range(50))
    assert task.spout.acked == list(range(50)) and task.spout.failed == []
    assert task.solo.frames(to=2)[-1].kind in (FrameKind.END, FrameKind.BARRIER)
    assert task.task.is_quiet
    task.solo.handle(Close(task.solo.epoch))
    counters = task.task.statistics().counters
    assert (counters.emitted, counters.acked, counters.unaccounted) == (50, 50, 0)


@ALL
def test_a_spout_is_opened_with_the_first_routes_and_asked_after_go(kind: str, guarantee: str) -> None:
    task = Neighbours(kind, guarantee, [1], goes=False)
    task.solo.open_inputs()
    task.solo.handle(Go(Epoch(7)))
    task.solo.wait(1.0)
    assert task.calls == ["open"] and task.values == []
    task.solo.handle(Go(Epoch(1)))
    task.solo.run()
    assert task.calls == ["open", "activate"] and task.values == [1]


@ALL
def test_a_call_that_raises_emits_nothing_and_the_next_one_comes_after_a_wait(kind: str, guarantee: str) -> None:
    def half(collector: Any) -> None:
        collector.emit(("gone",), message_id=2)
        raise ValueError("half way")

    task = Neighbours(kind, guarantee, [1, half, half, 3])
    task.solo.wait(0.5)
    assert task.values == [1]
    task.solo.wait(0.2)
    assert task.values == [1, 3]
    assert task.task.counters.errors == 2 and task.solo.errors()[0] == "ValueError: half way"
    task.finish()
    assert task.spout.acked == [1, 3]


@ALL
def test_a_call_that_emits_more_than_it_may_emits_nothing(kind: str, guarantee: str) -> None:
    task = Neighbours(kind, guarantee, [several(1, 2, 3, 4), 5], max_task_emit=3)
    task.solo.wait(1.0)
    assert task.values == [5]
    assert task.solo.errors()[0].startswith("EmitError: component 'a' emitted 4 tuples in one call; at most 3 are allowed")


@ALL
def test_with_on_error_crash_an_error_of_next_tuple_ends_the_process(kind: str, guarantee: str) -> None:
    task = Neighbours(kind, guarantee, [ValueError("fatal")], goes=False, on_error="crash")
    with pytest.raises(ValueError, match="fatal"):
        task.go(1)


@ALL
def test_a_row_that_cannot_be_carried_is_lost_alone_and_reported(kind: str, guarantee: str) -> None:
    task = Neighbours(kind, guarantee, [lambda c: [c.emit((value,), place) for place, value in enumerate(["x", object(), "y"])]])
    task.finish()
    assert task.values == ["x", "y"]
    (error,) = task.solo.errors()
    assert error.startswith("UnsupportedValueError: component 'a', stream 'default': ")
    assert len(task.solo.messages(DeadLetter)) == (guarantee == CHECKPOINTED)
    assert len(task.solo.frames(FrameKind.FAIL)) == (guarantee == TRACKED)


@ALL
def test_a_message_id_that_cannot_be_remembered_is_refused_and_the_others_go(kind: str, guarantee: str) -> None:
    task = Neighbours(kind, guarantee, [lambda c: [c.emit((number,), one) for number, one in enumerate([1, [2], 3])]])
    task.finish()
    assert task.values == [0, 2] and task.spout.acked == [1, 3]
    assert task.task.counters.refused == 1 and "is not hashable" in task.solo.errors()[0]


@ALL
def test_a_full_output_stops_the_spout_and_no_message_is_lost(kind: str, guarantee: str) -> None:
    task = Neighbours(kind, guarantee, range(100), edge_window=1, batch_size=1, outbox_limit=4)
    assert task.task.counters.emitted < 30 and task.task.outbound.outbox.is_full
    task.solo.wait(2.0)
    assert task.task.statistics().counters.blocked_s == 2.0
    task.solo.handle(Deactivate())
    task.solo.wait(2.0)
    assert task.task.statistics().counters.blocked_s == 2.0, "a paused spout is not kept from anything"
    task.solo.handle(Activate())
    for _ in range(100):
        task.solo.confirm_all()
        task.solo.run()
    assert task.values == list(range(100))


@ALL
def test_a_paused_spout_is_not_asked_and_callbacks_are_made(kind: str, guarantee: str) -> None:
    task = Neighbours(kind, guarantee, [1])
    task.solo.handle(Deactivate())
    task.solo.handle(Deactivate())
    task.spout.steps.append(2)
    task.finish()
    task.solo.wait(1.0)
    assert task.values == [1] and task.spout.acked == [1]
    task.solo.handle(Activate())
    task.solo.handle(Activate())
    task.solo.run()
    assert task.values == [1, 2] and task.calls == ["open", "activate", "deactivate", "activate"]


@ALL
def test_a_spout_that_is_paused_before_go_waits_for_its_activation(kind: str, guarantee: str) -> None:
    task = Neighbours(kind, guarantee, [1], goes=False)
    task.solo.handle(Deactivate())
    task.go(1)
    assert task.calls == ["open"] and task.values == []
    task.solo.handle(Activate())
    task.solo.run()
    assert task.values == [1]


@ALL
def test_a_spout_that_may_still_emit_is_not_quiet_and_a_paused_one_is(kind: str, guarantee: str) -> None:
    task = Neighbours(kind, guarantee)
    task.solo.confirm_all()
    task.solo.handle(Probe(1, Epoch(1)))
    task.solo.handle(Deactivate())
    task.solo.handle(Probe(2, Epoch(1)))
    assert [(quiet.ended, quiet.quiet) for quiet in task.solo.messages(Quiet)] == [(False, False), (False, True)]


@ALL
def test_the_end_goes_behind_rows_that_have_no_room_and_the_spout_is_asked_no_more(kind: str, guarantee: str) -> None:
    task = Neighbours(kind, guarantee, range(20), ends=True, edge_window=1, batch_size=4)
    for _ in range(20):
        task.solo.confirm_all()
        task.solo.run()
    frames = task.solo.frames(to=2)
    assert frames[-1].kind is FrameKind.END
    assert [frame.target for frame in task.solo.frames(FrameKind.END)] == [2], "no acker gets it"
    assert [frame.number for frame in frames] == list(range(len(frames)))
    task.spout.steps.append(99)
    task.solo.wait(10)
    assert task.values == list(range(20))


@ALL
def test_event_time_goes_behind_the_rows_before_it_and_ahead_of_those_behind_it(kind: str, guarantee: str) -> None:
    def step(collector: Any) -> None:
        collector.emit((1,), 1, timestamp=10)
        collector.emit_watermark(10)
        collector.emit((2,), 2, timestamp=11)
        collector.mark_idle()

    task = Neighbours(kind, guarantee, [step])
    found: list[Any] = []
    for frame in task.solo.frames(FrameKind.DATA, FrameKind.WATERMARK, FrameKind.IDLE, to=2):
        found += frame.timestamp_list() or [] if frame.kind is FrameKind.DATA else [frame.kind.name]
    assert found == [10, "WATERMARK", 11, "IDLE"]


@ALL
def test_a_row_whose_timestamp_cannot_be_read_is_lost_alone_and_reported(kind: str, guarantee: str) -> None:
    solo = stamped(kind, guarantee)
    solo.run()
    assert solo.values() == [10, 30]
    assert [stamp for frame in solo.frames(FrameKind.DATA) for stamp in frame.timestamp_list() or ()] == [10, 30]
    assert len(solo.errors()) == 1 and "timestamp field 'value' is 'noon'" in solo.errors()[0]
    assert len(solo.frames(FrameKind.FAIL)) == (guarantee == TRACKED)


@ALL
def test_with_on_error_crash_an_unreadable_timestamp_ends_the_process(kind: str, guarantee: str) -> None:
    with pytest.raises(EmitError, match="timestamp field 'value'"):
        stamped(kind, guarantee, on_error="crash").run()


@ALL
def test_a_strategy_reads_the_timestamps_of_rows_that_have_none(kind: str, guarantee: str) -> None:
    def emit(collector: Any) -> None:
        collector.emit((1000,), 0)
        collector.emit((2000,), 1, timestamp=77)
        collector.emit((3000,), 2)

    solo = stamped(kind, guarantee, emit)
    solo.run()
    assert [stamp for frame in solo.frames(FrameKind.DATA) for stamp in frame.timestamp_list() or ()] == [1000, 77, 3000]


def _no_time_in_the_middle(collector: Any) -> None:
    for number, at in enumerate([10, "noon", 30]):
        collector.emit((at,), number)


def stamped(kind: str, guarantee: str, emit: Callable[[Any], None] = _no_time_in_the_middle, **settings: Any) -> Solo:
    """A spout with a strategy; it emits a row without a readable timestamp, or as it is given."""
    builder = TopologyBuilder("stamps").config(delivery=guarantee, **settings)
    strategy = WatermarkStrategy.bounded_out_of_orderness("1s", timestamp="value")
    builder.set_spout("a", KINDS[kind]([emit]), watermarks=strategy)
    builder.set_bolt("b", Sink()).shuffle_grouping("a")
    return Solo(builder.build(), "a")


@ALL
def test_rows_that_were_not_sent_before_an_epoch_are_sent_once_after_go(kind: str, guarantee: str) -> None:
    """A source with positions and checkpoints reads them again: it is opened again."""
    task = Neighbours(kind, guarantee, [1], goes=False)
    task.solo.open_inputs()
    task.solo.adopt(2)
    task.solo.open_inputs()
    task.solo.wait(1.0)
    assert task.values == []
    task.solo.handle(Go(Epoch(2)))
    task.solo.run()
    assert task.values == [1]
    assert task.calls.count("activate") == 1


@ALL
def test_a_closed_spout_is_closed_once_behind_its_callbacks_and_asked_no_more(kind: str, guarantee: str) -> None:
    task = Neighbours(kind, guarantee, [1])
    task.finish()
    task.spout.steps.append(2)
    task.solo.handle(Close(Epoch(1)))
    task.solo.handle(Close(Epoch(1)))
    task.solo.wait(60)
    assert not task.task.has_work
    assert [call[0] for call in task.spout.calls] == ["open", "activate", "ack", "close"]
    assert task.values == [1]
    assert len(task.solo.messages(Closed)) == 1


@ALL
@pytest.mark.parametrize("verb", ["activate", "deactivate", "ack"])
def test_an_error_of_a_callback_is_reported_and_the_spout_is_asked_on(kind: str, guarantee: str, verb: str) -> None:
    task = Neighbours(kind, guarantee, [1], goes=False)

    def broken(*_arguments: Any) -> None:
        raise ValueError("no")

    setattr(task.spout, verb, broken)
    task.go(1)
    task.solo.handle(Deactivate())
    task.solo.handle(Activate())
    task.spout.steps.append(2)
    task.finish()
    assert task.values == [1, 2]
    assert set(task.solo.errors()) == {"ValueError: no"}


@ALL
def test_an_error_of_open_ends_the_process(kind: str, guarantee: str) -> None:
    class Broken(KINDS[kind]):  # type: ignore[misc]
        def open(self, context: Any, collector: Any) -> None:
            raise OSError("no such file")

    solo = Solo(chain(Broken(), Sink(), delivery=guarantee), "a", is_open=False)
    with pytest.raises(OSError, match="no such file"):
        solo.adopt(1)


@ALL
def test_no_more_is_asked_for_than_may_be_pending(kind: str, guarantee: str) -> None:
    """Messages of a source with positions are not kept with checkpoints, and without ackers each is done at once."""
    task = Neighbours(kind, guarantee, range(100), max_spout_pending=10)
    if guarantee == TRACKED or (guarantee == CHECKPOINTED and kind == "spout"):
        assert task.values == list(range(10)) and not task.task.has_work
        task.finish()
        assert task.values == list(range(20))
    else:
        assert task.values == list(range(100))


@ALL
def test_the_waits_between_polls_grow_while_the_source_is_idle(kind: str, guarantee: str) -> None:
    asked: list[float] = []
    task = Neighbours(kind, guarantee, goes=False)
    task.spout.steps += [lambda c: asked.append(task.solo.clock.now)] * 1000
    task.go(1)
    task.solo.wait(0.1)
    gaps = [round(later - earlier, 6) for earlier, later in pairwise(asked)]
    assert gaps[:18] == [0.000_25] * 10 + [0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.02, 0.02]
    task.spout.steps[:] = ["news", *[lambda c: asked.append(task.solo.clock.now)] * 10]
    before = len(asked)
    task.solo.wait(0.02)
    assert asked[before + 1] - asked[before] < 0.001


@pytest.mark.parametrize("kind", KINDS)
def test_with_checkpoints_emitted_rows_precede_the_barrier_whose_ack_is_reported(kind: str) -> None:
    task = Neighbours(kind, CHECKPOINTED, [1, 2])
    task.spout.steps.append(3)
    task.spout.collector.emit(("mail",), message_id=9)
    task.solo.handle(BeginCheckpoint(task.solo.epoch, 1))
    assert [frame.kind for frame in task.solo.frames(to=2)][-2:] == [FrameKind.DATA, FrameKind.BARRIER]
    assert task.values == [1, 2, "mail"]
    assert task.solo.messages(BarrierAcked) == []
    task.solo.feed_ids(FrameKind.ACKED, task.solo.roots(FrameKind.INIT))
    task.solo.run()
    assert [acked.checkpoint for acked in task.solo.messages(BarrierAcked)] == [1]


@pytest.mark.parametrize("kind", KINDS)
def test_with_checkpoints_an_order_of_another_epoch_or_before_go_begins_none(kind: str) -> None:
    task = Neighbours(kind, CHECKPOINTED, [1], goes=False)
    task.solo.open_inputs()
    task.solo.handle(BeginCheckpoint(Epoch(1), 1))
    task.go(1)
    task.solo.handle(BeginCheckpoint(Epoch(2), 2))
    assert task.solo.frames(FrameKind.BARRIER) == []
