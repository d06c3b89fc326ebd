"""Events and messages that a real server sends, whose connections are cut and which is stopped and started."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.servers.server import need
from topo import PartitionedSpout, SseSpout, WebSocketSpout
from topo.errors import ConfigError
from topo.testing.partition_harness import PartitionHarness

pytestmark = [pytest.mark.server, pytest.mark.xdist_group("http")]


@pytest.fixture
def server() -> Iterator[Any]:
    need(("aiohttp",))
    from tests.connectors.http_streams import StreamServer

    made = StreamServer()
    yield made
    made.close()


class Reading:
    """Tasks that read, and the end of their connections."""

    def __init__(self, make: Callable[[], PartitionedSpout], tasks: int = 1) -> None:
        self.harness = PartitionHarness(make, tasks)

    def until(self, condition: Callable[[], object]) -> None:
        from tests.connectors.http_streams import wait_turns

        wait_turns(lambda: self.harness.turns(1), condition, self.harness.errors)

    def values(self, count: int) -> list[Any]:
        self.until(lambda: len(self.harness.all_rows()) >= count)
        self.harness.turns(3)
        return [row[0] if len(row) == 1 else row for _, _, row in self.harness.all_rows()]

    @property
    def errors(self) -> list[str]:
        return list(map(str, self.harness.errors))

    def counter(self, name: str) -> int:
        return sum(task.spout._loop._context.metrics.counter(name).value for task in self.harness.tasks)  # type: ignore[union-attr]


@pytest.fixture
def reading() -> Iterator[Callable[..., Reading]]:
    made: list[Reading] = []

    def read(make: Callable[[], PartitionedSpout], tasks: int = 1) -> Reading:
        made.append(Reading(make, tasks))
        return made[-1]

    yield read
    for one in made:
        one.harness.stop()


def sse(server: Any, **options: Any) -> Callable[[], PartitionedSpout]:
    return lambda: SseSpout(f"http://127.0.0.1:{server.port}/events", **options)


def socket(server: Any, **options: Any) -> Callable[[], PartitionedSpout]:
    return lambda: WebSocketSpout(f"ws://127.0.0.1:{server.port}/socket", **options)


# -- redirects ---------------------------------------------------------------------------------------------------------------


SECRETS = {"Authorization": "Bearer planted", "X-Api-Key": "planted"}
MOVED: tuple[Any, ...] = (
    lambda server, **options: SseSpout(f"http://127.0.0.1:{server.port}/moved", **options),
    lambda server, **options: WebSocketSpout(f"ws://127.0.0.1:{server.port}/moved", **options),
)
KINDS = pytest.mark.parametrize(("make", "path"), list(zip(MOVED, ("/events", "/socket"), strict=True)))


@pytest.fixture
def other() -> Iterator[Any]:
    need(("aiohttp",))
    from tests.connectors.http_streams import StreamServer

    made = StreamServer()
    yield made
    made.close()


@KINDS
def test_no_header_goes_to_another_origin(server: Any, other: Any, reading: Any, make: Any, path: str) -> None:
    server.moved_to = f"http://127.0.0.1:{other.port}{path}?token=planted"
    task = reading(lambda: make(server, headers=SECRETS))
    task.until(lambda: task.errors)
    (error,) = task.errors
    assert f"redirects to http://127.0.0.1:{other.port}{path}, another origin, which would be sent the headers" in error
    assert "planted" not in error
    assert server.keys == ["planted"] and other.keys == []


@pytest.mark.parametrize(
    ("url", "options"),
    [("ws://127.0.0.1:{}/moved", {"subscribe": "a token"}), ("ws://me:planted@127.0.0.1:{}/moved", {})],
)
def test_no_text_or_password_goes_to_another_origin(server: Any, other: Any, reading: Any, url: str, options: Any) -> None:
    server.moved_to = f"http://127.0.0.1:{other.port}/socket"
    task = reading(lambda: WebSocketSpout(url.format(server.port), **options))
    task.until(lambda: task.errors)
    assert "another origin, which would be sent" in task.errors[0] and "planted" not in task.errors[0]
    assert server.tokens and other.tokens == other.received == []


@KINDS
@pytest.mark.parametrize("location", ["{path}", "http://127.0.0.1:{port}{path}"])
def test_a_redirect_within_the_origin_is_followed(server: Any, reading: Any, make: Any, path: str, location: str) -> None:
    server.moved_to = location.format(path=path, port=server.port)
    server.append(("a", "1"))
    task = reading(lambda: make(server, headers=SECRETS))
    task.until(lambda: server.open)
    assert server.keys == ["planted", "planted"] and task.errors == []


@KINDS
@pytest.mark.parametrize("location", ["http://[broken/", "mailto:somebody@example.org"])
def test_a_redirect_to_no_place_is_reported(server: Any, reading: Any, make: Any, path: str, location: str) -> None:
    server.moved_to = location
    task = reading(lambda: make(server, headers=SECRETS))
    task.until(lambda: task.errors)
    assert "it connects again" in task.errors[0]


@KINDS
def test_a_redirect_to_another_origin_is_followed_where_nothing_is_secret(
    server: Any, other: Any, reading: Any, make: Any, path: str
) -> None:
    server.moved_to = f"http://127.0.0.1:{other.port}{path}"
    task = reading(lambda: make(server))
    task.until(lambda: other.open)
    assert task.errors == []


# -- server-sent events ------------------------------------------------------------------------------------------------------


def test_events_are_read_as_they_come(server: Any, reading: Any) -> None:
    server.append(("a", '{"n": 1}'), ("b", '{"n": 2}'))
    task = reading(
        sse(server, value_deserializer="json", fields=("n",), metadata=("id",), headers={"Authorization": "Bearer x"}), tasks=2
    )
    assert task.values(2) == [(1, "a"), (2, "b")]
    server.append(("c", '{"n": 3}'))
    assert task.values(3)[-1] == (3, "c")
    assert server.asked == [None] and server.tokens == ["Bearer x"] and task.errors == []


def test_a_cut_connection_is_reported_once_and_read_on_behind_the_last_event(server: Any, reading: Any) -> None:
    server.append(("a", "1"), ("b", "2"))
    task = reading(sse(server))
    task.values(2)
    server.stop()
    cut_at = time.monotonic()
    server.append(("c", "3"))
    task.until(lambda: task.counter("reconnects") >= 2)
    assert time.monotonic() - cut_at > 1.5, "the server asks for 10 ms, and connections follow after 1 s all the same"
    server.start()
    assert task.values(3) == ["1", "2", "3"] and server.asked == [None, "b"]
    assert len(task.errors) == 1 and "it connects again, behind the last event" in task.errors[0]


def test_a_new_process_reads_on_behind_the_stored_event(server: Any, reading: Any) -> None:
    server.append(("zz", "1"), ("b", "2"))
    task = reading(sse(server))
    task.values(2)
    task.harness.stop()
    server.append(("a", "3"))
    task.harness.start(2)
    assert task.values(3) == ["1", "2", "3"] and server.asked[-1] == "b" and task.errors == []


def test_a_recovery_reads_again_behind_the_checkpoint(server: Any, reading: Any) -> None:
    server.append(("a", "1"))
    task = reading(sse(server))
    task.values(1)
    stored = task.harness.stored()
    server.append(("b", "2"), ("c", "3"))
    task.values(3)
    task.harness.tasks[0].restart(stored)
    assert task.values(5) == ["1", "2", "3", "2", "3"] and task.errors == []


def test_events_without_ids_that_are_lost_are_reported(server: Any, reading: Any) -> None:
    server.append(("", "1"))
    task = reading(sse(server))
    task.values(1)
    server.stop()
    task.until(lambda: task.errors)
    assert "events until then are lost, since they have no ids" in task.errors[0]
    task.harness.stop()
    server.start()
    task.harness.start(1)
    task.until(lambda: len(task.errors) > 1)
    assert "cannot read messages again that came before the recovery" in task.errors[1]
    assert task.counter("lost_records") == 1


def test_a_bad_event_is_given_up_with_its_bytes_and_the_next_ones_are_read(server: Any, reading: Any) -> None:
    server.append(("a", "1"), ("b", "{"), ("c", "x" * 100), ("d", "4"))
    task = reading(sse(server, value_deserializer="json", max_event=50))
    assert task.values(2) == [1, 4]
    assert [(position, record) for _, position, record in task.harness.given_up] == [((2, "b"), b"{"), ((3, "c"), b"x" * 50)]


def test_a_server_without_more_events_ends_the_input(server: Any, reading: Any) -> None:
    server.append(("a", "1"))
    task = reading(sse(server))
    task.values(1)
    server.status = 204
    server.cut()
    task.until(lambda: task.harness.tasks[0].has_ended)


def test_a_refusal_is_reported_and_tried_again(server: Any, reading: Any) -> None:
    server.status = 401
    task = reading(sse(server, headers={"Authorization": "Bearer planted"}))
    task.until(lambda: task.errors)
    assert "answered 401" in task.errors[0] and "planted" not in task.errors[0]
    server.status = 200
    server.append(("a", "1"))
    assert task.values(1) == ["1"]


def test_a_silent_server_is_left_for_a_new_connection(server: Any, reading: Any) -> None:
    server.append(("a", "1"))
    task = reading(sse(server, silence="200ms"))
    task.values(1)
    task.until(lambda: len(server.asked) > 1)
    assert "nothing has come for 0.2 s" in task.errors[0] and server.asked[1] == "a"


def test_only_the_wanted_events_are_emitted(server: Any, reading: Any) -> None:
    server.append(("a", "1\nevent: added"), ("b", "2"), ("c", "3\nevent: added"))
    task = reading(sse(server, events=("added",), metadata=("event",)))
    assert task.values(2) == [("1", "added"), ("3", "added")]


# -- WebSocket ---------------------------------------------------------------------------------------------------------------


def test_messages_are_read_and_a_subscription_is_sent_first(server: Any, reading: Any) -> None:
    task = reading(socket(server, subscribe=("one", "two"), headers={"Authorization": "Bearer x"}))
    task.until(lambda: server.received == ["one", "two"])
    server.send("1", b"2")
    assert task.values(2) == ["1", "2"] and server.tokens == ["Bearer x"] and task.errors == []


@pytest.mark.parametrize("how", ["cut", "leave"])
def test_a_lost_connection_is_reported_counted_and_made_again(server: Any, reading: Any, how: str) -> None:
    task = reading(socket(server, subscribe="again"))
    task.until(lambda: server.received)
    server.send("1")
    task.values(1)
    getattr(server, how)()
    task.until(lambda: server.received == ["again", "again"])
    server.send("2")
    assert task.values(2) == ["1", "2"]
    assert len(task.errors) == 1 and "messages until then are lost" in task.errors[0]
    assert task.counter("reconnects") == 1


def test_the_reason_of_the_server_is_reported(server: Any, reading: Any) -> None:
    task = reading(socket(server))
    task.until(lambda: server.open)
    server.leave(4001, "the token has expired")
    task.until(lambda: task.errors)
    assert "closed with 4001 (the token has expired)" in task.errors[0]


def test_a_message_of_the_most_bytes_is_read_and_a_longer_one_names_the_limit(server: Any, reading: Any) -> None:
    task = reading(socket(server, max_message=1000))
    task.until(lambda: server.open)
    server.send("x" * 1000)
    assert task.values(1) == ["x" * 1000] and task.errors == []
    server.send("x" * 1001)
    task.until(lambda: task.errors)
    assert "closed with 1009 (a message is longer than max_message, 1000 bytes; raise it)" in task.errors[0]


class Impatient(WebSocketSpout):
    """Does not wait long for the answer to its request."""

    def _client(self) -> Any:
        client: Any = super()._client()
        client.handshake_s = 0.3
        return client


def test_a_server_that_accepts_and_is_silent_is_left(server: Any, reading: Any) -> None:
    server.silent_s = 20.0
    task = reading(lambda: Impatient(f"ws://127.0.0.1:{server.port}/socket", subscribe="again"))
    task.until(lambda: task.errors)
    assert "the server has not answered within 0.3 s; it connects again" in task.errors[0]
    server.silent_s = 0.0
    task.until(lambda: server.received)
    # The limit is of the answer, and not of the connection.
    task.until(lambda: time.monotonic() - server.asked_at[-1] > 0.5)
    server.send("1")
    assert task.values(1) == ["1"] and len(task.errors) == 1


def test_a_server_that_closes_each_connection_at_once_is_asked_less_and_less(server: Any, reading: Any) -> None:
    task = reading(socket(server))
    for made in range(1, 4):
        task.until(lambda made=made: server.open == made)
        server.leave(1008)
    first, second, third = server.asked_at
    assert third - second > 1.9 > second - first


@pytest.mark.parametrize("make", [sse, socket])
def test_a_refusal_that_names_a_time_is_obeyed(server: Any, reading: Any, make: Any) -> None:
    server.status, server.retry_after = 503, "2"
    reading(make(server)).until(lambda: len(server.asked_at) > 1)
    assert server.asked_at[1] - server.asked_at[0] >= 2.0


def test_a_refused_token_is_in_no_error(server: Any, reading: Any) -> None:
    server.status = 401
    url = f"ws://127.0.0.1:{server.port}/socket?token=planted"
    task = reading(lambda: WebSocketSpout(url, headers={"X-Auth": "planted"}))
    task.until(lambda: task.errors)
    assert "401" in task.errors[0] and "planted" not in f"{task.errors} {task.harness.tasks[0].spout!r}"


def test_a_query_is_in_no_error_of_a_refused_socket(server: Any) -> None:
    server.status = 401
    task = Reading(lambda: WebSocketSpout(f"ws://127.0.0.1:{server.port}/socket?sig=planted"))
    task.until(lambda: task.errors)
    assert "401" in task.errors[0] and "planted" not in str(task.errors)
    task.harness.stop()


def test_a_recovery_reports_the_messages_that_it_loses(server: Any, reading: Any) -> None:
    task = reading(socket(server))
    task.until(lambda: server.open)
    server.send("1")
    task.values(1)
    stored = task.harness.stored()
    server.send("2", "3")
    task.values(3)
    task.harness.tasks[0].restart(stored)
    server.send("4")
    assert task.values(4) == ["1", "2", "3", "4"]
    assert ["cannot read 2 messages again" in error for error in task.errors] == [True] and task.counter("lost_records") == 2
    task.harness.stop()
    task.harness.start(1)
    task.until(lambda: len(task.errors) > 1)
    assert "cannot read messages again that came before the recovery" in task.errors[1]


def test_the_oldest_messages_are_dropped_and_counted_when_the_topology_is_slower(server: Any, reading: Any) -> None:
    task = reading(socket(server, on_full="drop_oldest", most_waiting=10))
    task.until(lambda: server.open)
    server.send(*[str(n) for n in range(1500)])
    client = task.harness.tasks[0].spout._loop._reader._client
    from tests.connectors.http_streams import wait_turns

    # The queue has 1000 of them, the ring 10, and one is on its way between them.
    wait_turns(lambda: None, lambda: client.dropped >= 489, task.harness.errors)
    task.until(lambda: (rows := task.harness.all_rows()) and rows[-1][2] == ("1499",))
    numbers = [int(value) for _, _, (value,) in task.harness.all_rows()]
    assert numbers[:1000] == list(range(1000)) and numbers == sorted(numbers)
    assert client.dropped in (489, 490) and len(numbers) == 1500 - client.dropped
    assert task.counter("lost_records") == client.dropped and "drops messages" in task.errors[0]


def test_a_slow_topology_loses_nothing_while_the_server_waits(server: Any, reading: Any) -> None:
    task = reading(socket(server, most_waiting=10))
    task.until(lambda: server.open)
    server.send(*[str(n) for n in range(5000)])
    assert task.values(5000) == [str(n) for n in range(5000)] and task.errors == []


def test_a_server_that_waits_for_the_topology_is_not_taken_for_dead(server: Any, reading: Any) -> None:
    task = reading(socket(server, heartbeat="100ms"))
    task.until(lambda: server.open)
    # More than the client reads ahead, so that answers to pings are not read either. Then some heartbeats without room for it.
    server.send(*[str(n).ljust(2000) for n in range(3000)])
    time.sleep(0.5)
    assert task.values(3000)[-1].strip() == "2999" and task.errors == []


def test_a_server_that_answers_no_pings_is_left_for_a_new_connection(server: Any, reading: Any) -> None:
    server.answers_pings = False
    task = reading(socket(server, heartbeat="100ms"))
    task.until(lambda: len(server.tokens) > 1)
    assert "No PONG received" in task.errors[0]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SseSpout("example.org"), "must begin with http://"),
        (lambda: SseSpout("http://x", events="a"), "events='a'"),
        (lambda: SseSpout("http://x", silence="0s"), "above zero"),
        (lambda: SseSpout("http://x", metadata=("offset",)), "metadata has 'offset'"),
        (lambda: SseSpout("http://x", headers={"X-Api-Key": None}), "None for 'X-Api-Key'"),
        (lambda: WebSocketSpout("ws://x", headers={"X-Api-Key": None}), "None for 'X-Api-Key'"),
        (lambda: SseSpout("http://u:p@x", headers={"Authorization": "x"}), "has a user, and headers="),
        (lambda: WebSocketSpout("ws://u:p@x", headers={"Authorization": "x"}), "has a user, and headers="),
        (lambda: WebSocketSpout("http://x"), "must begin with ws://"),
        (lambda: WebSocketSpout("ws://x", on_full="block"), "on_full='block'"),
        (lambda: WebSocketSpout("ws://x", most_waiting=0), "above zero"),
    ],
)
def test_arguments_that_cannot_be_used_are_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()
