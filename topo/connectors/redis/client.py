"""The connection to a Redis server: how it is made, when it counts as lost, and the parts of it that are never shown."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Any
from urllib.parse import unquote, urlsplit

from topo.api.durations import duration_ms
from topo.connectors.clients import check_installed
from topo.connectors.secrets import masked
from topo.connectors.tls import tls_advice
from topo.connectors.tls_context import client_context
from topo.errors import ConfigError, RightMissingError, TopoEnvironmentError, TopoError

_REFUSED = {
    "decode_responses": "values are decoded by topo",
    "protocol": "replies are read in one form",
    "retry": "topo repeats commands, since not each may be repeated",
    "retry_on_error": "topo repeats commands, since not each may be repeated",
    "retry_on_timeout": "topo repeats commands, since not each may be repeated",
}
_SCHEMES = ("redis://", "rediss://", "unix://")
_FILES = {"ca_certs": "ssl_ca_certs", "certfile": "ssl_certfile", "keyfile": "ssl_keyfile", "keyfile_password": "ssl_password"}
_CLOSED = "closed by server", "reset by peer", "broken pipe", "eof occurred"
"""In errors of a connection that a server has ended without an alert, or whose alert was not read."""
_IN_PIPELINE = re.compile(r"^Command # \d+ \(.*?\) of pipeline caused error: ", re.DOTALL)
_REFUSED_COMMAND = re.compile(r"no permissions to (?:run|execute) the '([^']+)' command", re.I)
_REFUSED_KEY = re.compile(r"no permissions to access", re.I)
_REFUSED_IN_SCRIPT = re.compile(r"user executing the script can't (?:run|access)|ACL failure in script", re.I)


class RedisServer:
    """How to reach a server; connects when it is asked to.

    Args:
        component: name of the class, for messages.
        url: "redis://[[user]:password@]host:port/db", "rediss://..." with TLS, or "unix://[[user]:password@]/path".
        timeout: how long a command waits for its reply.
        config: more arguments of `redis.Redis`, such as those of TLS.
    """

    def __init__(self, component: str, url: str, timeout: str | timedelta, config: Mapping[str, Any]) -> None:
        check_installed(component, "redis", "the client of Redis", "redis")
        if not isinstance(url, str) or not url.startswith(_SCHEMES):
            raise ConfigError(f"{component}: the url must begin with {', '.join(_SCHEMES)}")
        for name, reason in _REFUSED.items():
            if name in config:
                raise ConfigError(f"{component}: config may not have {name!r}: {reason}")
        self._component = component
        self._url = url
        self._timeout_s = duration_ms(timeout) / 1000
        if self._timeout_s <= 0:
            raise ConfigError(f"{component}: timeout={timeout!r} must be longer than nothing")
        self._config = dict(config)

    def __str__(self) -> str:
        return f"Redis at {masked(self._url)}"

    def __repr__(self) -> str:
        return f"RedisServer({masked(self._url)!r})"

    def connect(self) -> Any:
        """Return a client whose replies to XREAD and XINFO are as the server sends them.

        Raises:
            ConfigError: the server refuses this user, or TLS with it fails.
        """
        from redis import Redis
        from redis.backoff import NoBackoff
        from redis.exceptions import AuthenticationError, NoPermissionError, RedisError
        from redis.retry import Retry

        options = {"socket_timeout": self._timeout_s, "socket_connect_timeout": self._timeout_s, **self._config}
        if "ssl_certfile" in options:
            # Without any OpenSSL asks for one at the terminal, and the task waits for somebody who types.
            options.setdefault("ssl_password", "")
        try:
            client: Any = Redis.from_url(self._url, **options, decode_responses=False, protocol=2, retry=Retry(NoBackoff(), 0))
        except (TypeError, ValueError) as error:
            raise ConfigError(f"{self._component}: {self} cannot be used: {masked(str(error))}") from None
        for command in ("XREAD", "XREADGROUP", "XINFO STREAM", "XAUTOCLAIM", "XCLAIM"):
            client.set_response_callback(command, _as_it_is)
        try:
            client.ping()
        except NoPermissionError:
            # The login was taken, and each command that is refused reports itself.
            pass
        except AuthenticationError as error:
            raise ConfigError(f"{self._component}: {self}: {error} Give user and password in the url") from None
        except (RedisError, OSError) as error:
            if advice := self._tls_advice(error):
                raise ConfigError(f"{self._component}: {self}: {advice}: {error}") from None
            # It may come up, or be ready, later: the next command reports it.
        return client

    def explained(self, error: BaseException) -> TopoError | None:
        """Return an error of a command with the way to mend it; None for others.

        It is of a right that this user lacks, or of a server that is not reached.
        """
        from redis.exceptions import ResponseError

        if isinstance(error, ResponseError):
            text = _IN_PIPELINE.sub("", str(error))
            if command := _REFUSED_COMMAND.search(text):
                grant = f"the command: `ACL SETUSER {self._user} +{command[1]}`"
            elif _REFUSED_KEY.search(text):
                grant = f"the keys, as by `ACL SETUSER {self._user} ~KEY`"
            elif _REFUSED_IN_SCRIPT.search(text):
                grant = "the commands of the script: docs/connectors/redis.md lists them"
            else:
                return None
            return RightMissingError(f"{self} refuses a command: {text}; grant user {self._user!r} {grant}. It is tried again")
        if is_unreachable(error):
            advice = self._tls_advice(error) or self._port_advice(error)
            lost = f"{self} is not reached, and it is tried again: {masked(str(error) or repr(error))}"
            return TopoEnvironmentError(f"{lost}; {advice}" if advice else lost)
        return None

    @property
    def _user(self) -> str:
        return str(self._config.get("username") or unquote(urlsplit(self._url).username or "") or "default")

    def _tls_advice(self, error: BaseException) -> str:
        client = "config={'ssl_certfile': ..., 'ssl_keyfile': ...}"
        if advice := tls_advice(error, "config={'ssl_ca_certs': ...}", client, plain="redis://"):
            return advice
        tls = {file: self._config.get(name) for file, name in _FILES.items()}
        if not any(tls.values()):
            return ""
        try:
            client_context(tls, lambda file: _FILES.get(file, file))
        except ConfigError as unusable:
            return f"config: {unusable}"
        return ""

    def _port_advice(self, error: BaseException) -> str:
        if self._url.startswith("redis://") and any(word in str(error) for word in ("reset by peer", "closed by server")):
            return "a port that wants TLS ends connections so: begin the URL with rediss:// then"
        if "handshake operation timed out" in str(error.__context__):
            return "a port without TLS does not answer so: begin the URL with redis:// then"
        if self._url.startswith("rediss://") and any(word in str(error).lower() for word in _CLOSED):
            given = self._config.get("ssl_certfile")
            wants = "a server that wants a certificate of the client ends connections so"
            if given is None:
                return f"{wants}: give it as config={{'ssl_certfile': ..., 'ssl_keyfile': ...}} then"
            return f"{wants} if ssl_certfile={str(given)!r} has expired, or is of an authority that it does not know"
        return ""


def _as_it_is(reply: Any, **_options: Any) -> Any:
    return reply


def is_unreachable(error: BaseException) -> bool:
    """Return whether a command failed since the server was not reached, or is not ready: it may be repeated later."""
    from redis.exceptions import BusyLoadingError, ConnectionError, TimeoutError

    return isinstance(error, ConnectionError | TimeoutError | BusyLoadingError | OSError)
