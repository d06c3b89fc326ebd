"""The loop of a worker, turn by turn, on a manual clock and a transport in memory."""

from __future__ import annotations

from collections import Counter
from functools import cached_property
from typing import Any

import pytest

from tests.tasks.components import Scripted
from tests.tasks.environment import Clock, routes
from tests.unit.worker.hosted import EXPECTED, LINES, Hosted, word_count
from topo.ids import Epoch
from topo.transport.memory import HIGH_WATER_MARK, MemoryNetwork, MemoryRouter, MemoryTransport
from topo.wire import control
from topo.worker.connections import Connections
from topo.worker.core import EXIT_DONE, EXIT_ORPHANED, WorkerExit
from topo.worker.load import INTERVAL_S, WorkerLoad
from topo.worker.loop import LINK, Loop
from topo.worker.session import FINISH_S, WorkerSession


class SleepingTransport(MemoryTransport):
    """Waits on the test's clock, however long, unless something has arrived."""

    clock: Clock

    def wait(self, timeout_s: float | None) -> list[str]:
        ready = super().wait(0.0)
        if not ready and timeout_s is not None:
            self.clock.now += timeout_s
        return ready


class Turned:
    """A loop that the test turns, and the master's end of its link."""

    def __init__(self, spout: Any, *, high_water_mark: int = HIGH_WATER_MARK, **settings: Any) -> None:
        topology, self.counts = word_count(spout, **settings)
        self.hosted = Hosted(topology, starts=False)
        self.clock, self.plan, worker = self.hosted.clock, self.hosted.plan, self.hosted.worker
        self.network = MemoryNetwork()
        self.transport = SleepingTransport(self.network, high_water_mark=high_water_mark)
        self.transport.clock = self.clock
        master = self.transport.link(LINK, "memory://master", b"0:1")
        session = WorkerSession(self.plan.config, {task.id: task.component_id for task in worker.tasks.values()}, self.clock.now)
        connections = Connections(self.transport, self.plan, frozenset(worker.tasks))
        self.load = WorkerLoad(self.clock.now)
        self.loop = Loop(
            worker, session, self.transport, master, connections, lambda: "", self.clock, stint_s=0.0, load=self.load
        )

    @cached_property
    def router(self) -> MemoryRouter:
        """The master listens from the first use on."""
        return MemoryRouter(self.network, "memory://master")

    def send(self, *messages: control.FromMaster) -> None:
        for message in messages:
            assert self.router.send(b"0:1", control.encode(message))

    def start(self) -> None:
        self.send(routes(self.plan, 1))
        self.turn()
        self.send(control.Go(Epoch(1)))

    def turn(self) -> float | None:
        return self.loop.turn(self.transport.wait(0.0), self.clock.now)

    def run(self, seconds: float) -> WorkerExit | None:
        """Turn as `Loop.run` does, with time passing only when nothing is to be done; return how the worker ended."""
        end = self.clock.now + seconds
        while (at := self.turn()) is not None and max(at, self.clock.now) <= end:
            self.clock.now = max(at, self.clock.now)
        self.clock.now = end
        return self.loop.worker.exit if at is None else None

    def reported(self, kind: type) -> list[Any]:
        found = [control.decode_from_worker(data) for _, data in self.router.receive()]
        return [message for message in found if isinstance(message, kind)]


def test_worker_runs_and_closes_on_turns_alone() -> None:
    turned = Turned(Scripted(LINES))
    turned.start()
    assert turned.run(3.0) is None
    assert turned.counts == EXPECTED
    assert len(turned.reported(control.Heartbeat)) == 4
    turned.send(control.Close(Epoch(1)))
    exit_ = turned.run(1.0)
    assert exit_ is not None and (exit_.code, exit_.why) == (EXIT_DONE, "closed")
    messages = [control.decode_from_worker(data) for _, data in turned.router.receive()]
    kinds = [type(message).__name__ for message in messages]
    # The figures go ahead of the first Closed: the process may die behind the last one.
    assert kinds == ["Heartbeat", *["Closed"] * len(turned.plan.tasks), "Heartbeat"]


