"""What a request to a webhook has to be: the id it has, its signature, and who may send it. Without any I/O."""

from __future__ import annotations

import hashlib
import hmac
import re
import zlib
from collections.abc import Mapping
from ipaddress import ip_address
from urllib.parse import urlsplit

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


def given_headers(component: str, url: str, headers: Mapping[str, str] | None) -> dict[str, str]:
    """Return the headers of requests to a URL.

    Raises:
        ConfigError: one has no value, as of a variable that is not set, or a line's end, as of a file; or there are two logins.
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
    # The client refuses each request with both.
    if "authorization" in map(str.lower, texts) and _has_user(url):
        raise ConfigError(
            f"{component}: url={shown_url(url)!r} has a user, and headers= has Authorization: a request can have one of them; "
            "leave the user out of the URL, or Authorization out of headers="
        )
    return texts


def _has_user(url: str) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return bool(parts.username or parts.password)


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


class RefusedBodyError(Exception):
    """A body that is not taken, with the status of the answer."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


def unpacked(body: bytes, encoding: str, most: int) -> bytes:
    """Return a body as it was before its sender has compressed it, of which no more is unpacked than may be.

    Args:
        encoding: its Content-Encoding.
        most: bytes.

    Raises:
        RefusedBodyError: it has more bytes, is cut off or damaged, or the encoding is none that is unpacked.
    """
    name = encoding.strip().lower()
    if name in ("", "identity"):
        return body
    if name not in ("gzip", "x-gzip", "deflate"):
        raise RefusedBodyError(415, f"Content-Encoding {name!r} is not unpacked; send gzip, deflate, or the body as it is")
    # Some senders of deflate leave the header of zlib out.
    bits = zlib.MAX_WBITS + 16 if name != "deflate" else zlib.MAX_WBITS if body[:1] and body[0] & 15 == 8 else -zlib.MAX_WBITS
    parts: list[bytes] = []
    rest, room = body, most + 1
    while rest:
        part = zlib.decompressobj(bits)
        try:
            parts.append(part.decompress(rest, room))
        except zlib.error as error:
            raise RefusedBodyError(400, f"the body is no {name}: {error}") from error
        room -= len(parts[-1])
        if room <= 0:
            raise RefusedBodyError(413, f"the body has more than {most} bytes")
        if not part.eof:
            raise RefusedBodyError(400, f"the body is {name} that is cut off")
        rest = part.unused_data
    return b"".join(parts)


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
