"""An agent with the driver's socket in the same process. No Spark."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from topo.ids import Incarnation, WorkerId
from topo.launch.spark.agent import Agent
from topo.launch.spark.agent_link import AgentLink
from topo.launch.spark.agent_spec import AgentSpec
from topo.launch.spark.messages import (
    Beat,
    BeatAnswer,
    End,
    FromAgent,
    Hello,
    Leave,
    LogData,
    WorkerOver,
    decode_from_agent,
    encode,
)
from topo.storage.state_folder import StateFolder, TopologyFolder
from topo.transport.zmq import new_key_pair

PATIENCE_S = 20.0


class Driver:
    """The messages of an agent to the driver, and the answers."""

    def __init__(self, link: AgentLink) -> None:
        self.link = link
        self.received: list[FromAgent] = []
        self.identity = b""

    def listen_until(self, is_enough: Callable[[], bool]) -> None:
        until = time.monotonic() + PATIENCE_S
        while not is_enough():
            assert time.monotonic() < until, self.received[-9:]
            for identity, data in self.link.receive():
                self.identity = identity
                self.received.append(decode_from_agent(data))
                if isinstance(self.received[-1], Beat | Hello):
                    self.link.send(identity, encode(BeatAnswer()))
            time.sleep(0.005)

    def dismiss(self) -> None:
        self.link.send(self.identity, encode(Leave("the test is over")))

    def logged(self) -> bytes:
        return b"".join(message.data for message in self.received if isinstance(message, LogData))


@contextmanager
def driver_of(folder: TopologyFolder) -> Iterator[Driver]:
    """An agent that has sent Hello; it is ordered to leave in the end."""
    link, keys = AgentLink("127.0.0.1"), new_key_pair()
    link.allow_list.replace([keys.public])
    order = AgentSpec(
        topology="t",
        slot=0,
        submission=1,
        endpoint=link.endpoint,
        driver_key=link.public_key,
        public_key=keys.public,
        secret_key=keys.secret,
        heartbeat_s=0.1,
        timeout_s=PATIENCE_S,
        code="",
        code_folder="/nowhere",
    )
    agent, driver = Agent(order, 0, folder), Driver(link)

    def run() -> None:
        agent.run()
        agent.close()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        driver.listen_until(lambda: bool(driver.received))
        yield driver
    finally:
        driver.dismiss()
        driver.listen_until(lambda: not thread.is_alive())
        thread.join()
        link.close()


def test_a_worker_that_an_agent_does_not_have_is_over(tmp_path: Path) -> None:
    """The order to start it, or the report of its end, was lost with a connection."""
    with driver_of(StateFolder(tmp_path).create("t")) as driver:
        driver.link.send(driver.identity, encode(End(WorkerId(3), Incarnation(7), kill=True)))
        driver.listen_until(lambda: isinstance(driver.received[-1], WorkerOver))
        assert driver.received[-1] == WorkerOver(WorkerId(3), Incarnation(7), "its agent does not have it")


def test_all_that_workers_have_written_is_sent_before_an_agent_leaves(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path).create("t")
    lines = b"".join(b"line %d\n" % number for number in range(200_000))
    with driver_of(folder) as driver:
        (folder.logs / "worker-0.out").write_bytes(lines)
        driver.dismiss()
        driver.listen_until(lambda: driver.logged() == lines)
