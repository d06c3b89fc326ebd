"""Where the page listens and by which names browsers come: what may be asked for is decided here, before a socket is bound."""

from __future__ import annotations

import socket
import ssl
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from topo.errors import UserError
from topo.transport.security import is_loopback
from topo.ui.access import Names

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Listening:
    """The listener of the page, as the user asks for it.

    Attributes:
        host: the address, or a name of it.
        names: what browsers write in its stead, with a port where a proxy has another one than 443.
        cert, key: files of the certificate and its key; None: the page speaks HTTP.
        behind_proxy: a proxy in front encrypts.
    """

    host: str = LOOPBACK
    names: tuple[str, ...] = ()
    cert: Path | None = None
    key: Path | None = None
    behind_proxy: bool = False

    @property
    def scheme(self) -> str:
        return "http" if self.cert is None else "https"

    def check(self) -> None:
        """Refuse a page that others could read along, or that no browser could use.

        Raises:
            UserError: names the option that is missing or wrong.
        """
        if self.host.count(":") == 1:
            host, _, port = self.host.partition(":")
            raise UserError(f"--listen takes an address alone; write --listen {host} --port {port}")
        if (self.cert is None) != (self.key is None):
            raise UserError("--tls-cert and --tls-key go together: the certificate, and its private key")
        if self.cert is None and not self.behind_proxy and not is_loopback(self.host):
            raise UserError(
                f"other machines reach {self.host!r}, and the token would go there unencrypted: give --tls-cert and "
                "--tls-key, or --behind-proxy if a proxy of yours encrypts; or keep 127.0.0.1 and forward its port with ssh -L"
            )
        if not self.names and (self.behind_proxy or _is_wildcard(self.host)):
            why = "behind a proxy" if self.behind_proxy else f"with {self.host}"
            raise UserError(f"{why} browsers come by another name, and requests for unknown names are refused: give --name HOST")
        if wrong := [
            name for name in self.names if not name or set(name) & set("/@#? ") or (":" in name and not self.behind_proxy)
        ]:
            raise UserError(f"--name takes a host, behind a proxy also HOST:PORT, such as topo.example; got {wrong[0]!r}")
        if self.cert is not None:
            try:
                # Without a password: the default is to ask for one on the terminal.
                ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self.cert, self.key, password="")
            except (OSError, ValueError) as error:
                raise UserError(
                    f"{self.cert} and {self.key} are no certificate and its key without a password: {error}"
                ) from error

    def place(self) -> tuple[Any, Any]:
        """Return the family of addresses and the address to bind to, whose port is 0. Raises UserError."""
        try:
            family, _, _, _, address = socket.getaddrinfo(self.host, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        except OSError as error:
            raise UserError(
                f"--listen takes an address of this machine; {self.host!r} is none: {error.strerror or error}"
            ) from error
        return family, address

    def served_names(self, port: int) -> Names:
        """Return the names by which requests may come."""
        local = {LOOPBACK, "localhost"} if is_loopback(self.host) else set()
        return Names.of([_in_address(self.host), *local, *self.names], port, scheme=self.scheme, any_port=self.behind_proxy)

    def address(self, port: int) -> str:
        """Return the address of the page for browsers."""
        if self.behind_proxy:
            return f"https://{self.names[0]}/"
        return f"{self.scheme}://{(self.names or (_in_address(self.host),))[0]}:{port}/"


def _is_wildcard(host: str) -> bool:
    with suppress(ValueError):
        return ip_address(host).is_unspecified
    return not host


def _in_address(host: str) -> str:
    return f"[{host}]" if ":" in host else host
