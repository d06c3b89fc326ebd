"""The connection to NATS: how it is made, and its calls as those of a client that blocks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar
from weakref import finalize

from topo.api.durations import duration_ms
from topo.connectors.clients import check_installed
from topo.connectors.secrets import masked, secrets_of, without
from topo.connectors.tls import tls_advice
from topo.errors import ConfigError, RightMissingError

_REFUSED = {
    "allow_reconnect": "topo connects again",
    "max_reconnect_attempts": "topo connects again",
    "error_cb": "topo reports errors",
}
_WITH_NKEYS = "user_credentials", "nkeys_seed", "nkeys_seed_str"
"""Logins that the client signs."""
_PARTS = "-BEGIN NATS USER JWT-", "-BEGIN USER NKEY SEED-"
"""Of a file of credentials."""
_IDLE_S = 60.0
"""A connection that was idle for this time is made again: between calls the server's pings have no answer."""
_NO_NEWS = "returning true from eof_received() has no effect when using ssl"
Result = TypeVar("Result")


class NatsServers:
    """How to reach a server or a cluster.

    Args:
        component: name of the class, for messages.
        servers: a URL, "nats://[user:password@]host:port", or several of one cluster.
        timeout: how long a request waits for its reply.
        config: more arguments of `nats.connect`, such as `user_credentials`, `token`, `tls`.
    """

    def __init__(self, component: str, servers: str | Sequence[str], timeout: str | timedelta, config: Mapping[str, Any]) -> None:
        given = [servers] if isinstance(servers, str) else list(servers)
        if not given or not all(isinstance(one, str) and "://" in one for one in given):
            raise ConfigError(f"{component}: servers must be URLs such as 'nats://localhost:4222'")
        for name, reason in _REFUSED.items():
            if name in config:
                raise ConfigError(f"{component}: config may not have {name!r}: {reason}")
        self.timeout_s = duration_ms(timeout) / 1000
        if self.timeout_s <= 0:
            raise ConfigError(f"{component}: timeout={timeout!r} must be longer than nothing")
        modules = ("nats", "nkeys") if any(name in config for name in _WITH_NKEYS) else ("nats",)
        check_installed(component, "nats", "the client of NATS", *modules)
        self.component = component
        self.given = given
        self.config = dict(config)
        self._secrets = secrets_of({**self.config, **{str(place): url for place, url in enumerate(given)}})

    def __str__(self) -> str:
        return f"NATS at {', '.join(map(masked, self.given))}"

    def __repr__(self) -> str:
        return f"NatsServers({str(self)!r})"

    @property
    def wants_tls(self) -> bool:
        return self.config.get("tls") is not None or any(url.lower().startswith("tls:") for url in self.given)

    def shown(self, error: BaseException) -> str:
        """Return an error as a text without secrets."""
        return without(self._secrets, str(error) or repr(error))


class NatsConnection:
    """A client whose calls block. It is used by one thread at a time: its loop runs only during a call.

    A connection that is lost is made again by the next call; streams, consumers and subscriptions are those of one connection,
    which have a `number`.

    Attributes:
        complaint: of the server during the last call, of a right that is missing: such a request has no answer. "": none.
    """

    def __init__(self, servers: NatsServers) -> None:
        self._servers = servers
        # It keeps a function once, however often it is added.
        logging.getLogger("asyncio").addFilter(_is_news)
        self._loop = asyncio.new_event_loop()
        self._clients: list[Any] = []
        """The client, if there is one."""
        self.number = 0
        self.timeout_s = servers.timeout_s
        self.complaint = ""
        self._used_s = 0.0
        """When the last call ended, by the loop's clock."""
        close_forgotten()
        self._forget = finalize(self, _FORGOTTEN.append, (self._loop, self._clients))
        self._forget.atexit = False

    def run(self, action: Callable[[Any, Any], Coroutine[Any, Any, Result]]) -> Result:
        """Connect if need be, and run a coroutine that is made of the client and its JetStream context.

        Raises:
            ConfigError: the server refuses this user, or has no JetStream.
            RightMissingError: this user has no right to a request, which is not answered then.
            Exception: of the action. The next call connects again where it `is_unreachable`.
        """
        return self._loop.run_until_complete(self._connected(action))

    async def _connected(self, action: Callable[[Any, Any], Coroutine[Any, Any, Result]]) -> Result:
        timeout_s = self._servers.timeout_s
        self.complaint = ""
        try:
            is_stale = self._loop.time() - self._used_s > _IDLE_S
            if not self._clients or not self._clients[0].is_connected or is_stale:
                await _drop(self._clients)
                try:
                    self._clients.append(await asyncio.wait_for(self._connect(), timeout_s))
                except TimeoutError:
                    raise TimeoutError(f"{self._servers} has taken no connection within {timeout_s:g} s") from None
                self.number += 1
            return await action(self._clients[0], self._clients[0].jetstream(timeout=timeout_s))
        except Exception as error:
            if is_unreachable(error):
                if self.complaint:
                    raise self.refusal() from None
                await _drop(self._clients)
            raise
        finally:
            self._used_s = self._loop.time()

    def refusal(self) -> RightMissingError:
        """Return the complaint as an error."""
        servers = self._servers
        return RightMissingError(
            f"{servers.component}: {servers} refuses a request: {self.complaint}; grant this user the permission"
        )

    async def _connect(self) -> Any:
        refusals = list[Exception]()

        async def keep(error: Exception) -> None:
            refusals.append(error)
            if "permissions violation" in str(error).lower():
                self.complaint = self._servers.shown(error)

        _check_files(self._servers)
        options = {"allow_reconnect": False, "error_cb": keep, "connect_timeout": self._servers.timeout_s}
        try:
            return await _client(self._servers, {**self._servers.config, **options})
        except Exception as error:
            for one in (*refusals, error):
                if "uthorization" in str(one) or "uthentication" in str(one):
                    refused = f"{self._servers} refuses this user: {self._servers.shown(one)}"
                    raise ConfigError(f"{self._servers.component}: {refused}; {self._login()}") from None
            if type(error).__module__.startswith("nkeys"):
                files = {name: value for name, value in self._servers.config.items() if name in _WITH_NKEYS[:2]}
                raise ConfigError(
                    f"{self._servers.component}: config={files} cannot be used: {self._servers.shown(error)}"
                ) from None
            if advice := tls_advice(
                error, "config={'tls': ssl.create_default_context(cafile=...)}", "config={'tls': ...}", "nats://"
            ):
                raise ConfigError(f"{self._servers.component}: {self._servers}: {advice}: {self._servers.shown(error)}") from None
            if self._servers.wants_tls and isinstance(error, ConnectionError) and not isinstance(error, ConnectionRefusedError):
                # The connection may be gone before the server's alert was read.
                raise ConnectionResetError(
                    f"{self._servers.shown(error)}; a server that wants a certificate of the client ends connections so, if "
                    "config={'tls': ...} has none, or an expired one, or one of an authority that it does not know"
                ) from None
            raise

    def _login(self) -> str:
        """Return what to do about a refused login."""
        given = next((name for name in _WITH_NKEYS if name in self._servers.config), None)
        if given is None:
            return "give user and password in the URL, or credentials in config"
        return f"{given} of config may have expired, or was revoked, or is of another account: give another"

    def close(self) -> None:
        """Close the connection and the loop. It may be called again."""
        if self._forget.detach() is not None:
            _close(self._loop, self._clients)


