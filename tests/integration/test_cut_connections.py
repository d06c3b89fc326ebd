"""TCP connections that are reset, with frames in them: nothing is lost, and the topology ends. Needs the right to cut them."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess

import psutil
import pytest

from tests.integration.support import ENDLESS, SINK, Scene, acked, flow
from topo.master.outcome import OutcomeKind

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

PASS = """
class Pass(BasicBolt):
    outputs = ("value",)
    def execute(self, tup, collector):
        collector.emit(tup.values)

class Until(Endless):
    def next_tuple(self):
        stop = HERE / "stop"
        if not stop.exists() or self.next < int(stop.read_text() or 2**60):
            self.collector.emit((self.next,), self.next)
            self.next += 1
        else:
            self.collector.end_of_input()
"""
SPREAD = (
    ENDLESS
    + PASS
    + flow(
        "builder.set_spout('numbers', Until())",
        "builder.set_bolt('pass', Pass(), 2).shuffle_grouping('numbers')",
        f"{SINK}.shuffle_grouping('pass')",
    )
)


def cut(near: str, far: str) -> None:
    """Reset a connection of this machine."""
    subprocess.run(["ss", "-K", "src", near, "dst", far], capture_output=True, check=False, timeout=10)


def can_cut() -> bool:
    """Whether this user and this kernel can."""
    if shutil.which("ss") is None:
        return False
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        cut("{}:{}".format(*client.getsockname()), "{}:{}".format(*client.getpeername()))
        try:
            client.send(b"there?")
        except OSError:
            return True
    return False


def connections_of(pid: int) -> list[tuple[str, str]]:
    """Return the ends of a process's connections; none when it has ended, as one does that has lost messages."""
    with contextlib.suppress(psutil.Error):
        return [
            (f"{one.laddr.ip}:{one.laddr.port}", f"{one.raddr.ip}:{one.raddr.port}")
            for one in psutil.Process(pid).net_connections("tcp")
            if one.status == psutil.CONN_ESTABLISHED
        ]
    return []


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_connections_that_are_cut_lose_nothing(scene: Scene, delivery: str) -> None:
    if not can_cut():
        pytest.skip("connections cannot be cut here: it needs `ss` (iproute2), its -K in the kernel, and the right to use it")
    settings = {"transport": "tcp", "delivery": delivery, "checkpoint_interval": "100ms", "heartbeat": "50ms"}
    # Frames that are not confirmed in this time count as lost.
    settings["progress_timeout"] = "2s"
    running = scene.submit(scene.file(SPREAD), **settings)
    cuts = 0
    for _ in range(4):
        status = running.wait_until(lambda status: status["status"] == "RUNNING" and acked(status) > 0, timeout_s=60)
        for pid in [status["master"]["pid"], *(worker["pid"] for worker in status["workers"] if worker["pid"])]:
            for ends in connections_of(pid):
                cut(*ends)
                cuts += 1
        before = acked(running.status())
        running.wait_until(lambda status, before=before: acked(status) > before + 100, timeout_s=60)
    assert cuts > 20
    # Beyond what any spout has emitted by now: a spout that is replaced meanwhile has to get there, too.
    (scene.folder / "stop").write_text(str(running.status()["totals"]["emitted"] + 20_000))
    outcome = running.wait(timeout_s=60)
    assert outcome.kind is OutcomeKind.DONE, outcome.reason
    values = scene.lines()
    assert set(values) == set(range(max(values) + 1))
    if delivery == "exactly_once":
        assert len(values) == len(set(values))
