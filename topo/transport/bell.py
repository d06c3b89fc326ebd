"""A bell: wakes a thread that waits on descriptors."""

from __future__ import annotations

import os
from contextlib import suppress


class Bell:
    """A pipe that one thread waits on; any thread, and signal handlers, may ring it.

    Attributes:
        descriptor: readable from a ring until the next `clear`.
    """

    def __init__(self) -> None:
        self.descriptor, self._ring = os.pipe()
        os.set_blocking(self.descriptor, False)
        os.set_blocking(self._ring, False)

    def ring(self) -> None:
        # A full pipe wakes as well as another byte; a closed one has no reader to wake.
        with suppress(BlockingIOError, OSError):
            os.write(self._ring, b"\0")

    def clear(self) -> None:
        """Take note of all rings so far."""
        with suppress(BlockingIOError):
            os.read(self.descriptor, 4096)

    def close(self) -> None:
        """Release the pipe. Another thread may still ring."""
        ring, self._ring = self._ring, -1
        os.close(ring)
        os.close(self.descriptor)
