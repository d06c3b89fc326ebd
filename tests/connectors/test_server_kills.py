"""Records from a server through a topology to the same server, while workers, the master and the server are killed at random.

    KILL_SECONDS=60 KILL_SEED=7 pytest -s tests/connectors/test_server_kills.py

kills for a minute, draws other kills, and shows the counts. Kafka and PostgreSQL have tests of their own.
"""

from __future__ import annotations

import json
import secrets
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.connectors.http_receiver import receiving
from tests.connectors.mqtt_peers import Peer
from tests.connectors.server_kills import KINDS, kill_for_a_while
from tests.integration.conftest import no_process_is_left, scene
from tests.integration.random_kills import SECONDS, SETTINGS, Killer
from tests.integration.support import Scene, component_of, eventually, flow
from tests.servers import mosquitto
from tests.servers.nats import NatsProcess
from tests.servers.rabbitmq import RabbitBroker, channel_at
from tests.servers.redis import RedisProcess
from tests.servers.server import Server, free_port
from topo.master.outcome import OutcomeKind

pytestmark = [pytest.mark.integration, pytest.mark.server, pytest.mark.timeout(700 + 6 * SECONDS)]
__all__ = ["no_process_is_left", "scene"]

RECORDS = 600
PATIENCE_S = 200.0


@dataclass
class Ends:
    """Both ends of a topology.

    Attributes:
        delivery: the strongest that both connectors promise.
        source, sink: of the topology, as code.
        put: appends the record of a number, and returns when the server has it. May be repeated for the same number.
        found: the numbers that have come out so far.
        restart: ends the server, and starts it again.
    """

    delivery: str
    source: str
    sink: str
    put: Callable[[int], object]
    found: Callable[[], Iterable[int]]
    restart: Callable[[Random], None]


def restarting(server: Any, end: Callable[[Server], None] = Server.kill) -> Callable[[Random], None]:
    def restart(chance: Random) -> None:
        end(server)
        time.sleep(chance.random())
        server.start_again()

    return restart


@contextmanager
def redis_streams(request: pytest.FixtureRequest) -> Iterator[Ends]:
    from redis.exceptions import ResponseError

    server: RedisProcess = request.getfixturevalue("redis_server")
    key, client = f"kills-{secrets.token_hex(4)}", server.client()

    def put(number: int) -> None:
        try:
            client.xadd(key, {"n": number}, id=f"{number + 1}-0")
        except ResponseError as error:
            # It was appended, and the reply was lost.
            if "equal or smaller" not in str(error):
                raise

    yield Ends(
        "exactly_once",
        f"RedisStreamSpout({server.address!r}, {key!r}, fields=('n',), value_deserializer='json', timeout='2s')",
        f"RedisStreamSink({server.address!r}, '{key}:out', timeout='2s')",
        put,
        lambda: [int(entry["n"]) for _, entry in client.xrange(f"{key}:out")],
        restarting(server),
    )


@contextmanager
def redis_group(request: pytest.FixtureRequest) -> Iterator[Ends]:
    with redis_streams(request) as ends:
        source = ends.source.replace("RedisStreamSpout", "RedisGroupSpout").replace(
            ", fields", ", 'group', claim_after='1s', fields"
        )
        yield Ends("at_least_once", source, ends.sink, ends.put, ends.found, ends.restart)


@contextmanager
def nats_streams(request: pytest.FixtureRequest) -> Iterator[Ends]:
    server: NatsProcess = request.getfixturevalue("nats_server")
    source, target = server.make_stream(), server.make_stream()

    def put(number: int) -> None:
        async def publish(_client: Any, stream: Any) -> None:
            await stream.publish(f"{source}.in", json.dumps({"n": number}).encode(), headers={"Nats-Msg-Id": str(number)})

        server.run(publish)

    def found() -> list[int]:
        async def read(_client: Any, stream: Any) -> list[int]:
            last = (await stream.stream_info(target)).state.last_seq
            return [json.loads((await stream.get_msg(target, number)).data)["n"] for number in range(1, last + 1)]

        numbers: list[int] = server.run(read)
        return numbers

    yield Ends(
        "exactly_once",
        f"NatsSpout({server.address!r}, {source!r}, value_deserializer='json', fields=('n',), timeout='2s')",
        f"NatsSink({server.address!r}, '{target}.out', stream={target!r}, timeout='2s')",
        put,
        found,
        restarting(server),
    )


@contextmanager
def nats_durable(request: pytest.FixtureRequest) -> Iterator[Ends]:
    with nats_streams(request) as ends:
        source = ends.source.replace(", fields", ", durable='workers', ack_wait='2s', fields")
        yield Ends("at_least_once", source, ends.sink, ends.put, ends.found, ends.restart)


@contextmanager
def rabbit_queues(request: pytest.FixtureRequest) -> Iterator[Ends]:
    broker: RabbitBroker = request.getfixturevalue("rabbit_broker")
    source, target = broker.declare(), broker.declare()
    out: list[int] = []

    def put(number: int) -> None:
        import pika

        with channel_at(broker.address) as channel:
            channel.basic_publish("", source, json.dumps({"n": number}), pika.BasicProperties(delivery_mode=2))

    def found() -> list[int]:
        from pika.exceptions import AMQPError

        # Until it has a leader again a queue refuses requests. Acknowledgements on a channel that is closed at once can be lost.
        with suppress(AMQPError), channel_at(broker.address) as channel:
            while (got := channel.basic_get(target, auto_ack=True))[0] is not None:
                out.append(json.loads(got[2])["n"])
        return out

    yield Ends(
        "at_least_once",
        f"RabbitSpout({broker.address!r}, {source!r}, value_deserializer='json', fields=('n',), timeout='2s')",
        f"RabbitSink({broker.address!r}, '', {target!r}, timeout='2s')",
        put,
        found,
        restarting(broker, RabbitBroker.kill),  # type: ignore[arg-type]
    )


