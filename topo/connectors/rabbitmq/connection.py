"""A connection of pika that outlives messages whose properties pika cannot decode."""

from __future__ import annotations

import struct
from typing import Any

from pika import BasicProperties
from pika.adapters.asyncio_connection import AsyncioConnection
from pika.frame import Header
from pika.spec import FRAME_END_SIZE, FRAME_HEADER, FRAME_HEADER_SIZE


class QueueConnection(AsyncioConnection):  # type: ignore[misc]
    """Reads such a message without its properties.

    The broker gives a message again that was not settled. An error, as pika has it, would end each next connection, too.
    """

    def _read_frame(self) -> tuple[int, Any]:
        try:
            found: tuple[int, Any] = super()._read_frame()
        except Exception as error:
            data = self._frame_buffer
            kind, channel, size = struct.unpack_from(">BHL", data)
            if kind != FRAME_HEADER:
                raise
            _, _, body_size = struct.unpack_from(">HHQ", data, FRAME_HEADER_SIZE)
            properties = BasicProperties()
            properties.unread = error
            return FRAME_HEADER_SIZE + size + FRAME_END_SIZE, Header(channel, body_size, properties)
        return found
