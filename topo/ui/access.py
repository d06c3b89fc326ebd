"""Who may do what: the tokens of a home, and the hosts and origins that are ours. Tokens apart, all of it is pure."""

from __future__ import annotations

import hmac
import json
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from topo.storage.state_folder import write_atomically


class Role(Enum):
    """The rights of the bearer of a token."""

    VIEWER = "viewer"
    OPERATOR = "operator"


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens of a home."""

    operator: str
    viewer: str

    def role_of(self, token: str) -> Role | None:
        """Return what a token allows, None for a wrong one; takes as long for each."""
        given = token.encode(errors="replace")
        is_operator = hmac.compare_digest(given, self.operator.encode())
        is_viewer = hmac.compare_digest(given, self.viewer.encode())
        return Role.OPERATOR if is_operator else Role.VIEWER if is_viewer else None


@dataclass(frozen=True, slots=True)
class Names:
    """The names and the port that browsers reach this server by.

    Attributes:
        hosts: values of Host that are ours, in lower case.
        origins: those of Origin.
    """

    hosts: frozenset[str]
    origins: frozenset[str]

    @classmethod
    def of(cls, names: Iterable[str], port: int, *, scheme: str, any_port: bool = False) -> Names:
        """Return the hosts and origins of some names.

        Args:
            any_port: a proxy in front encrypts, which browsers reach at the default port of https, or at the one in a name.
        """
        standard = {"http": 80, "https": 443}[scheme]
        hosts = {f"{name}:{port}".lower() for name in names}
        if any_port or port == standard:
            hosts |= {name.lower() for name in names}
        shown = "https" if any_port else scheme
        return cls(frozenset(hosts), frozenset(f"{shown}://{host}" for host in hosts))


@dataclass(frozen=True, slots=True)
class HomeRecord:
    """`ui.json` of a home: where its page is served, and the tokens, which last as long as the file."""

    tokens: Tokens
    address: str
    pid: int

    @classmethod
    def read(cls, home: Path) -> HomeRecord | None:
        """Return the record; None when there is none, or a damaged one."""
        try:
            known = json.loads((home / "ui.json").read_bytes())
            tokens = Tokens(str(known["token"]), str(known["viewer_token"]))
            record = cls(tokens, str(known["address"]), int(known["pid"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return record if len(tokens.operator) >= 32 and len(tokens.viewer) >= 32 else None

    @classmethod
    def new(cls, home: Path, address: str, pid: int) -> HomeRecord:
        """Write the record of a server that begins: with the tokens of the one before. Raises TopoEnvironmentError."""
        before = cls.read(home)
        tokens = before.tokens if before else Tokens(secrets.token_urlsafe(32), secrets.token_urlsafe(32))
        data = {"address": address, "token": tokens.operator, "viewer_token": tokens.viewer, "pid": pid}
        write_atomically(home / "ui.json", json.dumps(data).encode())
        return cls(tokens, address, pid)

    def link(self, *, read_only: bool = False) -> str:
        """Return the address with the token of an operator, or of a viewer, in its fragment."""
        return f"{self.address}#token={self.tokens.viewer if read_only else self.tokens.operator}"
