"""Where an MQTT broker is, and what names a session has. Without any I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit
from zlib import crc32

from topo.api.context import TaskContext
from topo.api.tuples import Tuple
from topo.connectors.name_templates import filled
from topo.connectors.secrets import masked
from topo.connectors.tls import tls_files
from topo.errors import ConfigError, UserError

PORTS = {"mqtt": 1883, "mqtts": 8883, "mqtt+unix": 0}
_MOST_NUMBER = 268_435_455
"""Of a subscription."""


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """Where the broker is, and how to log in.

    Attributes:
        shown: the URL without its password, for messages.
        host: a name, or the path of a Unix socket.
        tls: arguments of the client's `tls_set`; None: no encryption.
    """

    shown: str
    host: str
    port: int
    tls: Mapping[str, Any] | None = field(default=None, repr=False)
    is_unix: bool = False
    user: str | None = None
    password: str | None = field(default=None, repr=False)


def broker_address(url: str, tls: Mapping[str, Any] | None = None) -> BrokerAddress:
    """Return the parts of a URL: mqtt://user:password@host:port, mqtts://host or mqtt+unix:///path.

    Args:
        tls: files of the client's `tls_set`, for a URL with mqtts.

    Raises:
        ConfigError: it is none, or does not go with `tls`.
    """
    shown = masked(url)
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ConfigError(f"url={shown!r}: {masked(str(error))}") from None
    is_unix = parts.scheme == "mqtt+unix"
    host = parts.path if is_unix else parts.hostname
    if parts.scheme not in PORTS or not host or (parts.path not in ("", "/") and not is_unix):
        raise ConfigError(f"url={shown!r} must be mqtt://host:port, mqtts://host:port or mqtt+unix:///path")
    files = tls_files(tls, shown, "mqtts")
    user, password = (None if one is None else unquote(one) for one in (parts.username, parts.password))
    return BrokerAddress(
        shown, host, port or PORTS[parts.scheme], files if parts.scheme == "mqtts" else None, is_unix, user, password
    )


def client_id_of(given: str | None, context: TaskContext) -> str:
    """Return the name of a task's session, the same in each of its processes: a new one takes over from the one before."""
    return f"{context.topology}.{context.component}" if given is None else given


def check_filter(topic: str) -> None:
    """Raise ConfigError unless a text is a filter of topics: + and # are whole levels, and # is the last one."""
    levels = topic.split("/")
    is_wrong = any(("+" in level or "#" in level) and len(level) > 1 for level in levels) or "#" in levels[:-1]
    # A shared subscription is $share/NAME/FILTER.
    is_unshared = levels[0] == "$share" and (len(levels) < 3 or not levels[1] or levels[1] in "+#" or not levels[2])
    if is_wrong or is_unshared or "\0" in topic or len(topic.encode(errors="replace")) > 65_535:
        raise ConfigError(
            f"MqttSpout: topics has {topic!r}, which is no filter of topics: + and # stand for whole levels, and # for the last "
            "ones, as in 'sensors/+/temperature' and 'sensors/#'"
        )


def number_of(topic: str) -> int:
    """Return the number of a subscription, by which the broker marks its messages: of one filter always the same."""
    return crc32(topic.encode()) % _MOST_NUMBER + 1


def topic_of(given: str | Callable[[Tuple], str]) -> Callable[[Tuple], str]:
    """Return what names the topic of a tuple: a text in which names of fields may stand in braces, or a function.

    Raises:
        ConfigError: the text is no topic to publish to.
    """
    if callable(given):
        return given
    if not given or set("+#\0") & set(given):
        raise ConfigError(f"MqttSink: topic={given!r} must be a topic without + and #; names of fields may stand in braces")
    return filled(given, "MqttSink: topic=", _level)


def _level(value: Any, name: str) -> str:
    text = "" if value is None else str(value)
    if not text or set("+#/\0") & set(text):
        raise UserError(f"field {name!r} is {value!r}, which is no level of a topic: it is empty, or has one of + # /")
    return text
