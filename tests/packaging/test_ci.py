"""What .ci/run repeats when a part fails: its own function, with a real make and real runs of pytest."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

ROOT = Path(__file__).resolve().parents[2]
FUNCTION = re.search(r"^tests\(\) \{.*?^\}\n", (ROOT / ".ci" / "run").read_text(), re.MULTILINE | re.DOTALL)
PROGRAM = """
make() { command make --no-print-directory "$@"; }
repeated=""
tests part
code=$?
echo "code $code$repeated"
"""
MAKEFILE = f"""part:
\t@./set-up
\t@{sys.executable} -m pytest -p tests.conftest -n 2 --dist loadgroup --no-loadscope-reorder -m "not other" $(ARGS)
"""
ONCE = """
from pathlib import Path

def is_first(name):
    try:
        (Path(__file__).parent / name).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True

"""
RAN = "open(Path(__file__).parent / 'ran', 'a').write('{} ')"
FLAKY = f"def test_flaky() -> None:\n    {RAN.format('flaky')}\n    assert not is_first('flaky')\n"


def part(folder: Path, tests: str, set_up: str = "true") -> str:
    """Run the tests as a part; return the output. A run writes the names of its tests to the file `ran`."""
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = other\n")
    (folder / "Makefile").write_text(MAKEFILE)
    (folder / "set-up").write_text(f"#!/bin/sh\n{set_up}\n")
    (folder / "set-up").chmod(0o755)
    (folder / "test_one.py").write_text(ONCE + tests)
    (folder / "test_two.py").write_text(f"{ONCE}def test_beside() -> None:\n    {RAN.format('beside')}\n")
    # What a part before has left: it is not among the tests of this one.
    left = folder / ".pytest_cache" / "part" / "v" / "cache"
    left.mkdir(parents=True)
    (left / "lastfailed").write_text('{"test_two.py::test_other": true}')
    assert FUNCTION is not None
    # Of the run of these tests itself: a make exports what its command line sets.
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "MAKE", "ARGS"))}
    environment = {**plain, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        ["bash", "-uc", FUNCTION[0] + PROGRAM],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    return done.stdout


def ran(folder: Path) -> list[str]:
    return sorted((folder / "ran").read_text().split())


def test_the_failed_tests_are_repeated_and_no_others(tmp_path: Path) -> None:
    printed = part(tmp_path, FLAKY)
    assert "once more and alone" in printed and printed.endswith("code 0, but not at once: see above\n"), printed
    assert ran(tmp_path) == ["beside", "flaky", "flaky"]


def test_a_test_that_fails_again_fails_the_part(tmp_path: Path) -> None:
    printed = part(tmp_path, "def test_it() -> None:\n    raise AssertionError\n")
    assert "once more and alone" in printed and printed.endswith("code 2\n"), printed


def test_all_are_run_behind_a_set_up_that_failed_the_first_time(tmp_path: Path) -> None:
    printed = part(tmp_path, f"def test_it() -> None:\n    {RAN.format('it')}\n", "mkdir set-up-before && exit 1; true")
    assert printed.endswith("code 0, but not at once: see above\n"), printed
    assert ran(tmp_path) == ["beside", "it"]


def test_all_are_run_again_behind_a_run_that_broke_off(tmp_path: Path) -> None:
    """A test has failed before, and one behind has not run: the failed one alone would pass for all."""
    interrupted = "def test_interrupted() -> None:\n    if is_first('interrupted'):\n        raise KeyboardInterrupt\n"
    printed = part(tmp_path, f"{FLAKY}{interrupted}def test_behind() -> None:\n    {RAN.format('behind')}\n")
    assert "once more and alone" not in printed and printed.endswith("code 0, but not at once: see above\n"), printed
    assert {"beside", "behind", "flaky"} == set(ran(tmp_path))


def test_all_are_run_again_behind_a_file_that_could_not_be_imported(tmp_path: Path) -> None:
    printed = part(tmp_path, f"assert not is_first('import')\n\ndef test_it() -> None:\n    {RAN.format('it')}\n")
    assert "once more and alone" not in printed, printed
    assert printed.endswith("code 0, but not at once: see above\n") and "it" in ran(tmp_path), printed


def test_a_test_that_ends_its_process_is_repeated_alone(tmp_path: Path) -> None:
    printed = part(tmp_path, "import os\n\ndef test_it() -> None:\n    if is_first('it'):\n        os._exit(3)\n")
    assert "once more and alone" in printed and printed.endswith("code 0, but not at once: see above\n"), printed
    assert ran(tmp_path) == ["beside"]
