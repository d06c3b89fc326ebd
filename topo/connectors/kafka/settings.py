"""The settings of Kafka's clients, those included that would break a promise; and their errors, with the fixes."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from numbers import Real
from typing import Any

from topo.connectors.kafka.tokens import TokenCallback
from topo.connectors.secrets import masked, secrets_of, without
from topo.errors import ConfigError, NotFoundError, RightMissingError, TopoEnvironmentError, TopoError
from topo.user_errors import kind_and_message

REFUSED = {
    "bootstrap.servers": "give it as bootstrap_servers=",
    "metadata.broker.list": "give it as bootstrap_servers=",
    "default.topic.config": "give its settings in config= itself",
    "error_cb": "topo reports the errors of the client",
    "logger": "topo has the log of the client",
    "stats_cb": "topo does not call it; its own metrics have the lag",
}
"""Settings that neither the spout nor the sink passes on, with the reason."""

_NUMBERS = ("socket.timeout.ms", "message.max.bytes")
"""Settings that topo reads as well."""
_UNDERSCORED = {"log_level"}
"""Settings of librdkafka that have an underscore, beside the callbacks."""
_PROTOCOLS = {"plaintext", "ssl", "sasl_plaintext", "sasl_ssl"}
"""May stand in front of an address."""
_UNREACHABLE = {"_ALL_BROKERS_DOWN", "_TRANSPORT", "_TIMED_OUT", "_RESOLVE", "_TIMED_OUT_QUEUE", "REQUEST_TIMED_OUT"}
_LOGIN = {"_AUTHENTICATION", "SASL_AUTHENTICATION_FAILED", "UNSUPPORTED_SASL_MECHANISM", "ILLEGAL_SASL_STATE"}
_REFUSED_CERTIFICATE = re.compile(r"SSL alert number (4[2-68]|116)\b")
"""By which a broker refuses the certificate of a client, or misses one. The client takes it for a broken connection."""
_CERTIFICATES = ("ssl.certificate.location", "ssl.certificate.pem", "ssl.keystore.location")
_MISSING = {"UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION", "UNKNOWN_TOPIC_ID"}
_FIXES = {
    "TOPIC_AUTHORIZATION_FAILED": "grant the user of config= Describe and Read on the topic; for a sink Describe and Write, "
    "and with exactly_once Read, too",
    "GROUP_AUTHORIZATION_FAILED": "grant the user of config= the operation Read on the group",
    "CLUSTER_AUTHORIZATION_FAILED": "grant the user of config= the operation Write on the topic",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": "grant the user of config= Write and Describe on transactional ids 'topo.*'",
    "_SSL": "correct the ssl. settings of config=: the broker's certificate, and the authority that signed it",
    "_INVALID_ARG": "correct config=; its names and values are those of librdkafka's CONFIGURATION.md",
}


def servers_of(bootstrap_servers: str | Sequence[str]) -> str:
    """Return addresses of brokers, "host:port" each, as the one text that the client takes.

    Raises:
        ConfigError: there are none.
    """
    given = [bootstrap_servers] if isinstance(bootstrap_servers, str) else list(bootstrap_servers or ())
    if any(not isinstance(one, str) for one in given) or not "".join(given).strip(" ,"):
        raise ConfigError(f"bootstrap_servers={bootstrap_servers!r} must name a broker, such as 'localhost:9092'")
    addresses = ",".join(given)
    if any("://" in one and one.strip().partition("://")[0].lower() not in _PROTOCOLS for one in addresses.split(",")):
        shown = masked(repr(bootstrap_servers))
        raise ConfigError(f"bootstrap_servers={shown} must have addresses, such as 'localhost:9092', and no URL")
    return addresses


def checked_config(user: str, config: Mapping[str, Any], refused: Mapping[str, str]) -> dict[str, Any]:
    """Return the user's settings of a client, after a check of their names and types.

    Args:
        user: the class, for messages.
        config: settings by the names of librdkafka.
        refused: further names that `user` does not take, with the reason.

    Raises:
        ConfigError: one would break a promise, or is none that the client takes.
    """
    reasons = {**REFUSED, **refused}
    for name, value in config.items():
        if not isinstance(name, str):
            raise ConfigError(f"{user}: config= has the name {name!r}; names of settings are text")
        if name in reasons:
            raise ConfigError(f"{user}: config= must not have {name!r}: {reasons[name]}")
        is_callback = name.endswith("_cb")
        if "_" in name and not is_callback and name not in _UNDERSCORED:
            dotted = name.replace("_", ".")
            raise ConfigError(f"{user}: config= has {name!r}, and librdkafka's names have dots: {dotted!r}")
        # The client would take the text of a list, or of bytes, such as "b'x'".
        if not (callable(value) if is_callback else isinstance(value, str | Real | os.PathLike)):
            wanted = "a function" if is_callback else "a text, a number, True or False"
            raise ConfigError(f"{user}: config= has {name!r} as {type(value).__name__}; it must be {wanted}")
        if name in _NUMBERS and not str(value).replace(".", "", 1).isdecimal():
            raise ConfigError(f"{user}: config= has {name!r}: {value!r}; it must be a number")
    return {name: TokenCallback(value) if name == "oauth_cb" else value for name, value in config.items()}


def explained(
    error: Any, what: str, settings: Mapping[str, Any], away: type[TopoEnvironmentError] = TopoEnvironmentError
) -> TopoError:
    """Return an error of the client as one with the fix, without secrets.

    Args:
        error: a KafkaError.
        what: was tried, such as "topic 'orders' cannot be read".
        settings: all settings of the client.
        away: the class of the error where no broker answers, or the login is refused.
    """
    name, text, servers = error.name(), error.str(), settings.get("bootstrap.servers")
    failure = getattr(settings.get("oauth_cb"), "failure", None) if name in _UNREACHABLE | _LOGIN else None
    if failure is not None:
        fix = f"oauth_cb of config= raised {kind_and_message(failure)}"
    elif name in _UNREACHABLE and _REFUSED_CERTIFICATE.search(text):
        given = next((one for one in _CERTIFICATES if settings.get(one)), None)
        wanted = f"{_CERTIFICATES[0]} and ssl.key.location"
        fix = f"the broker at {servers!r} wants a certificate of the client; give it in config= as {wanted}"
        if given is not None:
            fix = (
                f"the broker at {servers!r} does not take the client's certificate, {given} of config=: renew it if it has "
                "expired, or give one of an authority that the broker knows"
            )
    elif name in _UNREACHABLE:
        fix = f"no broker of bootstrap_servers={servers!r} answers; start it, or correct the address or security.protocol"
    elif name in _LOGIN:
        fix = f"the broker at {servers!r} refuses the login; correct security.protocol and the sasl. settings of config="
    elif name in _MISSING:
        fix = f"the brokers at {servers!r} do not have it; create it, or correct its name"
    else:
        fix = _FIXES.get(name, "")
    text_shown = f"{what}: {fix or text}" + (f" ({text})" if fix else "")
    shown = without(secrets_of(settings), text_shown)
    if name in _MISSING:
        return NotFoundError(shown)
    if name in _UNREACHABLE | _LOGIN:
        found = away(shown)
        found.__cause__ = failure
        return found
    if name.endswith("_AUTHORIZATION_FAILED"):
        return RightMissingError(shown)
    return ConfigError(shown) if name == "_INVALID_ARG" else TopoEnvironmentError(shown)


def refused_login(reported: Iterable[Any]) -> Any | None:
    """Return the first error by which a broker has refused the login."""
    return next(filter(refuses_login, reported), None)


def refuses_login(error: Any) -> bool:
    """Whether a broker has refused the login, or one of both the certificate of the other."""
    names = ("_AUTHENTICATION", "SASL_AUTHENTICATION_FAILED", "_SSL")
    return error.name() in names or _REFUSED_CERTIFICATE.search(error.str()) is not None


def cause_of(error: Any, reported: Sequence[Any]) -> Any:
    """Return the reason why a request was not answered: of the errors that the client has reported, or else its own."""
    reasons = (one for one in reversed(reported) if one.name() in ("_RESOLVE", "_TRANSPORT"))
    return refused_login(reported) or next(reasons, error)


def is_unanswered(error: BaseException) -> bool:
    """Whether an error of the client means that no broker has answered a request."""
    from confluent_kafka import KafkaException

    return isinstance(error, KafkaException) and error.args[0].name() in _UNREACHABLE


@contextmanager
def explaining(
    what: str, settings: Mapping[str, Any], reported: Sequence[Any] = (), away: type[TopoEnvironmentError] = TopoEnvironmentError
) -> Iterator[None]:
    """Have an error of the client leave the block as one of topo's, with the fix and without secrets.

    Args:
        what: was tried.
        settings: of the client.
        reported: errors that the client has reported by callback: they explain a request without an answer.
        away: see `explained`.
    """
    from confluent_kafka import KafkaException

    try:
        yield
    except KafkaException as error:
        cause = error.args[0]
        if is_unanswered(error):
            cause = cause_of(cause, reported)
        found = explained(cause, what, settings, away)
        raise found from found.__cause__
