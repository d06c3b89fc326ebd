"""Requests in and out of whole topologies whose processes are killed: rows are counted at both ends."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException

import pytest

from tests.connectors.http_receiver import Got, Receiver, receiving
from tests.integration.conftest import no_process_is_left, scene
from tests.integration.support import Scene, eventually, flow, kill, pid_of
from tests.servers.server import free_port, need

pytestmark = [pytest.mark.server, pytest.mark.xdist_group("http")]
__all__ = ["no_process_is_left", "scene"]

COUNT = 120


@pytest.fixture(autouse=True)
def aiohttp() -> None:
    need(("aiohttp",))


class Sender:
    """A program that sends each of its messages until it is answered with 200, as senders of webhooks do."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.done: list[int] = []
        self.statuses: Counter[int | str] = Counter()
        self._left = list(range(COUNT, 0, -1))
        self._is_over = threading.Event()
        self._lock = threading.Lock()

    def run(self) -> None:
        while not self._is_over.is_set():
            with self._lock:
                if not self._left:
                    return
                number = self._left.pop()
            status = self._send(number)
            with self._lock:
                self.statuses[status] += 1
                (self.done if status == 200 else self._left).append(number)
            if status != 200:
                self._is_over.wait(0.05)

    def _send(self, number: int) -> int | str:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request("POST", "/in", json.dumps({"n": number}), {"Idempotency-Key": f"n-{number}"})
            return connection.getresponse().status
        except (OSError, HTTPException) as error:
            return type(error).__name__
        finally:
            connection.close()

    def stop(self) -> None:
        self._is_over.set()


@contextmanager
def sending(port: int) -> Iterator[Sender]:
    sender = Sender(port)
    threads = [threading.Thread(target=sender.run) for _ in range(8)]
    for thread in threads:
        thread.start()
    try:
        yield sender
    finally:
        sender.stop()
        for thread in threads:
            thread.join()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as made:
        yield made


def numbers(receiver: Receiver) -> Counter[int]:
    return Counter(json.loads(body)["n"] for body in receiver.bodies)


PASS = """
class Pass(BasicBolt):
    outputs = ("n",)

    def execute(self, tup, collector):
        time.sleep(0.005)
        collector.emit((tup["n"],))

"""


def webhook(port: int) -> str:
    return f'builder.set_spout("in", WebhookSpout({port}, "/in", fields=("n",)))'


def test_each_request_that_was_answered_reaches_the_receiver_though_processes_are_killed(
    scene: Scene, receiver: Receiver
) -> None:
    seen = set[bytes]()

    def answer(got: Got) -> tuple[int, dict[str, str]]:
        is_first, _ = got.body not in seen, seen.add(got.body)
        return (503, {"Retry-After": "0"}) if is_first and json.loads(got.body)["n"] % 5 == 0 else (200, {})

    receiver.usual = answer
    out = f'builder.set_bolt("out", HttpSink({receiver.url!r}, id="n", key="n")).shuffle_grouping("pass")'
    passed = 'builder.set_bolt("pass", Pass()).shuffle_grouping("in")'
    port = free_port()
    running = scene.submit(scene.file(PASS + flow(webhook(port), passed, out)), delivery="at_least_once")
    with sending(port) as sender:
        for done, component in ((10, "out"), (40, "in"), (70, "pass")):
            eventually(lambda done=done: len(sender.done) >= done, what=f"{done} answers; {sender.statuses}")
            kill(pid_of(running.status(), component))
        eventually(lambda: len(sender.done) == COUNT, 120, what=f"all answers; {sender.statuses}")
    assert set(numbers(receiver)) == set(range(1, COUNT + 1))
    assert set(receiver.ids) == {f"flow.out.{n}" for n in range(1, COUNT + 1)}, "a repeat has the id of the first"
    running.kill()


def test_with_exactly_once_a_repeated_request_counts_once(scene: Scene) -> None:
    sink = 'builder.set_bolt("sink", JsonLinesSink(HERE / "out.jsonl")).shuffle_grouping("pass")'
    passed = 'builder.set_bolt("pass", Pass()).shuffle_grouping("in")'
    port = free_port()
    running = scene.submit(
        scene.file(PASS + flow(webhook(port), passed, sink)), delivery="exactly_once", checkpoint_interval="200ms"
    )
    with sending(port) as sender:
        for done, component in ((10, "in"), (40, "pass"), (70, "in")):
            eventually(lambda done=done: len(sender.done) >= done, what=f"{done} answers; {sender.statuses}")
            kill(pid_of(running.status(), component))
        eventually(lambda: len(sender.done) == COUNT, 120, what=f"all answers; {sender.statuses}")
    # A sink publishes when the checkpoint is complete, as the answers are sent then.
    eventually(lambda: len(scene.lines()) >= COUNT, what="the rows of the last checkpoint")
    assert sorted(scene.lines()) == list(range(1, COUNT + 1))
    running.kill()


def test_a_row_that_is_refused_is_a_dead_letter_and_the_others_arrive(scene: Scene, receiver: Receiver) -> None:
    receiver.usual = lambda got: (400, {"X-Text": "no such order"}) if json.loads(got.body)["n"] == 5 else (200, {})
    source = 'builder.set_spout("numbers", IterableSpout(range(20), fields=("n",)))'
    out = f'builder.set_bolt("out", HttpSink({receiver.url!r})).shuffle_grouping("numbers")'
    run = scene.run(scene.file(flow(source, out)), delivery="at_least_once", backoff="10ms")
    assert set(numbers(receiver)) == set(range(20)) and numbers(receiver)[5] == 3
    (given_up,) = run.dead_letters
    assert given_up["values"] == [5] and "answered 400: no such order" in json.dumps(given_up["errors"])
