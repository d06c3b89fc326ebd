"""A failed test has a line of output at once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tests.progress import FailuresAtOnce


def test_each_failure_has_a_line_and_no_other_test_has() -> None:
    lines: list[str] = []
    terminal: Any = SimpleNamespace(write_line=lambda text, **_: lines.append(text.strip()))
    for name, when, failed in (("a", "call", False), ("b", "call", True), ("c", "setup", True)):
        report: Any = SimpleNamespace(nodeid=name, when=when, failed=failed)
        FailuresAtOnce(terminal).pytest_runtest_logreport(report)
    assert lines == ["FAILED b", "FAILED c (setup)"]
