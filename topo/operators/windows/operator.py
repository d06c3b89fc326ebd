"""The window operator: assigner x trigger x contents x function x lateness.

Theory. An element goes into each of its windows that is not late; the trigger is asked after each element and each timer and
decides when the contents go to the function (fire) and when they are dropped (purge). A window ends at its clean-up time,
whatever the trigger did: the last millisecond of the window plus, in event time, the allowed lateness. One timer stands for that
moment; it may be the trigger's own as well. `WindowEnds` stands for the timers where all panes of a window fire at its end alone;
`OpenWindows` takes the elements that need no decision.

What belongs to (key, window): the trigger's values and timers, the clean-up timer, the function's per-window state. Contents
lie under the same window, except with merging assigners: there they lie under a *state window*, and `MergingWindowSet` names
it. A window that was merged away may still have timers, so a timer of a window that is not in flight is ignored.

Lateness is looked at twice. Whether a *window* is late decides about processing; whether the *element* is late only decides about
where an element goes that no window took.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from topo.api.triggers import Trigger, TriggerResult
from topo.api.windows import GlobalWindow, TimeWindow, WindowAssigner
from topo.errors import UserError
from topo.hot import pack_timestamps
from topo.operators.base import Keyed, KeyedOperator, OperatorContext, OperatorSnapshot
from topo.operators.state.keyed_state import SortedState
from topo.operators.time.clock import MAX_TIMESTAMP, MIN_TIMESTAMP
from topo.operators.time.timers import TimerService
from topo.operators.windows.assigners import TumblingAssigner
from topo.operators.windows.contents import CONTENTS_STATE, WindowContents
from topo.operators.windows.functions import FunctionContext, WindowFunction
from topo.operators.windows.merging import MergingWindowSet, restored_pairs
from topo.operators.windows.open_windows import OpenWindows
from topo.operators.windows.scope import NoWindowScope, WindowScope
from topo.operators.windows.trigger_context import WindowTriggerContext
from topo.operators.windows.window_ends import Attempt, WindowEnds

TIMERS: Final = "window-timers"
_TRIGGER_STATE: Final = "__window-trigger"
_MERGING_STATE: Final = "__merging-window-set"
FIRES_WHOLE: Final = "fires_whole"

MAX_LETTER_ELEMENTS: Final = 1_000
"""Elements of a window in its dead letter."""

_FIRES: Final = frozenset({TriggerResult.FIRE, TriggerResult.FIRE_AND_PURGE})
_PURGES: Final = frozenset({TriggerResult.PURGE, TriggerResult.FIRE_AND_PURGE})


class WindowTimer(NamedTuple):
    """A timer of a window."""

    key: Any
    window: Any
    timestamp: int
    is_event_time: bool


class WindowOperator(KeyedOperator):
    """Windows in general; made by `build_window_operator`.

    Args:
        trigger: when they fire and purge.
        lateness_ms: how long after its end an event-time window is kept for late elements.
        late_stream: where elements go that are too late; None: they are dropped and counted.
        keyed: False gives all elements the key None.
        fires_whole: whether windows fire at their end alone, for all keys at once.
        is_quick: whether elements may take the quick way into open windows.

    Attributes:
        late_elements, late_dropped: elements too late for all their windows, and those of them that were not put out.
        contents: of the windows.
        position: of the element at hand in its batch, -1 before the first. After `process_batch` it is that of the last one
            taken. After an exception it is that of the element that raised: those before it were taken, those after it were not.
        timer: with an undo log, that of the last call for a timer; after an exception in it, the timer that raised.
        fired: how many timers, and panes of windows that fire whole, have begun to fire one by one.
        scope: follows the panes; the driver sets it before `setup`.
    """

    def __init__(
        self,
        assigner: WindowAssigner,
        trigger: Trigger,
        contents: WindowContents,
        function: WindowFunction,
        *,
        lateness_ms: int,
        late_stream: str | None,
        keyed: bool,
        fires_whole: bool = False,
        is_quick: bool = False,
    ) -> None:
        self.assigner = assigner
        self.late_elements = self.late_dropped = self.fired = 0
        self._trigger = trigger
        self.contents = contents
        self._function = function
        self._lateness_ms = lateness_ms
        self.late_stream = late_stream
        self._keyed = keyed
        self._ends = WindowEnds(contents, function, self._end_pane) if fires_whole else None
        self._open: OpenWindows | None = None
        if is_quick:
            begins = None if self._ends is None else self._ends.add
            self._open = OpenWindows(assigner, contents, self._is_reached, begins)  # type: ignore[arg-type]
        self.scope: WindowScope = NoWindowScope()
        self.timer: WindowTimer | None = None
        self.position = 0

    def setup(self, context: OperatorContext) -> None:
        super().setup(context)
        self.now_ms = context.clock.now_ms
        self._timers: TimerService = self.timers.get(TIMERS, self)
        self.contents.open(self.state)
        self._trigger_context = WindowTriggerContext(self._timers, self.state.map(_TRIGGER_STATE))
        self._merging_state: SortedState = self.state.sorted(_MERGING_STATE)
        self._merging = None
        if self.assigner.is_merging:
            has_own_rule = type(self.assigner).merge is not WindowAssigner.merge
            self._merging = MergingWindowSet(self._merging_state, self.assigner.merge if has_own_rule else None)
        if self._ends is not None:
            self._ends.setup(self.output, self.scope, context.brake, can_undo=self.undo_log is not None)
        if self._open is not None:
            self._open.setup(self.now_ms, self.begin_call, can_undo=self.undo_log is not None)

    def open(self) -> None:
        parts = (self.output, self._timers, self.state, self.contents, self.assigner.is_merging, self.context.metrics)
        self._function.open(FunctionContext(*parts))

    def close(self) -> None:
        self._function.close()

    @property
    def timer_service(self) -> TimerService:
        return self._timers

    @property
    def open_panes(self) -> int:
        """How many windows, over all keys, have contents."""
        return self.state.entries_of(CONTENTS_STATE)

    @property
    def ends(self) -> Sequence[TimeWindow]:
        return () if self._ends is None else self._ends.windows

    def advance(self, watermark: int) -> bool:
        if self._open is not None:
            self._open.rise(watermark)
        return super().advance(watermark) and (self._ends is None or self._ends.fire(watermark))

    def process_element(self, key: Any, value: Any, timestamp: int | None) -> None:
        """Put an element into its windows and ask the trigger about each.

        Raises:
            UserError: an event-time assigner met an element without timestamp, or merging gave a window that is over.
        """
        self.position = 0
        self.contents.look_at((value,))
        self._take(key if self._keyed else None, value, timestamp)

    def process_batch(self, keys: Sequence[Any], values: Sequence[Any], timestamps: Sequence[int | None]) -> None:
        """Take several elements; `position` is the current one. Ends early when the list `values` is emptied meanwhile."""
        self.position = -1
        if not self._keyed:
            keys = [None] * len(keys)
        if self._open is not None:
            try:
                self._open.process(keys, values, array("q", pack_timestamps(timestamps)), self._take_at, self.scope)
            finally:
                self.position = self._open.position
            return
        self.contents.look_at(values)
        for self.position, (key, value, timestamp) in enumerate(zip(keys, values, timestamps)):  # noqa: B905
            self._take(key, value, timestamp)

    def _take_at(self, position: int, key: Any, value: Any, timestamp: int | None) -> None:
        self.contents.look_at((value,))
        self.position = position
        self._take(key, value, timestamp)

    def on_event_time(self, key: Any, namespace: Any, timestamp: int) -> None:
        self._begin_timer(key, namespace, timestamp, is_event_time=True)
        self._on_timer(key, namespace, timestamp, self._trigger.on_event_time, is_event_time=True)

    def on_processing_time(self, key: Any, namespace: Any, timestamp: int) -> None:
        self._begin_timer(key, namespace, timestamp, is_event_time=False)
        self._on_timer(key, namespace, timestamp, self._trigger.on_processing_time, is_event_time=False)

    def end_of_input(self) -> None:
        """Fire the windows that wait for the clock: waiting for it would add no element. After an exception call it again.

        Called again behind replays, it also fires the windows that wait for the last watermark, which is not repeated.
        """
        while not (self.advance(self._timers.current_watermark) and self._timers.end_clock()):
            self.context.brake.is_on = False
        self.scope.release_all()

    def end_clock(self) -> None:
        """Fire the windows that wait for the clock, before `end_of_input` does; call it again while the operator `is_behind`."""
        self.is_behind = not self._timers.end_clock()

    def goes_on(self) -> None:
        """A message is replayed behind the end of the input, which follows it once more."""
        self._timers.takes_clock_timers = True

    def call_for(self, timer: WindowTimer) -> None:
        """Make the call for a timer once more, after it was undone."""
        self.keys.key, window, timestamp, is_event_time = timer
        on_time = self.on_event_time if is_event_time else self.on_processing_time
        on_time(timer.key, window, timestamp)

    def contents_for(self, timer: WindowTimer) -> tuple[Any, ...]:
        """Return the subject of a timer: key, start and end of its window, and the window's contents, as far as known."""
        self.keys.key, window = timer.key, timer.window
        namespace = self._namespace(window)
        try:
            held = self.contents.read(namespace) or ()
        except Exception:  # the aggregate's own result is what raises
            held = ()
        bounds = (window.start, window.end) if isinstance(window, TimeWindow) else (None, None)
        return (timer.key, *bounds, tuple(held[:MAX_LETTER_ELEMENTS]))

    def skip(self, timer: WindowTimer) -> None:
        """Continue without the call for a timer. A window that is over by it is cleared, whatever it holds."""
        self.keys.key, window, timestamp, is_event_time = timer
        self._on_timer(timer.key, window, timestamp, _go_on, is_event_time=is_event_time)

    def own(self) -> list[Any]:
        """The assigner's stagger, which belongs to no key."""
        if isinstance(self.assigner, TumblingAssigner) and self.assigner.is_staggered:
            return [{"stagger": self.assigner.shift_ms}]
        return []

    def freeze(self) -> Callable[[], Keyed]:
        sort = super().freeze()
        if self._ends is None:
            return sort
        return lambda: {group: {**data, FIRES_WHOLE: True} for group, data in sort().items()}

    def restore(self, snapshot: OperatorSnapshot) -> None:
        """Resume from a snapshot; the watermark starts at MIN_TIMESTAMP."""
        super().restore(snapshot)
        self.contents.restored()
        self._merging_state.decode(restored_pairs)
        if isinstance(self.assigner, TumblingAssigner) and self.assigner.is_staggered and snapshot.own:
            self.assigner.shift_ms = snapshot.own[0]["stagger"]
        self._restore_timers({group for group, data in snapshot.keyed.items() if FIRES_WHOLE in data})

    def _restore_timers(self, whole: set[int]) -> None:
        """Bring restored panes and timers together: those of these key groups have none, whatever the declaration is now."""
        table, group_of = self.contents.handle.table, self.keys.group_of
        if self._ends is not None:
            self._ends.restore(self._timers.forget_event_timers(), lambda key: group_of[key] in whole)
        elif whole and self._merging is None and self.assigner.is_event_time:
            for window in table.namespaces():
                for self.keys.key in [key for key in table.keys(window) if group_of[key] in whole]:
                    self._timers.register_event_timer(window, window.max_timestamp)
                    self.register_cleanup(window)

    def decode_namespace(self, encoded: Any) -> Any:
        """Return the window, or None for what belongs to the key alone."""
        if encoded is None:
            return None
        return TimeWindow(*encoded) if len(encoded) else GlobalWindow()

    def cleanup_time(self, window: Any) -> int:
        """Return the moment after which nothing of the window is kept; MAX_TIMESTAMP for never."""
        last: int = window.max_timestamp
        return min(last + self._lateness_ms, MAX_TIMESTAMP) if self.assigner.is_event_time else last

    def _begin_timer(self, key: Any, window: Any, timestamp: int, *, is_event_time: bool) -> None:
        self.fired += 1
        if self.undo_log is not None:
            self.timer = WindowTimer(key, window, timestamp, is_event_time)
            self.begin_call()

    def _take(self, key: Any, value: Any, timestamp: int | None) -> None:
        scope, position = self.scope, self.position
        if self.undo_log is not None:
            self.undo_log.begin()
        self.keys.key = key
        time = MIN_TIMESTAMP if timestamp is None else timestamp
        merging = self._merging
        skipped = True
        for window in self.assigner.assign(value, time, self.now_ms):
            if merging is None:
                namespace = window
                if self.is_late(window):
                    scope.missed(position)
                    continue
            else:
                if not isinstance(window, TimeWindow):
                    raise UserError(f"a merging assigner has to give time windows; it gave {window!r}")
                window, namespace = merging.add(window, self._on_merge)
                if self.is_late(window):
                    merging.retire(window)
                    scope.missed(position)
                    continue
            skipped = False
            try:
                self.contents.add(namespace, value, timestamp)
                scope.held(position, key, namespace)
                self._trigger_context.window = window
                self._act(self._trigger.on_element(value, time, window, self._trigger_context), key, window, namespace)
            except Exception:
                # The call fails, and merged windows stay merged: without its timer, the window would never end.
                self.register_cleanup(window)
                raise
            self.register_cleanup(window)
        if skipped and self._is_element_late(time):
            self._too_late(value, timestamp)

    def is_late(self, window: Any) -> bool:
        return self.assigner.is_event_time and self.cleanup_time(window) <= self._timers.current_watermark

    def _is_reached(self, window: Any) -> bool:
        return bool(window.max_timestamp <= self._timers.current_watermark)

    def _is_element_late(self, time: int) -> bool:
        return self.assigner.is_event_time and min(time + self._lateness_ms, MAX_TIMESTAMP) <= self._timers.current_watermark

    def _too_late(self, value: Any, timestamp: int | None) -> None:
        self.late_elements += 1
        if self.late_stream is None:
            self.late_dropped += 1
        else:
            self.output.side(self.late_stream, value, timestamp)

    def _on_timer(
        self, key: Any, window: Any, timestamp: int, callback: Callable[[int, Any, Any], TriggerResult], *, is_event_time: bool
    ) -> None:
        namespace = self._namespace(window)
        if namespace is None:
            return
        self._trigger_context.window = window
        cleanup = (window, self.cleanup_time(window), self.assigner.is_event_time)
        is_over = cleanup[1:] == (timestamp, is_event_time)
        waits = not is_over and self._timers.has(*cleanup)
        try:
            self._act(callback(timestamp, window, self._trigger_context), key, window, namespace)
        except Exception:
            if is_over:
                self.scope.abandon(key, namespace)
            raise
        finally:
            # The timer of the clean-up fires once, even for a window whose function has raised.
            if is_over:
                self._clear_all(key, window, namespace)
            elif waits and not self._timers.has(*cleanup):
                # The trigger has deleted its own timer of that moment, which is the same.
                self.register_cleanup(window)

    def _act(self, result: TriggerResult, key: Any, window: Any, namespace: Any) -> None:
        if result in _FIRES:
            self._fire(key, window, namespace)
        if result in _PURGES:
            self._clear_contents(key, namespace)

    def _end_pane(self, key: Any, window: TimeWindow, first: Attempt | None) -> None:
        """Fire and clear a pane of a window that fires whole."""
        last = window.max_timestamp
        self.keys.key = key
        self._begin_timer(key, window, last, is_event_time=True)

        def fire(_timestamp: int, _window: Any, _context: Any) -> TriggerResult:
            self._fire(key, window, window, first)
            return TriggerResult.CONTINUE

        self._on_timer(key, window, last, fire, is_event_time=True)

    def _fire(self, key: Any, window: Any, namespace: Any, first: Attempt | None = None) -> None:
        def evicted(positions: Sequence[int]) -> None:
            self.scope.evicted(key, namespace, positions)

        def apply(elements: Sequence[Any]) -> None:
            self._function.apply(key, window, elements)

        attempts: list[Attempt] = [lambda: self.contents.fire(namespace, window, apply, evicted)]
        if first is not None:
            attempts.append(first)
        self._put_out(key, namespace, lambda: (attempts.pop() if len(attempts) > 1 else attempts[0])())

    def _put_out(self, key: Any, namespace: Any, fire: Callable[[], None]) -> None:
        """Put out the results of a pane, as often as the scope asks for it when that raises."""
        scope = self.scope
        scope.firing(key, namespace)
        while True:
            try:
                fire()
                break
            except Exception as error:
                if not scope.raised(error):
                    raise
        scope.fired()

    def _clear_contents(self, key: Any, namespace: Any) -> None:
        self.contents.clear(namespace)
        self.scope.released(key, namespace)

    def _clear_all(self, key: Any, window: Any, namespace: Any) -> None:
        self._clear_contents(key, namespace)
        self._trigger_context.window = window
        try:
            self._trigger.clear(window, self._trigger_context)
            self._function.clear(key, window)
        finally:
            if self._merging is not None:
                self._merging.retire(window)

    def register_cleanup(self, window: Any) -> None:
        if self._ends is not None:
            self._ends.add(window)
        elif (time := self.cleanup_time(window)) < MAX_TIMESTAMP:
            by_event = self.assigner.is_event_time
            (self._timers.register_event_timer if by_event else self._timers.register_processing_timer)(window, time)

    def _delete_cleanup(self, window: Any) -> None:
        by_event = self.assigner.is_event_time
        delete = self._timers.delete_event_timer if by_event else self._timers.delete_processing_timer
        delete(window, self.cleanup_time(window))

    def _namespace(self, window: Any) -> Any:
        """Return where the contents of a window are; None when it is not in flight any more."""
        return window if self._merging is None else self._merging.state_window(window)

    def _on_merge(
        self, result: TimeWindow, members: list[TimeWindow], state_window: TimeWindow, merged_state_windows: list[TimeWindow]
    ) -> None:
        is_over = self.is_late(result) if self.assigner.is_event_time else result.max_timestamp <= self.now_ms()
        if is_over:
            raise UserError(f"merging gave {result}, which is over already: windows must not end earlier by being merged")
        context = self._trigger_context
        context.window, context.merged = result, members
        self._trigger.on_merge(result, context)
        context.merged = ()
        for member in members:
            context.window = member
            self._trigger.clear(member, context)
            self._delete_cleanup(member)
        if not merged_state_windows:
            return
        self.contents.merge(state_window, merged_state_windows)
        self.scope.merge(self.keys.key, state_window, merged_state_windows)


def _go_on(_timestamp: int, _window: Any, _context: Any) -> TriggerResult:
    return TriggerResult.CONTINUE
