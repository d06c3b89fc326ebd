"""Frames that no one should have sent: repeated, out of date, broken, too large, or from strangers."""

from __future__ import annotations

import json
import pickle
import random
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgpack
import psutil
import pytest
import zmq

from tests.integration.support import (
    ENDLESS,
    SINK,
    Scene,
    Status,
    acked,
    component_of,
    counter,
    eventually,
    flow,
    kill,
    let_pass,
    pid_of,
    processes_of,
    text_of,
    worker_of,
)
from topo.errors import FrameError
from topo.hot import pack_words
from topo.ids import TaskId
from topo.launch.running import RunningTopology
from topo.master.outcome import OutcomeKind
from topo.transport.zmq import new_key_pair
from topo.wire.envelope import longest_message, pack
from topo.wire.frames import FrameKind, SenderStatus, columns_frame, encode, open_frame, parse
from topo.worker.spec import WorkerSpec, read_spec

pytestmark = pytest.mark.integration

FLOW = ENDLESS + flow('builder.set_spout("numbers", Endless(), max_spout_pending=100)', f'{SINK}.shuffle_grouping("numbers")')
REPEATING = (sys.executable, "-P", str(Path(__file__).with_name("repeating_worker.py")))

NOTIFIED = """
class Notified(IterableSpout):
    def ack(self, message_id):
        with open(HERE / "acks", "a") as acks:
            print(message_id, file=acks)
"""
HELD_BACK = """
class Double(Bolt):
    '''Decides on message 40 when it has seen all others.'''
    outputs = ("value",)

    def prepare(self, context, collector):
        self.collector, self.held, self.seen = collector, None, set()

    def execute(self, tup):
        self.seen.add(tup["value"])
        self.collector.emit(tup.values, anchors=tup)
        if tup["value"] == 40:
            self.held = tup
        else:
            self.collector.ack(tup)
        if len(self.seen) == 400 and self.held:
            self.collector.ack(self.held)
            self.held = None

    def on_reset(self):
        self.held = None
"""
DECLARED = flow(
    'builder.set_spout("numbers", Notified(range(400)), max_spout_pending=50, batch_size=5)',
    'builder.set_bolt("double", Double(), batch_size=5).shuffle_grouping("numbers")',
    f'{SINK}.shuffle_grouping("double")',
)


def test_frames_that_come_twice_count_once_and_nothing_is_acked_early(scene: Scene) -> None:
    run = scene.run_with(scene.file(NOTIFIED + HELD_BACK + DECLARED), REPEATING)
    assert run.outcome.kind is OutcomeKind.DONE, run.errors
    assert (run.errors, run.summary["restarts"], run.summary["epoch"]) == ([], 0, 1)
    assert sorted(scene.lines()) == list(range(400))
    acks = list(map(int, (scene.folder / "acks").read_text().split()))
    assert sorted(acks) == list(range(400)), "each message has one verdict"
    assert acks.index(40) >= 350, "a repeated init, ack or batch did not complete the tree that was held open"
    for component in ("numbers", "double", "sink", "__acker"):
        figures = component_of(run.summary, component)["counters"]
        assert figures["duplicate_frames"] >= figures["frames_in"] / 2, component
        assert (figures["gaps"], figures["malformed_frames"]) == (0, 0)


def test_frames_of_an_old_epoch_that_come_again_after_a_recovery_are_refused(scene: Scene) -> None:
    killed: list[int] = []

    def drive(status: Status) -> None:
        if acked(status) > 50 and not killed:
            killed.append(pid_of(status, "double"))
            kill(killed[0])
            scene.touch("killed")

    slow = """
class Double(BasicBolt):
    outputs = ("value",)

    def execute(self, tup, collector):
        time.sleep(0.002)
        while tup["value"] >= 200 and not (HERE / "killed").exists():
            time.sleep(0.002)
        collector.emit(tup.values)
"""
    run = scene.run_with(scene.file(NOTIFIED + slow + DECLARED), REPEATING, on_status=drive)
    assert run.outcome.kind is OutcomeKind.DONE, run.errors
    assert killed and run.summary["epoch"] == 2
    assert set(scene.lines()) == set(range(400))
    assert sum(component["counters"]["stale_frames"] for component in run.summary["components"]) > 0
    assert {error["kind"] for error in run.errors} == {"WorkerLost"}


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningTopology]:
    """A topology that several tests attack, one after the other: it has to outlive them all in its first epoch."""
    home = Path(tempfile.mkdtemp(prefix="topo-"))
    scene = Scene(tmp_path_factory.mktemp("target"), home)
    try:
        running = scene.submit(scene.file(FLOW))
        running.wait_until(lambda status: acked(status) > 50)
        yield running
    finally:
        scene.close()
        left = processes_of(home)
        shutil.rmtree(home)
    assert left == [], "processes are left"


