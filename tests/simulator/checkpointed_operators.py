"""Windows, process functions and a join for simulated topologies with checkpoints, each with its model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple
from zlib import crc32

from tests.simulator.checkpointed_stages import FIELDS, Beyond, CheckpointedStage, Mishaps, Row, digest_of, row_of
from tests.simulator.external_world import chosen
from tests.simulator.stages import Trouble
from topo.api.aggregates import AggregateFunction
from topo.api.operator_bolts import ProcessBolt, WindowBolt
from topo.api.tuples import Tuple
from topo.api.windows import (
    EventTimeSessionWindows,
    ProcessWindowFunction,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)

TUMBLING_MS, SLIDING_MS, SLIDE_MS, GAP_MS, BUCKET_MS = 100, 200, 100, 35, 80
_WAIT_MS = 15
"""The time for which rows wait for a timer of the clock."""
_AT_THE_END = 1 << 61


class Total(NamedTuple):
    """The result of a window: the number of its rows, the sum of their numbers, and a digest of their ids."""

    rows: int
    n: int
    digest: int

    @staticmethod
    def of(rows: Sequence[Row]) -> Total:
        """Return the total of rows."""
        return Total(len(rows), sum(row.n for row in rows), digest_of(row.id for row in rows))


class Contents(ProcessWindowFunction):
    """Emits one row for the contents of a window."""

    def __init__(self, stage: Windows) -> None:
        self.stage = stage

    def process(self, key: Any, elements: Sequence[Any], context: Any, collector: Any) -> None:
        stage = self.stage
        stage.outside.work(stage.work_s)
        total = Total(*elements[0]) if stage.adds else Total.of([row_of(values) for values in elements])
        result = stage.result(key, context.window.start, context.window.end, total)
        collector.emit(result.values)
        stage.meet_firing(result.id)


class Adding(AggregateFunction):
    """Totals, changed in place before and after it can go wrong."""

    def __init__(self, stage: Windows) -> None:
        self.stage = stage

    def create_accumulator(self) -> dict[str, int]:
        return {"rows": 0, "n": 0, "digest": 0}

    def add(self, value: Any, accumulator: dict[str, int]) -> dict[str, int]:
        row = row_of(value)
        accumulator["rows"] += 1
        self.stage.meet(row.id)
        accumulator["n"] += row.n
        accumulator["digest"] ^= crc32(row.id.encode())
        return accumulator

    def get_result(self, accumulator: dict[str, int]) -> Total:
        return Total(**accumulator)

    def merge(self, first: dict[str, int], second: dict[str, int]) -> dict[str, int]:
        first["rows"] += second["rows"]
        first["n"] += second["n"]
        first["digest"] ^= second["digest"]
        return first


class Windows(CheckpointedStage, WindowBolt):
    """Tumbling, sliding or session windows, which keep their rows or add them up."""

    grouped_by = "key"

    def __init__(
        self, outside: Beyond, name: str, work_s: float = 0.0, mishaps: Mishaps | None = None, *, kind: str, adds: bool
    ) -> None:
        CheckpointedStage.__init__(self, outside, name, work_s, mishaps)
        self.kind, self.adds = kind, adds
        windows: dict[str, Any] = {
            "tumbling": TumblingEventTimeWindows.of(f"{TUMBLING_MS}ms"),
            "sliding": SlidingEventTimeWindows.of(f"{SLIDING_MS}ms", f"{SLIDE_MS}ms"),
            "session": EventTimeSessionWindows.with_gap(f"{GAP_MS}ms"),
        }
        aggregate = Adding(self) if adds else None
        WindowBolt.__init__(self, key="key", window=windows[kind], aggregate=aggregate, process=Contents(self), outputs=FIELDS)
        self.grouped_by = "key"

    def result(self, key: str, start: int, end: int, total: Total) -> Row:
        """Return the row that a window emits."""
        name = f"{self.name}[{key} {start}-{end}: {total.rows}, {total.digest:x}]"
        return Row(key, name, total.n, name, end - 1)

    def meet_firing(self, name: str) -> None:
        """Raise once for a fixed share of windows."""
        if chosen(name, self.mishaps.fails, f"{self.name} fires") and not self.outside.tried(f"{self.name} fires", name):
            raise Trouble(f"{name} fails once")

    def model(self, inputs: Mapping[str, Sequence[Row]]) -> list[Row]:
        contents: dict[tuple[str, int, int], list[Row]] = {}
        by_key: dict[str, list[tuple[int, str, Row]]] = {}
        for row in self.survivors(inputs):
            assert row.at is not None
            if self.kind == "session":
                by_key.setdefault(row.key, []).append((row.at, row.id, row))
                continue
            size, slide = (TUMBLING_MS, TUMBLING_MS) if self.kind == "tumbling" else (SLIDING_MS, SLIDE_MS)
            last = row.at // slide * slide
            for start in range(last - size + slide, last + 1, slide):
                contents.setdefault((row.key, start, start + size), []).append(row)
        for key, timed in by_key.items():
            timed.sort()
            held: list[Row] = []
            begin = end = timed[0][0]
            for at, _, row in timed:
                if held and at > end:
                    contents[key, begin, end] = held
                    held, begin = [], at
                held.append(row)
                end = at + GAP_MS
            contents[key, begin, end] = held
        return [self.result(*window, Total.of(rows)) for window, rows in contents.items()]


class Buckets(CheckpointedStage, ProcessBolt):
    """Sums by key and stretch of event time, given out by timers of event time."""

    def __init__(self, outside: Beyond, name: str, work_s: float = 0.0, mishaps: Mishaps | None = None) -> None:
        CheckpointedStage.__init__(self, outside, name, work_s, mishaps)
        ProcessBolt.__init__(self, key="key")
        self.grouped_by = "key"

    def open(self, context: Any) -> None:
        self.sums = context.state.map("sums")

    def process(self, tup: Tuple, context: Any, collector: Any) -> None:
        start = context.timestamp // BUCKET_MS * BUCKET_MS
        count, total, digest = self.sums.get(start, (0, 0, 0))
        self.sums.put(start, (count + 1, total + tup["n"], digest ^ crc32(tup["id"].encode())))
        context.register_event_time_timer(start + BUCKET_MS - 1)
        self.meet(tup["id"])

    def on_timer(self, timestamp: int, context: Any, collector: Any) -> None:
        start = timestamp + 1 - BUCKET_MS
        collector.emit(self.result(context.key, start, *self.sums.get(start)).values)
        self.sums.remove(start)

    def result(self, key: str, start: int, count: int, total: int, digest: int) -> Row:
        """Return the row that a bucket emits."""
        name = f"{self.name}[{key} {start}: {count}, {digest:x}]"
        return Row(key, name, total, name, start + BUCKET_MS - 1)

    def model(self, inputs: Mapping[str, Sequence[Row]]) -> list[Row]:
        buckets: dict[tuple[str, int], list[Row]] = {}
        for row in self.survivors(inputs):
            assert row.at is not None
            buckets.setdefault((row.key, row.at // BUCKET_MS * BUCKET_MS), []).append(row)
        return [
            self.result(key, start, len(rows), sum(row.n for row in rows), digest_of(row.id for row in rows))
            for (key, start), rows in buckets.items()
        ]


class Later(CheckpointedStage, ProcessBolt):
    """Holds rows back until a timer of the clock, or to the end of event time."""

    keeps_time = False

    def __init__(self, outside: Beyond, name: str, work_s: float = 0.0, mishaps: Mishaps | None = None) -> None:
        CheckpointedStage.__init__(self, outside, name, work_s, mishaps)
        ProcessBolt.__init__(self, key="key")
        self.grouped_by = "key"

    def open(self, context: Any) -> None:
        self.held = context.state.list("held")

    def process(self, tup: Tuple, context: Any, collector: Any) -> None:
        self.held.add(tup.values)
        context.register_processing_time_timer(context.current_processing_time + _WAIT_MS)
        context.register_event_time_timer(_AT_THE_END)
        self.meet(tup["id"])

    def on_timer(self, timestamp: int, context: Any, collector: Any) -> None:
        for values in self.held.get():
            collector.emit(self.renamed(row_of(values)).values)
        self.held.clear()

    def model(self, inputs: Mapping[str, Sequence[Row]]) -> list[Row]:
        return [self.renamed(row)._replace(at=None) for row in self.survivors(inputs)]


class Pairs(CheckpointedStage, ProcessBolt):
    """Joins the rows of two sources that have the same root."""

    def __init__(
        self, outside: Beyond, name: str, work_s: float = 0.0, mishaps: Mishaps | None = None, *, left: str, right: str
    ) -> None:
        CheckpointedStage.__init__(self, outside, name, work_s, mishaps)
        ProcessBolt.__init__(self, key="root")
        self.grouped_by = "root"
        self.left, self.right = left, right

    def open(self, context: Any) -> None:
        self.sides = {side: context.state.list(side) for side in ("left", "right")}

    def process(self, tup: Tuple, context: Any, collector: Any) -> None:
        is_left = tup.component == self.left
        mine, others = (self.sides["left"], self.sides["right"]) if is_left else (self.sides["right"], self.sides["left"])
        mine.add(tup.values)
        self.meet(tup["id"])
        for values in others.get():
            one, other = row_of(tup.values), row_of(values)
            collector.emit(self.pair(*((one, other) if is_left else (other, one))).values)

    def pair(self, left: Row, right: Row) -> Row:
        """Return the row made of two."""
        return left._replace(id=f"({left.id} & {right.id})>{self.name}", n=left.n + right.n)

    def model(self, inputs: Mapping[str, Sequence[Row]]) -> list[Row]:
        sides: list[dict[str, list[Row]]] = [{}, {}]
        for side, source in zip(sides, (self.left, self.right), strict=True):
            for row in self.survivors({source: inputs[source]}):
                side.setdefault(row.root, []).append(row)
        left, right = sides
        return [self.pair(*both) for root in left for both in product(left[root], right.get(root, ()))]
