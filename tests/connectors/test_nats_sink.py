"""A JetStream stream as a target: on a real server."""

from __future__ import annotations

import json
import secrets
import socket
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.connectors.sink_tasks import ReportingTask, check_kills_at_requests
from tests.contract.two_phase_sinks import KindContract, SinkKind, SinkTask, carried
from tests.servers import nats
from tests.servers.nats import NatsProcess, run_at
from tests.unit.connectors.drive import TICK, tracked
from topo import ConfigError, NatsSink, UnsupportedValueError, UserError
from topo.connectors import staged_rows
from topo.connectors.nats import outgoing
from topo.connectors.nats.connection import NatsConnection, NatsServers
from topo.errors import TopoEnvironmentError

pytestmark = [pytest.mark.server, pytest.mark.xdist_group("nats")]


def messages(address: str, stream: str, subject: str) -> list[bytes]:
    """The messages of a subject, as another program reads them."""

    async def read(_client: Any, stream_context: Any) -> list[bytes]:
        found = list[bytes]()
        subscription = await stream_context.subscribe(subject, stream=stream, ordered_consumer=True)
        info = await subscription.consumer_info()
        for _ in range(info.num_pending + info.delivered.consumer_seq):
            found.append((await subscription.next_msg(timeout=20)).data)
        await subscription.unsubscribe()
        return found

    return run_at(address, read)  # type: ignore[no-any-return]


def kind_on(server: NatsProcess, make: Callable[[], NatsSink] | None = None) -> SinkKind:
    """A sink whose subject is named for the test's folder, or another one."""
    run, stream, address = secrets.token_hex(4), server.make_stream(), server.address

    def subject(folder: Path) -> str:
        return f"{stream}.{run}{str(folder).replace('/', '_').replace('.', '_')}"

    def rows(folder: Path) -> list[int]:
        return [json.loads(data)["n"] for data in messages(address, stream, subject(folder))]

    def sink(folder: Path) -> NatsSink:
        return NatsSink(address, subject(folder), stream=stream, staging=folder / "staging", timeout="2s")

    return SinkKind(
        "NATS stream",
        sink if make is None else lambda _folder: make(),
        rows,
        lambda folder: [path.name for path in folder.glob("staging/.staged/*")],
    )


@pytest.fixture
def kind(nats_server: NatsProcess) -> SinkKind:
    return kind_on(nats_server)


def small_steps(set_to: Callable[[object, str, int], None]) -> None:
    """Have rows staged from the second on, and two published at a time."""
    set_to(staged_rows, "_SPILL_ROWS", 1)
    set_to(outgoing, "_MOST_ROWS", 2)


class TestContract(KindContract):
    """The promises of every two-phase sink."""

    @pytest.fixture(autouse=True)
    def _small_steps(self, monkeypatch: pytest.MonkeyPatch) -> None:
        small_steps(monkeypatch.setattr)


# -- faults ------------------------------------------------------------------------------------------------------------------


def count_requests(step: Callable[[], None]) -> None:
    """Count each message that is sent, and each batch before its acknowledgements are read and behind them."""
    from nats.aio.client import Client

    small_steps(setattr)
    publish, wait = Client.publish, outgoing._wait

    async def counted_publish(*arguments: Any, **options: Any) -> Any:
        step()
        done = await publish(*arguments, **options)
        # The next step may be a kill: this message is out by then.
        await arguments[0]._flush_pending(force_flush=True)
        return done

    async def counted_wait(*arguments: Any) -> None:
        step()
        await wait(*arguments)
        step()

    Client.publish = counted_publish
    outgoing._wait = counted_wait


