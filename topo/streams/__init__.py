"""Typed streams: programs of `map`, `filter`, `key_by`, `count` and windows, on the same engine as spouts and bolts.

    flow = StreamBuilder("word-count")
    words = flow.from_files("README.md").flat_map(str.split)
    words.key_by(lambda word: word).count(emit=AT_END).to(print)

A function that returns such a builder is a topology for `topo run`. docs/streams.md has a tour.
"""

from __future__ import annotations

from topo.streams import aggregates as agg
from topo.streams.aggregates import Aggregate
from topo.streams.process import KeyedList, KeyedMap, KeyedProcess, KeyedValue, StreamContext, StreamOutput
from topo.streams.results import AT_END, EACH, SideOutput, Windowed, every
from topo.streams.stream import KeyedStream, Stream, WindowedStream
from topo.streams.stream_builder import StreamBuilder
from topo.streams.windows import Session, Sliding, Tumbling

__all__ = [
    "AT_END",
    "EACH",
    "Aggregate",
    "KeyedList",
    "KeyedMap",
    "KeyedProcess",
    "KeyedStream",
    "KeyedValue",
    "Session",
    "SideOutput",
    "Sliding",
    "Stream",
    "StreamBuilder",
    "StreamContext",
    "StreamOutput",
    "Tumbling",
    "Windowed",
    "WindowedStream",
    "agg",
    "every",
]