def _is_news(record: logging.LogRecord) -> bool:
    """Drop the warning that each end of a connection over TLS gives, since the client upgrades a plain connection."""
    return record.msg != _NO_NEWS


def _check_files(servers: NatsServers) -> None:
    """Raise ConfigError where a file of the login cannot be used: the client's errors do not name it."""
    for name in _WITH_NKEYS[:2]:
        given = servers.config.get(name)
        for file in given if isinstance(given, tuple | list) else (given,):
            # The client takes a file's text in a class besides.
            if not isinstance(file, str | Path):
                continue
            shown = f"{servers.component}: config={{{name!r}: {str(file)!r}}}"
            try:
                text = Path(file).read_text(errors="replace")
            except OSError as error:
                raise ConfigError(f"{shown} cannot be read: {error.strerror}") from None
            if name == _WITH_NKEYS[0] and file is given and not all(part in text for part in _PARTS):
                raise ConfigError(
                    f"{shown} has not both a user's JWT and seed, as a .creds file has; `nsc generate creds` makes one"
                )


async def _client(servers: NatsServers, options: dict[str, Any]) -> Any:
    """Connect. Where URL or options want TLS a server without it gets no login: the client's own `connect` would send it.

    Raises:
        ConfigError: the server has no TLS.
    """
    from nats.aio.client import Client

    class TlsClient(Client):  # type: ignore[misc]
        async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
            is_encrypted = info.get("tls_required") or options.get("tls_handshake_first")
            wants_tls = options.get("tls") is not None or self._current_server.uri.scheme == "tls"
            if initial_connection and wants_tls and not is_encrypted:
                raise ConfigError(
                    f"{servers.component}: {servers} does not require TLS, and this client encrypts nothing then: have the "
                    "server require it, or begin the URL with nats:// and leave tls out of config"
                )
            await super()._process_info(info, initial_connection)

    client = TlsClient()
    try:
        await client.connect(servers.given, **options)
    except ConfigError:
        await _drop([client])
        raise
    return client


_FORGOTTEN: list[tuple[asyncio.AbstractEventLoop, list[Any]]] = []
"""Loops and clients of connections that were collected without `close`: another loop may run on that thread then."""


def close_forgotten() -> None:
    """Close the connections that were collected without `close`. No loop may run on this thread."""
    while _FORGOTTEN:
        _close(*_FORGOTTEN.pop())


async def _drop(clients: list[Any]) -> None:
    """Close clients, also those that a server has left hanging."""
    while clients:
        with suppress(Exception):
            await asyncio.wait_for(clients.pop().close(), 1.0)


async def _end(clients: list[Any]) -> None:
    """Close clients, and end what they have left running on this loop."""
    await _drop(clients)
    rest = asyncio.all_tasks() - {asyncio.current_task()}
    for task in rest:
        task.cancel()
    await asyncio.gather(*rest, return_exceptions=True)


def _close(loop: asyncio.AbstractEventLoop, clients: list[Any]) -> None:
    try:
        loop.run_until_complete(_end(clients))
    finally:
        loop.close()


def is_unreachable(error: BaseException) -> bool:
    """Return whether a call has failed since the server was not reached, or is not ready: it may be repeated later."""
    import nats.errors
    from nats.js.errors import NoStreamResponseError, ServiceUnavailableError

    lost = (nats.errors.Error, OSError, asyncio.TimeoutError, NoStreamResponseError, ServiceUnavailableError)
    if not isinstance(error, lost):
        return False
    from nats.js.errors import APIError

    # Replies of a server that is reached.
    return not isinstance(error, APIError) or isinstance(error, ServiceUnavailableError)
