"""Access to sockets: keys, the allow-list, and addresses that are refused.

CURVE encrypts and proves who holds which key; without an allow-list it still admits any key. So a TCP listener needs both,
loopback included: other users of a machine share its loopback. ipc sockets rest on the rights of their private folder.
"""

from __future__ import annotations

import ipaddress
import logging
import os
import stat
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from topo.errors import ConfigError

_LOG = logging.getLogger(__name__)

_IPC_PATH_BYTES = 103 if sys.platform == "darwin" else 107
"""What fits into a socket address before its closing zero byte."""


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A CURVE key pair in Z85 text of 40 characters each, generated for each process."""

    public: str
    secret: str = field(repr=False)


class AllowList:
    """The public keys that may connect, empty at first: none.

    The loop's thread replaces the list, the authentication thread asks it. A denial is counted, and logged when the count is
    a power of two, so that a stranger who tries for ever fills no disk.
    """

    def __init__(self, public_keys: Iterable[str] = ()) -> None:
        self._keys = frozenset(public_keys)
        self._denied = 0

    @property
    def denied(self) -> int:
        """Handshakes turned away so far."""
        return self._denied

    def replace(self, public_keys: Iterable[str]) -> None:
        """Let in the owners of exactly these keys from now on."""
        self._keys = frozenset(public_keys)

    def admits(self, public_key: str) -> bool:
        """Whether the owner of `public_key` may connect."""
        return public_key in self._keys

    def deny(self, peer: str, reason: str) -> None:
        """Count and report a handshake that was turned away. One thread calls this."""
        self._denied += 1
        if self._denied & (self._denied - 1) == 0:
            _LOG.warning("connection refused from %s: %s (%d refused so far)", peer, reason, self._denied)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach `host`."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def check_listener(host: str, keys: KeyPair | None, allow_list: AllowList | None) -> None:
    """Refuse a TCP listener that strangers could use.

    Raises:
        ConfigError: it has no keys or no allow-list, or `host` is a wildcard, which gives peers no address.
    """
    reach = "other users of this machine" if is_loopback(host) else "anyone who reaches it"
    if keys is None:
        raise ConfigError(f"listening on tcp://{host} without CURVE keys lets in {reach}: pass keys, or use transport='ipc'")
    if allow_list is None:
        raise ConfigError(f"listening on tcp://{host} without an allow-list lets in {reach}, with any key: pass an allow-list")
    if host in ("*", "0.0.0.0", "::"):
        raise ConfigError(f"cannot listen on {host!r}, which no peer can connect to: name one interface, such as 127.0.0.1")


def check_private_folder(folder: Path) -> None:
    """Refuse a folder for ipc sockets that others could look into.

    Raises:
        ConfigError: it is missing, not ours, or open to group or others.
    """
    try:
        status = folder.stat()
    except OSError as error:
        raise ConfigError(f"the folder for ipc sockets cannot be used: {error}") from error
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or stat.S_IMODE(status.st_mode) & 0o077:
        raise ConfigError(f"the folder for ipc sockets must be yours alone: chmod 700 {folder}")


def check_ipc_path(path: str) -> None:
    """Refuse a path that the system would cut off.

    Raises:
        ConfigError: it is longer than a socket address.
    """
    length = len(os.fsencode(path))
    if length > _IPC_PATH_BYTES:
        raise ConfigError(
            f"ipc path of {length} bytes is over the limit of {_IPC_PATH_BYTES}: {path}; set TMPDIR to a folder with a short path"
        )
