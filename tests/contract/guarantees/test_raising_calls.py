"""Repetitions, fails and dead letters of a call that raises, without a runner, in each delivery mode."""

from __future__ import annotations

import pytest

from tests.contract.guarantees.stand import Stand
from tests.tasks.components import CHECKPOINTED, MODES, TRACKED, UNTRACKED
from topo.emission.collectors import TupleState
from topo.wire.control import TuplesFailed
from topo.wire.frames import FrameKind

ALL = pytest.mark.parametrize("mode", MODES)
NOT_REPEATED = pytest.mark.parametrize("mode", [TRACKED, UNTRACKED])


class Failing:
    """A call that raises the first times, and emits a row each time."""

    def __init__(self, stand: Stand, times: int) -> None:
        self.stand = stand
        self.left = times
        self.calls = self.undone = 0
        self.mark = stand.calls.mark()

    def __call__(self) -> None:
        self.calls += 1
        self.stand.calls.emit(("row",))
        if self.left:
            self.left -= 1
            raise ValueError("not yet")

    def undo(self) -> None:
        self.undone += 1
        self.stand.calls.rewind(self.mark)

    def first(self) -> Exception:
        """Make the call once; return its exception."""
        with pytest.raises(ValueError, match="not yet") as caught:
            self()
        return caught.value


@NOT_REPEATED
def test_a_call_that_raises_is_taken_back_once(mode: str) -> None:
    stand = Stand(mode, attempts=3)
    call = Failing(stand, 1)
    error = call.first()
    assert stand.guarantee.raised(error, call, call.undo) is error
    assert (call.calls, call.undone) == (1, 1) and stand.calls.count() == 0


@pytest.mark.parametrize(("failures", "calls"), [(1, 2), (2, 3), (3, 3)])
def test_with_checkpoints_a_call_that_raises_is_repeated_as_often_as_attempts_allow(failures: int, calls: int) -> None:
    stand = Stand(CHECKPOINTED, attempts=3)
    call = Failing(stand, failures)
    final = stand.guarantee.raised(call.first(), call, call.undo)
    assert (call.calls, call.undone) == (calls, failures)
    assert (final is None) == (failures < 3) and stand.calls.count() == (failures < 3)


def test_with_on_error_crash_no_call_is_repeated() -> None:
    stand = Stand(CHECKPOINTED, attempts=3, on_error="crash")
    call = Failing(stand, 1)
    assert stand.guarantee.raised(call.first(), call, call.undo) is not None and call.calls == 1


@ALL
def test_an_input_fails_with_those_that_its_raising_call_has_acked(mode: str) -> None:
    stand = Stand(mode, attempts=1)
    other, tup = stand.inputs("other", "bad")
    mark = stand.calls.mark()
    stand.calls.emit(("row",), anchors=tup)
    stand.calls.ack(other)
    error = ValueError("no")
    final = stand.guarantee.input_raised(stand.calls, mark, tup, error, lambda: None, lambda: stand.calls.rewind(mark))
    assert final is error and tup.state == TupleState.FAILED
    stand.settle()
    stand.flush()
    assert stand.solo.values() == []
    assert stand.solo.roots(FrameKind.FAIL) == [*other.roots, *tup.roots]
    if mode == CHECKPOINTED:
        # The call may be made again, so nothing that it did stands.
        assert other.state == TupleState.OPEN and stand.counts == (0, 1) and stand.dead_letters() == [(("bad",), 1)]
    else:
        assert other.state == TupleState.FAILED and stand.counts == (0, 2)
    if mode == TRACKED:
        (failed,) = stand.solo.messages(TuplesFailed)
        assert [(cause.message, roots) for cause, roots in failed.causes] == [("no", [*other.roots, *tup.roots])]


def test_with_checkpoints_an_input_whose_repetition_goes_well_is_not_failed() -> None:
    stand = Stand(CHECKPOINTED, attempts=2)
    (tup,) = stand.inputs("x")
    call = Failing(stand, 1)
    assert stand.guarantee.input_raised(stand.calls, call.mark, tup, call.first(), call, call.undo) is None
    stand.calls.ack(tup)
    stand.settle()
    stand.flush()
    assert stand.solo.values() == ["row"] and stand.counts == (1, 0) and stand.dead_letters() == []


@NOT_REPEATED
@pytest.mark.parametrize("is_lost", [True, False])
def test_a_call_without_input_that_raises_is_lost_unless_its_inputs_are_replayed(mode: str, is_lost: bool) -> None:
    stand = Stand(mode)
    call = Failing(stand, 1)
    stand.guarantee.call_raised(call.first(), ("a tick",), call, call.undo, lambda: is_lost)
    stand.flush()
    assert call.calls == 1 and stand.errors() == ["not yet"]
    assert stand.task.counters.lost_results == stand.guarantee.lost_calls == is_lost


@pytest.mark.parametrize("failures", [1, 2])
def test_with_checkpoints_a_call_without_input_is_repeated_and_then_a_dead_letter(failures: int) -> None:
    stand = Stand(CHECKPOINTED, attempts=2)
    call = Failing(stand, failures)

    def abandon() -> bool:
        raise AssertionError("it is repeated")

    stand.guarantee.call_raised(call.first(), ("a tick",), call, call.undo, abandon)
    assert stand.dead_letters() == ([] if failures == 1 else [(("a tick",), 2)])
    assert stand.task.counters.lost_results == 0


@ALL
def test_a_user_error_ends_the_process_with_on_error_crash(mode: str) -> None:
    stand = Stand(mode, on_error="crash")
    with pytest.raises(ValueError, match="no"):
        stand.settle_slice(stand.batch("bad"), [[]], {0: ValueError("no")})
