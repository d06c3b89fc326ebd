"""Calls of user code to which no input belongs: ticks, mails, the end of the input. What they emit is routed behind them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

from topo.emission.collectors import AnchoringCollector, BoltCollector, Mark
from topo.errors import TopoInternalError
from topo.task.guarantees.inputs import InputGuarantee
from topo.task.state import TaskState

END_OF_INPUT = "the end of the input"


class Calls(Protocol):
    """Makes the calls of one component to which no input belongs."""

    def run(self, call: Callable[[], object], now: float, subject: str, limit: float) -> None:
        """Make a call, and settle.

        Args:
            call: of user code.
            now: monotonic seconds.
            subject: names the call; with checkpoints, that of its dead letter.
            limit: the number of rows that it may emit.
        """

    def settle(self, now: float) -> None:
        """Route all rows that were emitted, then account for the inputs that were acked or failed."""


class BasicCalls:
    """Calls of a component whose inputs the engine acks.

    Args:
        collector: takes the rows.
        guarantee: of the inputs.
    """

    def __init__(self, collector: AnchoringCollector, guarantee: InputGuarantee) -> None:
        self._collector = collector
        self._guarantee = guarantee

    def run(self, call: Callable[[], object], now: float, subject: str, limit: float) -> None:
        """Make a call, and settle. Its results are lost when its last attempt raises."""

        def checked() -> None:
            call()
            self._collector.check_emitted(self._collector.count(), limit)

        try:
            checked()
        except TopoInternalError:
            raise
        except Exception as error:
            self._guarantee.call_raised(error, (subject,), checked, self._clear, self._abandon)
        self.settle(now)

    def settle(self, now: float) -> None:
        """Route all rows that were emitted without input."""
        self._guarantee.settle_rows(self._collector.streams, now)

    def _abandon(self) -> bool:
        self._clear()
        return True

    def _clear(self) -> None:
        for stream in self._collector.streams:
            stream.clear()


class AnchoredCalls:
    """Calls of a component that names its anchors.

    Args:
        collector: takes rows, acks and fails.
        guarantee: of the inputs.
        state: of the task.
        is_replayed: whether all rows since a mark belong to inputs that are not acked, so that replays repeat them; None where
            that is never so.
        before: called ahead of each call.
    """

    def __init__(
        self,
        collector: BoltCollector,
        guarantee: InputGuarantee,
        state: TaskState,
        is_replayed: Callable[[Mark], bool] | None = None,
        before: Callable[[float], object] | None = None,
    ) -> None:
        self._before = before
        self._collector = collector
        self._guarantee = guarantee
        self._state = state
        self._is_replayed = is_replayed

    def run(self, call: Callable[[], object], now: float, subject: str, limit: float) -> None:
        """Make a call, and settle. Its results are lost when its last attempt raises, unless replays repeat them."""
        if self._before is not None:
            self._before(now)
        collector, mark = self._collector, self._collector.mark()

        def checked() -> None:
            call()
            collector.check_emitted(collector.count() - mark.emitted, limit)

        try:
            checked()
        except TopoInternalError:
            raise
        except Exception as error:
            is_lost = subject == END_OF_INPUT or self._is_replayed is None or not self._is_replayed(mark)
            undo = partial(collector.rewind, mark)
            # No variable holds the error: its traceback has this frame, and the cycle would keep inputs of the call alive.
            self._guarantee.call_raised(error, (subject,), checked, undo, partial(self._abandon, mark, error, is_lost=is_lost))
        self.settle(now)

    def settle(self, now: float) -> None:
        """Route all rows that were emitted, then account for the inputs that were acked or failed."""
        self._guarantee.settle_calls(self._collector, now)

    def _abandon(self, mark: Mark, error: Exception, *, is_lost: bool) -> bool:
        self._guarantee.roll_back(self._collector, mark, None, error)
        self.settle(self._state.now)
        return is_lost
