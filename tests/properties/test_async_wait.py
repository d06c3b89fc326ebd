"""The async operator: the order of its results against a naive model, its bound, and what a restart makes of any moment."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.operators.rig import Rig, restored
from topo.api.async_io import AsyncMode, AsyncSettings
from topo.operators.async_wait import AsyncFunction, AsyncWaitOperator, ResultHandle

steps = st.lists(
    st.one_of(
        st.tuples(st.just("element"), st.just(0)),
        st.tuples(st.just("element"), st.just(0)),
        st.tuples(st.just("watermark"), st.just(0)),
        st.tuples(st.just("complete"), st.integers(0, 20)),
        st.tuples(st.just("complete"), st.integers(0, 20)),
        st.tuples(st.just("mail"), st.just(0)),
    ),
    max_size=40,
)
modes = st.sampled_from(list(AsyncMode))


class Open(AsyncFunction):
    """Keeps the handles that are not completed yet."""

    def __init__(self) -> None:
        self.handles: dict[Any, ResultHandle] = {}
        self.completed: list[Any] = []

    def invoke(self, value: Any, handle: ResultHandle) -> None:
        self.handles[value] = handle

    def complete(self, number: int) -> None:
        """Complete one of those that are open, if any is."""
        if self.handles:
            value = sorted(self.handles)[number % len(self.handles)]
            self.completed.append(value)
            self.handles.pop(value).complete([value])


def ordered(inputs: list[Any], completed: list[Any]) -> list[Any]:
    """What may have left: the longest beginning of the input that is complete."""
    out = []
    for one in inputs:
        if isinstance(one, int) and one not in completed:
            break
        out.append(one)
    return out


def unordered(inputs: list[Any], completed: list[Any]) -> list[Any]:
    """What may have left: segment by segment, in order of completion, up to the first that is not complete."""
    out: list[Any] = []
    segment: list[int] = []
    for one in [*inputs, None]:
        if isinstance(one, int):
            segment.append(one)
            continue
        done = [value for value in completed if value in segment]
        out.extend(done)
        if len(done) < len(segment):
            return out
        if one is not None:
            out.append(one)
        segment = []
    return out


def left(rig: Rig) -> list[Any]:
    """What came out: numbers of elements, and watermarks as they are."""
    return [one if one[0] == "watermark" else one[0] for one in rig.recorder.out]


@given(modes, steps)
def test_what_has_left_is_at_any_time_what_the_naive_model_lets_leave(mode: AsyncMode, script: list[Any]) -> None:
    function = Open()
    rig = Rig(AsyncWaitOperator(function, AsyncSettings(mode, capacity=1000)))
    model = ordered if mode is AsyncMode.ORDERED else unordered
    inputs: list[Any] = []
    for number, (kind, argument) in enumerate([*script, *[("complete", 0)] * len(script)]):
        if kind == "element":
            inputs.append(number)
            rig.operator.process_element(None, number, number)
        elif kind == "watermark":
            inputs.append(("watermark", number))
            rig.operator.process_watermark(number)
        elif kind == "complete":
            function.complete(argument)
        allowed = model(inputs, function.completed)
        assert set(left(rig)) <= set(allowed)
        if kind == "mail":
            rig.run_mails()
            assert left(rig) == allowed
    rig.run_mails()
    assert left(rig) == model(inputs, function.completed)
    assert len(left(rig)) == len(inputs)


@given(modes, st.integers(1, 4), st.lists(st.booleans(), max_size=30))
def test_never_more_than_the_capacity_is_in_flight_and_everything_leaves(
    mode: AsyncMode, capacity: int, script: list[bool]
) -> None:
    function = Open()
    operator = AsyncWaitOperator(function, AsyncSettings(mode, capacity=capacity))
    rig = Rig(operator, while_waiting=lambda: function.complete(len(function.completed) * 7))
    inputs: list[Any] = []
    for number, is_element in enumerate(script):
        if is_element:
            inputs.append(number)
            operator.process_element(None, number, number)
        else:
            inputs.append(("watermark", number))
            operator.process_watermark(number)
        assert operator.in_flight <= capacity
    while function.handles:
        function.complete(0)
    operator.end_of_input()
    assert operator.in_flight == 0
    assert sorted(map(repr, left(rig))) == sorted(map(repr, inputs))


@given(modes, steps, st.integers(0, 40))
def test_a_restart_at_any_moment_loses_and_repeats_nothing_that_had_not_left(
    mode: AsyncMode, script: list[Any], moment: int
) -> None:
    function = Open()
    settings = AsyncSettings(mode, capacity=1000)
    rig = Rig(AsyncWaitOperator(function, settings))
    inputs: list[Any] = []
    before: list[Any] = []
    for number, (kind, argument) in enumerate([*script, ("restart", 0)]):
        if kind == "restart" or number == moment:
            before += left(rig)
            function = Open()
            rig = restored(lambda function=function: AsyncWaitOperator(function, settings), rig.snapshot())  # type: ignore[misc]
        if kind == "element":
            inputs.append(number)
            rig.operator.process_element(None, number, number)
        elif kind == "watermark":
            inputs.append(("watermark", number))
            rig.operator.process_watermark(number)
        elif kind == "complete":
            function.complete(argument)
        elif kind == "mail":
            rig.run_mails()
    while function.handles:
        function.complete(0)
    rig.operator.end_of_input()
    out = before + left(rig)
    assert sorted(map(repr, out)) == sorted(map(repr, inputs))
    if mode is AsyncMode.ORDERED:
        assert out == inputs
    for position, one in enumerate(inputs):
        if not isinstance(one, int):
            assert set(map(repr, out[: out.index(one)])) == set(map(repr, inputs[:position]))
