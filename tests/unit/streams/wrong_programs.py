"""Programs of streams with a mistake, and the problems that `build` finds in them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from topo import TopologyError
from topo.streams import KeyedProcess, Stream, StreamBuilder, StreamContext, StreamOutput, Tumbling, WindowedStream


class Pass(KeyedProcess[str, str, str]):
    def process(self, record: str, context: StreamContext[str], out: StreamOutput[str]) -> None:
        out.emit(record)


def words(flow: StreamBuilder, name: str | None = None) -> Stream[str]:
    return flow.from_iterable(["a"], name=name)


def problems(draw: Callable[[StreamBuilder], object]) -> list[str]:
    flow = StreamBuilder("program")
    draw(flow)
    with pytest.raises(TopologyError) as caught:
        flow.build()
    return list(caught.value.problems)


def windowed(flow: StreamBuilder) -> WindowedStream[str, str]:
    return words(flow).with_event_time(len).key_by(str).window(Tumbling("1s"))
