"""An exception of user code as data: whose it is, and the user's own file and line."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass, field

_ENGINE = __name__.partition(".")[0]
MAX_TRACEBACK = 8_192
"""Characters of a traceback that travel; the middle is left out of longer ones."""
MAX_DISTINCT = 64
"""Distinct errors of one task that are counted between two reports; more are counted together."""


@dataclass(slots=True)
class CaughtError:
    """One distinct error of a task.

    Attributes:
        kind: the exception's class name.
        file, line: the innermost place in the user's own code; empty and 0 when there is none.
        count: how often it happened since it was last reported.
    """

    kind: str
    message: str
    file: str
    line: int
    trace: str
    count: int = 1


def is_engine_frame(module: str) -> bool:
    """Whether a module of that name is part of the engine."""
    return module == _ENGINE or module.startswith(_ENGINE + ".")


def describe(error: BaseException) -> CaughtError:
    """Return what users are shown of an exception: the innermost line of their own code first."""
    file, line = "", 0
    for frame, number in traceback.walk_tb(error.__traceback__):
        if not is_engine_frame(frame.f_globals.get("__name__", "")):
            name = frame.f_code.co_filename
            if not name.startswith("<frozen"):
                file, line = name, number
    text = "".join(traceback.format_exception(error))
    if len(text) > MAX_TRACEBACK:
        half = MAX_TRACEBACK // 2
        text = f"{text[:half]}\n  ... {len(text) - MAX_TRACEBACK} characters left out ...\n{text[-half:]}"
    return CaughtError(type(error).__name__, str(error)[:1_000], file, line, text)


@dataclass(slots=True)
class ErrorBook:
    """Errors of one task, alike ones counted together, so that a thousand failures a second make one report a second."""

    report: Callable[[CaughtError], None]
    interval_s: float = 1.0
    _held: dict[tuple[str, str, int], CaughtError] = field(default_factory=dict)
    _reported_at: dict[tuple[str, str, int], float] = field(default_factory=dict)

    def record(self, error: BaseException, now: float) -> CaughtError:
        """Report the error at once when it is new, else with the next `flush`. Returns its description."""
        caught = describe(error)
        key = (caught.kind, caught.file, caught.line)
        last = self._reported_at.get(key)
        if last is None and len(self._reported_at) < MAX_DISTINCT:
            self._reported_at[key] = now
            self.report(caught)
        elif key in self._held:
            self._held[key].count += 1
        elif len(self._held) < MAX_DISTINCT:
            self._held[key] = caught
        else:
            next(iter(self._held.values())).count += 1
        return caught

    def flush(self, now: float, *, all_of_them: bool = False) -> None:
        """Report what was counted for longer than the interval."""
        for key, caught in list(self._held.items()):
            if all_of_them or now - self._reported_at.get(key, 0.0) >= self.interval_s:
                self._reported_at[key] = now
                del self._held[key]
                self.report(caught)

    @property
    def next_deadline(self) -> float | None:
        """When `flush` wants to be called; None while nothing is held."""
        if not self._held:
            return None
        return min(self._reported_at.get(key, 0.0) for key in self._held) + self.interval_s
