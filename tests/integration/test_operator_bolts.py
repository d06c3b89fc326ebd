"""Windows, timers and asynchronous calls over real processes: right results, nothing lost with a worker, errors with lines."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.integration.support import Scene, acked, counter, eventually, kill, pid_of

pytestmark = pytest.mark.integration

EVENTS = """
from topo.api.windows import *
from topo import aggregates

class Events(RetryingSpout):
    '''Numbers 0, 1, ...: event time moves on by 10 ms each, out of order by less than 500 ms; 7 keys.'''

    outputs = ("number", "key", "at")

    def __init__(self, count, pace_s=0.0):
        self.count, self.pace_s = count, pace_s

    def open(self, context, collector):
        self.collector = collector
        done = context.committed_position
        self.next = 0 if done is None else done + 1

    def next_tuple(self):
        if self.next == self.count:
            self.collector.end_of_input()
            return
        if self.pace_s:
            take_time(self.pace_s)
        number = self.next
        self.next += 1
        self.collector.emit((number, f"k{number % 7}", at(number)), number)

class UntilOut(Events):
    '''The same; the input ends when all of it is out.'''

    def next_tuple(self):
        out = HERE / "out.jsonl"
        if self.next < self.count or (out.exists() and sum(1 for _ in open(out)) >= self.count):
            super().next_tuple()

def at(number):
    return number * 10 + number * 7919 % 500

BOUND = WatermarkStrategy.bounded_out_of_orderness("500ms", timestamp="at")

class Numbers(ProcessWindowFunction):
    def process(self, key, elements, context, collector):
        collector.emit((key, context.window.start, sorted(row[0] for row in elements)))

def sink(name):
    return JsonLinesSink(HERE / f"{name}.jsonl", flush_interval="20ms")
"""


def at(number: int) -> int:
    return number * 10 + number * 7919 % 500


def rows_of(folder: Path, name: str) -> list[dict[str, Any]]:
    """Return the rows of the sink of a name, over all its lives."""
    return [json.loads(line) for file in sorted(folder.glob(f"{name}*.jsonl*")) for line in file.read_bytes().splitlines()]


def expected_windows(count: int) -> dict[tuple[str, int], list[int]]:
    found: dict[tuple[str, int], list[int]] = {}
    for number in range(count):
        found.setdefault((f"k{number % 7}", at(number) // 1000 * 1000), []).append(number)
    return {window: sorted(numbers) for window, numbers in found.items()}


WINDOWS = (
    EVENTS
    + """
def topology(count=3000, pace=0.0):
    builder = TopologyBuilder("flow").config(max_spout_pending=2000, delivery="at_least_once")
    builder.set_spout("events", Events(int(count), float(pace)), watermarks=BOUND)
    builder.set_bolt("windows", WindowBolt(key="key", window=TumblingEventTimeWindows.of("1s"), process=Numbers(),
                                           outputs=("key", "start", "numbers"), late_stream="late"), parallelism=2) \\
           .fields_grouping("events", "key")
    builder.set_bolt("out", sink("out")).shuffle_grouping("windows")
    builder.set_bolt("late", sink("late")).shuffle_grouping("windows", stream="late")
    return builder.build()
"""
)


def test_every_window_is_right_and_nothing_is_late_within_the_bound(scene: Scene) -> None:
    run = scene.run(scene.file(WINDOWS), workers=2)
    assert run.outcome.exit_code == 0 and run.totals["acked"] == 3000
    rows = rows_of(scene.folder, "out")
    assert {(row["key"], row["start"]): row["numbers"] for row in rows} == expected_windows(3000)
    assert len(rows) == len(expected_windows(3000)) and rows_of(scene.folder, "late") == []


def test_a_killed_worker_loses_no_input_of_a_window(scene: Scene) -> None:
    text = WINDOWS.replace("count=3000, pace=0.0", "count=6000, pace=0.0003")
    running = scene.submit(scene.file(text))
    for killed, component in enumerate(("windows", "out", "events")):
        is_on = lambda status, killed=killed: status["epoch"] == killed + 1 and acked(status) > killed * 1800 + 500  # noqa: E731
        kill(pid_of(running.wait_until(is_on), component))
    scene.hurry()
    outcome = running.wait(timeout_s=60)
    assert (outcome.exit_code, outcome.reason) == (0, "every message was processed")
    windowed = {number for row in rows_of(scene.folder, "out") for number in row["numbers"]}
    late = {row["number"] for row in rows_of(scene.folder, "late")}
    assert windowed | late == set(range(6000))
    assert {error["kind"] for error in running.errors()} == {"WorkerLost"}
    assert running.summary()["restarts"] == 3


LATE = (
    EVENTS
    + """
