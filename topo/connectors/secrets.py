"""Passwords and tokens of connectors, masked wherever something of a connector is shown."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

MASK = "***"
_NAME = re.compile(
    r"password|passwd|passphrase|secret|token|credential|jaas|(^|[._-])(api[._-]?)?key$|private[._-]?key|\.pem$|user\.info$", re.I
)
_IN_URL = re.compile(
    # Of a web address ":80/" is the port; elsewhere it may begin a password, which ends at the last "@" of the URL.
    r"(?<![a-z0-9+.-])(?!(?:https?|wss?)://[^\s:/@]+:\d{1,5}/)(?P<head>[a-z][a-z0-9+.-]*://[^\s:/@]*):"
    r"(?P<secret>(?:(?!,\s*[a-z][a-z0-9+.-]*://)\S)*)@",
    re.I,
)
_TOKEN_IN_URL = re.compile(r"(?P<head>\b(?:nats|tls|wss?)://)(?P<secret>(?:(?<=nats://)|(?<=tls://))[^\s:@,]+|[^\s:/@,]+)@", re.I)
"""The one user of a URL without a password: a token."""
_SETTING = re.compile(
    r"(?P<head>\b[\w.-]*(password|passwd|passphrase|secret|token|credential|api[._-]?key|private[._-]?key)[\w.-]*['\"]?\s*[=:]\s*|[?&]key=)('(?:[^'\\]|\\.)*'|\"[^\"]*\"|[^\s,;&)'\"]+)",
    re.I,
)

_PORT = re.compile(r"(?<=Port could not be cast to integer value as )('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")")
"""What a parser of URLs has taken for the port: the beginning of a password with "/", "?" or "#", perhaps."""


def is_secret(name: str) -> bool:
    """Whether a setting of this name is not to be shown."""
    return _NAME.search(name) is not None


def masked_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings to show: secret ones, by their names, and passwords in URLs are masked."""
    return {
        name: MASK if is_secret(name) else masked(value) if isinstance(value, str) else value for name, value in settings.items()
    }


def masked(text: str) -> str:
    """Return a text to show: what stands between ":" and "@" of a URL, and the values of settings such as password=, masked."""
    text = _PORT.sub(f"{MASK} (of a password, write / as %2F, ? as %3F and # as %23)", text)
    text = _TOKEN_IN_URL.sub(rf"\g<head>{MASK}@", _IN_URL.sub(rf"\g<head>:{MASK}@", text))
    return _SETTING.sub(rf"\g<head>{MASK}", text)


def without(secrets: tuple[str, ...], text: str) -> str:
    """Return a text, such as an error of a client, in which none of these secrets stands."""
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        text = text.replace(secret, MASK)
    return masked(text)


def secrets_of(settings: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the values of settings that are not to be shown, and the passwords of URLs among the others."""
    found = [str(value) for name, value in settings.items() if is_secret(name) and value]
    for value in settings.values():
        if isinstance(value, str):
            found += [match["secret"] for form in (_IN_URL, _TOKEN_IN_URL) for match in form.finditer(value) if match["secret"]]
    return tuple(found)
