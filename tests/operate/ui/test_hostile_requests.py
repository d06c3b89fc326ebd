"""Requests that the server of the page refuses, made as ASGI applications receive them, without sockets."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import time
from array import array
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="needs the extra ui")

from topo.config import parse_duration
from topo.observability.history import PastPoints, block_of
from topo.storage.state_folder import StateFolder
from topo.ui.access import HomeRecord, Names, Tokens
from topo.ui.app import MOST_BODY, MOST_REQUESTS, make_app

TOKENS = Tokens("o" * 43, "v" * 43)
HOST = "127.0.0.1:8088"
OURS = {"host": HOST, "authorization": f"Bearer {TOKENS.operator}"}
ACTING = {**OURS, "origin": f"http://{HOST}", "content-type": "application/json"}


@pytest.fixture
def app(tmp_path: Path) -> Any:
    StateFolder(tmp_path / "home").create("words")
    return make_app(tmp_path / "home", TOKENS, Names.of(("127.0.0.1", "localhost"), 8088, scheme="http"))


Answer = tuple[int, dict[str, str], bytes]


def ask(app: Any, path: str, headers: dict[str, str], method: str = "GET", body: bytes = b"") -> Answer:
    """Return status, headers and body of an answer."""
    return asyncio.run(answered(app, path, headers, method, body))


async def answered(app: Any, path: str, headers: dict[str, str], method: str = "GET", body: bytes = b"") -> Answer:
    """Return the same, among others that are asked for at once."""
    sent: list[Any] = []
    path, _, query = path.partition("?")

    async def receive() -> Any:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    fields = [(name.encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "http", "method": method, "path": path, "query_string": query.encode(), "headers": fields}
    await app({**scope, "http_version": "1.1", "scheme": "http", "root_path": "", "server": None}, receive, send)
    found = {name.decode().lower(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], found, b"".join(one.get("body", b"") for one in sent[1:])


def converse(app: Any, headers: dict[str, str], *messages: str | bytes) -> list[Any]:
    """Return what a socket is sent that sends these messages and goes away."""
    sent: list[Any] = []
    frames = ({"type": "websocket.receive", "text" if isinstance(one, str) else "bytes": one} for one in messages)
    coming: list[Any] = [{"type": "websocket.connect"}, *frames]

    async def receive() -> Any:
        return coming.pop(0) if coming else {"type": "websocket.disconnect", "code": 1000}

    async def send(message: Any) -> None:
        sent.append(message)

    fields = [(name.encode(), value.encode()) for name, value in headers.items()]
    asyncio.run(app({"type": "websocket", "path": "/api/live", "headers": fields, "query_string": b""}, receive, send))
    return sent


def test_of_two_actions_at_once_the_second_is_refused_unless_it_is_a_kill(app: Any) -> None:
    async def both(second: str) -> list[int]:
        path = "/api/t/words/actions/"
        answers = (answered(app, path + action, ACTING, "POST", b"{}") for action in ("activate", second))
        return [answer[0] for answer in await asyncio.gather(*answers)]

    assert asyncio.run(both("deactivate")) == [200, 409]
    assert asyncio.run(both("kill")) == [200, 200]


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer wrong", f"Basic {TOKENS.operator}", f"Bearer {TOKENS.operator}x"])
def test_data_needs_the_token(app: Any, header: str) -> None:
    assert ask(app, "/api/topologies", {"host": HOST, "authorization": header})[0] == 401
    assert ask(app, "/api/t/words/errors", {"host": HOST, "authorization": header})[0] == 401
    assert ask(app, "/api/t/words/actions/kill", {**ACTING, "authorization": header}, "POST", b"{}")[0] == 401


def test_the_token_opens(app: Any) -> None:
    status, _, body = ask(app, "/api/topologies", OURS)
    assert status == 200 and [row["status"] for row in json.loads(body)["topologies"]] == ["LOST"]
    assert ask(app, "/api/t/words/errors", OURS)[2] == b'{"errors":[]}'


def test_bytes_from_a_socket_are_no_token_and_no_question(app: Any) -> None:
    headers = {"host": HOST, "origin": f"http://{HOST}"}
    assert converse(app, headers, b"bytes")[1:] == [{"type": "websocket.close", "code": 4401, "reason": ""}]
    answers = converse(app, headers, json.dumps({"token": TOKENS.operator}), b"bytes", '{"look": "none"}')
    assert "no topology is called" in json.loads(answers[2]["text"])["error"]


def test_the_past_of_no_subject_is_empty(app: Any, tmp_path: Path) -> None:
    folder = StateFolder(tmp_path / "home").find("words")
    points = PastPoints(int(time.time()) // 10 * 10 - 60, 10, 1, {("total", "acked"): array("f", [7.0])})
    folder.history.write_text(json.dumps(block_of(points)) + "\n")
    found = [json.loads(ask(app, f"/api/t/words/history{query}", OURS)[2])["series"] for query in ("", "?subjects=")]
    assert [list(series) for series in found] == [["total"], []]


def test_no_rows_are_none(app: Any, tmp_path: Path) -> None:
    folder = StateFolder(tmp_path / "home").find("words")
    folder.dead_letters.write_text('{"component": "lines"}\n')
    (folder.logs / "worker-0.log").write_text('{"time": "2026", "level": "INFO", "message": "begins"}\n')
    assert len(json.loads(ask(app, "/api/t/words/logs?lines=1", OURS)[2])["rows"]) == 1
    assert json.loads(ask(app, "/api/t/words/logs?lines=0", OURS)[2])["rows"] == []
    assert json.loads(ask(app, "/api/t/words/dead-letters?number=0", OURS)[2]) == {"dead_letters": [], "total": 1}


@pytest.mark.parametrize("what", ["errors", "dead-letters"])
def test_files_that_stayed_as_they_are_are_read_once_for_all_browsers(app: Any, tmp_path: Path, what: str) -> None:
    folder = StateFolder(tmp_path / "home").find("words")
    path = folder.errors if what == "errors" else folder.dead_letters
    texts = dict.fromkeys(("component", "kind", "file", "traceback"), "")
    row = dict.fromkeys(("line", "task", "worker", "values")) | texts | {"at_ms": 1, "count": 1}

    def answer(message: str, at_ns: int) -> str:
        path.write_text(json.dumps(row | {"message": message}) + "\n")
        os.utime(path, ns=(at_ns, at_ns))
        return ask(app, f"/api/t/words/{what}", OURS)[2].decode()

    assert "early" in answer("early", 10**18)
    assert "early" in answer("other", 10**18)
    assert "other" in answer("other", 10**18 + 1)
    assert "longer" in answer("longer", 10**18 + 1)


@pytest.mark.parametrize(("within", "shown"), [("30s", "30s"), ("30d", "720h"), (1234567.5, "342h56m7.5s"), (0.25, "250ms")])
def test_the_time_of_a_drain_is_one_that_the_command_takes(app: Any, within: str | float, shown: str) -> None:
    body = json.dumps({"within": within}).encode()
    answer = json.loads(ask(app, "/api/t/words/actions/drain?command=1", ACTING, "POST", body)[2])
    assert answer == {"command": f"topo kill words -w {shown} --yes"}
    assert parse_duration(shown) == parse_duration(within)


def test_a_state_folder_that_was_removed_is_reported(app: Any, tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "home")
    status, _, body = ask(app, "/api/topologies", OURS)
    assert status == 500 and "cannot list" in json.loads(body)["error"]
    assert "cannot list" in json.loads(ask(app, "/api/t/words/errors", OURS)[2])["error"]
    headers = {"host": HOST, "origin": f"http://{HOST}"}
    answers = converse(app, headers, json.dumps({"token": TOKENS.operator}), '{"look": "list"}')
    assert "cannot list" in json.loads(answers[2]["text"])["error"]


@pytest.mark.parametrize("host", ["evil.example:8088", "127.0.0.1", "127.0.0.1:80", "127.0.0.1.evil.example:8088", ""])
def test_another_host_is_refused_whatever_it_asks_for(app: Any, host: str) -> None:
    assert ask(app, "/", {**OURS, "host": host})[0] == 403
    assert ask(app, "/api/topologies", {**OURS, "host": host})[0] == 403


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:9999", f"https://{HOST}", ""])
def test_another_origin_neither_acts_nor_opens_a_socket(app: Any, origin: str) -> None:
    assert ask(app, "/api/t/words/actions/kill", {**ACTING, "origin": origin}, "POST", b"{}")[0] == 403
    opened = converse(app, {"host": HOST, "origin": origin}, json.dumps({"token": TOKENS.operator}))
    assert [one["type"] for one in opened] == ["websocket.close"]


@pytest.mark.parametrize("method", ["DELETE", "PUT", "PATCH", "OPTIONS", "POST", "TRACE"])
def test_methods_that_no_route_names_are_closed(app: Any, method: str) -> None:
    for path in ("/", "/api/topologies", "/api/t/words/errors"):
        assert ask(app, path, ACTING, method, b"{}")[0] == 405
    assert ask(app, "/api/t/words/actions/kill", OURS)[0] == 405


@pytest.mark.parametrize("body", [b"[]", b"{", b'{"shell": "rm"}', b"[" * 9000, b"\xff"])
def test_a_body_that_is_no_order_is_refused(app: Any, body: bytes) -> None:
    assert ask(app, "/api/t/words/actions/kill", ACTING, "POST", body)[0] == 400


def test_bodies_and_kinds_of_bodies_are_bounded(app: Any) -> None:
    assert ask(app, "/api/t/words/actions/kill", ACTING, "POST", b" " * (MOST_BODY + 1))[0] == 413
    assert ask(app, "/api/t/words/actions/kill", {**ACTING, "content-type": "text/plain"}, "POST", b"{}")[0] == 415


def test_a_viewer_looks_and_does_nothing(app: Any) -> None:
    viewer = {**ACTING, "authorization": f"Bearer {TOKENS.viewer}"}
    assert ask(app, "/api/t/words/errors", viewer)[0] == 200
    assert ask(app, "/api/t/words/actions/kill", viewer, "POST", b"{}")[0] == 403
    assert ask(app, "/api/t/words/observations", viewer, "POST", b"{}")[0] == 403
    assert ask(app, "/api/t/words/observations/1", viewer)[0] == 403
    assert ask(app, "/api/t/words/observations/1", viewer, "DELETE")[0] == 403


@pytest.mark.parametrize("path", ["/static/x/../../app.py", "/static/x/index.html", "/api/t/../errors", "/api/t/wordz/errors"])
def test_paths_lead_nowhere_else(app: Any, path: str) -> None:
    assert ask(app, path, OURS)[0] == 404


def test_every_answer_has_the_policy(app: Any) -> None:
    for path in ("/", "/t/words", "/api/topologies", "/nowhere"):
        assert ask(app, path, OURS)[1]["content-security-policy"].startswith("default-src 'none'; script-src 'self'")


def test_a_flood_is_refused(app: Any) -> None:
    app._clock = lambda: 7.0
    statuses = [ask(app, "/", OURS)[0] for _ in range(MOST_REQUESTS + 1)]
    assert statuses == [200] * MOST_REQUESTS + [429]


def test_a_socket_sends_the_token_first(app: Any) -> None:
    ours = {"host": HOST, "origin": f"http://{HOST}"}
    for first in ("{}", "nonsense", '{"token": "wrong"}', '{"look": "list"}'):
        assert [one.get("code") for one in converse(app, ours, first)][-1] == 4401
    welcome = converse(app, ours, json.dumps({"token": TOKENS.viewer}))[1]
    assert json.loads(welcome["text"])["read_only"] is True


def test_the_command_of_an_action_can_be_asked_for(app: Any) -> None:
    path, body = "/api/t/words/actions/rebalance?command=1", b'{"parallelism": {"count": 3}, "dry_run": true}'
    assert json.loads(ask(app, path, ACTING, "POST", body)[2]) == {"command": "topo rebalance words -e count=3 --dry-run"}


@pytest.mark.parametrize(
    "asked", [{}, {"parallelism": []}, {"parallelism": {"count": 0}}, {"parallelism": {"count": True}}, {"workers": "2"}]
)
def test_a_rebalance_without_whole_numbers_is_refused(app: Any, asked: dict[str, Any]) -> None:
    assert ask(app, "/api/t/words/actions/rebalance", ACTING, "POST", json.dumps(asked).encode())[0] == 400


def test_the_command_of_a_replay_has_the_numbers_of_dead_letters(app: Any) -> None:
    path, body = "/api/t/words/actions/replay?command=1", b'{"ids": [3, 7], "dry_run": true}'
    command = "topo dead-letters replay words --ids 3,7 --dry-run"
    assert json.loads(ask(app, path, ACTING, "POST", body)[2]) == {"command": command}


@pytest.mark.parametrize("ids", [None, [], ["3"], [0], [True], "3", list(range(1, 1002))])
def test_a_replay_without_numbers_of_dead_letters_is_refused(app: Any, ids: Any) -> None:
    assert ask(app, "/api/t/words/actions/replay", ACTING, "POST", json.dumps({"ids": ids}).encode())[0] == 400


@pytest.mark.parametrize("asked", [{}, {"worker": "0"}, {"worker": -1}, {"worker": True}, {"worker": 0, "more": 1}])
def test_a_replacement_without_the_number_of_a_worker_is_refused(app: Any, asked: dict[str, Any]) -> None:
    assert ask(app, "/api/t/words/actions/replace", ACTING, "POST", json.dumps(asked).encode())[0] == 400


def test_nothing_is_replaced_while_its_command_is_asked_for_or_no_master_runs(app: Any) -> None:
    path = "/api/t/words/actions/replace"
    assert ask(app, f"{path}?command=1", ACTING, "POST", b'{"worker": 0}')[0] == 200
    assert ask(app, path, ACTING, "POST", b'{"worker": 0}')[0] == 409


@pytest.mark.parametrize("path", ["checkpoints", "observations"])
@pytest.mark.parametrize("number", ["1" * 30, "1" * 5000, "one"], ids=["long", "too long to read", "none"])
def test_a_number_that_nothing_has_is_refused(app: Any, path: str, number: str) -> None:
    assert ask(app, f"/api/t/words/{path}/{number}", OURS)[0] == 400


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("actions/kill", b'{"\\ud800": 1}'),
        ("actions/drain", b'{"within": 1%s}' % (b"0" * 400)),
        ("actions/rebalance", b'{"parallelism": {"a\\u0000": 2}}'),
        ("actions/replace", b'{"worker": 1%s}' % (b"0" * 30)),
        ("observations", b'{"kind": "tap", "component": "count", "rate": 1%s}' % (b"0" * 30)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_values_that_neither_a_command_nor_a_master_can_be_given_are_refused(app: Any, path: str, body: bytes) -> None:
    status, _, answer = ask(app, f"/api/t/words/{path}", ACTING, "POST", body)
    assert status == 400 and json.loads(answer)["error"]


def test_tokens_are_private_and_outlive_the_server(tmp_path: Path) -> None:
    first, second = (HomeRecord.new(tmp_path, "http://127.0.0.1:1/", pid) for pid in (1, 2))
    assert first.tokens == second.tokens and (tmp_path / "ui.json").stat().st_mode & 0o777 == 0o600
