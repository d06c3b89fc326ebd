"""Faults planted into spouts that run a chain, one at a time. Undone by `monkeypatch`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.simulation.planted import Plant
from topo.task import chained_emission
from topo.task.batch import Batch
from topo.task.chained_emission import ChainedEmission
from topo.task.runners.basic_bolt import BasicBoltKind


def rows_of_an_older_epoch_are_sent(patch: pytest.MonkeyPatch) -> None:
    """Rows that wait for the chain when an epoch begins are sent in it."""
    patch.setattr(ChainedEmission, "forget", lambda self: None)


def barriers_overtake_the_chain(patch: pytest.MonkeyPatch) -> None:
    """Event time and barriers do not wait behind rows of a slice that was cut short."""
    patch.setattr(ChainedEmission, "then", lambda self, action: action())


def rows_for_the_chain_are_not_pending(patch: pytest.MonkeyPatch) -> None:
    """The spout emits, and ends, as if no row waited for the chain."""
    patch.setattr(ChainedEmission, "is_behind", False)


def the_chain_is_not_marked(patch: pytest.MonkeyPatch) -> None:
    """The messages in the chain are not in the crash marker."""
    run = ChainedEmission._run

    def unmarked(self: ChainedEmission, piece: Any) -> bool:
        hold, self._env.marker.hold = self._env.marker.hold, lambda *_: None  # type: ignore[method-assign]
        try:
            return run(self, piece)
        finally:
            self._env.marker.hold = hold  # type: ignore[method-assign]

    patch.setattr(ChainedEmission, "_run", unmarked)


def failures_of_a_chain_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A message at which the chain has raised is acked."""
    settle = ChainedEmission.settle_slice

    def forgetful(self: ChainedEmission, streams: Any, batch: Batch, first: int, last: int, _failures: Any, now: float) -> None:
        settle(self, streams, batch, first, last, {}, now)

    patch.setattr(ChainedEmission, "settle_slice", forgetful)


def another_message_is_failed(patch: pytest.MonkeyPatch) -> None:
    """Behind a cut, failures in the chain are taken for those of the first messages."""
    settle = ChainedEmission.settle_slice

    def misplaced(self: ChainedEmission, streams: Any, batch: Batch, first: int, last: int, failures: Any, now: float) -> None:
        settle(self, streams, batch, first, last, {index - first: error for index, error in failures.items()}, now)

    patch.setattr(ChainedEmission, "settle_slice", misplaced)


def rows_of_failed_calls_leave_the_chain(patch: pytest.MonkeyPatch) -> None:
    """What a call in the chain has emitted before it raised is sent."""

    def raised(self: ChainedEmission, error: Exception, call: Callable[[], object], undo: Callable[[], object]) -> Any:
        return chained_emission.repeated(self._state.config, error, call, lambda: None) if self._state.is_checkpointed else error

    patch.setattr(ChainedEmission, "raised", raised)


def a_cut_slice_is_over(patch: pytest.MonkeyPatch) -> None:
    """The rest of a slice that was cut short is dropped."""
    run = ChainedEmission._run
    patch.setattr(ChainedEmission, "_run", lambda self, piece: run(self, piece) or True)


def a_cut_slice_begins_again(patch: pytest.MonkeyPatch) -> None:
    """A slice that was cut short is run from its beginning."""
    run = BasicBoltKind.run

    def again(self: BasicBoltKind, batch: Batch, first: int, last: int, now: float) -> None:
        run(self, batch, first, last, now)
        if batch.done < batch.count and isinstance(self._guarantee, ChainedEmission):
            batch.done = 0

    patch.setattr(BasicBoltKind, "run", again)


PLANTS: dict[Plant, tuple[set[int], tuple[int, ...], str]] = {
    rows_of_an_older_epoch_are_sent: ({7, 13}, (2,), "chained_checkpoints"),
    barriers_overtake_the_chain: ({7}, (31, 27), "chained_checkpoints"),
    rows_for_the_chain_are_not_pending: ({10}, (2,), "chained_checkpoints"),
    the_chain_is_not_marked: ({10}, (14,), "chained_trees"),
    failures_of_a_chain_are_forgotten: ({1}, (14,), "chained_trees"),
    another_message_is_failed: ({1}, (2,), "chained_checkpoints"),
    rows_of_failed_calls_leave_the_chain: ({7}, (2,), "chained_checkpoints"),
    a_cut_slice_is_over: ({7}, (2,), "chained_checkpoints"),
    a_cut_slice_begins_again: ({7, 10}, (2,), "chained_checkpoints"),
}
"""The planted faults, each with the oracles that may catch it, the seeds to try first, and the runs of `test_chains.py`."""
