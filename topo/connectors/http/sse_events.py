"""Reads server-sent events from bytes, by the rules of the HTML standard, section 9.2.6. Without any I/O."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from dataclasses import dataclass

_NO_HEADER = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
"""Characters that no header can have: an id with them cannot be sent back. The standard names the first one alone."""


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """An event.

    Attributes:
        data: its lines, joined by newlines.
        name: "message" where the server gives none.
        last_id: of this event or, without an id, of the last event with one.
        is_cut: whether it was longer than allowed, so that `data` is its beginning.
    """

    data: str
    name: str
    last_id: str
    is_cut: bool = False


class EventParser:
    """Reads one connection's bytes.

    Args:
        last_id: of the last event that was read before.
        most: characters of one event's data; the rest is dropped.

    Attributes:
        retry_ms: how long the server wants clients to wait before they connect again; None until it has named a time.
    """

    def __init__(self, last_id: str = "", most: int = 1 << 20) -> None:
        self.retry_ms: int | None = None
        self._most = most
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest: list[str] = []
        """Of a line without an end so far."""
        self._rest_size = 0
        self._is_first = True
        self._last_id = last_id
        self._new_event()

    def _new_event(self) -> None:
        self._data: list[str] = []
        self._size = 0
        self._name = ""
        self._is_cut = False
        self._new_id = ""
        self._has_id = False

    def feed(self, data: bytes) -> Iterator[ServerEvent]:
        """Take bytes as they come; yield the events that are complete."""
        text = self._decoder.decode(data)
        if self._is_first and text:
            text = text.removeprefix("\ufeff")
            self._is_first = False
        # A long line comes in many parts, which are joined once.
        if "\n" in text or "\r" in text or (self._rest and self._rest[-1].endswith("\r")):
            text = "".join([*self._rest, text])
            # A carriage return at the end may be half of a line's end.
            held = "\r" if text.endswith("\r") else ""
            lines = text[: len(text) - len(held)].replace("\r\n", "\n").replace("\r", "\n").split("\n")
            self._rest, self._rest_size, text = [], 0, lines.pop() + held
            for line in lines:
                event = self._line(line)
                if event is not None:
                    yield event
        # A line without an end is not kept whole.
        room = max(0, self._most + 16 - self._rest_size)
        if len(text) > room:
            self._is_cut = True
            text = text[:room] + ("\r" if text.endswith("\r") else "")
        if text:
            self._rest.append(text)
            self._rest_size += len(text)

    def _line(self, line: str) -> ServerEvent | None:
        if not line:
            return self._dispatch()
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            room = max(0, self._most - self._size)
            self._is_cut = self._is_cut or len(value) > room
            self._size += len(value) + 1
            if room or not self._data:
                self._data.append(value[:room])
        elif name == "event":
            self._name = value
        elif name == "id" and not _NO_HEADER.search(value):
            self._new_id, self._has_id = value, True
        elif name == "retry" and value.isascii() and value.isdigit():
            self.retry_ms = int(value[:9])
        return None

    def _dispatch(self) -> ServerEvent | None:
        if self._has_id:
            self._last_id = self._new_id
        event = None
        if self._data:
            event = ServerEvent("\n".join(self._data), self._name or "message", self._last_id, self._is_cut)
        self._new_event()
        return event
