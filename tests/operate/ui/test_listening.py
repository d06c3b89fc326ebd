"""Where the page may listen, and by which names it is reached then: the rules, and real servers behind TLS and behind a proxy."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="needs the extra ui")

from websockets.exceptions import InvalidHandshake
from websockets.sync.client import connect

from tests.certificates import self_signed
from tests.operate.ui.test_hostile_requests import TOKENS, ask, converse
from topo.errors import TopoEnvironmentError, UserError
from topo.storage.state_folder import StateFolder
from topo.ui.app import make_app
from topo.ui.child import PageProcess
from topo.ui.listening import Listening
from topo.ui.server import serve, served

ROOT = Path(__file__).parents[3]
PROXIED = {"behind_proxy": True, "names": ("topo.example",)}


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for 127.0.0.2 that signs itself, and its key."""
    return self_signed(tmp_path_factory.mktemp("tls"), "127.0.0.2")


# -- the rules -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["10.0.0.5", "topo.example", "0.0.0.0", "::", "", "fe80::1", "127.0.0.1.example"])
def test_the_token_never_goes_unencrypted_to_other_machines(host: str) -> None:
    with pytest.raises(UserError, match="--tls-cert and --tls-key, or --behind-proxy"):
        Listening(host, names=("topo.example",)).check()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.0.0.2", "::1"])
def test_the_loopback_address_needs_nothing(host: str) -> None:
    Listening(host).check()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", ""])
def test_a_wildcard_needs_a_name_besides(host: str, certificate: tuple[Path, Path]) -> None:
    cert, key = certificate
    for asked in (Listening(host, (), cert, key), Listening(host, (), behind_proxy=True)):
        with pytest.raises(UserError, match="give --name HOST"):
            asked.check()
    Listening(host, ("topo.example",), cert, key).check()


def test_a_port_behind_the_address_is_told_its_option() -> None:
    with pytest.raises(UserError, match=r"write --listen 127\.0\.0\.1 --port 8088"):
        Listening("127.0.0.1:8088").check()


def test_behind_a_proxy_a_name_is_needed() -> None:
    with pytest.raises(UserError, match="behind a proxy browsers come by another name"):
        Listening(behind_proxy=True).check()


@pytest.mark.parametrize("name", ["", "https://topo.example", "topo.example/", "topo.example:443"])
def test_a_name_is_a_host(name: str, certificate: tuple[Path, Path]) -> None:
    with pytest.raises(UserError, match="--name takes a host"):
        Listening("10.0.0.5", (name,), *certificate).check()


def test_certificate_and_key_belong_together(certificate: tuple[Path, Path], tmp_path: Path) -> None:
    cert, key = certificate
    with pytest.raises(UserError, match="go together"):
        Listening("10.0.0.5", cert=cert).check()
    with pytest.raises(UserError, match="are no certificate and its key"):
        Listening("10.0.0.5", cert=key, key=key).check()
    locked = tmp_path / "locked.pem"
    subprocess.run(["openssl", "ec", "-in", str(key), "-aes256", "-passout", "pass:secret", "-out", str(locked)], check=True)
    with pytest.raises(UserError, match="without a password"):
        Listening("10.0.0.5", cert=cert, key=locked).check()


def test_the_address_is_the_one_that_browsers_use(certificate: tuple[Path, Path]) -> None:
    assert Listening().address(8088) == "http://127.0.0.1:8088/"
    assert Listening("::1").address(8088) == "http://[::1]:8088/"
    assert Listening("10.0.0.5", (), *certificate).address(8088) == "https://10.0.0.5:8088/"
    assert Listening("0.0.0.0", ("topo.example",), *certificate).address(8088) == "https://topo.example:8088/"
    assert Listening(**PROXIED).address(8088) == "https://topo.example/"


# -- hostile requests ----------------------------------------------------------------------------------------------------


