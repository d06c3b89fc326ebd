"""A whole topology with an async bolt, and components that move the clock, on the manual clock."""

from __future__ import annotations

import asyncio
import socketserver
import threading
import time
from itertools import pairwise
from typing import Any

import pytest

from topo import AsyncBolt, AsyncMode, BasicBolt, FixedDelayRetry, IterableSpout, Topology, TopologyBuilder
from topo.testing import ADVANCE, CRASH, END, ManualClock, TopologyTest
from topo.testing.in_process import PATIENCE_S

MODES = pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once", "at_most_once"])


class Sleeps(AsyncBolt):
    """Sleeps for the seconds in its input."""

    outputs = ("seconds",)

    def __init__(self, mode: AsyncMode = AsyncMode.ORDERED, **options: Any) -> None:
        super().__init__(mode, **options)
        self.log: list[str] = []

    async def open(self, context: Any) -> None:
        await asyncio.sleep(0.1)
        self.log.append("open")

    async def call(self, tup: Any) -> Any:
        await asyncio.sleep(tup["seconds"])
        return [(tup["seconds"],)]

    async def close(self) -> None:
        self.log.append("close")


class Waits(BasicBolt):
    outputs = ()

    def execute(self, tup: Any, collector: Any) -> None:
        """Nothing."""


def topology(bolt: Any, **settings: Any) -> Topology:
    builder = TopologyBuilder("async").config(**settings)
    builder.set_spout("source", IterableSpout([], fields=("seconds",)))
    builder.set_bolt("calls", bolt).shuffle_grouping("source")
    builder.set_bolt("sink", Waits()).shuffle_grouping("calls")
    return builder.build()


@MODES
def test_calls_take_the_time_of_the_clock_and_none_of_ours(delivery: str) -> None:
    test = TopologyTest(topology(Sleeps(), delivery=delivery), sources={"source": [3, 1, 2, END]})
    test.run()
    test.assert_all_acked()
    assert test.emitted("calls") == [(3,), (1,), (2,)]
    assert test.clock() >= 3.1
    assert test.bolt("calls").log == ["open", "close"]


def test_unordered_calls_come_out_as_they_end() -> None:
    test = TopologyTest(topology(Sleeps(AsyncMode.UNORDERED)), sources={"source": [3, 1, 2, END]})
    test.run()
    assert test.emitted("calls") == [(1,), (2,), (3,)]


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_a_crash_in_the_middle_of_calls_makes_them_again(delivery: str) -> None:
    sources = {"source": [1, 2, CRASH("calls"), 3, END]}
    test = TopologyTest(lambda: topology(Sleeps(), delivery=delivery), sources=sources)
    test.run()
    test.assert_all_acked()
    assert set(test.emitted("calls")) == {(1,), (2,), (3,)}


def test_a_call_that_fails_for_good_fails_its_message() -> None:
    class Fails(Sleeps):
        async def call(self, tup: Any) -> Any:
            raise ConnectionError("no")

    test = TopologyTest(topology(Fails(retry=FixedDelayRetry(2, "1s")), attempts=2), sources={"source": [1, END]})
    test.run()
    (dead_letter,) = test.dead_letters()
    assert "ConnectionError: no" in dead_letter.why


def test_threads_of_calls_are_waited_for() -> None:
    class Threads(Sleeps):
        async def call(self, tup: Any) -> Any:
            return [(await asyncio.to_thread(lambda: threading.current_thread() is not threading.main_thread()),)]

    test = TopologyTest(topology(Threads()), sources={"source": [1, END]})
    test.run()
    assert test.emitted("calls") == [(True,)]


class Asks(AsyncBolt):
    """Asks a server over one connection, which stays open, and sleeps now and then."""

    outputs = ("answer",)

    def __init__(self, port: int) -> None:
        super().__init__(capacity=1)
        self.port = port

    async def open(self, context: Any) -> None:
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)

    async def call(self, tup: Any) -> Any:
        for part in (b"a", b"b"):
            self.writer.write(part + b"\n")
            answer = await asyncio.wait_for(self.reader.readline(), 10)
            await asyncio.sleep(tup["seconds"])
        return (answer,)

    async def close(self) -> None:
        self.writer.close()


class Echo(socketserver.StreamRequestHandler):
    """Takes more than a glance, in real time, for each line."""

    def handle(self) -> None:
        for line in self.rfile:
            time.sleep(0.05)
            self.wfile.write(line)


def test_answers_are_waited_for_also_over_a_connection_that_was_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("topo.testing.in_process.PATIENCE_S", 1.0)
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Echo) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        script = [0, ADVANCE("1m"), 8, ADVANCE("1m"), 0, END]
        test = TopologyTest(topology(Asks(server.server_address[1])), sources={"source": script})
        test.run()
        server.shutdown()
        thread.join()
    assert test.emitted("calls") == [(b"b\n",)] * 3 and test.errors() == []


def test_a_sleep_takes_no_real_time_while_a_connection_is_open() -> None:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Echo) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        test = TopologyTest(topology(Asks(server.server_address[1])), sources={"source": [8, END]})
        begun = time.monotonic()
        test.run()
        took = time.monotonic() - begun
        server.shutdown()
        thread.join()
    assert test.emitted("calls") == [(b"b\n",)] and test.clock() >= 16
    assert took < PATIENCE_S


# -- components that move the clock


class Works(BasicBolt):
    """Takes a second for each tuple."""

    outputs = ("at",)

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock

    def execute(self, tup: Any, collector: Any) -> None:
        self.clock.advance("1s")
        collector.emit((self.clock(),))


def test_a_component_may_move_the_clock() -> None:
    clock = ManualClock()
    built = topology(Works(clock))
    test = TopologyTest(built, sources={"source": [1, 2, 3, END]}, clock=clock)
    test.run()
    test.assert_all_acked()
    assert test.clock is clock and clock() >= 3
    ats = [at for (at,) in test.emitted("calls")]
    assert [second - first for first, second in pairwise(ats)] == pytest.approx([1, 1], abs=0.1)


def test_advance_goes_no_further_than_a_component_has_moved_the_clock() -> None:
    clock = ManualClock()
    test = TopologyTest(topology(Works(clock)), sources={"source": [1, 2, 3]}, clock=clock)
    test.advance("0.5s")
    assert clock() >= 3
    assert len(test.emitted("calls")) == 3
