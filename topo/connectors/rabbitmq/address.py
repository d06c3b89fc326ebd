"""Where a RabbitMQ broker is, and its errors as those of topo. Without any I/O."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from topo.api.durations import duration_ms
from topo.connectors.clients import check_installed
from topo.connectors.secrets import masked, secrets_of, without
from topo.connectors.tls import tls_advice, tls_files
from topo.errors import ConfigError, RightMissingError, TopoEnvironmentError

_REFUSED, _NOT_FOUND, _NOT_ALLOWED = 403, 404, 530
_CODE = re.compile(r"\((\d{3})\) ['\"](?:ACCESS_REFUSED|NOT_ALLOWED)")
"""In the text of a refusal while a connection is opened."""
_LAST = re.compile(r"^.*last exception - \w+: (.*); first exception - None.*$", re.DOTALL)
_RIGHT = re.compile(r"access to (exchange|queue) '([^']*)' in vhost '[^']*' refused")


class RabbitAddress:
    """Where a broker is, and how to log in.

    Args:
        component: name of the class, for messages.
        url: "amqp://user:password@host:port/vhost", "amqps://..." with TLS; more settings of pika in its query.
        timeout: how long an answer may take before the broker counts as lost.
        heartbeat: a broker that is silent for this time is given up.
        tls: files of TLS, for a URL with amqps. They are read when a connection is made.

    Raises:
        ConfigError: an argument cannot be used, or pika is missing.
    """

    def __init__(
        self,
        component: str,
        url: str,
        timeout: str | timedelta,
        heartbeat: str | timedelta,
        tls: Mapping[str, Any] | None = None,
    ) -> None:
        check_installed(component, "rabbitmq", "pika", "pika")
        self.component, self.shown, self._url = component, masked(str(url)), str(url)
        self.tls = tls_files(tls, self.shown, "amqps")
        self._secrets = secrets_of({"url": self._url, **self.tls})
        self.timeout_s, self.heartbeat_s = duration_ms(timeout) / 1000, duration_ms(heartbeat) // 1000
        if self.timeout_s <= 0 or not 2 <= self.heartbeat_s <= 65_535:
            raise ConfigError(f"{component}: timeout={timeout!r} must be above zero, and heartbeat={heartbeat!r} at least 2s")
        if self._url.partition("://")[0].lower() not in ("amqp", "amqps"):
            raise ConfigError(f"{component}: url={self.shown!r} must be amqp://user:password@host:port/vhost, or amqps://...")
        self.parameters()

    def __str__(self) -> str:
        return f"RabbitMQ at {self.shown}"

    def __repr__(self) -> str:
        return f"RabbitAddress({self.shown!r})"

    def parameters(self, name: str = "") -> Any:
        """Return the parameters of a connection that the broker shows by a name.

        Raises:
            ConfigError: the URL has a setting that pika does not know.
        """
        import pika

        try:
            made: Any = pika.URLParameters(self._url)
        except Exception as error:
            raise ConfigError(f"{self.component}: url={self.shown!r}: {self.text_of(error)}") from None
        made.heartbeat = self.heartbeat_s
        made.connection_attempts = 1
        made.socket_timeout = made.stack_timeout = self.timeout_s
        made.client_properties = {"connection_name": name, "product": "topo"}
        return made

    def text_of(self, error: BaseException) -> str:
        """Return an error as a text without secrets."""
        return without(self._secrets, _LAST.sub(r"\1", str(error) or repr(error)))

    def explained(self, error: BaseException, what: str) -> Exception:
        """Return an error of a connection or channel with the way to fix it."""
        if isinstance(error, ConfigError):
            return error
        text = self.text_of(error)
        found = _CODE.search(text)
        code = getattr(error, "reply_code", None) or (int(found[1]) if found else 0)
        if code == _NOT_FOUND:
            return ConfigError(f"{self.component}: {self} has no {what}: {text}; declare it, or correct the name")
        if code == _NOT_ALLOWED:
            return ConfigError(
                f"{self.component}: {self} refuses the virtual host: {text}; correct it in the URL ('/' is %2F, or left out), or "
                "give this user rights to it"
            )
        if right := _RIGHT.search(text):
            name = "read" if right[1] == "queue" else "write"
            grant = f"give this user the right to {name}, as by `rabbitmqctl set_permissions`"
            return RightMissingError(f"{self.component}: {self} refuses {what}: {text}; {grant}")
        if code == _REFUSED or "uthenticat" in text or "uthenticat" in type(error).__name__:
            return ConfigError(f"{self.component}: {self} refuses this user: {text}; correct user and password in the URL")
        if advice := tls_advice(text, "tls={'ca_certs': ...}", "tls={'certfile': ..., 'keyfile': ...}", "amqp://"):
            return ConfigError(f"{self.component}: {self}: {advice}: {text}")
        lost = f"{self.component}: {self} is not reached, and it is tried again: {text}"
        if "reset by peer" in text and self._url.lower().startswith("amqp:"):
            lost = f"{lost}; a port that wants TLS ends connections so: begin the URL with amqps:// then"
        return TopoEnvironmentError(lost)


def is_unreachable(error: BaseException) -> bool:
    """Return whether a request may be repeated later: the broker was not reached, or was lost."""
    from pika.exceptions import AMQPError

    lost = isinstance(error, AMQPError | OSError | TimeoutError | TopoEnvironmentError)
    return lost and not isinstance(error, RightMissingError)