@pytest.fixture(params=["tls", "wildcard", "proxy", "proxy on another port"])
def reached(request: pytest.FixtureRequest, tmp_path: Path, certificate: tuple[Path, Path]) -> tuple[Any, str, str]:
    """An application, the host that is its own, and the origin."""
    listening, origin = {
        "tls": (Listening("10.0.0.5", (), *certificate), "https://10.0.0.5:8088"),
        "wildcard": (Listening("0.0.0.0", ("topo.example",), *certificate), "https://topo.example:8088"),
        "proxy": (Listening("10.0.0.5", **PROXIED), "https://topo.example"),
        "proxy on another port": (Listening(behind_proxy=True, names=("topo.example:8443",)), "https://topo.example:8443"),
    }[request.param]
    listening.check()
    StateFolder(tmp_path / "home").create("words")
    return make_app(tmp_path / "home", TOKENS, listening.served_names(8088)), origin.partition("//")[2], origin


def test_its_own_names_are_served_and_others_refused(reached: tuple[Any, str, str]) -> None:
    app, host, _ = reached
    bearer = {"authorization": f"Bearer {TOKENS.operator}"}
    assert ask(app, "/api/topologies", {"host": host, **bearer})[0] == 200
    for other in ("evil.example", "evil.example:8088", f"{host}.evil.example", "10.0.0.6:8088", ""):
        assert ask(app, "/", {"host": other, **bearer})[0] == 403
    assert ask(app, "/api/topologies", {"host": host, "authorization": "Bearer wrong"})[0] == 401


def test_its_own_origin_acts_and_others_are_refused(reached: tuple[Any, str, str]) -> None:
    app, host, own = reached
    acting = {"host": host, "authorization": f"Bearer {TOKENS.operator}", "content-type": "application/json"}
    command = "/api/t/words/actions/kill?command=1"
    assert ask(app, command, {**acting, "origin": own}, "POST", b"{}")[0] == 200
    token = json.dumps({"token": TOKENS.viewer})
    assert converse(app, {"host": host, "origin": own}, token)[0]["type"] == "websocket.accept"
    for other in (
        "https://evil.example",
        f"{own}.evil.example",
        f"{own}:1",
        "null",
        "http://127.0.0.1:9999",
        "https://10.0.0.6:8088",
    ):
        assert ask(app, command, {**acting, "origin": other}, "POST", b"{}")[0] == 403
        assert [one["type"] for one in converse(app, {"host": host, "origin": other}, token)] == ["websocket.close"]


def test_a_page_without_encryption_is_no_origin_of_one_with(reached: tuple[Any, str, str]) -> None:
    app, host, own = reached
    acting = {"host": host, "authorization": f"Bearer {TOKENS.operator}", "content-type": "application/json"}
    acting["origin"] = own.replace("https:", "http:")
    assert ask(app, "/api/t/words/actions/kill?command=1", acting, "POST", b"{}")[0] == 403


# -- real servers --------------------------------------------------------------------------------------------------------


@contextmanager
def page(home: Path, *options: str) -> Iterator[tuple[str, str, str]]:
    """Serve the page; give its address and token, and the line about metrics."""
    command = [sys.executable, "-m", "topo_cli", "ui", "--home", str(home), *options]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        address, _, token = process.stdout.readline().strip().partition("#token=")
        assert token, process.stderr.read()
        try:
            yield address, token, process.stderr.readline().strip() if "--metrics" in options else ""
        finally:
            process.send_signal(signal.SIGINT)
            assert process.wait(20) in (0, 130)


def status(connection: HTTPConnection, path: str, headers: dict[str, str]) -> tuple[int, bytes]:
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    return answer.status, answer.read()


