"""Time that is not the topology's own: a host that is suspended, and a task that is kept busy with mails."""

from __future__ import annotations

import signal
import time

import pytest

from tests.integration.support import (
    ENDLESS,
    SINK,
    Scene,
    acked,
    counter,
    flow,
    kill,
)
from topo.master.outcome import OutcomeKind

pytestmark = pytest.mark.integration

SUSPENDED = ENDLESS + flow(
    "builder.set_spout('numbers', Endless())",
    f"{SINK}.shuffle_grouping('numbers')",
)


def test_a_host_that_is_suspended_and_resumed_has_paused_and_nobody_is_given_up(scene: Scene) -> None:
    running = scene.submit_background(scene.file(SUSPENDED), worker_timeout="2s", message_timeout="60s")
    before = running.wait_until(lambda status: acked(status) > 50)
    pids = [before["master"]["pid"], *(worker["pid"] for worker in before["workers"])]
    for pid in pids:
        kill(pid, signal.SIGSTOP)
    time.sleep(4.5)
    for pid in reversed(pids):
        kill(pid, signal.SIGCONT)
    continued = acked(running.status())
    after = running.wait_until(lambda status: acked(status) > continued + 100)
    assert (after["restarts"], after["epoch"]) == (0, 1), "more than worker_timeout has passed, and for all alike"
    assert (after["totals"]["failed"], after["totals"]["timed_out"]) == (0, 0)
    assert sorted(worker["pid"] for worker in after["workers"]) == sorted(pids[1:])
    scene.touch("stop")
    assert running.wait(timeout_s=30).kind is OutcomeKind.DONE
    lines = scene.lines()
    assert sorted(lines) == list(range(len(lines))) and running.errors() == []


FLOODED = """
class Numbers(RetryingSpout):
    outputs = ("value",)

    def open(self, context, collector):
        self.collector, self.next = collector, 0

    def next_tuple(self):
        if self.next == 500:
            self.collector.end_of_input()
            return
        time.sleep(0.001)
        self.collector.emit((self.next,), self.next)
        self.next += 1

class Flooded(Bolt):
    '''Is never without a mail: each posts the next one. Does not decide on its first 13.'''
    outputs = ("gap", "mails")

    def prepare(self, context, collector):
        self.executor, self.collector, self.held, self.ticked = context.executor, collector, [], None
        self.mails = 0
        for _ in range(200):
            self.executor.execute(self.again)

    def again(self):
        self.mails += 1
        self.executor.execute(self.again)

    def execute(self, tup):
        if tup.is_tick:
            now = time.monotonic()
            if self.ticked is not None:
                self.collector.emit((now - self.ticked, self.mails))
            self.ticked, self.mails = now, 0
        elif tup["value"] == 13 and not self.held:
            self.held.append(tup)
        else:
            self.collector.ack(tup)
""" + flow(
    "builder.config(tick_interval='50ms', message_timeout='5s', backoff=('100ms',))",
    "builder.set_spout('numbers', Numbers())",
    "builder.set_bolt('flooded', Flooded()).shuffle_grouping('numbers')",
    f"{SINK}.shuffle_grouping('flooded')",
)


def test_ticks_timeouts_and_commands_have_their_turn_however_many_mails_wait(scene: Scene) -> None:
    running = scene.submit(scene.file(FLOODED))
    running.wait_until(lambda status: counter(status, "numbers", "timed_out") >= 1)
    running.deactivate()
    paused = running.wait_until(lambda status: status["status"] == "INACTIVE")
    running.activate()
    outcome = running.wait(timeout_s=60)
    summary = running.summary()
    assert outcome.kind is OutcomeKind.DONE and summary["totals"]["acked"] == 500, paused
    assert summary["totals"]["timed_out"] == 1, "the undecided one, at its time"
    ticks = scene.lines()
    assert len(ticks) >= 20 and min(mails for _, mails in ticks) >= 200, "the mailbox was never empty"
    gaps = sorted(gap for gap, _ in ticks)
    assert gaps[len(gaps) // 2] < 0.5 and gaps[len(gaps) * 9 // 10] < 1.0 and gaps[-1] < 5.0, "ticks come all the same"
