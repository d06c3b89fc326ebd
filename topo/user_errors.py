"""An exception of user code as data: whose it is, and the user's own file and line."""

from __future__ import annotations

import dis
import inspect
import re
import sys
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from math import inf
from os.path import isabs
from types import CodeType, FrameType
from typing import NoReturn

from topo.errors import UserError

_FileLine = tuple[str, int]
_ENGINE = __name__.partition(".")[0]
_BLAMED = "_blamed_place"
_COLLECTING = frozenset(
    {
        __name__,
        f"{_ENGINE}.hot.plain.emit",
        *(f"{_ENGINE}.emission.{name}" for name in ("emitter", "collectors", "message_collectors")),
    }
)
_LIBRARY = traceback.__file__.removesuffix("traceback.py")
EMIT_INSTEAD = "use collector.emit(...) and return None"
MAX_MESSAGE = 1_000
"""Characters of an exception's own text that travel."""
MAX_TRACEBACK = 8_192
"""Characters of a traceback that travel; the middle is left out of longer ones."""
MAX_DISTINCT = 64
"""Distinct errors of one task that are counted between two reports; more are counted together."""
FIRST_INTERVAL_S = 1.0
LONGEST_INTERVAL_S = 60.0
MAX_TEXTS = 16
"""Distinct texts of errors from no line of the user's that are remembered; more of one kind count as one."""
SILENCE_S = 600.0
"""Time without a report after which an error is reported as a new one."""
_VARYING = re.compile(r"\d+([.,]\d+)*|(?<=restarted )(at once|in [\d.]+ s)")
_QUOTED_OR_VARYING = re.compile(rf"((?<!\w)'[^'\n]*')|{_VARYING.pattern}")
MOST_MESSAGES = 10
"""Different messages of one kind from one line that are shown."""


@dataclass(slots=True)
class CaughtError:
    """One distinct error of a task.

    Attributes:
        kind: the exception's class name.
        file, line: the innermost place in the user's own code; empty and 0 when there is none.
        trace: the traceback; empty where that of an error like it has been reported.
        count: how often it happened since it was last reported.
    """

    kind: str
    message: str
    file: str
    line: int
    trace: str
    count: int = 1


def is_engine_frame(module: str) -> bool:
    return module == _ENGINE or module.startswith(_ENGINE + ".")


def shown_file(file: str) -> str:
    """Return the name of a file of code as users know it: for a cell of a notebook "Cell In[3]", for all others their path."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    names = getattr(getattr(shell, "compile", None), "format_code_name", None)
    name = names(file) if names is not None else None
    return " ".join(name) if name else file


def blame(error: BaseException, function: Callable[..., object]) -> None:
    """Have `place_of` fall back to where a function begins: its return value caused the error, and no frame of it is left."""
    inner = inspect.unwrap(function)
    code = getattr(inner, "__code__", None)
    if code is not None and not is_engine_frame(inner.__module__):
        vars(error)[_BLAMED] = code.co_filename, code.co_firstlineno


def blame_place(error: BaseException, place: tuple[str, int]) -> None:
    """Have `place_of` fall back to a file and line."""
    vars(error)[_BLAMED] = place


def calling_place() -> tuple[str, int] | None:
    """Return file and line of the user's code that has called a collector; None when a ready-made component has."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__", "") in _COLLECTING:
        frame = frame.f_back
    if frame is None or is_engine_frame(frame.f_globals.get("__name__", "")):
        return None
    return frame.f_code.co_filename, frame.f_lineno


def returned(function: Callable[..., object], value: object, fix: str = EMIT_INSTEAD) -> UserError:
    """Return the error of user code that has returned a value, which is not used."""
    name = getattr(function, "__name__", "the call")
    error = UserError(f"{name} returned {value!r:.80} ({type(value).__name__}), which is not used; {fix}")
    blame(error, function)
    return error


def call_for_effect(function: Callable[..., object], *arguments: object, fix: str = EMIT_INSTEAD) -> None:
    """Call user code. Raises UserError, which names `fix`, when it returns a value."""
    if (value := function(*arguments)) is not None:
        raise returned(function, value, fix)