def test_the_count_of_a_failure_is_reported_ahead_of_the_error() -> None:
    turned = Turned(Scripted([lambda collector: collector.emit(("a line",), message_id=["unhashable"])], ends=False))
    turned.start()
    assert turned.run(turned.plan.config.heartbeat_s / 2) is None
    messages = [control.decode_from_worker(data) for _, data in turned.router.receive()]
    (at,) = [place for place, message in enumerate(messages) if isinstance(message, control.ComponentError)]
    beat = messages[at - 1]
    assert isinstance(beat, control.Heartbeat)
    assert sum(figures["counters"]["refused"] for figures in beat.tasks.values()) == 1


def test_idle_turn_returns_the_next_deadline() -> None:
    turned = Turned(Scripted(ends=False))
    assert turned.turn() == turned.loop.session.next_beat == turned.clock.now + turned.plan.config.heartbeat_s


def test_a_loop_that_has_slept_sends_in_the_turn_that_woke_it() -> None:
    turned = Turned(Scripted(ends=False))
    turned.start()
    turned.run(0.5)
    flushed: list[float] = []
    turned.loop.worker.idle = flushed.append  # type: ignore[method-assign]
    turned.clock.now += 0.001
    turned.send(control.Alive(sent_count=0))
    at = turned.turn()
    assert at is not None and at > turned.clock.now
    assert flushed == [turned.clock.now]


def test_stopped_worker_works_off_what_it_has_and_closes() -> None:
    turned = Turned(Scripted(LINES, ends=False))
    turned.start()
    turned.turn()
    assert turned.counts != EXPECTED
    turned.loop.stop(WorkerExit(EXIT_DONE, "asked to end"))
    exit_ = turned.run(FINISH_S)
    assert exit_ is not None and exit_.why == "asked to end"
    assert len(turned.reported(control.Closed)) == len(turned.plan.tasks)
    assert sum(turned.counts.values()) in range(1, sum(EXPECTED.values()) + 1)


def test_last_messages_that_a_full_connection_refuses_are_sent_when_it_has_room() -> None:
    turned = Turned(Scripted(ends=False), high_water_mark=2)
    turned.loop.stop(WorkerExit(EXIT_DONE, "asked to end"))
    assert turned.run(FINISH_S / 2) is None
    messages = [control.decode_from_worker(data) for _, data in turned.router.receive()]
    assert turned.run(FINISH_S / 2) is not None
    messages += [control.decode_from_worker(data) for _, data in turned.router.receive()]
    assert sum(isinstance(message, control.Closed) for message in messages) == len(turned.plan.tasks)
    last = messages[-1]
    assert isinstance(last, control.Heartbeat) and last.sent_count == len(messages) - 1


def test_a_worker_does_not_wait_long_for_a_connection_that_stays_full() -> None:
    turned = Turned(Scripted(ends=False), high_water_mark=2)
    turned.loop.stop(WorkerExit(EXIT_DONE, "asked to end"))
    turned.turn()
    assert turned.run(2 * FINISH_S) is not None


def test_worker_without_a_master_ends_with_the_heartbeat_after_the_timeout() -> None:
    turned = Turned(Scripted(ends=False))
    began = turned.clock.now
    exit_ = turned.run(2 * turned.plan.config.master_timeout_s)
    assert exit_ is not None and exit_.code == EXIT_ORPHANED
    beats = turned.reported(control.Heartbeat)
    assert len(beats) == turned.plan.config.master_timeout_s / turned.plan.config.heartbeat_s + 3
    assert began < turned.clock.now


@pytest.mark.parametrize("stalled_s", [1.0, 7.0])
def test_worker_that_stood_still_acts_on_old_messages_a_heartbeat_later(stalled_s: float) -> None:
    turned = Turned(Scripted(LINES))
    turned.turn()
    turned.clock.now += stalled_s
    turned.send(routes(turned.plan, 1))
    turned.turn()
    assert turned.loop.worker.epoch == (0 if stalled_s > turned.plan.config.worker_timeout_s else 1)
    turned.run(turned.plan.config.heartbeat_s)
    assert turned.loop.worker.epoch == 1
    assert turned.counts == Counter()


def test_a_call_that_waits_for_the_other_tasks_leaves_the_worker_idle() -> None:
    turned = Turned(Scripted(LINES))
    turned.start()
    turned.run(1.0)
    began = turned.clock.now
    turned.load.turned(began, 0.0)
    assert turned.load.percent == 100
    turned.loop.attend()
    assert turned.clock.now > began + INTERVAL_S
    assert turned.load.percent == 0
