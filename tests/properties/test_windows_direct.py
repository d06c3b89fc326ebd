"""The quick way into windows that fire whole, and the general way: the same input, the same everything but timers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.operators.rig import Rig, restored
from topo.api import aggregates
from topo.api.windows import SlidingWindows, TumblingWindows, WindowStagger
from topo.operators.windows.builder import build_window_operator
from topo.operators.windows.contents import CONTENTS_STATE
from topo.operators.windows.operator import WindowOperator
from topo.operators.windows.scope import NoWindowScope

batches = st.lists(st.tuples(st.sampled_from("abc"), st.integers(-30, 60)), max_size=12)
steps = st.lists(
    st.one_of(st.tuples(st.just("batch"), batches), st.tuples(st.just("watermark"), st.integers(1, 15))), max_size=12
)


class Panes(NoWindowScope):
    """Follows which element numbers each pane holds."""

    def __init__(self, *, takes_batches: bool = False) -> None:
        self.log: list[tuple[Any, ...]] = []
        self.takes_batches = takes_batches
        self.output: Any = None

    def held(self, position: int, key: Any, window: Any) -> None:
        self.log.append(("held", position, key, tuple(window)))

    def held_run(self, positions: Any, keys: Any, window: Any) -> None:
        for position in positions:
            self.held(position, keys[position], window)

    def merge(self, key: Any, target: Any, sources: Any) -> None:
        raise AssertionError("windows of fixed size do not merge")

    def firing(self, key: Any, window: Any) -> None:
        self.log.append(("firing", key, tuple(window)))

    def abandon(self, key: Any, window: Any) -> None:
        raise AssertionError("no call raises")

    def evicted(self, key: Any, window: Any, positions: Any) -> None:
        raise AssertionError("there is no evictor")

    def released(self, key: Any, window: Any) -> None:
        self.log.append(("released", key, tuple(window)))

    def fired_whole(self, keys: Any, window: Any, rows: Any, ends: Any, timestamp: int) -> bool:
        if self.output is None:
            return False
        assert [0, *ends][-1] == len(rows)
        for key, first, end in zip(keys, [0, *ends], ends):  # noqa: B905
            self.firing(key, window)
            for row in rows[first:end]:
                self.output.emit(row, timestamp)
            self.released(key, window)
        return True


def build(shape: Any, direct: bool, panes: Panes | None) -> WindowOperator:
    size, slide, offset, lateness_ms, reduces, keyed = shape
    function: dict[str, Any] = (
        {"reduce": lambda first, second: (first * 31 + second) % 1_000_003} if reduces else {"aggregate": aggregates.Collect()}
    )
    window: Any = (
        TumblingWindows(size, offset % size, WindowStagger.ALIGNED, is_event_time=True)
        if slide is None
        else SlidingWindows(size, slide, offset % slide, is_event_time=True)
    )
    operator = build_window_operator(
        window,
        allowed_lateness_ms=lateness_ms,
        late_stream="late",
        keyed=keyed,
        result_of=lambda key, window, result: (key, window.start, window.end, result),
        direct=direct,
        **function,
    )
    if panes is not None:
        operator.scope = panes
    return operator


shapes = st.tuples(
    st.integers(1, 12),
    st.one_of(st.none(), st.integers(1, 14)),
    st.integers(0, 11),
    st.sampled_from([0, 0, 4, 30, 2**63 - 1]),
    st.booleans(),
    st.booleans(),
)


def state_of(rig: Rig) -> Any:
    """All that the operator remembers but timers of windows that fire whole, without the order in which no order is promised."""
    keyed = rig.operator.snapshot().keyed
    assert isinstance(rig.operator, WindowOperator)
    is_whole = rig.operator._lateness_ms == 0
    rows = [
        (group, name, sorted(map(repr, part["rows"]))) for group, data in keyed.items() for name, part in data["state"].items()
    ]
    timers = [
        (group, name, [sorted(map(repr, domain)) for domain in domains])
        for group, data in keyed.items()
        for name, domains in data["timers"].items()
    ]
    return sorted(rows), [] if is_whole else sorted(timers)


def rig_of(shape: Any, direct: bool, panes: Panes, snapshot: Any = None) -> Rig:
    def make() -> WindowOperator:
        return build(shape, direct, panes)

    rig = Rig(make()) if snapshot is None else restored(make, snapshot)
    panes.output = rig.recorder if panes.takes_batches else None
    return rig


@given(shapes, steps, st.booleans(), st.booleans())
def test_both_ways_put_out_remember_and_hold_the_same_at_every_step(
    shape: Any, script: list[Any], swaps: bool, takes_batches: bool
) -> None:
    def pair() -> list[tuple[bool, Panes]]:
        return [(True, Panes(takes_batches=takes_batches)), (False, Panes())]

    ways = [(rig_of(shape, direct, panes), panes) for direct, panes in pair()]
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
            seen.append((out, sorted(panes.log), state_of(rig), rig.operator.late_elements))
            panes.log.clear()
        assert seen[0] == seen[1]
        if swaps:
            # Each continues from the snapshot of the other.
            snapshots = [rig.snapshot() for rig, _ in reversed(ways)]
            ways = [
                (rig_of(shape, direct, panes, snapshot), panes)
                for (direct, panes), snapshot in zip(pair(), snapshots, strict=True)
            ]
            for rig, _ in ways:
                assert isinstance(rig.operator, WindowOperator)
                rig.operator.timer_service.current_watermark = now


@given(steps, st.sampled_from([(0, 5), (5, 0)]))
def test_windows_continue_from_a_snapshot_of_windows_with_another_lateness(script: list[Any], lateness: tuple[int, int]) -> None:
    """Each window that the first run has not fired fires once, and no other."""
    before, after = ((10, None, 0, lateness_ms, False, True) for lateness_ms in lateness)
    first = rig_of(before, True, Panes())
    now = -40
    for kind, argument in script:
        if kind == "batch":
            first.operator.process_batch([key for key, _ in argument], [1] * len(argument), [at for _, at in argument])
        else:
            now += argument
            first.operator.process_watermark(now)
    done = set(fired(first))
    assert isinstance(first.operator, WindowOperator)
    held = {(key, window[0]) for group in first.snapshot().keyed.values() for key, window, _ in contents_of(group)}
    second = rig_of(after, True, Panes(), first.snapshot())
    second.operator.process_watermark(200)
    assert sorted(fired(second)) == sorted(held - done)
    assert state_of(second) == ([], [])


@pytest.mark.parametrize(("slide", "lateness_ms"), [(None, 0), (None, 5), (5, 0), (5, 5)])
def test_the_general_way_takes_no_element_of_an_open_window_that_has_its_key(
    slide: int | None, lateness_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[Any] = []
    general = WindowOperator._take

    def take(self: WindowOperator, key: Any, value: Any, timestamp: int | None) -> None:
        taken.append(value)
        general(self, key, value, timestamp)

    monkeypatch.setattr(WindowOperator, "_take", take)
    rig = rig_of((10, slide, 0, lateness_ms, False, True), True, Panes())
    rig.operator.process_batch(["a", "b"], [1, 2], [21, 22])
    assert taken == ([] if lateness_ms == 0 else [1, 2]), "windows that fire whole need no timer for each key"
    taken.clear()
    rig.operator.process_batch(["b", "a", "b"], [3, 4, 5], [23, 24, 20])
    assert taken == []
    rig.operator.process_watermark(31)
    rig.operator.process_batch(["a"], [6], [23])
    assert taken == [6], "the watermark has reached its window"


def fired(rig: Rig) -> list[tuple[str, int]]:
    """Key and start of each pane that has put out its result since the last look."""
    return [row[0][:2] for row in rig.taken() if type(row[0]) is tuple]


def contents_of(group: Any) -> Any:
    return group["state"].get(CONTENTS_STATE, {"rows": ()})["rows"]
