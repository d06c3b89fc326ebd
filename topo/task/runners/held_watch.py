"""Inputs that a bolt holds back: event time and the end of its output wait for them, for `message_timeout` at most."""

from __future__ import annotations

from math import inf

from topo.emission.collectors import TrackedTuple, TupleState
from topo.errors import TupleStateError
from topo.task.bolt_output import BoltOutput
from topo.task.guarantees.inputs import InputGuarantee
from topo.task.parts import TaskParts
from topo.task.runners.input_end import InputEnd

_NEVER_DECIDED = (
    "component {component!r} held an input back and has neither acked nor failed it {timeout:g} s (message_timeout) after the "
    "end of its input; in end_of_input, emit the results of all held inputs, and ack them"
)


class HeldInputsWatch:
    """Watches the inputs that one bolt holds back.

    Args:
        parts: of the task.
        out: its output.
        guarantee: has the inputs.
        end: of the input.
    """

    def __init__(self, parts: TaskParts, out: BoltOutput, guarantee: InputGuarantee, end: InputEnd) -> None:
        self._state = parts.state
        self._reports = parts.reports
        self._out = out
        self._guarantee = guarantee
        self._held = guarantee.held
        self._timeout_s = parts.state.config.message_timeout_s
        self._end = end
        self._look_at = -inf
        """When to look again which inputs are held: a bolt may hold thousands, and each look goes through all."""
        self._least: int | None = None
        """The least timestamp of the inputs that are held, as of the last look."""

    def reset(self) -> list[TrackedTuple]:
        """Forget the epoch before; return the inputs that were held in it."""
        self._least = None
        self._look_at = -inf
        return self._held.clear()

    def note(self, tup: TrackedTuple) -> None:
        """Note an input that its call has left undecided."""
        tup.since = self._state.now
        if tup.timestamp is not None and (self._least is None or tup.timestamp < self._least):
            self._least = tup.timestamp

    # -- event time ------------------------------------------------------------------------------------------------------

    def watermark_held_back(self) -> dict[str, int]:
        """Return the watermark of a snapshot, where it waits for inputs that are held now."""
        self._look_at = self._state.now
        floor = self.time_floor()
        return {} if floor is None else {"watermark": min(self._out.watermarks.latest, floor - 1)}

    def time_floor(self) -> int | None:
        """Return the least timestamp of the inputs that are held; None where no event time waits for it."""
        # An input held for longer than message_timeout is late then, so that none holds up event time for ever.
        if self._out.watermarks.is_used or not self._held:
            self._least = None
        elif self._state.now >= self._look_at:
            self._look_at = self._state.now + self._state.config.watermark_interval_s
            self._least = self._held.least_timestamp(-inf if self._timeout_s is None else self._state.now - self._timeout_s)
        return self._least

    # -- time ------------------------------------------------------------------------------------------------------------

    def deadlines(self) -> list[float | None]:
        """Return when inputs are given up, and when to look again for those that watermarks or END wait for."""
        return [self._give_up_at, self._look_at if self._is_waited_for else None]

    def on_time(self, now: float) -> None:
        """Give up the inputs that are still held too long after the end; send event time that has waited."""
        at = self._give_up_at
        if at is not None and now >= at:
            self._give_up(now)
        if self._is_waited_for and now >= self._look_at:
            self._out.send_event_time()
            self._look_at = max(self._look_at, now + self._state.config.watermark_interval_s)

    @property
    def _is_waited_for(self) -> bool:
        """Whether a watermark or the end of the input waits for inputs that are held. User code may let go of them unseen."""
        if self._out.has_ended:
            return False
        return self._end.is_reached or (self._least is not None and self._out.watermarks.has_updates)

    @property
    def _give_up_at(self) -> float | None:
        ended_at = self._end.reached_at
        return None if ended_at is None or self._timeout_s is None or not self._held else ended_at + self._timeout_s

    def _give_up(self, now: float) -> None:
        error = TupleStateError(_NEVER_DECIDED.format(component=self._state.component_id, timeout=self._timeout_s))
        for tup in self._held.now():
            if not tup.roots:
                tup.state = TupleState.FAILED
                self._state.counters.failed += 1
                self._guarantee.lose_input(tup.values, (), error)
                self._reports.record(error, now)
        self._held.clear()
