"""Typed streams: programs of `map`, `filter`, `key_by`, `count` and windows, on the same engine as spouts and bolts.

    flow = StreamBuilder("word-count")
    words = flow.from_files("README.md").flat_map(str.split)
    words.key_by(lambda word: word).count(emit=AT_END).to(print)

A function that returns such a builder is a topology for `topo run`. docs/streams.md has a tour.
"""

from __future__ import annotations

from topo.streams import aggregates as agg
from topo.streams.aggregates import Aggregate
from topo.streams.joins import CoProcess
from topo.streams.pairing import BroadcastTable
from topo.streams.process import KeyedList, KeyedMap, KeyedProcess, KeyedValue, StreamContext, StreamOutput
from topo.streams.results import AT_END, EACH, Change, SideOutput, Windowed, every
from topo.streams.running import run, submit
from topo.streams.stream import ConnectedStreams, KeyedStream, Stream, Table, WindowedStream
from topo.streams.stream_builder import StreamBuilder
from topo.streams.windows import Rows, Session, Sliding, Tumbling

__all__ = [
    "AT_END",
    "EACH",
    "Aggregate",
    "BroadcastTable",
    "Change",
    "CoProcess",
    "ConnectedStreams",
    "KeyedList",
    "KeyedMap",
    "KeyedProcess",
    "KeyedStream",
    "KeyedValue",
    "Rows",
    "Session",
    "SideOutput",
    "Sliding",
    "Stream",
    "StreamBuilder",
    "StreamContext",
    "StreamOutput",
    "Table",
    "Tumbling",
    "Windowed",
    "WindowedStream",
    "agg",
    "every",
    "run",
    "submit",
]