@pytest.mark.integration
def test_it_speaks_https_alone(tmp_path: Path, certificate: tuple[Path, Path]) -> None:
    cert, key = map(str, certificate)
    trusting = ssl.create_default_context(cafile=cert)
    with page(tmp_path, "--listen", "127.0.0.2", "--port", "0", "--tls-cert", cert, "--tls-key", key) as (address, token, _):
        host = address.removeprefix("https://").rstrip("/")
        secure = HTTPSConnection(host, timeout=20, context=trusting)
        assert status(secure, "/api/topologies", {"Authorization": f"Bearer {token}"})[0] == 200
        assert status(secure, "/api/topologies", {"Authorization": "Bearer wrong"})[0] == 401
        assert status(secure, "/", {"Host": "evil.example"})[0] == 403
        assert status(secure, "/metrics", {})[0] == 404
        live = f"wss://{host}/api/live"
        with connect(live, origin=f"https://{host}", ssl=trusting, proxy=None) as socket:  # type: ignore[arg-type]
            socket.send(json.dumps({"token": token}))
            assert json.loads(socket.recv(10))["type"] == "hello"
        with pytest.raises(InvalidHandshake):
            connect(live, origin="https://evil.example", ssl=trusting, proxy=None)  # type: ignore[arg-type]
        with pytest.raises((HTTPException, OSError)):
            status(HTTPConnection(host, timeout=20), "/", {})


@pytest.mark.integration
def test_behind_a_proxy_it_answers_to_its_name_and_metrics_have_a_port_of_their_own(tmp_path: Path) -> None:
    pytest.importorskip("prometheus_client", reason="needs the extra metrics")
    options = ("--listen", "0.0.0.0", "--port", "0", "--behind-proxy", "--name", "topo.example", "--metrics", "127.0.0.1:0")
    with page(tmp_path, *options) as (address, token, metrics):
        assert address == "https://topo.example/"
        figures = HTTPConnection(metrics.removeprefix("http://").removesuffix("/metrics"), timeout=20)
        assert status(figures, "/metrics", {})[0] == 200
        assert status(figures, "/api/topologies", {"Authorization": f"Bearer {token}"})[0] == 404


@pytest.mark.parametrize(
    "options, refusal",
    [
        (["--listen", "10.0.0.5"], "the token would go there unencrypted"),
        (["--listen", "no.such.host.invalid", "--behind-proxy", "--name", "topo.example"], "is none"),
        (["--metrics", "0.0.0.0:9464"], "topo metrics --insecure"),
        (["--metrics", "9464"], "--metrics takes HOST:PORT"),
    ],
)
@pytest.mark.integration
def test_what_cannot_be_is_refused(tmp_path: Path, options: list[str], refusal: str) -> None:
    if "--metrics" in options:
        pytest.importorskip("prometheus_client", reason="needs the extra metrics")
    command = [sys.executable, "-m", "topo_cli", "ui", "--home", str(tmp_path), *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and refusal in done.stderr, done.stderr
    assert "Traceback" not in done.stderr


def test_a_state_folder_that_cannot_be_written_is_the_environments_fault(tmp_path: Path) -> None:
    pytest.importorskip("uvicorn", reason="needs the extra ui")
    # An error as that of a file system that has become read-only.
    (tmp_path / "ui.lock").mkdir()
    with pytest.raises(TopoEnvironmentError, match=r"cannot open .*ui\.lock: Is a directory"):
        serve(tmp_path, 0, Listening(), print)
    assert served(tmp_path) is None
    (tmp_path / "ui.log").mkdir()
    with pytest.raises(TopoEnvironmentError, match=r"cannot open .*ui\.log: Is a directory"):
        PageProcess.start(tmp_path, attached=False)


def test_a_look_at_whether_it_is_served_keeps_no_server_from_beginning(tmp_path: Path) -> None:
    pytest.importorskip("uvicorn", reason="needs the extra ui")
    look = os.open(tmp_path / "ui.lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(look, fcntl.LOCK_SH)
    ended = threading.Timer(0.01, os.close, (look,))
    ended.start()
    with socket.create_server(("127.0.0.1", 0)) as other, pytest.raises(UserError, match="cannot listen on"):
        # The port is taken, so that it goes no further.
        serve(tmp_path, other.getsockname()[1], Listening(), print)
    ended.join()