class Late(Events):
    '''The watermark follows each event closely, which makes many late.'''

def topology(count=4000):
    builder = TopologyBuilder("flow").config(max_spout_pending=2000, delivery="at_least_once")
    strategy = WatermarkStrategy.punctuated(lambda row, stamp: stamp - 250, timestamp="at")
    builder.set_spout("events", Late(int(count)), watermarks=strategy)
    builder.set_bolt("windows", WindowBolt(key="key", window=TumblingEventTimeWindows.of("100ms"), process=Numbers(),
                                           outputs=("key", "start", "numbers"), late_stream="late", allowed_lateness="50ms")) \\
           .fields_grouping("events", "key")
    builder.set_bolt("out", sink("out")).shuffle_grouping("windows")
    builder.set_bolt("late", sink("late")).shuffle_grouping("windows", stream="late")
    return builder.build()
"""
)


def test_an_input_is_in_its_window_or_on_the_late_stream_and_counted(scene: Scene) -> None:
    run = scene.run(scene.file(LATE), workers=2)
    assert run.outcome.exit_code == 0 and run.totals["acked"] == 4000
    last: dict[tuple[str, int], list[int]] = {}
    for row in rows_of(scene.folder, "out"):
        held = last.get((row["key"], row["start"]), [])
        assert set(held) <= set(row["numbers"]), "a window that fires again keeps its elements, and has more"
        last[row["key"], row["start"]] = row["numbers"]
    windowed = Counter(number for numbers in last.values() for number in numbers)
    late = Counter(row["number"] for row in rows_of(scene.folder, "late"))
    assert windowed + late == Counter(range(4000)), "in windows + late = input, exactly"
    assert (
        late and counter(run.summary, "windows", "late") == late.total() and not counter(run.summary, "windows", "late_dropped")
    )


IDLE = (
    EVENTS
    + """
class Quiet(RetryingSpout):
    '''Emits once, then is silent until the test has seen enough; then it continues.'''

    outputs = ("number", "key", "at")

    def open(self, context, collector):
        self.collector, self.next = collector, 0

    def next_tuple(self):
        if self.next == 0:
            self.collector.emit((-1, "quiet", 0), 1)
            self.next = 1
        elif self.next == 1 and (HERE / "go").exists():
            self.collector.emit((-2, "quiet", 10**7), 2)
            # Too late for its window, and so emitted at once: when it is seen, all earlier rows have arrived.
            self.collector.emit((-3, "quiet", 1), 3)
            self.next = 2
        elif self.next == 2:
            self.collector.end_of_input()

class Steady(Events):
    def next_tuple(self):
        if self.next < self.count:
            super().next_tuple()
        elif (HERE / "end").exists():
            self.collector.end_of_input()

def topology():
    builder = TopologyBuilder("flow").config(watermark_interval="20ms", delivery="at_least_once")
    builder.set_spout("events", Steady(500), watermarks=BOUND)
    builder.set_spout("quiet", Quiet(), watermarks=BOUND.with_idleness("200ms"))
    builder.set_bolt("windows", WindowBolt(key="key", window=TumblingEventTimeWindows.of("1s"), process=Numbers(),
                                           outputs=("key", "start", "numbers"), late_stream="late")) \\
           .fields_grouping("events", "key").fields_grouping("quiet", "key")
    builder.set_bolt("out", sink("out")).shuffle_grouping("windows")
    builder.set_bolt("late", sink("late")).shuffle_grouping("windows", stream="late")
    return builder.build()
"""
)


def test_an_idle_source_holds_no_window_back_and_comes_back_without_a_regress(scene: Scene) -> None:
    running = scene.submit(scene.file(IDLE), workers=2)
    # Windows of the active source are emitted while the other is silent.
    eventually(lambda: len([row for row in rows_of(scene.folder, "out") if row["key"] != "quiet"]) >= 20)
    scene.touch("go")
    eventually(lambda: -3 in [row["number"] for row in rows_of(scene.folder, "late")])
    scene.touch("end")
    assert running.wait(timeout_s=30).exit_code == 0
    rows = rows_of(scene.folder, "out")
    found = {(row["key"], row["start"]): row["numbers"] for row in rows}
    assert len(found) == len(rows), "no window fires twice"
    assert found.pop(("quiet", 10_000_000)) == [-2]
    late = [row["number"] for row in rows_of(scene.folder, "late") if row["number"] != -3]
    assert found.pop(("quiet", 0), late) == [-1]
    assert found == expected_windows(500)


TIMEOUTS = (
    EVENTS
    + """
