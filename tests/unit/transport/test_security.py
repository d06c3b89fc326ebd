from __future__ import annotations

import logging
from pathlib import Path

import pytest

from topo.errors import ConfigError
from topo.transport.security import AllowList, KeyPair, check_ipc_path, check_listener, check_private_folder, is_loopback
from topo.transport.zmq import IpcPlace, TcpPlace, ZmqTransport

KEYS = KeyPair("p" * 40, "s" * 40)


@pytest.mark.parametrize("host", ["127.0.0.1", "10.0.0.5"])
def test_a_tcp_listener_without_keys_or_allow_list_is_refused_and_the_fix_named(host: str) -> None:
    with pytest.raises(ConfigError, match="pass keys, or use transport='ipc'"):
        check_listener(host, None, AllowList())
    with pytest.raises(ConfigError, match="pass an allow-list"):
        check_listener(host, KEYS, None)
    check_listener(host, KEYS, AllowList())


def test_a_wildcard_is_refused_even_with_keys() -> None:
    with pytest.raises(ConfigError, match="name one interface"):
        check_listener("0.0.0.0", KEYS, AllowList())


def test_a_transport_asks_before_it_listens(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="pass keys"):
        ZmqTransport(TcpPlace("10.0.0.5"))
    tmp_path.chmod(0o755)
    with pytest.raises(ConfigError, match="chmod 700"):
        ZmqTransport(IpcPlace(tmp_path))


def test_loopback_is_told_from_the_network() -> None:
    assert is_loopback("127.0.0.1") and is_loopback("127.1.2.3") and is_loopback("::1") and is_loopback("localhost")
    assert not is_loopback("10.0.0.5") and not is_loopback("example.org") and not is_loopback("localhost.example.org")


def test_a_folder_for_sockets_must_be_private(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    check_private_folder(tmp_path)
    tmp_path.chmod(0o710)
    with pytest.raises(ConfigError, match="chmod 700"):
        check_private_folder(tmp_path)
    with pytest.raises(ConfigError, match="No such file"):
        check_private_folder(tmp_path / "missing")


def test_an_ipc_path_over_the_limit_is_refused_by_its_bytes() -> None:
    check_ipc_path("/" + "x" * 102)
    with pytest.raises(ConfigError, match="short path"):
        check_ipc_path("/" + "x" * 107)
    with pytest.raises(ConfigError, match="121 bytes"):
        check_ipc_path("/" + "é" * 60)


def test_the_secret_key_is_not_printed() -> None:
    assert "s" * 40 not in repr(KEYS)


def test_denials_are_all_counted_but_logged_ever_more_rarely(caplog: pytest.LogCaptureFixture) -> None:
    allow_list = AllowList(["a"])
    assert allow_list.admits("a") and not allow_list.admits("b")
    with caplog.at_level(logging.WARNING):
        for _ in range(1000):
            allow_list.deny("1.2.3.4", "no key")
    assert allow_list.denied == 1000
    assert len(caplog.records) == 10
