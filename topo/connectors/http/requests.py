"""What a request to a webhook has to be: the id it has, its signature, and who may send it. Without any I/O."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping
from ipaddress import ip_address

from topo.connectors.secrets import MASK, masked
from topo.errors import ConfigError

ID_HEADER = "Idempotency-Key"
LONGEST_ID = 255
UNSHOWN = frozenset({"authorization", "cookie", "proxy-authorization"})
"""Headers with credentials, which no tuple has."""

_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_QUERY = re.compile(r"(?P<url>\b(?:https?|wss?)://[^\s?#'\"<>]*)[?#][^\s'\"<>]*", re.I)


def shown_url(url: str) -> str:
    """Return a URL to show: without password and query, in which keys often are."""
    return masked(re.split("[?#]", url, maxsplit=1)[0])


def without_queries(url: str, text: str) -> str:
    """Return a text of a client or server in which no URL has a query, and no part of that of `url` stands."""
    for part in sorted(re.split("[&#]", url.partition("?")[2]), key=len, reverse=True):
        if "=" in part:
            text = text.replace(part, MASK)
    return _QUERY.sub(r"\g<url>", text)


def given_headers(component: str, headers: Mapping[str, str] | None) -> dict[str, str]:
    """Return the headers of requests.

    Raises:
        ConfigError: one has no value, as of a variable that is not set, or a line's end, as of a file.
    """
    given = dict(headers or {})
    if missing := [name for name, value in given.items() if value is None]:
        raise ConfigError(f"{component}: headers= has None for {', '.join(map(repr, missing))}; leave it out, or give its value")
    texts = {name: str(value) for name, value in given.items()}
    if broken := [name for name, value in texts.items() if _CONTROL.search(f"{name}{value}")]:
        raise ConfigError(
            f"{component}: headers= has a line's end, or the like, in {', '.join(map(repr, broken))}; "
            "a value that was read from a file needs .strip()"
        )
    return texts


def is_loopback(host: str) -> bool:
    """Whether only programs of this machine reach a server on that address."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def check_reach(host: str, secret: str | None, *, allow_unsigned: bool) -> None:
    """Raise ConfigError where anybody of a network could send messages."""
    if secret is None and not allow_unsigned and not is_loopback(host):
        raise ConfigError(
            f"WebhookSpout: host={host!r} is reached by other machines, and without secret= anybody there can send messages; "
            "give the secret that your sender signs with, or allow_unsigned=True where something in front of it checks senders"
        )


def signature_of(secret: bytes, body: bytes) -> str:
    """Return the signature of a body: HMAC with SHA-256, in hexadecimal digits."""
    return hmac.new(secret, body, hashlib.sha256).hexdigest()


def is_signed(secret: bytes, body: bytes, given: str | None) -> bool:
    """Whether the header has the signature of the body, with or without "sha256=" in front.

    It takes the same time for every header.
    """
    text = (given or "").strip().removeprefix("sha256=").lower()
    return hmac.compare_digest(signature_of(secret, body).encode(), text.encode(errors="replace"))


def shown_headers(headers: Mapping[str, str], signature_header: str) -> dict[str, str]:
    """Return the headers that a tuple may have, by their names in lower case; several of one name are joined by commas."""
    hidden = UNSHOWN | {signature_header.lower()}
    shown: dict[str, str] = {}
    for name, value in headers.items():
        key = name.lower()
        if key not in hidden:
            value = _text_of(value)
            shown[key] = f"{shown[key]}, {value}" if key in shown else value
    return shown


def given_id(header: str | None) -> str | None:
    """Return the id that a sender has given to its request; None where it has given none.

    Raises:
        ValueError: it is empty or too long.
    """
    if header is None:
        return None
    text = _text_of(header.strip())
    if not text or len(text) > LONGEST_ID:
        raise ValueError(f"{ID_HEADER} must have 1 to {LONGEST_ID} characters; it has {len(text)}")
    return text


def _text_of(header: str) -> str:
    """Return a header's text. Bytes that are not UTF-8, which aiohttp keeps as lone surrogates, are taken for Latin-1."""
    try:
        header.encode()
    except UnicodeEncodeError:
        return header.encode(errors="surrogateescape").decode("latin-1")
    return header