class Unseen(ProcessBolt):
    '''Emits a key that was not seen for a while, by the clock or by event time.'''

    outputs = ("key", "seen", "clock")

    def __init__(self, by_clock):
        super().__init__("key")
        self.by_clock = by_clock

    def open(self, context):
        self.seen, self.due = context.state.value("seen"), context.state.value("due")

    def process(self, tup, context, collector):
        self.seen.set((self.seen.get() or 0) + 1)
        if self.due.get() is not None:
            (context.delete_processing_time_timer if self.by_clock else context.delete_event_time_timer)(self.due.get())
        due = (context.current_processing_time + 300) if self.by_clock else (context.timestamp + 2000)
        self.due.set(due)
        (context.register_processing_time_timer if self.by_clock else context.register_event_time_timer)(due)

    def on_timer(self, timestamp, context, collector):
        collector.emit((context.key, self.seen.get(), self.by_clock))

class Waits(Events):
    def next_tuple(self):
        if self.next < self.count:
            super().next_tuple()
        elif len(list(HERE.glob("*.jsonl"))) and sum(1 for _ in open(HERE / "out.jsonl")) >= 7:
            self.collector.end_of_input()

def topology(by_clock="yes"):
    builder = TopologyBuilder("flow")
    spout = Waits(700) if by_clock == "yes" else Events(700)
    builder.set_spout("events", spout, watermarks=BOUND)
    builder.set_bolt("unseen", Unseen(by_clock == "yes"), parallelism=2).fields_grouping("events", "key")
    builder.set_bolt("out", sink("out")).shuffle_grouping("unseen")
    return builder.build()
"""
)


@pytest.mark.parametrize("by_clock", ["yes", "no"])
def test_a_key_that_is_not_seen_for_a_while_is_reported_by_its_timer(scene: Scene, by_clock: str) -> None:
    run = scene.run(scene.file(TIMEOUTS.replace('by_clock="yes"', f'by_clock="{by_clock}"')), workers=2)
    assert run.outcome.exit_code == 0
    rows = rows_of(scene.folder, "out")
    assert sorted((row["key"], row["seen"]) for row in rows) == [(f"k{key}", 100) for key in range(7)]


ASYNC = (
    EVENTS
    + """
import asyncio

class Ask(AsyncBolt):
    '''Asks a small server over TCP; it answers with the double after 5 ms.'''

    outputs = ("number", "double")

    async def open(self, context):
        self.asked, self.most = 0, 0
        self.server = await asyncio.start_server(self.answer, "127.0.0.1", 0)
        self.port = self.server.sockets[0].getsockname()[1]

    async def answer(self, reader, writer):
        number = int(await reader.readline())
        await asyncio.sleep(0.005 + number % 3 * 0.003)
        writer.write(f"{2 * number}\\n".encode())
        writer.close()

    async def call(self, tup):
        self.asked += 1
        self.most = max(self.most, self.asked)
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
            writer.write(f"{tup['number']}\\n".encode())
            answer = int(await reader.readline())
            writer.close()
            return (tup["number"], answer)
        finally:
            self.asked -= 1

    async def close(self):
        (HERE / "most").write_text(str(self.most))
        self.server.close()

def topology(mode="ordered"):
    builder = TopologyBuilder("flow")
    builder.set_spout("events", Events(COUNT))
    builder.set_bolt("ask", Ask(mode=AsyncMode(mode), capacity=20)).shuffle_grouping("events")
    builder.set_bolt("out", sink("out")).shuffle_grouping("ask")
    return builder.build()