@contextmanager
def mqtt_topics(request: pytest.FixtureRequest) -> Iterator[Ends]:
    folder = request.getfixturevalue("tmp_path") / "broker"
    folder.mkdir()
    broker = mosquitto.start(folder)
    reader = Peer(broker, "out")
    # The broker keeps messages for sessions that it knows: that of the spout is made before the first message.
    session = Peer(broker)

    def put(number: int) -> None:
        session.publish("in", json.dumps({"n": number}))

    try:
        yield Ends(
            "at_least_once",
            f"MqttSpout({broker.address!r}, 'in', value_deserializer='json', fields=('n',))",
            f"MqttSink({broker.address!r}, 'out')",
            put,
            lambda: [json.loads(payload)["n"] for _, payload in list(reader.got)],
            # Killed it would lose messages that it has taken and not written to its file yet.
            restarting(broker, Server.stop),
        )
    finally:
        for peer in (reader, session):
            peer.close()
        broker.kill()


@contextmanager
def http_ends(request: pytest.FixtureRequest) -> Iterator[Ends]:
    port, out = free_port(), free_port()
    with ExitStack() as stack:
        receivers = [stack.enter_context(receiving(out))]

        def put(number: int) -> None:
            body = json.dumps({"n": number}).encode()
            with urllib.request.urlopen(urllib.request.Request(f"http://127.0.0.1:{port}/in", body), timeout=20) as answer:
                assert answer.status == 200

        def restart(chance: Random) -> None:
            stack.close()
            time.sleep(chance.random())
            receivers.append(stack.enter_context(receiving(out)))

        yield Ends(
            "at_least_once",
            f"WebhookSpout({port}, '/in', fields=('n',))",
            f"HttpSink('http://127.0.0.1:{out}', timeout='2s')",
            put,
            lambda: [json.loads(body)["n"] for receiver in receivers for body in receiver.bodies],
            restart,
        )


def put_slowly(ends: Ends, hurry: Path) -> None:
    """Put all records, over more time than kills take, until the file "hurry" exists; the last one not before."""
    due = time.monotonic()
    for number in range(RECORDS):
        due += 3 * SECONDS / RECORDS
        while (number == RECORDS - 1 or time.monotonic() < due) and not hurry.exists():
            time.sleep(0.01)
        until = time.monotonic() + PATIENCE_S
        while True:
            try:
                ends.put(number)
                break
            except Exception:
                # The server, or the topology that listens, is down.
                if time.monotonic() > until:
                    raise
                time.sleep(0.05)


def is_connected(status: dict[str, Any]) -> bool:
    """Whether the topology runs, and its source, if it shows that, is connected: MQTT keeps messages for known sessions."""
    return status["status"] == "RUNNING" and bool(component_of(status, "in")["user"]["gauges"].get("connected", True))


def on(group: str, make: Callable[..., Any]) -> Any:
    return pytest.param(make, marks=pytest.mark.xdist_group(group), id=make.__name__)


@pytest.mark.parametrize(
    "make",
    [
        on("redis", redis_streams),
        on("redis", redis_group),
        on("nats", nats_streams),
        on("nats", nats_durable),
        on("rabbitmq", rabbit_queues),
        on("mqtt", mqtt_topics),
        on("http", http_ends),
    ],
)
def test_each_record_comes_out_though_processes_and_the_server_are_killed(
    scene: Scene, make: Callable[..., Any], request: pytest.FixtureRequest
) -> None:
    with make(request) as ends, ThreadPoolExecutor(1) as threads:
        sink = f'builder.set_bolt("out", {ends.sink}, 2).shuffle_grouping("in")'
        file = scene.file(flow(f'builder.set_spout("in", {ends.source})', sink))
        running = scene.submit_background(file, **SETTINGS, delivery=ends.delivery)
        killer = Killer(scene, running)
        running.wait_until(is_connected, timeout_s=PATIENCE_S)
        putting = threads.submit(put_slowly, ends, scene.folder / "hurry")
        try:
            struck = kill_for_a_while(killer, ends.restart)
        finally:
            scene.touch("hurry")
        putting.result()
        wanted = set(range(RECORDS))
        eventually(lambda: set(ends.found()) >= wanted, PATIENCE_S, what=f"all records after {dict(struck)}; {killer}")
        killer.running.drain(30)
        outcome = killer.finish()
        found = Counter(ends.found())
    print(f"\n{make.__name__}: {RECORDS} records, {found.total()} came out; struck {dict(struck)}; {killer}")
    assert outcome.kind is OutcomeKind.DRAINED, outcome.reason
    assert (outcome.finally_failed, outcome.dead_letters, outcome.refused, outcome.unaccounted) == (0, 0, 0, 0)
    assert set(found) == wanted and min(struck[kind] for kind in KINDS) >= 1
    if ends.delivery == "exactly_once":
        assert found.total() == RECORDS, [number for number, count in found.items() if count > 1]