def assert_unharmed(running: RunningTopology, acks: int = 200) -> None:
    """Messages are acked as before, and nothing was restarted or reported."""
    before = acked(running.status())
    after = running.wait_until(lambda status: acked(status) > before + acks)
    assert (after["restarts"], after["epoch"], running.errors()) == (0, 1, [])


@pytest.fixture
def senders() -> Iterator[zmq.Context[zmq.Socket[bytes]]]:
    made: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    made.linger = 0
    yield made
    made.destroy(linger=0)


def inbox_of(pid: int) -> str:
    """Return the endpoint that a worker has bound."""
    bound = {entry.laddr for entry in psutil.Process(pid).net_connections("unix") if entry.laddr}
    (path,) = [path for path in bound if path.endswith("-1")]
    return f"ipc://{path}"


def task_of(component: str) -> TaskId:
    return TaskId(["numbers", "sink", "__acker"].index(component) + 1)


def push(context: zmq.Context[Any], endpoint: str) -> zmq.Socket[bytes]:
    made: zmq.Socket[bytes] = context.socket(zmq.PUSH)
    made.connect(endpoint)
    return made


class Canary:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self) -> tuple[Any, ...]:
        return open, (self.path, "w")


def broken_frames(count: int, canary: Path) -> list[bytes]:
    """Return frames that no task may take: noise, and good frames that have been cut, bent or inflated."""
    chance = random.Random(29)
    good = [
        encode(open_frame((1, 1, 7), 2, SenderStatus.ACTIVE)),
        encode(columns_frame(FrameKind.INIT, (1, 1, 7), 3, 1, pack_words([1, 2, 3]), pack_words([4, 5, 6]))),
    ]
    found = [
        b"",
        pickle.dumps(Canary(canary)),
        msgpack.packb([{}] * 100_000),
        b"\xdd\xff\xff\xff\xff",
        b"\x91" * 100_000,
        good[0] + b"\0" * 100_000,
    ]
    while len(found) < count:
        frame = bytearray(chance.choice(good))
        match chance.randrange(3):
            case 0:
                frame = bytearray(chance.randbytes(chance.randrange(200)))
            case 1:
                del frame[chance.randrange(len(frame)) :]
            case 2:
                frame[chance.randrange(8)] ^= 1 << chance.randrange(8)
        try:
            parse(bytes(frame))
        except FrameError:
            found.append(bytes(frame))
    return found


def wait_for_malformed(running: RunningTopology, component: str, count: int) -> Status:
    return running.wait_until(lambda status: counter(status, component, "malformed_frames") >= count)


