"""Files of TLS that a connector is given, and what mends a connection over TLS that was refused. Without any I/O."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from topo.connectors.secrets import masked
from topo.errors import ConfigError

FILES = "ca_certs", "certfile", "keyfile"
_NAMES = *FILES, "keyfile_password", "ciphers"
_UNTRUSTED = "certificate verify failed"
_OF_HOST = "mismatch", "not valid for"
_OF_TIME = "expired", "not yet valid"
_NO_TLS = "wrong version number", "record layer failure"
_WANTS_CLIENT = "certificate required", "handshake failure", "requires a valid client certificate"
_REFUSES_CLIENT = {
    "alert certificate expired": "has expired: renew it",
    "alert certificate revoked": "was revoked: take another one",
    "alert unknown ca": "is of an authority that the server does not know: take another one, or have the server know it",
    "alert decrypt error": "was not signed by the authority of its issuer's name that the server knows: take another one",
    "alert bad certificate": "is missing, has expired, or is of an authority that the server does not know",
    "alert certificate unknown": "is not taken by the server",
    "alert unsupported certificate": "is not taken by the server: it may not be for clients",
}
"""What a server has against the client's certificate, by its alert."""


def tls_files(tls: Mapping[str, Any] | None, shown: str, scheme: str) -> dict[str, Any]:
    """Return what `tls=` has.

    Args:
        shown: the URL that it goes with, without secrets.
        scheme: of URLs with TLS.

    Raises:
        ConfigError: it has another name, or does not go with the URL.
    """
    files = dict(tls or {})
    if wrong := [f"{name}={value!r}" for name, value in files.items() if name not in _NAMES or not isinstance(value, str | Path)]:
        raise ConfigError(f"tls has {masked(wrong[0])}; it takes {', '.join(_NAMES)}, each a text")
    if files and not shown.lower().startswith(f"{scheme}:"):
        raise ConfigError(f"tls= is for a URL with {scheme}; url={shown!r} is not encrypted")
    if "keyfile" in files and "certfile" not in files:
        raise ConfigError("tls has a keyfile and no certfile, which is the client's certificate")
    return files


def tls_advice(error: BaseException | str, authority: str, client: str, plain: str) -> str:
    """Return what to do about an error of TLS, or "" where it is none. Its causes are looked at, too.

    Args:
        error: as a client library has raised it, or its text.
        authority: how the file of an authority is given, such as "config={'ssl_ca_certs': ...}".
        client: how a client's certificate is given.
        plain: the beginning of a URL without TLS.
    """
    text = _texts(error).lower().replace("_", " ")
    if _UNTRUSTED in text:
        if any(part in text for part in _OF_HOST):
            return "have the URL name a host that the server's certificate is for"
        if any(part in text for part in _OF_TIME):
            return "renew the server's certificate"
        return f"give the file of the authority that has signed the server's certificate as {authority}"
    if any(part in text for part in _NO_TLS):
        return f"this port speaks no TLS: name another, or begin the URL with {plain}"
    if any(part in text for part in _WANTS_CLIENT):
        return f"the server wants a certificate of the client: give it as {client}"
    for alert, what in _REFUSES_CLIENT.items():
        if alert in text:
            return f"the client's certificate, {client}, {what}"
    return ""


def _texts(error: BaseException | str) -> str:
    if isinstance(error, str):
        return error
    texts = list[str]()
    one: BaseException | None = error
    while one is not None and len(texts) < 5:
        texts.append(f"{one} {getattr(one, 'reason', '')}")
        one = one.__cause__ or one.__context__
    return " ".join(texts)
