"""The connection to a Redis server: how it is made, when it counts as lost, and the parts of it that are never shown."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from topo.api.durations import duration_ms
from topo.connectors.clients import check_installed
from topo.connectors.secrets import masked
from topo.errors import ConfigError

_REFUSED = {
    "decode_responses": "values are decoded by topo",
    "protocol": "replies are read in one form",
    "retry": "topo repeats commands, since not each may be repeated",
    "retry_on_error": "topo repeats commands, since not each may be repeated",
    "retry_on_timeout": "topo repeats commands, since not each may be repeated",
}
_SCHEMES = ("redis://", "rediss://", "unix://")


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
            ConfigError: the server refuses this user.
        """
        from redis import Redis
        from redis.backoff import NoBackoff
        from redis.exceptions import AuthenticationError, NoPermissionError, RedisError
        from redis.retry import Retry

        options = {"socket_timeout": self._timeout_s, "socket_connect_timeout": self._timeout_s, **self._config}
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
        except (RedisError, OSError):
            # It may come up, or be ready, later: the next command reports it.
            pass
        return client


def _as_it_is(reply: Any, **_options: Any) -> Any:
    return reply


def is_unreachable(error: BaseException) -> bool:
    """Return whether a command failed since the server was not reached, or is not ready: it may be repeated later."""
    from redis.exceptions import BusyLoadingError, ConnectionError, TimeoutError

    return isinstance(error, ConnectionError | TimeoutError | BusyLoadingError | OSError)