@pytest.mark.parametrize("component", ["numbers", "sink", "__acker"])
def test_broken_frames_are_dropped_and_counted_and_the_task_lives(
    target: RunningTopology, senders: zmq.Context[zmq.Socket[bytes]], component: str, tmp_path: Path
) -> None:
    status = target.status()
    pid = pid_of(status, component)
    before = psutil.Process(pid).memory_info().rss
    known = counter(status, component, "malformed_frames")
    frames = broken_frames(500, tmp_path / "canary")
    sender = push(senders, inbox_of(pid))
    for frame in frames:
        sender.send(frame)
    # In one message each is refused alone.
    left = [(task_of(component), frame) for frame in frames]
    while left:
        count, message = pack(left)
        sender.send(message)
        del left[:count]
    sender.send(pack([(TaskId(99), b"for a task that is not here")])[1])
    sender.send_multipart([b"several", b"parts"])
    wait_for_malformed(target, component, known + 2 * len(frames) + 3)
    # Over the limit: the connection is dropped with it, and what follows comes over a new one.
    sender.send(bytes(longest_message(16 << 20) + 1))
    let_pass(target, 0.3)
    sender.send(b"after that")
    expected = known + 2 * len(frames) + 4
    status = wait_for_malformed(target, component, expected)
    assert counter(status, component, "malformed_frames") == expected
    assert_unharmed(target)
    assert not (tmp_path / "canary").exists()
    assert psutil.Process(pid).memory_info().rss < before + (40 << 20)


FLOOD, FLOOD_BYTES = 40_000, 4096


def test_a_flood_of_broken_frames_takes_no_memory_and_the_flow_goes_on_under_it(
    target: RunningTopology, senders: zmq.Context[zmq.Socket[bytes]]
) -> None:
    status = target.status()
    known = counter(status, "sink", "malformed_frames")
    sink = psutil.Process(pid_of(status, "sink"))
    sender = push(senders, inbox_of(sink.pid))
    before = sink.memory_info().rss
    highest = 0
    frame = b"\xff" * FLOOD_BYTES
    for number in range(FLOOD):
        # Frames that the sink has not read yet wait with the sender, which is held up here.
        sender.send(frame)
        if number % 1000 == 0:
            highest = max(highest, sink.memory_info().rss)
    status = wait_for_malformed(target, "sink", known + FLOOD)
    assert counter(status, "sink", "malformed_frames") == known + FLOOD, "each one is counted"
    assert max(highest, sink.memory_info().rss) < before + (40 << 20), f"{FLOOD * FLOOD_BYTES >> 20} MiB have passed"
    assert_unharmed(target)


def test_forged_frames_of_strange_senders_epochs_and_lives_are_fenced_off(
    target: RunningTopology, senders: zmq.Context[zmq.Socket[bytes]]
) -> None:
    status = target.status()
    life = worker_of(status, "numbers")["incarnation"]
    sender = push(senders, inbox_of(pid_of(status, "sink")))
    forged = [
        (0, 1, life),
        (1, 1, life + 1),
        (1, 3, life),
        (1, 99, life),
        (99, 99, life),
        (99, 2, life),
    ]
    for stamp in forged:
        for frame in (open_frame(stamp, 2, SenderStatus.ACTIVE), columns_frame(FrameKind.ACKED, stamp, 2, 1, pack_words([1]))):
            sender.send(pack([(TaskId(2), encode(frame))])[1])
    for_another = encode(open_frame((1, 1, life), 3, SenderStatus.ACTIVE))
    sender.send(pack([(TaskId(2), for_another)])[1])
    figures = target.wait_until(
        lambda status: counter(status, "sink", "fenced_frames") + counter(status, "sink", "stale_frames") >= 13
    )
    assert counter(figures, "sink", "stale_frames") == 2
    assert_unharmed(target)


def test_connections_that_never_say_hello_disturb_nobody(target: RunningTopology) -> None:
    inbox = inbox_of(pid_of(target.status(), "sink"))
    slow = []
    for _ in range(150):
        one = socket.socket(socket.AF_UNIX)
        one.setblocking(False)
        # A full backlog refuses the rest, which is as good.
        if one.connect_ex(inbox.removeprefix("ipc://")) == 0:
            one.send(b"\xff\0")
        slow.append(one)
    assert_unharmed(target, acks=500)
    for one in slow:
        one.close()


def listening(pid: int) -> list[str]:
    """Return the endpoints at which a process listens on TCP."""
    found = psutil.Process(pid).net_connections("tcp")
    return [f"tcp://{entry.laddr.ip}:{entry.laddr.port}" for entry in found if entry.status == psutil.CONN_LISTEN]


