"""The schema registry that a format asks: its settings, its errors with the fixes, and no secrets in either."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from topo.connectors.secrets import masked_settings, secrets_of, without
from topo.errors import ConfigError, NotFoundError, TopoEnvironmentError, TopoError
from topo.extras import EXTRAS, pip_install

_DEFAULTS = {"timeout": 5.0, "max.retries": 0}
"""topo asks again. The client's own retries would be waited for, up to a minute."""
_LOGIN = "basic.auth.user.info"
_NO_ACCESS, _PASSING = (401, 403), (404, 408, 429)
_UNKNOWN = range(40401, 40500)
"""Codes of a registry that has no such schema. Any other 404 is of something in front of it, or of a wrong path."""


def is_of_request(error: BaseException) -> bool:
    """Whether an error is of a request, and not of a record or a schema."""
    from confluent_kafka.schema_registry.error import OAuthTokenError, SchemaRegistryError

    # The client passes on the errors of the package by which it makes requests, httpx2 or httpx.
    kinds = (SchemaRegistryError, OAuthTokenError, OSError)
    return isinstance(error, kinds) or type(error).__module__.startswith("http")


class Registry:
    """How to reach a registry, and its client, which is made when it is first asked. Threads may share it.

    Args:
        user: the class, for messages.
        extra: of pyproject.toml, which has the packages.
        module: of the client's that needs them.
        given: a URL, or the settings of the client with "url" among them.

    Raises:
        ConfigError: they cannot be used, or a package is missing.
    """

    def __init__(self, user: str, extra: str, module: str, given: str | Mapping[str, Any]) -> None:
        settings = {"url": given} if isinstance(given, str) else dict(given)
        url = settings.get("url")
        if not isinstance(url, str) or "://" not in url:
            raise ConfigError(f"{user}: the registry must be a URL such as 'http://localhost:8081', or settings with 'url'")
        try:
            if find_spec("confluent_kafka") is None:
                raise ImportError
            import_module(f"confluent_kafka.schema_registry.{module}")
        except ImportError:
            raise ConfigError(f"{user} needs packages that are missing: {pip_install(EXTRAS[extra])}") from None
        self._user = user
        self._settings = {**_DEFAULTS, **settings}
        self._secrets = (*secrets_of(settings), str(settings.get(_LOGIN, "")).partition(":")[2])
        self._client: Any = None

    def __str__(self) -> str:
        return f"the registry at {masked_settings({'url': self._settings['url']})['url']}"

    def __repr__(self) -> str:
        return f"{self._user}({masked_settings(self._settings)})"

    def apart(self) -> Registry:
        """Return the same with a client that is not shared."""
        made = copy(self)
        made._client = None
        return made

    @property
    def client(self) -> Any:
        """The client. Raises ConfigError for settings that it does not take."""
        if self._client is None:
            from confluent_kafka.schema_registry import SchemaRegistryClient

            try:
                self._client = SchemaRegistryClient(self._settings)
            except (TypeError, ValueError) as error:
                raise ConfigError(f"{self._user}: the settings of the registry: {self.shown(error)}") from None
        return self._client

    def shown(self, error: BaseException) -> str:
        """Return an error as a text without secrets."""
        return without(self._secrets, str(error) or repr(error))

    def explained(self, error: Exception, what: str, fix: str) -> TopoError:
        """Return an error of a request as one with the fix, without secrets.

        Args:
            error: of the client.
            what: was asked for, such as "schema 7".
            fix: what to do where the registry does not have it.

        Returns:
            NotFoundError: it does not have it. ConfigError: it refuses the request, or this user; or the error is none of a
            request. TopoEnvironmentError: it is not reached, and the request may be repeated.
        """
        from confluent_kafka.schema_registry.error import SchemaRegistryError

        if isinstance(error, TopoError):
            return error
        if not is_of_request(error):
            return ConfigError(f"{self._user}: {what} cannot be used: {type(error).__name__}: {self.shown(error)}")
        status = error.http_status_code if isinstance(error, SchemaRegistryError) else None
        text = self.shown(error)
        if isinstance(error, SchemaRegistryError) and error.error_code in _UNKNOWN:
            return NotFoundError(f"{self} does not have {what}: {fix} ({text})")
        if status in _NO_ACCESS:
            return ConfigError(
                f"{self} refuses {what} to this user: correct basic.auth.user.info, or what else its settings log in by ({text})"
            )
        if status is not None and 400 <= status < 500 and status not in _PASSING:
            return ConfigError(f"{self} refuses {what}: {text}")
        if status == 404:
            return TopoEnvironmentError(
                f"{self} does not answer as a registry when it is asked for {what}: look whether its URL has the right path "
                f"({text})"
            )
        return TopoEnvironmentError(f"{self} does not answer a request for {what}: {text}")

    def close(self) -> None:
        """Close the client's connections."""
        if self._client is not None:
            self._client.close()
            self._client = None
