"""Progress of a long test run: a failed test has a line at once, not only in the summary at the end."""

from __future__ import annotations

import pytest


class FailuresAtOnce:
    """Prints the name of a test when it fails.

    Args:
        terminal: prints for the process that the user started; processes of pytest-xdist have none.
    """

    def __init__(self, terminal: pytest.TerminalReporter) -> None:
        self._terminal = terminal

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Print a line for a failed call, set-up or tear-down."""
        if report.failed:
            when = "" if report.when == "call" else f" ({report.when})"
            self._terminal.write_line(f"\nFAILED {report.nodeid}{when}", red=True)
