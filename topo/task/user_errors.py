"""An exception of user code as data: whose it is, and the user's own file and line."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field

_ENGINE = __name__.partition(".")[0]
_BLAMED = "_blamed_place"
_LIBRARY = traceback.__file__.removesuffix("traceback.py")
MAX_MESSAGE = 1_000
"""Characters of an exception's own text that travel."""
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


def blame(error: BaseException, function: Callable[..., object]) -> None:
    """Have `place_of` fall back to where a function begins: what it returned has caused the error, and no frame of it is left."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is not None:
        vars(error)[_BLAMED] = code.co_filename, code.co_firstlineno


def place_of(error: BaseException) -> tuple[str, int]:
    """Return file and line of the innermost frame of the user's own code; "" and 0 when there is none.

    Without such a frame it is the function that was blamed, then code of the standard library and of installed packages.
    """
    library: tuple[str, int] | None = None
    cause: BaseException | None = error
    while cause is not None:
        own: tuple[str, int] | None = None
        for frame, line in traceback.walk_tb(cause.__traceback__):
            file = frame.f_code.co_filename
            if is_engine_frame(frame.f_globals.get("__name__", "")) or file.startswith("<frozen"):
                continue
            if file.startswith(_LIBRARY) or "site-packages" in file:
                library = file, line
            else:
                own = file, line
        if own is not None:
            return own
        cause = cause.__cause__
    return vars(error).get(_BLAMED) or library or ("", 0)


def describe(error: BaseException, place: tuple[str, int] | None = None) -> CaughtError:
    """Return what users are shown of an exception that was raised at `place`, by default `place_of(error)`."""
    file, line = place or place_of(error)
    text = "".join(traceback.format_exception(error))
    if len(text) > MAX_TRACEBACK:
        half = MAX_TRACEBACK // 2
        text = f"{text[:half]}\n  ... {len(text) - MAX_TRACEBACK} characters left out ...\n{text[-half:]}"
    return CaughtError(type(error).__name__, message_of(error), file, line, text)


def message_of(error: BaseException) -> str:
    """Return an exception's own text, also of one that cannot say it."""
    try:
        return str(error)[:MAX_MESSAGE]
    except Exception as broken:
        return f"(its text cannot be read: {type(broken).__name__})"


@dataclass(slots=True)
class ErrorBook:
    """Errors of one task, alike ones counted together, so that a thousand failures a second make one report a second."""

    report: Callable[[CaughtError], None]
    interval_s: float = 1.0
    _held: dict[tuple[str, str, int], CaughtError] = field(default_factory=dict)
    _reported_at: dict[tuple[str, str, int], float] = field(default_factory=dict)

    def record(self, error: BaseException, now: float) -> None:
        """Report the error at once when it is new, else with the next `flush`."""
        kind, place = type(error).__name__, place_of(error)
        key = (kind, *place)
        if key in self._held:
            self._held[key].count += 1
        elif key not in self._reported_at and len(self._reported_at) < MAX_DISTINCT:
            self._reported_at[key] = now
            self.report(describe(error, place))
        elif len(self._held) < MAX_DISTINCT:
            self._held[key] = describe(error, place)
        else:
            next(iter(self._held.values())).count += 1

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
