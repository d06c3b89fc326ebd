"""Requests out: to a real receiver, which answers, refuses, holds requests and cuts connections."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

import pytest

from tests.connectors.http_receiver import Receiver, receiving
from tests.servers.server import free_port, need
from topo import HttpSink, TaskContext, TopologyConfig, Tuple
from topo.api.tuples import Origin
from topo.errors import ConfigError, PeerError, UserError

pytestmark = [pytest.mark.server, pytest.mark.xdist_group("http")]
AT_ONCE = {"Retry-After": "0"}


@pytest.fixture(autouse=True)
def aiohttp() -> None:
    need(("aiohttp",))


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as made:
        yield made


def rows(*values: Any) -> list[Any]:
    return [Tuple((value, f"u{value}"), Origin("rows", 1, fields=("n", "user"))) for value in values]


def send(sink: HttpSink, *tuples: Any, **config: Any) -> tuple[list[BaseException | None], TaskContext]:
    """Call the sink for tuples that are under way together, as a task does; return what each has raised."""
    context = TaskContext("flow", "out", 1, config=TopologyConfig(**config))

    async def scenario() -> list[Any]:
        await sink.open(context)
        try:
            return await asyncio.gather(*map(sink.call, tuples), return_exceptions=True)
        finally:
            await sink.close()

    return asyncio.run(scenario()), context


def test_each_row_is_a_request(receiver: Receiver) -> None:
    sink = HttpSink(f"{receiver.url}/users/{{user}}/{{n}}", method="PUT", headers={"Authorization": "Bearer x"}, id="n")
    results, context = send(sink, *rows(1, "a/b?"))
    assert results == [None, None]
    got = sorted(receiver.requests, key=lambda one: one.path)
    assert [(one.method, one.path) for one in got] == [("PUT", "/users/u1/1"), ("PUT", "/users/ua%2Fb%3F/a%2Fb%3F")]
    assert json.loads(got[0].body) == {"n": 1, "user": "u1"}
    assert got[0].headers["Authorization"] == "Bearer x" and got[0].headers["Content-Type"] == "application/json"
    assert got[0].headers["Idempotency-Key"] == "flow.out.1"
    assert context.metrics.counter("rows").value == 2
    assert context.metrics.counter("bytes").value == sum(map(len, receiver.bodies))


@pytest.mark.parametrize("empty", [None, ""])
def test_a_row_without_an_id_is_no_repeat_of_another_one(receiver: Receiver, empty: Any) -> None:
    results, _ = send(HttpSink(receiver.url, id="n"), *rows(empty, 0, empty))
    assert [type(result) for result in results] == [UserError, type(None), UserError]
    assert f"has {empty!r} as its id" in str(results[0])
    assert [one.headers["Idempotency-Key"] for one in receiver.requests] == ["flow.out.0"]


@pytest.mark.parametrize("end", ["{n}", "1"])
def test_braces_that_are_meant_stand_twice_in_the_url(receiver: Receiver, end: str) -> None:
    results, _ = send(HttpSink(f"{receiver.url}/{{{{x}}}}/{end}"), *rows(1))
    assert results == [None] and unquote(receiver.requests[0].path) == "/{x}/1"


def test_a_value_is_sent_as_the_user_wants(receiver: Receiver) -> None:
    send(HttpSink(receiver.url, value="user", value_serializer="text"), *rows(1))
    assert receiver.bodies == [b"u1"]


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504, None])
def test_a_request_without_a_final_answer_is_sent_again_under_its_id(receiver: Receiver, status: int | None) -> None:
    receiver.answers.extend([None if status is None else (status, AT_ONCE), (503, AT_ONCE)])
    results, context = send(HttpSink(receiver.url), *rows(1))
    assert results == [None] and len(receiver.requests) == 3 and len(set(receiver.ids)) == 1
    assert context.metrics.counter("retries").value == 2 and context.metrics.counter("rejected_rows").value == 0
    send(HttpSink(receiver.url), *rows(1))
    assert len(set(receiver.ids)) == 2, "another call draws another id"


@pytest.mark.parametrize(
    ("headers", "timeout"),
    [
        ({"Content-Encoding": "gzip"}, "10s"),
        ({"X-Length": "100"}, "200ms"),
        # Read to its end it would take all memory, or all the time that there is.
        ({"X-Length": str(1 << 40), "X-Times": "100000"}, "60s"),
    ],
    ids=["no gzip", "incomplete", "endless"],
)
@pytest.mark.parametrize("status", [200, 400])
def test_the_status_of_an_answer_counts_whatever_its_text(
    receiver: Receiver, status: int, headers: dict[str, str], timeout: str
) -> None:
    receiver.usual = lambda _got: (status, headers)
    results, context = send(HttpSink(receiver.url, timeout=timeout), *rows(1))
    assert len(receiver.requests) == 1 and context.metrics.counter("rows").value == (status == 200)
    assert results == [None] if status == 200 else "answered 400" in str(results[0])


def test_a_receiver_that_does_not_answer_in_time_is_asked_again(receiver: Receiver) -> None:
    receiver.hold.clear()
    sink = HttpSink(receiver.url, timeout="100ms", retry_for="1s")
    results, context = send(sink, *rows(1))
    assert isinstance(results[0], PeerError) and "gave no answer: TimeoutError (attempt 2)" in str(results[0])
    assert context.metrics.gauge("connected").value == 0


@pytest.mark.parametrize("status", [301, 400, 401, 404, 409, 422, 501])
def test_another_answer_refuses_the_row_at_once(receiver: Receiver, status: int) -> None:
    receiver.usual = lambda got: (
        (status, {"Location": "/elsewhere", "X-Text": "no   such order"}) if b"2" in got.body else (200, {})
    )
    results, context = send(HttpSink(receiver.url), *rows(1, 2, 3))
    assert [type(one) for one in results] == [type(None), PeerError, type(None)] and len(receiver.requests) == 3
    assert f"POST {receiver.url} answered {status}: no such order (attempt 1)" in str(results[1])
    assert context.metrics.counter("rejected_rows").value == 1 and context.metrics.counter("rows").value == 2


def test_retries_end_in_time_for_the_spout_to_replay(receiver: Receiver) -> None:
    receiver.usual = lambda _got: (503, {"Retry-After": "3"})
    results, _ = send(HttpSink(receiver.url), *rows(1), message_timeout_s=1.5)
    assert "answered 503: text (attempt 2)" in str(results[0])


def test_no_more_requests_are_under_way_than_the_user_wants(receiver: Receiver) -> None:
    receiver.hold.clear()

    async def scenario() -> None:
        sink = HttpSink(receiver.url, concurrency=3, key="n")
        await sink.open(TaskContext("flow", "out", 1))
        calls = [asyncio.ensure_future(sink.call(row)) for row in rows(*range(9))]
        while len(receiver.requests) < 3:
            await asyncio.sleep(0.005)
        await asyncio.sleep(0.05)
        receiver.hold.set()
        await asyncio.gather(*calls)
        await sink.close()

    asyncio.run(scenario())
    assert receiver.most_at_a_time == 3 and len(receiver.requests) == 9


def test_rows_of_one_key_keep_their_order_across_retries(receiver: Receiver) -> None:
    failed = set[bytes]()

    def refuse_once(got: Any) -> tuple[int, dict[str, str]]:
        if got.body in failed or b'"k":0' in got.body:
            return 200, {}
        failed.add(got.body)
        return 503, AT_ONCE

    receiver.usual = refuse_once
    tuples = [Tuple((n, n % 2), Origin("rows", 1, fields=("n", "k"))) for n in range(20)]
    results, _ = send(HttpSink(receiver.url, key="k"), *tuples)
    assert results == [None] * 20
    seen = [json.loads(body)["n"] for body in receiver.bodies]
    assert list(dict.fromkeys(n for n in seen if n % 2)) == list(range(1, 20, 2))
    assert [n for n in seen if not n % 2] == list(range(0, 20, 2))


def test_a_receiver_that_was_down_gets_the_rows(caplog: pytest.LogCaptureFixture) -> None:
    port = free_port()

    async def scenario() -> list[str]:
        sink = HttpSink(f"http://127.0.0.1:{port}")
        context = TaskContext("flow", "out", 1)
        await sink.open(context)
        calls = [asyncio.ensure_future(sink.call(row)) for row in rows(1, 2)]
        while context.metrics.counter("retries").value < 2:
            await asyncio.sleep(0.005)
        with receiving(port) as receiver:
            await asyncio.gather(*calls)
            await sink.close()
            return [json.loads(body)["user"] for body in receiver.bodies]

    with caplog.at_level(logging.INFO):
        assert sorted(asyncio.run(scenario())) == ["u1", "u2"]
    texts = [record.getMessage() for record in caplog.records if record.name.startswith("topo.user")]
    assert len(texts) == 2 and "gave no answer" in texts[0] and texts[1].endswith("answers again")


def test_secrets_are_in_no_error(receiver: Receiver, caplog: pytest.LogCaptureFixture) -> None:
    receiver.usual = lambda got: (400, {"X-Text": f"bad token {got.headers['Authorization']} {got.headers['X-Api-Key']}"})
    url = receiver.url.replace("http://", "http://user:planted-one@")
    sink = HttpSink(receiver.url, headers={"Authorization": "Bearer planted-two", "X-Api-Key": "planted-three"})
    results, _ = send(sink, *rows(1))
    assert "answered 400: bad token" in str(results[0]) and "planted" not in f"{results[0]!r} {sink!r} {caplog.text}"
    with pytest.raises(ConfigError) as refused:
        HttpSink(url.replace("http:", "ftp:"))
    assert "planted" not in str(refused.value)
    receiver.usual = lambda got: (400, {"X-Text": "no"})
    results, _ = send(HttpSink(url), *rows(1))
    assert "planted" not in str(results[0]) and receiver.requests[-1].headers["Authorization"].startswith("Basic ")


def test_an_empty_token_leaves_the_error_as_it_is(receiver: Receiver) -> None:
    receiver.answers.append((401, {"X-Text": "no token"}))
    results, _ = send(HttpSink(receiver.url, headers={"Authorization": "Bearer ", "X-Api-Key": ""}), *rows(1))
    assert "answered 401: no token" in str(results[0])


def test_a_query_is_in_no_error(receiver: Receiver, caplog: pytest.LogCaptureFixture) -> None:
    receiver.answers.append((400, {}))
    sent, _ = send(HttpSink(f"{receiver.url}/x?sig=planted"), *rows(1))
    lost, _ = send(HttpSink(f"http://127.0.0.1:{free_port()}/x?sig=planted", retry_for="1ms"), *rows(1))
    assert "/x answered 400" in str(sent[0]) and "gave no answer" in str(lost[0])
    assert "planted" not in f"{sent!r} {lost!r} {caplog.text}"
    with pytest.raises(ConfigError) as refused:
        HttpSink("ftp://h?sig=planted")
    assert "planted" not in str(refused.value)


@pytest.mark.parametrize("value", ["", ".", "..", None])
def test_a_value_that_would_change_the_path_is_refused(receiver: Receiver, value: Any) -> None:
    results, _ = send(HttpSink(f"{receiver.url}/users/{{n}}/orders?at={{user}}", method="DELETE"), *rows(value))
    assert isinstance(results[0], UserError) and receiver.requests == []
    results, _ = send(HttpSink(f"{receiver.url}/users/{{n}}/orders?at={{user}}", method="DELETE"), *rows("..a"))
    assert results == [None] and receiver.requests[0].path.startswith("/users/..a/orders")


def test_an_id_that_is_no_header_becomes_a_digest(receiver: Receiver) -> None:
    send(HttpSink(receiver.url, id="n"), *rows("é\n", "x" * 300, "é\n"))
    assert len(set(receiver.ids)) == 2 and all(one.startswith("flow.out.") and len(one) == 73 for one in receiver.ids)


def test_rows_that_cannot_be_sent_are_the_users_error(receiver: Receiver) -> None:
    for sink in (HttpSink(receiver.url + "/{city}"), HttpSink(receiver.url, value="city"), HttpSink(receiver.url, key="city")):
        (error,), _ = send(sink, *rows(1))
        assert isinstance(error, UserError) and "no field 'city'" in str(error)
    assert receiver.requests == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"url": "example.org"}, "must begin with"),
        ({"method": "GET"}, "method='GET'"),
        ({"url": "http://x/{"}, "url='http://x/{'"),
        ({"url": "http://x/{a.b}"}, "names of fields alone"),
        ({"url": "http://x/{}"}, "names of fields alone"),
        ({"headers": {"Authorization": None}}, "None for 'Authorization'"),
        ({"url": "http://u:p@x", "headers": {"Authorization": "Bearer x"}}, "has a user, and headers= has Authorization"),
        ({"retry_on": "503"}, "retry_on='503'"),
        ({"retry_on": (200,)}, "statuses of refusals"),
        ({"concurrency": 0}, "above zero"),
        ({"value_serializer": "text"}, "name it by value="),
    ],
)
def test_arguments_that_cannot_be_used_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        HttpSink(**{"url": "http://x", **options})
