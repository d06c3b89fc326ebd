"""A sink that sends each row as an HTTP request."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection, Mapping
from contextlib import AsyncExitStack, suppress
from datetime import timedelta
from hashlib import sha256
from importlib import import_module
from string import Formatter
from typing import TYPE_CHECKING, Literal
from urllib.parse import quote

from topo.api.async_io import AsyncMode
from topo.api.bolt import WithRequiredFields
from topo.api.context import TaskContext
from topo.api.durations import duration_ms
from topo.api.operator_bolts import AsyncBolt
from topo.api.tuples import Tuple
from topo.connectors.argument_checks import checks_arguments
from topo.connectors.clients import check_installed
from topo.connectors.http.answers import RETRY_ON, RetryRules, is_success, missing_answer, retry_after_s
from topo.connectors.http.key_locks import KeyLocks
from topo.connectors.http.requests import ID_HEADER, LONGEST_ID, given_headers, shown_url, without_queries
from topo.connectors.record_encoder import Select, Serialize, encoder_of, fields_named, selector_of
from topo.connectors.secrets import is_secret, masked
from topo.errors import ConfigError, PeerError, UserError

if TYPE_CHECKING:
    import aiohttp

_WAITING_BY_KEY = 10
"""Rows that wait behind others of their key, for each request that may be under way."""
_SHOWN_ANSWER = 300
"""Characters of a refusal that its error has."""
_MOST_ANSWER = 1 << 16
"""Bytes of an answer that are read, so that its connection can be used again; the connection of a longer one is closed."""
_EXACTLY_ONCE_RETRY_S = 600.0


class HttpSink(AsyncBolt, WithRequiredFields):
    """Sends each tuple as a request, and acks it when the answer is 2xx. Several requests are under way at a time.

        builder.set_bolt("out", HttpSink("https://example.org/orders", id="order", headers={"Authorization": token}))

    | delivery | promise |
    | --- | --- |
    | `at_least_once` | none missing; a row may be sent again after a lost answer, a recovery or a replay |
    | `exactly_once` | the same: a request is no part of a checkpoint. With `id` the receiver can recognise repeats |
    | `at_most_once` | a row can be missing |

    A request that gets no answer, or one of `retry_on`, is sent again, with pauses that double from 0.5 s to 30 s, or last as
    `Retry-After` asks. Any other answer refuses the row: its tuple fails, which with `exactly_once` makes a dead letter at
    once, and else when its spout has replayed it `attempts` times. Redirections are not followed: they can change the method.
    """

    @checks_arguments
    def __init__(
        self,
        url: str,
        *,
        method: Literal["POST", "PUT", "PATCH", "DELETE"] = "POST",
        value: str | Select | None = None,
        value_serializer: str | Serialize = "json",
        headers: Mapping[str, str] | None = None,
        id: str | Select | None = None,
        key: str | Select | None = None,
        concurrency: int = 10,
        retry_on: Collection[int] = RETRY_ON,
        retry_for: str | timedelta | None = None,
        timeout: str | timedelta = "10s",
    ) -> None:
        """Keep where to send; nothing is opened yet.

        Args:
            url: of the receiver. A field in braces is replaced by its value, as in "https://example.org/users/{user}".
            method: one of POST, PUT, PATCH, DELETE.
            value: the field, or a function of the tuple, that is sent; None: an object of all fields.
            value_serializer: "json", "text", "bytes" or a function of the value.
            headers: of each request, such as Authorization.
            id: the field, or a function of the tuple, of which the `Idempotency-Key` is made, behind the names of topology and
                component. Without, each call draws one: the receiver can recognise the repeats of that call alone.
            key: the field, or a function of the tuple, whose equal values are sent one after the other, in the order in which
                they come. A row that fails is overtaken.
            concurrency: requests of one task that are under way at most.
            retry_on: statuses after which the request is sent again.
            retry_for: after that time the tuple fails. None: two thirds of `message_timeout`, and 10 minutes with `exactly_once`.
            timeout: of one request.

        Raises:
            ConfigError: an argument cannot be used, or aiohttp is missing.
        """
        check_installed("HttpSink", "http", "aiohttp", "aiohttp")
        if not url.lower().startswith(("http://", "https://")):
            raise ConfigError(f"HttpSink: url={shown_url(url)!r} must begin with http:// or https://")
        if any(not 300 <= one < 600 for one in retry_on):
            raise ConfigError(f"HttpSink: retry_on={retry_on!r} must be statuses of refusals, such as (429, 503)")
        self._timeout_s = duration_ms(timeout) / 1000
        self._retry_for_s = None if retry_for is None else duration_ms(retry_for) / 1000
        if concurrency < 1 or self._timeout_s <= 0:
            raise ConfigError(f"HttpSink: concurrency={concurrency!r} and timeout={timeout!r} must be above zero")
        super().__init__(AsyncMode.UNORDERED, capacity=concurrency * (1 if key is None else _WAITING_BY_KEY))
        self._url_fields = _fields_of(url)
        self._url, self._method = url if self._url_fields else url.format(), method
        self._shown_url = shown_url(url)
        self._encode = encoder_of(value, value_serializer)
        self._headers = given_headers("HttpSink", url, headers)
        if value_serializer == "json" and "content-type" not in {name.lower() for name in self._headers}:
            self._headers["Content-Type"] = "application/json"
        hidden = [one for name, one in self._headers.items() if is_secret(name) or name.lower() == "authorization"]
        # A token without the scheme in front of it, too. An empty one would be found between any two characters.
        self._hidden = tuple(part for one in hidden for part in (one, one.rpartition(" ")[2]) if part)
        self._id = None if id is None else selector_of(id, "id")
        self._key = None if key is None else selector_of(key, "key")
        self.required_fields = fields_named(*self._url_fields, value, id, key)
        self._concurrency = concurrency
        self._retry_on = frozenset(retry_on)

    async def open(self, context: TaskContext) -> None:
        """Make the session."""
        # It takes long, and would hold up the loop.
        await asyncio.to_thread(import_module, "aiohttp")
        import aiohttp

        self._rules = RetryRules(self._retry_on, self._retry_for(context))
        self._client = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            timeout=aiohttp.ClientTimeout(total=self._timeout_s),
            headers=self._headers,
        )
        self._errors = (aiohttp.ClientError, TimeoutError, OSError)
        self._places = asyncio.Semaphore(self._concurrency)
        self._locks = KeyLocks()
        self._prefix = f"{context.topology}.{context.component}"
        self._logger = context.logger
        metrics = context.metrics
        self._rows, self._bytes = metrics.counter("rows"), metrics.counter("bytes")
        self._rejected, self._retries = metrics.counter("rejected_rows"), metrics.counter("retries")
        self._connected, self._publish_ms = metrics.gauge("connected"), metrics.histogram("publish_ms")
        self._is_reached = True
        self._connected.set(1.0)

    def _retry_for(self, context: TaskContext) -> float:
        if self._retry_for_s is not None:
            return self._retry_for_s
        timeout_s = context.config.message_timeout_s
        if context.config.delivery == "exactly_once" or timeout_s is None:
            return _EXACTLY_ONCE_RETRY_S
        return timeout_s * 2 / 3

    async def call(self, tup: Tuple) -> None:
        """Send one row, as often as its answers ask for.

        Raises:
            PeerError: the receiver has refused it, or was not reached in time.
            UserError: it cannot be encoded, or has no id.
        """
        body = self._encode(tup)
        url = self._url if not self._url_fields else _filled(self._url, tup, self._url_fields)
        headers = {ID_HEADER: self._id_of(tup)}
        async with AsyncExitStack() as stack:
            if self._key is not None:
                await stack.enter_async_context(self._locks.of(self._key(tup)))
            await stack.enter_async_context(self._places)
            await self._send(url, body, headers)
        self._rows.add()
        self._bytes.add(len(body or b""))

    def _id_of(self, tup: Tuple) -> str:
        given = os.urandom(16).hex() if self._id is None else self._id(tup)
        if given is None or given == "":
            # Rows of one id would be repeats to the receiver, which takes one of them.
            raise UserError(f"a tuple from {tup.component!r} has {given!r} as its id, which has to distinguish it from others")
        name = f"{self._prefix}.{given}"
        if len(name) <= LONGEST_ID and name.isascii() and name.isprintable():
            return name
        return f"{self._prefix}.{sha256(name.encode()).hexdigest()}"[-LONGEST_ID:]

    async def _send(self, url: str, body: bytes | None, headers: Mapping[str, str]) -> None:
        now = asyncio.get_running_loop().time
        begun, attempt = now(), 0
        while True:
            attempt += 1
            status, asked_s, cause = None, None, ""
            sent_at = now()
            try:
                async with self._client.request(self._method, url, data=body, headers=headers, allow_redirects=False) as answer:
                    status, text = answer.status, await self._beginning_of(answer)
                    asked_s = retry_after_s(answer.headers.get("Retry-After"), answer.headers.get("Date"))
                    cause = f"answered {status}{': ' + text if text else ''}"
            except self._errors as error:
                status, cause = None, f"gave no answer: {missing_answer(error, url)}"
            self._note_reached(status is not None, cause)
            if status is not None and is_success(status):
                self._publish_ms.record((now() - sent_at) * 1000)
                return
            pause_s = self._rules.pause_s(attempt, now() - begun, status, asked_s)
            if pause_s is None:
                self._rejected.add()
                raise PeerError(f"HttpSink: {self._method} {self._shown_url} {self._clean(cause)} (attempt {attempt})")
            self._retries.add()
            await asyncio.sleep(pause_s)

    async def _beginning_of(self, answer: aiohttp.ClientResponse) -> str:
        """Return the beginning of an answer. Its status counts, whatever becomes of the rest."""
        data = b""
        with suppress(*self._errors):
            while len(data) < _MOST_ANSWER and (piece := await answer.content.readany()):
                data += piece
        return " ".join(data[: 4 * _SHOWN_ANSWER].decode(errors="replace")[:_SHOWN_ANSWER].split())

    def _note_reached(self, is_reached: bool, cause: str) -> None:
        """Log when the receiver is lost, and when it is back."""
        if is_reached is not self._is_reached:
            self._is_reached = is_reached
            self._connected.set(float(is_reached))
            if is_reached:
                self._logger.info("%s answers again", self._shown_url)
            else:
                self._logger.warning("%s %s; it is tried again", self._shown_url, self._clean(cause))

    def _clean(self, text: str) -> str:
        """Return a text in which no header with a secret and no query stands, though the receiver may have repeated them."""
        text = without_queries(self._url, text)
        for secret in self._hidden:
            text = text.replace(secret, "***")
        return masked(text)

    async def close(self) -> None:
        """Close the session."""
        await self._client.close()


def _fields_of(url: str) -> tuple[str, ...]:
    try:
        found = [field for _, field, spec, how in Formatter().parse(url) if field is not None and not spec and how is None]
        wanted = url.count("{") - 2 * url.count("{{")
    except ValueError as error:
        raise ConfigError(f"HttpSink: url={shown_url(url)!r}: {error}") from error
    if len(found) != wanted or any(not field.isidentifier() for field in found):
        raise ConfigError(f"HttpSink: url={shown_url(url)!r}: in braces may stand names of fields alone")
    return tuple(found)


def _filled(url: str, tup: Tuple, fields: Collection[str]) -> str:
    """Return a URL with the values of fields. Raises UserError for those by which its path would be another one."""
    missing = [field for field in fields if field not in tup]
    if missing:
        raise UserError(f"a tuple from {tup.component!r} has no field {missing[0]!r}, which the url of HttpSink names")
    values = {field: quote(str(tup[field]), safe="") for field in fields}
    for part in url.partition("?")[0].split("/"):
        if "{" in part and part.format_map(values) in ("", ".", ".."):
            raise UserError(f"{part} in the url of HttpSink is {part.format_map(values)!r}, which is no part of a path")
    for field in fields:
        if tup[field] is None:
            raise UserError(f"field {field!r}, which the url of HttpSink names, is None")
    return url.format_map(values)
