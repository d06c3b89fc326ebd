"""The names that Kafka's topics can have."""

from __future__ import annotations

import re

from topo.errors import ConfigError

_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")


def check_topic(name: str, argument: str, fixes: dict[str, str] | None = None) -> None:
    """Check the name of a topic.

    Args:
        name: the name.
        argument: its name, for messages.
        fixes: by characters that show a mistake, the argument to give instead.

    Raises:
        ConfigError: no topic can have it.
    """
    if not _TOPIC.fullmatch(name) or name in (".", ".."):
        allowed = "a name has A-Z, a-z, 0-9, '.', '_', '-', and at most 249 of them"
        fix = next((f"; {fix}" for characters, fix in (fixes or {}).items() if set(characters) & set(name)), "")
        raise ConfigError(f"{argument}={name!r} cannot be a topic; {allowed}{fix}")
