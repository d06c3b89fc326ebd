"""Type checkers accept each line of good.py, with the types that it asserts, and flag exactly the marked lines of bad.py."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
COMMANDS = {"mypy": ["--strict", "--no-error-summary", "--hide-error-context"], "pyright": ["--pythonpath", sys.executable]}


def marked(text: str) -> set[int]:
    return {number for number, line in enumerate(text.splitlines(), 1) if line.endswith("# wrong")}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("checker", COMMANDS)
def test_a_checker_flags_the_wrong_lines_and_no_others(checker: str) -> None:
    if find_spec(checker) is None:
        extra = "'pyright[nodejs]'" if checker == "pyright" else "-e '.[dev]'"
        pytest.skip(f"{checker} is not installed: pip install {extra}")
    files = [str(HERE / name) for name in ("good.py", "bad.py")]
    command = [sys.executable, "-m", checker, *COMMANDS[checker], *files]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)

    flagged = re.findall(r"(good|bad)\.py:(\d+):(?:\d+)?.*?\berror\b.*", ran.stdout)
    assert [line for line in ran.stdout.splitlines() if "good.py" in line and "error" in line] == [], ran.stdout
    wrong = marked((HERE / "bad.py").read_text())
    assert {int(line) for name, line in flagged if name == "bad"} == wrong, ran.stdout + ran.stderr
    assert len(wrong) >= 40
