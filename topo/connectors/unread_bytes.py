"""How many bytes of the files of one task were not read."""

from __future__ import annotations

from collections.abc import Mapping


class UnreadBytes:
    """The files of a task that are being read, or wait for it, with their places, and the sizes of all as last listed.

    `listed` may be called by another thread than the rest.
    """

    def __init__(self) -> None:
        self._sizes: Mapping[str, int | None] | None = None
        self._places: dict[str, int] = {}

    def listed(self, sizes: Mapping[str, int | None]) -> None:
        """Take the sizes of all files of the task; None: the store does not state it."""
        self._sizes = sizes

    def reached(self, name: str, place: int) -> None:
        """A file is to be read from a place on, in bytes as it is stored."""
        self._places[name] = place

    def ended(self, name: str) -> None:
        """All of a file was read."""
        self._places.pop(name, None)

    def total(self) -> int | None:
        """Return the number of bytes; None while it is not known."""
        sizes, total = self._sizes, 0
        if sizes is None:
            return None
        for name, place in self._places.items():
            # A file that is gone is not listed.
            size = sizes.get(name, 0)
            if size is None:
                return None
            total += max(0, size - place)
        return total
