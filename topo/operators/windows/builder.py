"""From what a user declares about windows to the operator, or to an error that names what does not go together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from topo.api.aggregates import AggregateFunction
from topo.api.evictors import CountEvictor, EvictorLike, TimeEvictor
from topo.api.triggers import ContinuousProcessingTimeTrigger, CountTrigger, EventTimeTrigger, PurgingTrigger, TriggerLike
from topo.api.windows import AssignerLike, CountWindows, GlobalWindows, ProcessWindowFunction, ReduceFunction, WindowAssigner
from topo.errors import UserError
from topo.operators.windows.assigners import Draw, SlidingAssigner, TumblingAssigner, build_assigner
from topo.operators.windows.contents import (
    Accumulated,
    Aggregated,
    Elements,
    Evicting,
    Reduced,
    Summarise,
    WindowContents,
    aggregated_at_fire,
    reduced_at_fire,
)
from topo.operators.windows.evictors import build_evictor
from topo.operators.windows.functions import CallUser, EmitResult, ResultOf
from topo.operators.windows.operator import WindowOperator
from topo.operators.windows.rows import WindowRows
from topo.operators.windows.triggers import AtWindowEnd, build_trigger

Reducer = ReduceFunction | Callable[[Any, Any], Any]


def result_only(key: Any, window: Any, result: Any) -> Any:
    return result


def build_window_operator(
    window: AssignerLike,
    *,
    trigger: TriggerLike | None = None,
    evictor: EvictorLike | None = None,
    reduce: Reducer | None = None,
    aggregate: AggregateFunction | None = None,
    process: ProcessWindowFunction | None = None,
    allowed_lateness_ms: int = 0,
    late_stream: str | None = None,
    keyed: bool = True,
    result_of: ResultOf = result_only,
    rows: WindowRows | None = None,
    shows_key: bool = True,
    draw: Draw | None = None,
    direct: bool = True,
) -> WindowOperator:
    """Return the operator for declared windows.

    Args:
        trigger: when they fire; by default the assigner's own trigger.
        evictor: what leaves the buffer when a window fires; the window then keeps all its elements.
        reduce: reduces the elements; or
        aggregate: what they are added to; or neither, and the window keeps them for `process`.
        process: called with the contents; without it the reduced or aggregated result is put out.
        allowed_lateness_ms: how long after its end an event-time window takes late elements.
        late_stream: where elements go that are too late; None drops and counts them.
        keyed: False puts all elements under the key None, whatever key they come with (one task must get them all).
        result_of: shapes results where there is no `process`.
        rows: reads the elements for `process`.
        shows_key: whether the key is the user's own.
        draw: returns a random integer in [0, n) for n; needed for a random stagger.
        direct: allow the short way where it applies; it changes speed alone.

    Raises:
        UserError: the parts do not go together.
    """
    by_arrival = False
    if isinstance(window, CountWindows):
        if trigger is not None or evictor is not None:
            raise UserError("count windows have a trigger and an evictor of their own; take GlobalWindows() to choose others")
        by_arrival = window.over_ms is not None
        trigger, evictor = _counting(window)
        window = GlobalWindows()
    _check(reduce, aggregate, process, allowed_lateness_ms)
    assigner = build_assigner(window, draw)
    declared_trigger = assigner.default_trigger() if trigger is None else trigger
    resolved_trigger = build_trigger(declared_trigger)
    if assigner.is_merging and not resolved_trigger.can_merge:
        raise UserError(f"{declared_trigger!r} cannot merge windows, which session windows need; choose another trigger")
    reduce_call = reduce.reduce if isinstance(reduce, ReduceFunction) else reduce
    function = EmitResult(result_of) if process is None else CallUser(process, rows or WindowRows(None), shows_key)

    contents: WindowContents
    if evictor is not None:

        def times() -> tuple[int, int]:
            return operator.timer_service.current_watermark, operator.timer_service.current_processing_time

        contents = Evicting(build_evictor(evictor), _summary(reduce_call, aggregate), times, by_arrival)
    elif reduce_call is not None:
        contents = Reduced(reduce_call)
    elif aggregate is not None:
        if assigner.is_merging and type(aggregate).merge is AggregateFunction.merge:
            raise UserError(f"{type(aggregate).__name__} has no merge, which session windows need")
        contents = Aggregated(aggregate)
    else:
        contents = Elements()

    ends_alone = direct and _fires_at_ends(assigner, declared_trigger)
    fires_whole = ends_alone and evictor is None and not allowed_lateness_ms
    operator = WindowOperator(
        assigner,
        AtWindowEnd() if fires_whole else resolved_trigger,
        contents,
        function,
        lateness_ms=allowed_lateness_ms,
        late_stream=late_stream,
        keyed=keyed,
        fires_whole=fires_whole,
        is_quick=ends_alone and isinstance(contents, Accumulated),
    )
    return operator


def _counting(window: CountWindows) -> tuple[TriggerLike, EvictorLike | None]:
    """Return when windows by number fire, and what they look at."""
    if window.over_ms is not None:
        return CountTrigger(window.count), TimeEvictor(window.over_ms)
    if window.slide_ms is not None:
        return ContinuousProcessingTimeTrigger(window.slide_ms), CountEvictor(window.count)
    if window.slide is not None:
        return CountTrigger(window.slide), CountEvictor(window.count)
    return PurgingTrigger.of(CountTrigger(window.count)), None


def _check(
    reduce: Reducer | None, aggregate: AggregateFunction | None, process: ProcessWindowFunction | None, allowed_lateness_ms: int
) -> None:
    if reduce is not None and aggregate is not None:
        raise UserError("windows take reduce= or aggregate=, not both")
    if reduce is None and aggregate is None and process is None:
        raise UserError("windows need one of reduce=, aggregate= and process=")
    if process is not None and process.keeps_previous is not None and (reduce or aggregate):
        raise UserError(f"{type(process).__name__} sets keeps_previous, but reduce= or aggregate= keeps no rows; leave that out")
    for function in (reduce, aggregate):
        if hasattr(function, "open") or hasattr(function, "close"):
            raise UserError(f"{type(function).__name__} has open or close: no reduce or aggregate function is opened")
    if allowed_lateness_ms < 0:
        raise UserError(f"allowed lateness is zero or more; got {allowed_lateness_ms} ms")


def _summary(reduce: Callable[[Any, Any], Any] | None, aggregate: AggregateFunction | None) -> Summarise:
    if reduce is not None:
        return reduced_at_fire(reduce)
    return aggregated_at_fire(aggregate) if aggregate is not None else lambda values: values


def _fires_at_ends(assigner: WindowAssigner, trigger: TriggerLike) -> bool:
    is_fixed = isinstance(assigner, TumblingAssigner | SlidingAssigner)
    return is_fixed and assigner.is_event_time and isinstance(trigger, EventTimeTrigger)
