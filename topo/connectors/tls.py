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
_NO_TLS = "wrong_version_number", "wrong version number", "record_layer_failure", "record layer failure"
_WANTS_CLIENT = "certificate_required", "certificate required", "handshake_failure", "handshake failure", "bad_certificate"


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
    text = _texts(error).lower()
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
