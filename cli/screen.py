"""The view of a run in progress, on a terminal or in a file.

Printed lines of the topology go to stdout, everything else to stderr. On a terminal a live view stays below both.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

from rich.console import Group
from rich.live import Live
from rich.text import Text

from topo_cli.control_characters import printable
from topo_cli.output import make_console, seconds, talk
from topo_cli.status_view import components_table, headline, messages

if TYPE_CHECKING:
    from topo.observability.status import StatusReport

PLAIN_S = 5.0
"""Interval of the lines of progress where there is no terminal."""


class Screen(AbstractContextManager["Screen"], Protocol):
    """The view of a run."""

    def progress(self, status: StatusReport) -> None:
        """Show the progress."""

    def printed(self, lines: Sequence[str]) -> None:
        """Show lines that the topology printed."""

    def report(self, lines: Sequence[str], style: str = "") -> None:
        """Show lines about the run."""


def make_screen(*, quiet: bool = False) -> Screen:
    """Return a live view when a person can watch it, else plain lines.

    Args:
        quiet: without progress.
    """
    if not quiet and sys.stderr.isatty():
        return LiveScreen()
    return PlainScreen(quiet)


class LiveScreen(AbstractContextManager["LiveScreen"]):
    """A view on the terminal that is redrawn below the printed lines."""

    def __init__(self) -> None:
        self._console = make_console(stderr=True)
        self._is_stdout_here = sys.stdout.isatty()
        self._live = Live(console=self._console, auto_refresh=False, transient=True, redirect_stdout=False, redirect_stderr=False)

    def __enter__(self) -> LiveScreen:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def progress(self, status: StatusReport) -> None:
        figures = Text("  ".join(messages(status)))
        view = Group(Text(), headline(status), figures, components_table(self._console, status))
        self._live.update(view, refresh=True)

    def printed(self, lines: Sequence[str]) -> None:
        """Print above the view, or to wherever stdout goes."""
        if lines and self._is_stdout_here:
            # At once, since each call redraws the view.
            self._console.print(Text("\n".join(lines)), soft_wrap=True)
        else:
            _print(lines)

    def report(self, lines: Sequence[str], style: str = "") -> None:
        """Print above the view."""
        if lines:
            self._console.print(Text(printable("\n".join(lines)), style=style), soft_wrap=True)


class PlainScreen(AbstractContextManager["PlainScreen"]):
    """Lines that a log file can hold."""

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet
        self._next_s = 0.0
        self._word = ""

    def __exit__(self, *_: object) -> None:
        return None

    def progress(self, status: StatusReport) -> None:
        now = time.monotonic()
        if self._quiet or (now < self._next_s and status["status"] == self._word):
            return
        self._next_s, self._word = now + PLAIN_S, status["status"]
        line = f"{status['topology']}: {self._word.lower()}, {seconds(status['uptime_s'])}, {', '.join(messages(status))}"
        talk(f"{line}; {status['reason']}" if status["reason"] else line)

    def printed(self, lines: Sequence[str]) -> None:
        _print(lines)

    def report(self, lines: Sequence[str], style: str = "") -> None:
        for line in lines:
            talk(line)


def _print(lines: Sequence[str]) -> None:
    if lines:
        print("\n".join(lines), flush=True)
