"""A connection to PostgreSQL that is made when it is needed, and made again after it was lost."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from topo.api.context import TaskContext
from topo.errors import ConfigError, TopoEnvironmentError

_LIMITS: dict[str, int] = {
    "connect_timeout": 10,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
}
"""A host that is gone without a word is noticed within a minute; with the defaults of the system it takes two hours."""
_OPEN_S = 300.0
"""How long a task that begins waits for a server that cannot be reached."""
_PAUSE_S = 0.25
_SHARE = 0.7
"""The part of `progress_timeout` that one answer of the server may take: then the call fails, and the worker is kept."""
TEXT_FORMS = {"datestyle": "ISO", "intervalstyle": "postgres", "extra_float_digits": "3"}
"""Settings by which psycopg reads each text as the value that it stands for. A database, a role or `dsn=` may have others."""
_REFUSED = {
    "certificate verify failed": (
        "the certificate of {} is of an unknown authority; give its file as sslrootcert in dsn=, or renew it if it has expired"
    ),
    "does not match host name": "the certificate of {} is for another host; correct the host of dsn=",
    "root certificate file": "the authority of {} cannot be read; correct sslrootcert in dsn=",
    "requires a valid client certificate": "{} wants a certificate of the client; give it as sslcert and sslkey in dsn=",
    "alert certificate required": "{} wants a certificate of the client; give it as sslcert and sslkey in dsn=",
    "alert certificate expired": "the client's certificate, sslcert in dsn=, has expired for {}; renew it",
    "alert certificate revoked": "the client's certificate, sslcert in dsn=, was revoked for {}; take another one",
    "alert unknown ca": "{} does not know the authority of the client's certificate; correct sslcert in dsn=",
    **dict.fromkeys(
        ("alert decrypt error", "alert bad certificate", "alert certificate unknown", "alert unsupported certificate"),
        "{} does not take the client's certificate; correct sslcert in dsn=",
    ),
    "private key file": "the key of the client's certificate for {} cannot be used; correct sslkey, or sslpassword, in dsn=",
    "could not read certificate file": "the client's certificate for {} cannot be used; correct sslcert in dsn=",
    "could not load client certificate": "the client's certificate for {} cannot be used; correct sslcert in dsn=",
    **dict.fromkeys(
        (
            "authentication failed",
            "no password supplied",
            "does not exist",
            "no pg_hba.conf entry",
            "not permitted",
            "permission denied",
            "server does not support SSL",
        ),
        "{} refuses the connection; correct dsn=",
    ),
}
"""Texts of servers and of libpq about a connection that no wait mends, and the way to mend it."""
_NO_PASSWORD = "none"
"""For an encrypted key without `sslpassword`: OpenSSL would ask at the terminal, and the task wait for somebody who types."""


def limited(dsn: str, **settings: str) -> str:
    """Return a connection string with further settings, and with time limits where it has none."""
    given = conninfo_to_dict(dsn)
    further: dict[str, Any] = {name: value for name, value in _LIMITS.items() if name not in given}
    if "sslkey" in given and "sslpassword" not in given:
        further["sslpassword"] = _NO_PASSWORD
    made: str = make_conninfo(dsn, **further, **settings)
    return made


def limit_waits(connection: psycopg.Connection[Any], limit_s: float, clock: Callable[[], float]) -> None:
    """Have a connection wait for each answer at most this long, then fail and be closed: a frozen server closes nothing."""
    wait = connection.wait

    def waited(steps: Any) -> Generator[Any, Any, Any]:
        until = clock() + limit_s
        try:
            wanted = next(steps)
            while True:
                ready = yield wanted
                if not ready and clock() > until:
                    # The answer may still come, so nothing else can be asked on this connection.
                    connection.pgconn.finish()
                    raise psycopg.OperationalError(f"no answer within {limit_s:g} s")
                wanted = steps.send(ready)
        except StopIteration as end:
            return end.value

    def wait_limited(steps: Any, *args: Any, **options: Any) -> Any:
        return wait(waited(steps), *args, **options)

    setattr(connection, "wait", wait_limited)  # noqa: B010


ErrorT = TypeVar("ErrorT", bound=Exception)


def named(error: ErrorT, what: str) -> ErrorT:
    """Return an error of a server behind a text, such as the table and the host, which most do not name. It keeps its class."""
    return type(error)(f"{what}: {str(error).strip() or type(error).__name__}")


class Session:
    """The connection of one task.

    Args:
        owner: the component's class, for messages.
        dsn: connection string of libpq.
        context: of the task.
        prepare: called with each new connection.
    """

    def __init__(
        self, owner: str, dsn: str, context: TaskContext, prepare: Callable[[psycopg.Connection[Any]], None] | None = None
    ) -> None:
        self._owner = owner
        self._clock, self._progress = context.clock, context.progress
        self._prepare = prepare
        self._connected = context.metrics.gauge("connected")
        self._connection: psycopg.Connection[Any] | None = None
        given = conninfo_to_dict(dsn)
        application = f"topo {context.topology}.{context.component}.{context.task_index}"
        self._dsn = limited(dsn) if "application_name" in given else limited(dsn, application_name=application[:63])
        limit_s = context.config.progress_timeout_s
        self._limit_s = None if limit_s is None else _SHARE * limit_s
        where = [f"{given[name]}" for name in ("host", "hostaddr", "port") if given.get(name)]
        self.where = f"database {given.get('dbname') or 'of the user'!r} at {':'.join(where) or 'the default host'}"

    def open(self) -> None:
        """Connect for the first time. A server that cannot be reached is waited for: workers that end soon end the topology.

        Raises:
            ConfigError: the server does not let this user in, has no such database, or its certificate does not fit.
            TopoEnvironmentError: it cannot be reached for minutes.
        """
        until = time.monotonic() + _OPEN_S
        while True:
            try:
                self.connection()
                return
            except psycopg.OperationalError as error:
                text = str(error).strip()
                if refusal := next((what for words, what in _REFUSED.items() if words in text), None):
                    raise ConfigError(f"{self._owner}: {refusal.format(self.where)}: {text}") from error
                if time.monotonic() >= until:
                    raise TopoEnvironmentError(f"{self._owner}: {self.where} cannot be reached: {text}") from error
            self._progress(f"waiting for {self.where}: {text}")
            time.sleep(_PAUSE_S)

    @property
    def is_open(self) -> bool:
        """Whether there is a connection, as far as was seen."""
        return self._connection is not None and not self._connection.closed

    def connection(self) -> psycopg.Connection[Any]:
        """Return the connection; it is made where there is none."""
        found = self._connection
        if found is not None and not found.closed:
            return found
        self._drop()
        made: psycopg.Connection[Any] = psycopg.connect(
            self._dsn, autocommit=True, prepare_threshold=None, cursor_factory=psycopg.RawCursor
        )
        if self._limit_s is not None:
            limit_waits(made, self._limit_s, self._clock)
        try:
            if self._prepare is not None:
                self._prepare(made)
        except BaseException:
            made.close()
            raise
        self._connection = made
        self._connected.set(1)
        return made

    @contextmanager
    def transaction(self) -> Iterator[psycopg.Connection[Any]]:
        """One SQL transaction: all of it or, if something raises, nothing; but a connection lost at its end leaves that open."""
        connection = self.connection()
        try:
            with connection.transaction():
                yield connection
        except BaseException:
            if connection.closed:
                self._drop()
            raise

    def _drop(self) -> None:
        self._connected.set(0)
        self.close()

    def close(self) -> None:
        """Close the connection at the end. The gauge stays: a run that has ended in order had its server."""
        if self._connection is not None:
            with suppress(psycopg.Error):
                self._connection.close()
            self._connection = None