def refuse_breakpoint(*_arguments: object, **_options: object) -> NoReturn:
    """Raise UserError: `sys.breakpointhook` of a process without a terminal."""
    raise UserError(
        "breakpoint() needs a terminal, and a worker has none: call the code with run_bolt or TopologyTest of topo.testing, or "
        "set PYTHONBREAKPOINT to a debugger that needs none"
    )


@cache
def forgets_result(code: CodeType) -> bool:
    """Return whether all that a function returns is None. One without an end, which raises, does not return."""
    steps = list(dis.get_instructions(code))
    # Up to 3.11, and from 3.14 on, a constant that is returned is loaded by the step before.
    results = [one if "CONST" in one.opname else before for before, one in pairwise(steps) if one.opname.startswith("RETURN_")]
    return bool(results) and all("CONST" in one.opname and one.argval is None for one in results)


def place_of(error: BaseException, declared: tuple[str, int] | None = None) -> tuple[str, int]:
    """Return file and line of the innermost frame of the user's own code; "" and 0 when there is none.

    Without such a frame it is the function that was blamed, then where the component is `declared`, if the user has written no
    more of it, then code of the standard library and of installed packages.
    """
    library: _FileLine | None = None
    cause: BaseException | None = error
    while cause is not None:
        own, library = _innermost(traceback.walk_tb(cause.__traceback__), library)
        if own is not None:
            return own
        cause = cause.__cause__
    return vars(error).get(_BLAMED) or declared or library or ("", 0)


def place_in(stack: Iterable[tuple[FrameType, int]]) -> _FileLine:
    """Return the place of the user's own code, as `place_of` does, in a stack of frames and lines, the innermost last."""
    own, library = _innermost(stack, None)
    return own or library or ("", 0)


def _innermost(stack: Iterable[tuple[FrameType, int]], library: _FileLine | None) -> tuple[_FileLine | None, _FileLine | None]:
    """Return the innermost places in code of the user, and of libraries: by default `library`."""
    own: _FileLine | None = None
    for frame, line in stack:
        file = frame.f_code.co_filename
        if is_engine_frame(frame.f_globals.get("__name__", "")) or file.startswith("<frozen"):
            continue
        # Frames of compiled code name a file of the build, which is no place here; their module knows where it is installed.
        installed = file, frame.f_globals.get("__file__") or ""
        if any(path.startswith(_LIBRARY) or "site-packages" in path for path in installed):
            library = (file, line) if isabs(file) else library
        else:
            own = file, line
    return own, library


def describe(error: BaseException, place: tuple[str, int] | None = None) -> CaughtError:
    """Return what users are shown of an exception that was raised at `place`, by default `place_of(error)`."""
    file, line = place or place_of(error)
    text = "".join(traceback.format_exception(error))
    if len(text) > MAX_TRACEBACK:
        half = MAX_TRACEBACK // 2
        text = f"{text[:half]}\n  ... {len(text) - MAX_TRACEBACK} characters left out ...\n{text[-half:]}"
    return CaughtError(type(error).__name__, message_of(error), file, line, text)


def message_of(error: BaseException) -> str:
    """Return an exception's own text, even if its `__str__` raises. It can be sent and stored: lone surrogates are escaped."""
    try:
        return str(error)[:MAX_MESSAGE].encode(errors="backslashreplace").decode()
    except Exception as broken:
        return f"(its text cannot be read: {type(broken).__name__})"


