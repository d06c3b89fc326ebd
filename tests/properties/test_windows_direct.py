"""The short way through the window operator and the general one: the same input, the same everything."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.operators.rig import Rig, restored
from topo.api import aggregates
from topo.api.windows import TumblingWindows, WindowStagger
from topo.operators.windows.builder import build_window_operator
from topo.operators.windows.operator import WindowOperator
from topo.operators.windows.scope import NoWindowScope
from topo.operators.windows.tumbling_fast_path import TumblingFastPath

batches = st.lists(st.tuples(st.sampled_from("abc"), st.integers(-30, 60)), max_size=12)
steps = st.lists(
    st.one_of(st.tuples(st.just("batch"), batches), st.tuples(st.just("watermark"), st.integers(1, 15))), max_size=12
)


class Panes(NoWindowScope):
    """Follows which element numbers each pane holds."""

    def __init__(self) -> None:
        self.log: list[tuple[Any, ...]] = []

    def held(self, position: int, key: Any, window: Any) -> None:
        self.log.append(("held", position, key, tuple(window)))

    def held_run(self, positions: Any, keys: Any, window: Any) -> None:
        for position in positions:
            self.held(position, keys[position], window)

    def merge(self, key: Any, target: Any, sources: Any) -> None:
        raise AssertionError("tumbling windows do not merge")

    def firing(self, key: Any, window: Any) -> None:
        self.log.append(("firing", key, tuple(window)))

    def abandon(self, key: Any, window: Any) -> None:
        raise AssertionError("no call raises")

    def evicted(self, key: Any, window: Any, positions: Any) -> None:
        raise AssertionError("there is no evictor")

    def released(self, key: Any, window: Any) -> None:
        self.log.append(("released", key, tuple(window)))


def build(shape: Any, direct: bool, panes: Panes | None) -> WindowOperator:
    size, offset, lateness_ms, reduces, keyed = shape
    function: dict[str, Any] = (
        {"reduce": lambda first, second: (first * 31 + second) % 1_000_003} if reduces else {"aggregate": aggregates.Collect()}
    )
    operator = build_window_operator(
        TumblingWindows(size, offset % size, WindowStagger.ALIGNED, is_event_time=True),
        allowed_lateness_ms=lateness_ms,
        late_stream="late",
        keyed=keyed,
        result_of=lambda key, window, result: (key, window.start, window.end, result),
        direct=direct,
        **function,
    )
    assert isinstance(operator, TumblingFastPath) is direct
    if panes is not None:
        operator.scope = panes
    return operator


shapes = st.tuples(
    st.integers(1, 12), st.integers(0, 11), st.sampled_from([0, 0, 4, 30, 2**63 - 1]), st.booleans(), st.booleans()
)


def state_of(rig: Rig) -> Any:
    """All that the operator remembers, without the order in which no order is promised."""
    keyed = rig.operator.snapshot().keyed
    rows = [
        (group, name, sorted(map(repr, part["rows"]))) for group, data in keyed.items() for name, part in data["state"].items()
    ]
    timers = [
        (group, name, [sorted(map(repr, domain)) for domain in domains])
        for group, data in keyed.items()
        for name, domains in data["timers"].items()
    ]
    return sorted(rows), sorted(timers)


@given(shapes, steps, st.booleans())
def test_both_ways_put_out_remember_and_hold_the_same_at_every_step(shape: Any, script: list[Any], swaps: bool) -> None:
    ways = [(Rig(build(shape, direct, panes)), panes) for direct, panes in ((True, Panes()), (False, Panes()))]
    number, now = 0, -40
    for kind, argument in [*script, ("watermark", 200)]:
        if kind == "batch":
            keys, timestamps = [key for key, _ in argument], [timestamp for _, timestamp in argument]
            values = list(range(number, number + len(argument)))
            number += len(argument)
        else:
            now += argument
        seen = []
        for rig, panes in ways:
            if kind == "batch":
                rig.operator.process_batch(keys, values, timestamps)
            else:
                rig.operator.process_watermark(now)
            assert isinstance(rig.operator, WindowOperator)
            out = sorted(rig.taken(), key=repr)
            seen.append((out, sorted(panes.log), state_of(rig), rig.operator.late_elements, rig.operator.timers.pending))
            panes.log.clear()
        assert seen[0] == seen[1]
        if swaps:
            # Each continues from the snapshot of the other.
            snapshots = [rig.snapshot() for rig, _ in reversed(ways)]
            ways = [
                (restored(lambda direct=direct, panes=panes: build(shape, direct, panes), snapshot), panes)  # type: ignore[misc]
                for direct, panes, snapshot in ((True, Panes(), snapshots[0]), (False, Panes(), snapshots[1]))
            ]
            for rig, _ in ways:
                assert isinstance(rig.operator, WindowOperator)
                rig.operator.timer_service.current_watermark = now
