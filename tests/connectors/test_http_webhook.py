"""Requests in: a real server, and senders that are other programs to it."""

from __future__ import annotations

import gzip
import json
import socket
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection
from typing import Any

import pytest

from tests.connectors.spout_tasks import SpoutTask
from tests.servers.server import free_port, need
from topo import WebhookSpout
from topo.connectors.http.requests import signature_of
from topo.errors import ConfigError

pytestmark = [pytest.mark.server, pytest.mark.xdist_group("http")]


@pytest.fixture(autouse=True)
def aiohttp() -> None:
    need(("aiohttp",))


class Answer:
    """An answer: its status, its text, and when to send again."""

    def __init__(self, status: int, text: str, retry_after: str | None) -> None:
        self.status, self.text, self.retry_after = status, text, retry_after


class Webhook:
    """A spout that listens, and programs that send."""

    def __init__(self, port: int, config: dict[str, Any], options: dict[str, Any]) -> None:
        self.port = port
        self.senders = ThreadPoolExecutor(16)
        self.task = SpoutTask(WebhookSpout(port, "/in", **options), **config)
        self.task.until(lambda: self.task.gauge("connected"), "the server")

    def send(self, body: Any, *, path: str = "/in", method: str = "POST", **headers: str) -> Future[Answer]:
        """Send a request beside the test; an object as JSON."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.senders.submit(self._send, method, path, data, named)

    def _send(self, method: str, path: str, data: bytes, headers: dict[str, str]) -> Answer:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            connection.request(method, path, data, headers)
            answer = connection.getresponse()
            return Answer(answer.status, answer.read().decode(), answer.getheader("Retry-After"))
        finally:
            connection.close()

    def answer(self, body: Any, **options: Any) -> Answer:
        """Send a request that is answered without the topology."""
        return self.send(body, **options).result(20)

    def rows(self, count: int) -> list[Any]:
        self.task.until(lambda: len(self.task.rows) >= count, f"{count} rows")
        assert len(self.task.rows) == count
        return self.task.values()


@contextmanager
def listening(config: dict[str, Any] | None = None, **options: Any) -> Iterator[Webhook]:
    made = Webhook(free_port(), config or {}, options)
    try:
        yield made
    finally:
        made.task.spout.close()
        made.senders.shutdown()


def test_a_request_is_answered_when_its_message_is_done() -> None:
    with listening(fields=("n", "city?"), metadata=("path", "id")) as hook:
        first, second = hook.send({"n": 1, "city": "Ulm"}, Idempotency_Key="a"), hook.send({"n": 2}, Idempotency_Key="b")
        assert sorted(hook.rows(2)) == [(1, "Ulm", "/in", "a"), (2, None, "/in", "b")]
        assert not first.done() and not second.done()
        hook.task.spout.ack("a")
        assert first.result(20).status == 200 and not second.done()
        hook.task.spout.fail("b")
        failed = second.result(20)
        assert (failed.status, failed.retry_after) == (503, "5")
        hook.task.turn()
        assert hook.task.counter("records") == 2 and hook.task.counter("bytes") == len('{"n": 1, "city": "Ulm"}{"n": 2}')


def test_a_message_that_cannot_be_emitted_fails_its_request_alone() -> None:
    with listening() as hook:
        hook.task.refused = {"k1"}
        answers = [hook.send({"n": n}, Idempotency_Key=f"k{n}") for n in range(3)]
        hook.rows(2)
        hook.task.until(lambda: hook.task.errors)
        assert answers[1].result(20).status == 503 and "planted" in str(hook.task.errors[0])
        for name, _ in hook.task.rows:
            hook.task.spout.ack(name)
        assert [answers[0].result(20).status, answers[2].result(20).status] == [200, 200]
        again = hook.send({"n": 1}, Idempotency_Key="k1")
        hook.task.until(lambda: len(hook.task.errors) == 2)
        assert again.result(20).status == 503


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_headers_are_texts_in_either_encoding_that_senders_use(encoding: str) -> None:
    with listening(metadata=("id", "headers")) as hook:
        # HTTPConnection writes what a text has in Latin-1.
        given = "café".encode(encoding).decode("latin-1")
        hook.send({}, X_City=given, Idempotency_Key=given)
        ((_, name, headers),) = hook.rows(1)
        assert (name, headers["x-city"]) == ("café", "café")


def test_another_body_is_refused_while_a_message_is_under_way_though_its_sender_has_left() -> None:
    with listening(answer_timeout="200ms") as hook:
        late = hook.send({"n": 1}, Idempotency_Key="a")
        hook.rows(1)
        assert late.result(20).status == 503
        assert hook.answer({"n": 2}, Idempotency_Key="a").status == 422
        hook.task.spout.fail("a")
        hook.task.until(lambda: not hook.task.spout._server._open)  # type: ignore[attr-defined]
        later = hook.send({"n": 2}, Idempotency_Key="a")
        assert hook.rows(2)[1] == {"n": 2}
        hook.task.spout.ack("a")
        assert later.result(20).status == 200


def test_requests_of_one_id_are_one_message_and_all_are_answered() -> None:
    with listening() as hook:
        answers = [hook.send({"n": 1}, Idempotency_Key="a") for _ in range(5)]
        hook.rows(1)
        other = hook.answer({"n": 2}, Idempotency_Key="a")
        assert other.status == 422 and "another body" in other.text
        hook.task.spout.ack("a")
        assert [one.result(20).status for one in answers] == [200] * 5


def test_requests_without_an_id_are_messages_of_their_own_though_their_bodies_are_equal() -> None:
    with listening() as hook:
        answers = [hook.send({"n": 1}), hook.send({"n": 1})]
        assert hook.rows(2) == [{"n": 1}, {"n": 1}]
        for name, _ in hook.task.rows:
            hook.task.spout.ack(name)
        assert [one.result(20).status for one in answers] == [200, 200]


def test_a_repeat_of_a_message_that_is_under_way_gets_its_answer() -> None:
    with listening(answer_timeout="200ms") as hook:
        late = hook.send({"n": 1}, Idempotency_Key="a")
        hook.rows(1)
        assert late.result(20).status == 503
        again = hook.send({"n": 1}, Idempotency_Key="a")
        hook.task.until(lambda: hook.task.spout._server._places < 1000)  # type: ignore[attr-defined]
        hook.task.spout.ack("a")
        assert again.result(20).status == 200 and len(hook.task.rows) == 1


def test_a_repeat_of_a_message_that_is_done_is_answered_at_once() -> None:
    with listening() as hook:
        first = hook.send({"n": 1}, Idempotency_Key="a")
        hook.rows(1)
        hook.task.spout.ack("a")
        assert first.result(20).status == 200
        assert hook.answer({"n": 1}, Idempotency_Key="a").status == 200
        assert hook.answer({"n": 2}, Idempotency_Key="a").status == 422
        hook.task.turn()
        assert len(hook.task.rows) == 1


def test_the_oldest_ids_are_forgotten() -> None:
    with listening() as hook:
        hook.task.spout._server.remembered = 2  # type: ignore[attr-defined]
        for count, name in enumerate("abca", start=1):
            answer = hook.send({"n": 1}, Idempotency_Key=name)
            hook.rows(count)
            hook.task.spout.ack(name)
            assert answer.result(20).status == 200
        assert hook.answer({"n": 1}, Idempotency_Key="c").status == 200 and len(hook.task.rows) == 4


def test_a_failed_message_may_be_sent_again() -> None:
    with listening() as hook:
        first = hook.send({"n": 1}, Idempotency_Key="a")
        hook.rows(1)
        hook.task.spout.fail("a")
        assert first.result(20).status == 503
        second = hook.send({"n": 1}, Idempotency_Key="a")
        hook.rows(2)
        hook.task.spout.ack("a")
        assert second.result(20).status == 200


def test_what_cannot_be_taken_is_refused_with_the_reason() -> None:
    with listening(fields=("n",), max_body=100) as hook:
        assert hook.answer(b"{", Idempotency_Key="a").status == 400
        packed = hook.answer({"n": 1}, Content_Encoding="gzip")
        assert packed.status == 400 and "no gzip" in packed.text
        cut = hook.answer(gzip.compress(b'{"n": 1}')[:-9], Content_Encoding="gzip")
        assert cut.status == 400 and "cut off" in cut.text
        bomb = hook.answer(gzip.compress(b'{"n": 1}' + b" " * 10_000), Content_Encoding="gzip")
        assert bomb.status == 413 and "more than 100 bytes" in bomb.text
        assert hook.answer({"n": 1}, Content_Encoding="br").status == 415
        missing = hook.answer({"m": 1})
        assert missing.status == 400 and "no 'n' in the object" in missing.text
        assert hook.answer({"n": 1}, Idempotency_Key=" ").status == 400
        assert hook.answer({"n": "x" * 100}).status == 413
        assert hook.answer({"n": 1}, path="/other").status == 404
        assert hook.answer(b"", method="GET").status == 405
        hook.task.turn()
        assert hook.task.rows == [] and hook.task.counter("bad_records") == 8


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b'{"n": [18446744073709551616]}', "does not fit 64 bits; send it as a text"),
        (b"[" * 255 + b"]" * 255, "at most 254 levels"),
    ],
)
def test_values_that_no_tuple_carries_are_refused_with_the_reason(body: bytes, reason: str) -> None:
    with listening() as hook:
        answer = hook.answer(body)
        assert answer.status == 400 and reason in answer.text
        hook.task.turn()
        assert hook.task.rows == [] and hook.task.counter("bad_records") == 1


@pytest.mark.parametrize("encoding", ["gzip", "identity"])
def test_a_body_may_be_compressed(encoding: str) -> None:
    body = b'{"n": 1}'
    with listening(fields=("n",), max_body=100) as hook:
        answer = hook.send(gzip.compress(body) if encoding == "gzip" else body, Content_Encoding=encoding, Idempotency_Key="a")
        assert hook.rows(1) == [1]
        hook.task.spout.ack("a")
        assert answer.result(20).status == 200


def test_only_signed_requests_are_taken() -> None:
    with listening(secret="planted") as hook:
        body = json.dumps({"n": 1}).encode()
        for wrong in ({}, {"X_Hub_Signature_256": "sha256=" + "0" * 64}, {"X_Hub_Signature_256": signature_of(b"other", body)}):
            assert hook.answer(body, **wrong).status == 401
        right = hook.send(body, X_Hub_Signature_256="sha256=" + signature_of(b"planted", body), Idempotency_Key="a")
        assert hook.rows(1) == [{"n": 1}]
        hook.task.spout.ack("a")
        assert right.result(20).status == 200
        hook.task.turn()
        assert hook.task.counter("unauthorised_requests") == 3
        assert "planted" not in repr(hook.task.spout) and "planted" not in repr(hook.task.spout.__dict__["_server"])


def test_senders_wait_when_too_many_requests_are_open() -> None:
    with listening(most_open=2, retry_after="7s") as hook:
        answers = [hook.send({"n": n}, Idempotency_Key=str(n)) for n in range(2)]
        hook.rows(2)
        full = hook.answer({"n": 3})
        assert (full.status, full.retry_after) == (503, "7")
        hook.task.spout.ack("0")
        assert answers[0].result(20).status == 200
        third = hook.send({"n": 3}, Idempotency_Key="3")
        hook.rows(3)
        for name in ("1", "3"):
            hook.task.spout.ack(name)
        assert [answers[1].result(20).status, third.result(20).status] == [200, 200]


def test_connections_without_requests_take_no_more_places_than_there_are() -> None:
    with listening(most_open=2) as hook:
        with ExitStack() as silent:
            for _ in range(4):
                connection = silent.enter_context(socket.create_connection(("127.0.0.1", hook.port)))
                connection.sendall(b"POST /in HTTP/1.1\r\nHost: ")
            # An answer shows that all of them are open; a fifth one is refused, until they are closed.
            connection.sendall(b"x\r\nContent-Length: 0\r\n\r\n")
            assert b" 400 " in connection.recv(1000)
            with socket.create_connection(("127.0.0.1", hook.port)) as fifth:
                assert fifth.recv(1000).startswith(b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 5\r\n")
        hook.task.until(lambda: hook.answer(b"{").status == 400, "a place")


def test_a_paused_topology_takes_no_requests_and_answers_those_it_has() -> None:
    with listening() as hook:
        first = hook.send({"n": 1}, Idempotency_Key="a")
        hook.rows(1)
        hook.task.spout.deactivate()
        paused = hook.answer({"n": 2})
        assert (paused.status, paused.retry_after) == (503, "5") and "paused" in paused.text
        hook.task.spout.ack("a")
        assert first.result(20).status == 200
        hook.task.spout.activate()
        second = hook.send({"n": 2}, Idempotency_Key="b")
        hook.rows(2)
        hook.task.spout.ack("b")
        assert second.result(20).status == 200


def test_at_the_end_done_messages_are_answered_so_and_others_are_given_back() -> None:
    with listening() as hook:
        done, open_ = hook.send({"n": 1}, Idempotency_Key="a"), hook.send({"n": 2}, Idempotency_Key="b")
        hook.rows(2)
        hook.task.spout.ack("a")
        hook.task.spout.close()
        assert done.result(20).status == 200 and open_.result(20).status == 503


def test_a_taken_port_is_reported_until_it_is_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        task = SpoutTask(WebhookSpout(taken.getsockname()[1]))
        task.until(lambda: task.errors)
        assert "cannot listen on 127.0.0.1" in str(task.errors[0]) and task.gauge("connected") == 0
    task.until(lambda: task.gauge("connected"))
    task.spout.close()


def test_a_sender_that_leaves_in_the_middle_of_its_body_does_no_harm() -> None:
    with listening(most_open=1) as hook:
        for _ in range(5):
            with socket.create_connection(("127.0.0.1", hook.port)) as sender:
                sender.sendall(b"POST /in HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
        answers: list[Future[Answer]] = []

        def is_taken() -> bool:
            # The place of a sender that left is free a moment later.
            if not answers or answers[-1].done():
                answers.append(hook.send({"n": 1}, Idempotency_Key="a"))
            return bool(hook.task.rows)

        hook.task.until(is_taken, "a free place")
        hook.task.spout.ack("a")
        assert answers[-1].result(20).status == 200 and {one.result().status for one in answers[:-1]} <= {503}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"port": 0}, "port=0"),
        ({"port": 80, "path": "in"}, "begin with '/'"),
        ({"port": 80, "host": "0.0.0.0"}, "allow_unsigned"),
        ({"port": 80, "secret": ""}, "secret= is empty"),
        ({"port": 80, "respond": "stored"}, "respond='stored'"),
        ({"port": 80, "max_body": 0}, "above zero"),
        ({"port": 80, "most_open": 0}, "at least 1"),
        ({"port": 80, "metadata": ("time",)}, "metadata has 'time'"),
        ({"port": 80, "fields": "n"}, "must be texts"),
    ],
)
def test_arguments_that_cannot_be_used_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        WebhookSpout(**options)


def test_exactly_once_wants_answers_that_a_checkpoint_can_give() -> None:
    config = {"delivery": "exactly_once", "checkpoint_interval_s": 30.0}
    with pytest.raises(ConfigError, match="shorter checkpoint_interval"):
        SpoutTask(WebhookSpout(free_port()), **config)
    with pytest.raises(ConfigError, match="'headers' is not for exactly_once"):
        SpoutTask(WebhookSpout(free_port(), metadata=("headers",)), **config)