def kind_and_message(error: BaseException) -> str:
    """Return an exception in one line, as Python ends a traceback with it, even if its `__str__` raises."""
    text = message_of(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def error_key(kind: str, file: str, line: int, message: str) -> tuple[str, str, int | str]:
    """Return what errors that are counted together share: the line, or without one the message apart from its numbers."""
    return kind, file, line or _VARYING.sub("#", message)


def message_key(message: str) -> str:
    """Return what messages share that say the same: all but numbers outside of quoted names, which may be those of files."""
    return _QUOTED_OR_VARYING.sub(lambda found: found[1] or "#", message)


class PrintedErrors:
    """Which errors were printed: each once, of one kind from one line the first that differ."""

    def __init__(self) -> None:
        self._messages: dict[object, set[str]] = {}

    def is_new(self, component: str, kind: str, file: str, line: int, message: str) -> bool:
        """Whether an error is to be printed; it counts as printed then."""
        printed = self._messages.setdefault((component, error_key(kind, file, line, message)), set())
        if len(printed) >= MOST_MESSAGES or (text := message_key(message)) in printed:
            return False
        printed.add(text)
        return True


_BookKey = tuple[str, str, int, str]


@dataclass(slots=True)
class _Pace:
    """When a distinct error was last reported, and how long it waits from there."""

    at: float = -inf
    interval_s: float = FIRST_INTERVAL_S


@dataclass(slots=True)
class ErrorBook:
    """Errors of one task, alike ones counted together, so that a thousand failures a second fill no disk.

    Alike are those from one line of the user's code. Others differ by their texts: those of a ready-made component have one line.

    A new error is reported at once and with its traceback, those like it without, each time after twice the interval. After a
    long silence an error is new again.
    """

    report: Callable[[CaughtError], None]
    declared: tuple[str, int] | None = None
    """See `place_of`."""
    _held: dict[_BookKey, CaughtError] = field(default_factory=dict)
    _paces: dict[_BookKey, _Pace] = field(default_factory=dict)
    _others: _Pace = field(default_factory=_Pace)
    """All errors beyond the limit of distinct ones."""

    def record(self, error: BaseException, now: float) -> None:
        """Report the error at once when it is new, else with a `flush`."""
        kind, place = type(error).__name__, place_of(error, self.declared)
        is_own = place[1] and place != self.declared
        key = (kind, *place, "") if is_own else self._key_of((kind, *place), message_of(error), now)
        if key in self._held:
            self._held[key].count += 1
            return
        pace = self._paces.get(key)
        if pace is not None and now - pace.at < SILENCE_S:
            self._held[key] = CaughtError(kind, message_of(error), *place, "")
        elif pace is not None or self._has_room(now):
            self._paces[key] = _Pace(now)
            self.report(describe(error, place))
        elif len(self._held) < MAX_DISTINCT:
            self._held[key] = describe(error, place)
        else:
            next(iter(self._held.values())).count += 1

    def _key_of(self, shared: tuple[str, str, int], message: str, now: float) -> _BookKey:
        """Return the key of an error from no line of the user's; texts that differ by names, of files, leave room for others."""
        key = (*shared, message_key(message))
        recent = [text != "" and now - pace.at < SILENCE_S for (_, _, _, text), pace in self._paces.items()]
        return key if key in self._paces or sum(recent) < MAX_TEXTS else (*shared, "")

    def _has_room(self, now: float) -> bool:
        if len(self._paces) >= MAX_DISTINCT:
            silent = [key for key, pace in self._paces.items() if now - pace.at >= SILENCE_S and key not in self._held]
            for key in silent:
                del self._paces[key]
        return len(self._paces) < MAX_DISTINCT

    def flush(self, now: float, *, all_of_them: bool = False) -> None:
        """Report the errors counted for a full interval."""
        reported: dict[int, _Pace] = {}
        for key, caught in list(self._held.items()):
            pace = self._paces.get(key, self._others)
            if all_of_them or now >= pace.at + pace.interval_s:
                reported[id(pace)] = pace
                del self._held[key]
                self.report(caught)
        for pace in reported.values():
            pace.interval_s = FIRST_INTERVAL_S if pace.at == -inf else min(2 * pace.interval_s, LONGEST_INTERVAL_S)
            pace.at = now

    @property
    def next_deadline(self) -> float | None:
        """When `flush` wants to be called; None while nothing is held."""
        if not self._held:
            return None
        paces = [self._paces.get(key, self._others) for key in self._held]
        return min(pace.at + pace.interval_s for pace in paces)
