"""The combination of watermarks against models that look at the whole history."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from topo.operators.time.clock import MIN_TIMESTAMP
from topo.operators.time.watermarks import InputStatus, WatermarkCombiner

CHANNELS = range(4)
EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("watermark"), st.sampled_from(CHANNELS), st.integers(0, 12)),
        st.tuples(st.just("watermark"), st.sampled_from(CHANNELS), st.integers(0, 12)),
        st.tuples(st.just("idle"), st.sampled_from(CHANNELS)),
        st.tuples(st.just("active"), st.sampled_from(CHANNELS)),
    ),
    max_size=50,
)
Outputs = list[int | InputStatus]


class HistoryModel:
    """Derives the output from lists of facts, without any flag that has to be kept right."""

    def __init__(self) -> None:
        self.accepted: dict[int, list[int]] = {channel: [MIN_TIMESTAMP] for channel in CHANNELS}
        self.idle: set[int] = set()
        self.behind: set[int] = set()
        self.out: Outputs = []

    def last(self) -> int:
        return max((each for each in self.out if isinstance(each, int)), default=MIN_TIMESTAMP)

    def step(self, kind: str, channel: int, timestamp: int = 0) -> None:
        if kind == "watermark" and channel not in self.idle and timestamp > max(self.accepted[channel]):
            self.accepted[channel].append(timestamp)
            if timestamp >= self.last():
                self.behind.discard(channel)
            self.minimum()
        elif kind == "idle" and channel not in self.idle:
            self.idle.add(channel)
            if len(self.idle) == len(CHANNELS):
                self.put(max(max(each) for each in self.accepted.values()))
                self.out.append(InputStatus.IDLE)
            elif max(self.accepted[channel]) == self.last():
                self.minimum()
        elif kind == "active" and channel in self.idle:
            if len(self.idle) == len(CHANNELS):
                self.out.append(InputStatus.ACTIVE)
            self.idle.discard(channel)
            if max(self.accepted[channel]) < self.last():
                self.behind.add(channel)
            else:
                self.behind.discard(channel)
            self.minimum()

    def minimum(self) -> None:
        counting = [max(each) for channel, each in self.accepted.items() if channel not in self.idle | self.behind]
        if counting:
            self.put(min(counting))

    def put(self, watermark: int) -> None:
        if watermark > self.last():
            self.out.append(watermark)


def run(combiner: WatermarkCombiner, event: tuple[Any, ...]) -> Outputs:
    match event:
        case "watermark", channel, timestamp:
            return combiner.watermark(channel, timestamp)
        case "idle", channel:
            return combiner.idle(channel)
        case _, channel:
            return combiner.active(channel)


@given(EVENTS)
@settings(max_examples=500)
def test_the_combiner_puts_out_what_the_whole_history_says(events: list[tuple[Any, ...]]) -> None:
    combiner, model, out = WatermarkCombiner(CHANNELS), HistoryModel(), []
    for event in events:
        out += run(combiner, event)
        combiner.validate()
        model.step(*event)
        assert out == model.out
