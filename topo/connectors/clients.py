"""The client libraries of connectors, which extras bring."""

from __future__ import annotations

from importlib.util import find_spec

from topo.errors import ConfigError
from topo.extras import EXTRAS, pip_install


def check_installed(user: str, extra: str, client: str, *modules: str) -> None:
    """Raise ConfigError where a module of a client is missing, with the command that installs it.

    Args:
        user: the class, for messages.
        extra: has the client.
        client: its name, for messages.
        modules: of the client.
    """
    if any(find_spec(module) is None for module in modules):
        raise ConfigError(f"{user} needs {client}: {pip_install(EXTRAS[extra])}")
