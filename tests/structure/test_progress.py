"""A failed test has a line of output at once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.progress import FailuresAtOnce

ROOT = Path(__file__).resolve().parents[2]


def test_each_failure_has_a_line_and_no_other_test_has() -> None:
    lines: list[str] = []
    terminal: Any = SimpleNamespace(write_line=lambda text, **_: lines.append(text.strip()))
    for name, when, failed in (("a", "call", False), ("b", "call", True), ("c", "setup", True)):
        report: Any = SimpleNamespace(nodeid=name, when=when, failed=failed)
        FailuresAtOnce(terminal).pytest_runtest_logreport(report)
    assert lines == ["FAILED b", "FAILED c (setup)"]


def test_a_run_in_processes_reports_a_failure_at_once(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text("def test_it():\n    assert False\n")
    command = [sys.executable, "-m", "pytest", "-n", "1", "-q", "-p", "no:cacheprovider", "-p", "tests.conftest"]
    done = subprocess.run([*command, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout.index("\nFAILED ") < done.stdout.index("= FAILURES =")