def spec_of(running: RunningTopology, status: Status, component: str) -> WorkerSpec:
    """Return the start file of the worker that hosts a component."""
    worker = worker_of(status, component)
    return read_spec(running.folder.workers / f"{worker['worker']}-{worker['incarnation']}.json")


def test_over_tcp_a_stranger_without_the_right_keys_delivers_nothing(
    scene: Scene, senders: zmq.Context[zmq.Socket[bytes]]
) -> None:
    running = scene.submit(scene.file(FLOW), transport="tcp")
    status = running.wait_until(lambda status: acked(status) > 50)
    sink = spec_of(running, status, "sink")
    endpoints = listening(pid_of(status, "sink"))
    assert len(endpoints) == 1
    assert all(endpoint.startswith("tcp://127.0.0.1:") for endpoint in endpoints)
    own = new_key_pair()
    log = running.folder.logs / f"worker-{sink.worker}.log"
    for server_key, reason in (("", "it offered no key"), (sink.public_key, "is not on the allow-list"), (own.public, "no key")):
        strangers = [senders.socket(zmq.PUSH) for _ in endpoints]
        for stranger, endpoint in zip(strangers, endpoints, strict=True):
            if server_key:
                stranger.curve_serverkey = server_key.encode()
                stranger.curve_publickey, stranger.curve_secretkey = own.public.encode(), own.secret.encode()
            stranger.connect(endpoint)
            for frame in broken_frames(20, scene.folder / "canary"):
                # Nothing goes any more where the stranger was shown out already.
                with suppress(zmq.Again):
                    stranger.send(frame, zmq.NOBLOCK)
        # They try again and again, and not every denial is logged.
        eventually(lambda reason=reason: reason in text_of(log))
        for stranger in strangers:
            stranger.close()
    started, *denials = (json.loads(line) for line in log.read_text().splitlines())
    assert started["message"].startswith("worker ") and {row["level"] for row in denials} == {"WARNING"}
    flowing = acked(running.status())
    after = running.wait_until(lambda status: acked(status) > flowing + 200)
    assert (counter(after, "sink", "malformed_frames"), counter(after, "sink", "fenced_frames")) == (0, 0)
    assert (after["restarts"], after["epoch"], running.errors()) == (0, 1, [])


def test_over_tcp_the_master_hears_its_workers_alone(scene: Scene, senders: zmq.Context[zmq.Socket[bytes]]) -> None:
    running = scene.submit(scene.file(FLOW), transport="tcp")
    status = running.wait_until(lambda status: acked(status) > 50)
    (endpoint,) = listening(status["master"]["pid"])
    spec, own = spec_of(running, status, "sink"), new_key_pair()
    for keys in (None, own):
        stranger = senders.socket(zmq.DEALER)
        stranger.routing_id = spec.identity()
        if keys is not None:
            stranger.curve_serverkey = spec.master_key.encode()
            stranger.curve_publickey, stranger.curve_secretkey = keys.public.encode(), keys.secret.encode()
        stranger.connect(endpoint)
        stranger.send(b"let me in")
    eventually(lambda: "refused from" in text_of(running.folder.logs / "master.log"))
    kill(pid_of(status, "sink"))
    after = running.wait_until(lambda status: status["epoch"] == 2 and status["status"] == "RUNNING")
    assert after["fenced"] == 0
    scene.touch("stop")
    assert running.wait(timeout_s=30).kind is OutcomeKind.DONE


def test_private_files_of_a_running_topology_are_its_users_alone(scene: Scene) -> None:
    """Promise of the README: Sockets lie in a private folder, or are encrypted and let in only the topology's own keys."""
    running = scene.submit(scene.file(FLOW), transport="tcp")
    status = running.wait_until(lambda status: acked(status) > 0)
    for path in [*running.folder.workers.iterdir(), running.folder.master, running.folder.topology]:
        assert path.stat().st_mode & 0o077 == 0, path
    secret = spec_of(running, status, "sink").secret_key
    for process in (status["master"]["pid"], pid_of(status, "sink")):
        found = psutil.Process(process)
        assert secret not in " ".join([*found.cmdline(), *found.environ().values()])