def test_killed_before_and_after_any_request_a_sink_recovers_the_rows_of_the_checkpoint(
    nats_server: NatsProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_steps(monkeypatch.setattr)
    kind = kind_on(nats_server)
    # Its neighbours are alike: all of them would take a minute.
    check_kills_at_requests(kind, tmp_path, count_requests, every=3)


class Target:
    """A stream of a test."""

    def __init__(self, server: NatsProcess, folder: Path, **settings: Any) -> None:
        self.server, self.folder, self.stream = server, folder, server.make_stream(**settings)

    def sink(self, **options: Any) -> NatsSink:
        given = {"timeout": "500ms", "staging": self.folder / "staging", "stream": self.stream, **options}
        return NatsSink(self.server.address, given.pop("subject", f"{self.stream}.out"), **given)

    @property
    def rows(self) -> list[int]:
        return [json.loads(data)["n"] for data in messages(self.server.address, self.stream, f"{self.stream}.>")]


@pytest.fixture
def target(nats_server: NatsProcess, tmp_path: Path) -> Target:
    return Target(nats_server, tmp_path)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    small_steps(monkeypatch.setattr)


def refused_while_away(task: ReportingTask, checkpoint: int) -> None:
    with pytest.raises(Exception) as refused:
        task.output.complete(checkpoint)
    assert outgoing_is_lost(refused.value), refused.value


def outgoing_is_lost(error: BaseException) -> bool:
    from topo.connectors.nats.connection import is_unreachable

    return is_unreachable(error)


def test_a_transaction_survives_a_kill_of_the_server(target: Target) -> None:
    task = ReportingTask(target.sink())
    task.write(1, 2)
    task.snapshot(1)
    task.write(3)
    target.server.kill()
    for _ in range(2):
        refused_while_away(task, 1)
    # Rows are staged beside the server.
    task.snapshot(2)
    target.server.start_again()
    task.output.complete(1)
    task.output.complete(2)
    assert target.rows == [1, 2, 3]
    lost, back = task.texts()
    assert "is not reached" in lost and "is reached again" in back


@pytest.mark.usefixtures("patient")
def test_what_a_frozen_server_acknowledges_too_late_counts_once(target: Target) -> None:
    """The server stores the messages when it continues, before or after the sink looks them up."""
    task = ReportingTask(target.sink())
    task.write(1, 2, 3, 4, 5)
    task.snapshot(1)
    target.server.freeze()
    for _ in range(2):
        refused_while_away(task, 1)
    target.server.thaw()
    task.output.complete(1)
    task.write(6)
    task.snapshot(2)
    task.output.complete(2)
    assert target.rows == [1, 2, 3, 4, 5, 6]


@pytest.mark.usefixtures("patient")
def test_a_publication_that_is_repeated_behind_the_window_looks_its_rows_up(
    nats_server: NatsProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ids are forgotten: the same rows under other ids show the rows that the stream alone would store twice."""
    target = Target(nats_server, tmp_path, duplicate_window=30)
    first = ReportingTask(target.sink())
    other = ReportingTask(target.sink(staging=tmp_path / "other"))
    first.write(1, 2, 3, 4, 5)
    state = carried(first.output.snapshot(1))
    calls = 0
    publish = outgoing.publish

    def breaks_in_the_second_batch(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise OSError("planted")
        return publish(*arguments)

    monkeypatch.setattr("topo.connectors.nats.sink.publish", breaks_in_the_second_batch)
    with pytest.raises(OSError, match="planted"):
        first.output.complete(1)
    monkeypatch.setattr("topo.connectors.nats.sink.publish", publish)
    other.write(100)
    other.snapshot(1)
    other.output.complete(1)
    forget_ids(target)
    SinkTask(kind_on(nats_server, target.sink), tmp_path, state=state).die()
    assert target.rows == [1, 2, 100, 3, 4, 5]
    assert list(tmp_path.glob("staging/.staged/*")) == []


def forget_ids(target: Target) -> None:
    """Have a stream's window pass."""
    import time

    from nats.js.api import StreamConfig

    async def shorten(_client: Any, stream_context: Any) -> None:
        config: StreamConfig = (await stream_context.stream_info(target.stream)).config
        config.duplicate_window = 0.1
        await stream_context.update_stream(config)
        time.sleep(0.5)
        config.duplicate_window = 30
        await stream_context.update_stream(config)
        # The server forgets ids with the next messages; an id that it knew would be dropped here.
        first = (await stream_context.get_msg(target.stream, 1)).headers
        again = await stream_context.publish(f"{target.stream}.probe", b"", headers=dict(first))
        assert not again.duplicate
        await stream_context.delete_msg(target.stream, again.seq)

    target.server.run(shorten)


def test_rows_that_a_full_stream_refuses_are_published_when_it_has_room(nats_server: NatsProcess, tmp_path: Path) -> None:
    from nats.js.api import DiscardPolicy

    target = Target(nats_server, tmp_path, max_msgs=2, discard=DiscardPolicy.NEW)
    task = ReportingTask(target.sink())
    task.write(1, 2, 3)
    task.snapshot(1)
    for _ in range(2):
        with pytest.raises(TopoEnvironmentError, match="maximum messages exceeded"):
            task.output.complete(1)
    assert target.rows == [1, 2]

    async def widen(_client: Any, stream_context: Any) -> None:
        config = (await stream_context.stream_info(target.stream)).config
        config.max_msgs = 100
        await stream_context.update_stream(config)

    nats_server.run(widen)
    task.output.complete(1)
    assert target.rows == [1, 2, 3]


def test_a_stream_that_is_removed_is_named_and_rows_are_published_when_it_is_there_again(target: Target) -> None:
    async def remove(_client: Any, stream_context: Any) -> None:
        await stream_context.delete_stream(target.stream)

    async def make(_client: Any, stream_context: Any) -> None:
        await stream_context.add_stream(name=target.stream, subjects=[f"{target.stream}.>"])

    task = ReportingTask(target.sink())
    task.write(1)
    task.snapshot(1)
    target.server.run(remove)
    with pytest.raises(OSError, match=f"no stream takes subject '{target.stream}.*': it was removed, or has other subjects"):
        task.output.complete(1)
    target.server.run(make)
    task.output.complete(1)
    assert target.rows == [1]


def test_with_at_least_once_refused_messages_fail_their_tuples_alone(nats_server: NatsProcess, tmp_path: Path) -> None:
    from nats.js.api import DiscardPolicy

    target = Target(nats_server, tmp_path, max_msgs=2, discard=DiscardPolicy.NEW)
    task = ReportingTask(target.sink(max_batch=3), "at_least_once")
    task.write(1, 2, 3)
    assert target.rows == [1, 2]
    assert len(task.collector.acked) == 2 and len(task.collector.failed) == 1
    assert "refuses 1 of 3 messages" in task.texts()[0]


def test_with_at_least_once_a_batch_waits_for_a_server_that_was_killed(target: Target) -> None:
    task = ReportingTask(target.sink(max_batch=2), "at_least_once")
    target.server.kill()
    task.write(1, 2)
    task.sink.execute(TICK)
    task.write(3, 4, 5)
    assert task.collector.acked == []
    target.server.start_again()
    for _ in range(4):
        task.sink.execute(TICK)
    assert target.rows == [1, 2, 3, 4, 5] and len(task.collector.acked) == 5
    assert "is not reached" in task.texts()[0]


@pytest.fixture
def configured_nats(tmp_path: Path) -> Iterator[NatsProcess]:
    """A server that reads `nats.conf`."""
    (tmp_path / "nats.conf").write_text("")
    (tmp_path / "data").mkdir()
    started = nats.start(tmp_path / "data", "-c", str(tmp_path / "nats.conf"))
    yield started
    started.stop()


@pytest.mark.parametrize("numbers", [("a", "b" * 3000, "c"), ("b" * 3000,) * 3])
def test_messages_that_a_server_takes_no_more_since_its_restart_fail_alone(
    configured_nats: NatsProcess, tmp_path: Path, numbers: tuple[str, ...]
) -> None:
    target = Target(configured_nats, tmp_path)
    task = ReportingTask(target.sink(max_batch=3), "at_least_once")
    configured_nats.stop()
    (tmp_path / "nats.conf").write_text("max_payload: 2000")
    configured_nats.start_again()
    for n in numbers:
        task.sink.execute(tracked(n=n))
    for _ in range(3):
        task.sink.execute(TICK)
    small = [n for n in numbers if len(n) == 1]
    assert target.rows == small
    assert (len(task.collector.acked), len(task.collector.failed)) == (len(small), 3 - len(small))
    assert "the server takes 2000" in task.texts()[-1]


def test_each_field_in_braces_names_a_subject(target: Target) -> None:
    task = ReportingTask(target.sink(subject=f"{target.stream}.{{n}}"), "at_least_once")
    task.write(1, 2)
    task.sink.execute(TICK)
    assert messages(target.server.address, target.stream, f"{target.stream}.2") == [b'{"n":2}']
    for wrong in (None, "a.b", "", "a b", "*"):
        with pytest.raises(UserError, match="no token of a subject"):
            task.sink.execute(tracked(n=wrong))


def test_messages_that_the_stream_does_not_take_are_refused_one_by_one(nats_server: NatsProcess, tmp_path: Path) -> None:
    target = Target(nats_server, tmp_path, max_msg_size=2000)
    task = ReportingTask(target.sink())
    with pytest.raises(UnsupportedValueError, match="take 1488"):
        task.sink.execute(tracked(n="x" * 3000))
    elsewhere = ReportingTask(target.sink(subject=lambda tup: f"elsewhere.{tup['n']}"))
    with pytest.raises(UserError, match=r"does not store subject 'elsewhere\.1'"):
        elsewhere.write(1)
    task.sink.execute(tracked(n="x" * 1400))
    task.snapshot(1)
    task.output.complete(1)
    assert len(target.rows) == 1


def test_streams_that_cannot_keep_the_promise_are_refused(nats_server: NatsProcess, tmp_path: Path) -> None:
    from nats.js.api import RetentionPolicy

    short = Target(nats_server, tmp_path, duplicate_window=1)
    with pytest.raises(ConfigError, match=r"for 1 s .* needs for .*--dupe-window"):
        ReportingTask(short.sink())
    ReportingTask(short.sink(), "at_least_once")
    queue = Target(nats_server, tmp_path, retention=RetentionPolicy.WORK_QUEUE)
    with pytest.raises(ConfigError, match="removes messages that were read"):
        ReportingTask(queue.sink())
    ReportingTask(queue.sink(), "at_least_once")
    with pytest.raises(ConfigError, match=r"has no stream 'MISSING'"):
        ReportingTask(short.sink(stream="MISSING"))
    with pytest.raises(ConfigError, match=r"does not store subject 'other\.out'"):
        ReportingTask(short.sink(subject="other.out"))


@pytest.fixture
def locked_nats(tmp_path: Path) -> Iterator[NatsProcess]:
    folder = tmp_path / "locked"
    folder.mkdir()
    server = nats.start(folder, "--user", nats.USER, "--pass", nats.PASSWORD)
    yield server
    server.stop()


def test_a_wrong_password_is_an_error_of_open_which_does_not_show_it(locked_nats: NatsProcess) -> None:
    url = f"nats://{nats.USER}:planted-wrong@127.0.0.1:{locked_nats.port}"
    sink = NatsSink(url, "out", stream="OUT")
    with pytest.raises(ConfigError, match="refuses this user") as refused:
        ReportingTask(sink)
    assert "planted" not in f"{refused.value} {sink!r} {sink._servers!r} {sink._servers}"


def test_a_server_that_is_not_there_is_named(nats_server: NatsProcess) -> None:
    with pytest.raises(TopoEnvironmentError, match="is not reached"):
        ReportingTask(NatsSink("nats://topo:planted-password@127.0.0.1:1", "out", stream="OUT", timeout="500ms"))


def test_a_server_that_does_not_answer_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        servers = NatsServers("NatsSink", f"nats://{address}", "200ms", {})
        with closing(NatsConnection(servers)) as connection, pytest.raises(TimeoutError, match=f"{address} has taken no connect"):
            connection.run(never)


async def never(_client: Any, _jetstream: Any) -> None:
    raise AssertionError("there is no connection")