"""
)


@pytest.mark.parametrize("mode", ["ordered", "unordered"])
def test_answers_of_a_server_come_back_and_no_more_calls_are_in_flight_than_may_be(scene: Scene, mode: str) -> None:
    run = scene.run(scene.file(ASYNC.replace("COUNT", "300").replace('mode="ordered"', f'mode="{mode}"')), workers=2)
    assert run.outcome.exit_code == 0 and run.totals["acked"] == 300, run.errors
    numbers = [row["number"] for row in rows_of(scene.folder, "out")]
    assert sorted(numbers) == list(range(300)) and all(row["double"] == 2 * row["number"] for row in rows_of(scene.folder, "out"))
    if mode == "ordered":
        assert numbers == list(range(300))
    assert 2 <= int((scene.folder / "most").read_text()) <= 20, "close is awaited, and capacity is kept"


def test_a_killed_async_worker_loses_no_input(scene: Scene) -> None:
    running = scene.submit(scene.file(ASYNC.replace("COUNT", "1500")))
    kill(pid_of(running.wait_until(lambda status: acked(status) > 200), "ask"))
    assert running.wait(timeout_s=60).exit_code == 0
    assert {row["number"] for row in rows_of(scene.folder, "out")} == set(range(1500))
    assert running.summary()["restarts"] == 1


TROUBLE = (
    EVENTS
    + """
import asyncio

class Troubled(AsyncBolt):
    outputs = ("number", "how")

    async def call(self, tup):
        number = tup["number"]
        if number % 10 == 1:
            await asyncio.sleep(60)
        if number % 10 == 2 and once(f"failed {number}"):
            raise ValueError(f"the first call for {number}")
        if number % 10 == 3 and once(f"refused {number}"):
            raise ConnectionError("try again")
        if number == 4:
            time.sleep(0.8)  # blocks
        return (number, "answered")

    def on_timeout(self, tup):
        return (tup["number"], "timed out")

def topology():
    builder = TopologyBuilder("flow").config(backoff="20ms")
    # After the end of the input no call would be repeated.
    builder.set_spout("events", UntilOut(50))
    retry = FixedDelayRetry(2, "20ms", if_error=lambda error: isinstance(error, ConnectionError))
    builder.set_bolt("ask", Troubled(timeout="5s", retry=retry)).shuffle_grouping("events")
    builder.set_bolt("out", sink("out")).shuffle_grouping("ask")
    return builder.build()
"""
)


def test_timeouts_retries_failures_and_a_blocking_call_that_is_named_with_its_line(scene: Scene) -> None:
    path = scene.file(TROUBLE)
    run = scene.run(path)
    assert run.outcome.exit_code == 0 and run.totals["acked"] == 50
    how = {row["number"]: row["how"] for row in rows_of(scene.folder, "out")}
    assert how == {number: "timed out" if number % 10 == 1 else "answered" for number in range(50)}
    assert counter(run.summary, "events", "replayed") == 5, "a call that raises fails its input, which is replayed"
    lines = Path(path).read_text().splitlines()
    named = [error for error in run.errors if error["kind"] == "BlockingCallError" and error["file"] == path]
    # A machine that holds the whole process up may have another call named beside this one.
    assert [error["component"] for error in named if "# blocks" in lines[error["line"] - 1]] == ["ask"]
    assert {error["kind"] for error in run.errors} == {"BlockingCallError", "ValueError"}


JUMP = (
    EVENTS
    + """
import time as _time

class Clock(ProcessBolt):
    outputs = ("number", "late_ms")

    def __init__(self):
        super().__init__("key")

    def open(self, context):
        self.asked = context.state.map("asked")
        true, since = _time.time, _time.monotonic()
        # A wall clock that jumps by an hour, forth and back, every 200 ms.
        _time.time = lambda: true() + (3600, 0, -3600)[int((_time.monotonic() - since) / 0.2) % 3]

    def process(self, tup, context, collector):
        # Timers of one key and one moment are one timer: each number has another moment.
        due = context.current_processing_time + 300 + tup["number"]
        self.asked.put(due, (tup["number"], _time.monotonic()))
        context.register_processing_time_timer(due)

    def on_timer(self, timestamp, context, collector):
        number, asked = self.asked.get(timestamp)
        collector.emit((number, (_time.monotonic() - asked) * 1000))

def topology():
    builder = TopologyBuilder("flow")
    builder.set_spout("events", UntilOut(40, 0.02))
    builder.set_bolt("clock", Clock()).fields_grouping("events", "key")
    builder.set_bolt("out", sink("out")).shuffle_grouping("clock")
    return builder.build()
"""
)


def test_a_wall_clock_that_jumps_by_an_hour_makes_no_timer_early_or_late(scene: Scene) -> None:
    run = scene.run(scene.file(JUMP))
    assert run.outcome.exit_code == 0 and run.errors == []
    delays = [row["late_ms"] for row in rows_of(scene.folder, "out")]
    assert len(delays) == 40 and min(delays) >= 300 and max(delays) < 5000
    assert run.totals["acked"] == 40 and counter(run.summary, "events", "timed_out") == 0
