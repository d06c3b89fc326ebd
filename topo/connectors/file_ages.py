"""Which files of a folder count, where those that are old and done are forgotten: their state would grow with each file.

| file, older than the newest one by more than `max_age` | it is                                                  |
| ------------------------------------------------------- | ------------------------------------------------------ |
| there when the topology first started, or read since    | kept until all of it is done; then forgotten           |
| there when a process started, and not known             | taken for a forgotten one: left out                    |
| came later                                              | reported, and left out                                 |
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from math import inf, isfinite

from topo.connectors.file_folders import FoundFile


class FileAges:
    """The files of one task, by their ages. All calls come from one thread.

    Args:
        max_age_s: how much older than the newest file one may be.
        known: names of files that were begun.
        takes_old: whether a file, by its name, is one of the first ones: the topology starts for the first time.
        is_done: whether all of a file is done.
        came_late: called with a file that came when it was too old.
        left_out: called with the number of files that were taken for forgotten ones, if there are any.
    """

    def __init__(
        self,
        max_age_s: float,
        known: Collection[str],
        takes_old: Callable[[str], bool],
        is_done: Callable[[str], bool],
        came_late: Callable[[str], object],
        left_out: Callable[[int], object],
    ) -> None:
        self._max_age_s, self._is_done, self._came_late, self._report_left_out = max_age_s, is_done, came_late, left_out
        self._known, self._takes_old = set(known), takes_old
        self._is_first = True
        self._left_out: set[str] = set()
        self._newest = -inf
        """It never falls: files that were forgotten would be new."""

    def kept(self, files: Sequence[FoundFile]) -> list[FoundFile]:
        """Return those of a listing that count."""
        # A time that is not known makes no other file old.
        self._newest = max([self._newest, *(file.modified for file in files if isfinite(file.modified))])
        found = [file for file in files if self._counts(file)]
        if self._is_first and self._left_out:
            self._report_left_out(len(self._left_out))
        self._is_first = False
        return found

    def _counts(self, file: FoundFile) -> bool:
        name = file.name
        is_old = file.modified < self._newest - self._max_age_s
        if not is_old or (self._is_first and self._takes_old(name)):
            self._known.add(name)
            return True
        if name in self._known:
            if not self._is_done(name):
                return True
            self._known.discard(name)
            self._left_out.add(name)
        elif name not in self._left_out:
            self._left_out.add(name)
            if not self._is_first:
                self._came_late(name)
        return False
