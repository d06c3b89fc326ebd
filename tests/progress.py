"""Progress of a long test run: a failed test has a line at once, and whether all tests have run is known behind the end."""

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


class Wholeness:
    """Notes in pytest's cache whether all tests have run, so that those that failed are all that a repetition has to run.

    It is "topo/whole" there, in words of JSON; .ci/run reads it. The list of failed tests is completed, too: pytest-xdist runs a
    test that has ended its process once more, and if it passes then pytest forgets that it failed.

    Args:
        cache: of the process that the user started.
    """

    def __init__(self, cache: pytest.Cache) -> None:
        self._cache = cache
        self._run, self._failed = set[str](), set[str]()
        self._is_collected = True

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note a file whose tests are not known."""
        self._is_collected &= not report.failed

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a test that has run, was skipped, or has ended its process."""
        self._run.add(report.nodeid)
        if report.failed:
            self._failed.add(report.nodeid)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write it down, behind pytest itself."""
        self._cache.set("topo/whole", self._is_collected and len(self._run) == session.testscollected)
        if self._failed:
            known = self._cache.get("cache/lastfailed", {})
            self._cache.set("cache/lastfailed", {**known, **dict.fromkeys(self._failed, True)})
