"""The context of TLS that the files of `tls=` make, and which of them cannot be used, and why."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from typing import Any

from topo.connectors.tls import FILES
from topo.errors import ConfigError


def client_context(tls: Mapping[str, Any], name: Callable[[str], str] = str) -> ssl.SSLContext:
    """Return a context. The files are read now.

    Args:
        tls: as `tls_files` returns it.
        name: returns how the user has named one of them, for messages.

    Raises:
        ConfigError: one of them cannot be used. It shows no password.
    """
    shown = _shown(tls, name)
    for file, text in shown.items():
        try:
            with open(tls[file], "rb"):
                pass
        except OSError as error:
            raise ConfigError(f"{text} cannot be read: {error.strerror}") from None
    try:
        context = ssl.create_default_context(cafile=tls.get("ca_certs"))
    except (OSError, ValueError):
        raise ConfigError(f"{shown['ca_certs']} has no certificate in PEM") from None
    load_client(context, tls, name)
    if tls.get("ciphers"):
        try:
            context.set_ciphers(tls["ciphers"])
        except ssl.SSLError as error:
            raise ConfigError(f"{name('ciphers')}={tls['ciphers']!r}: {error.reason}") from None
    return context


def load_client(context: ssl.SSLContext, tls: Mapping[str, Any], name: Callable[[str], str] = str) -> None:
    """Read the client's certificate, if there is one, into a context: its next connections show that one.

    Raises:
        ConfigError: as `client_context`.
    """
    shown = _shown(tls, name)
    if "certfile" not in shown:
        return
    was_asked = False

    # Without it OpenSSL asks for one at the terminal, and the task waits for somebody who types.
    def password() -> str:
        nonlocal was_asked
        was_asked = True
        return str(tls.get("keyfile_password") or "")

    try:
        context.load_cert_chain(tls["certfile"], tls.get("keyfile"), password)
    except FileNotFoundError:
        raise ConfigError(f"{shown['certfile']} or its key, {shown.get('keyfile', 'in it')}, is missing") from None
    except (OSError, ValueError) as error:
        key, setting = shown.get("keyfile", shown["certfile"]), name("keyfile_password")
        if was_asked:
            what = f"another password: correct {setting}" if tls.get("keyfile_password") else f"a password: give it as {setting}"
            raise ConfigError(f"{key} is encrypted with {what}") from None
        if getattr(error, "reason", None) == "KEY_VALUES_MISMATCH":
            raise ConfigError(f"{key} is not the key of {shown['certfile']}") from None
        raise ConfigError(f"{shown['certfile']} and its key, {key}, are no certificate and key in PEM: {error}") from None


def _shown(tls: Mapping[str, Any], name: Callable[[str], str]) -> dict[str, str]:
    return {file: f"{name(file)}={str(tls[file])!r}" for file in FILES if tls.get(file) is not None}
