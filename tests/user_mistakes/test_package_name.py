"""The package of the name `topo` on the package index is another project's: a command names it where it is installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PRETEND = """
import sys
from importlib.machinery import PathFinder
sys.path.insert(0, sys.argv.pop(1))
sys.meta_path.insert(0, PathFinder)
from topo_cli.main import main
main()
"""


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """A folder of installed packages that holds a stranger's `topo`, which stops the test when it is executed."""
    package = tmp_path / "site-packages" / "topo"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise SystemExit('a stranger has been executed')\n")
    return package.parent


def topo(foreign: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command with the packages of a folder in front of topo's own."""
    return subprocess.run(
        [sys.executable, "-c", PRETEND, str(foreign), *arguments],
        env={**os.environ, "TOPO_HOME": str(foreign / "home")},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_doctor_notices_another_projects_topo(foreign: Path) -> None:
    """The user typed `pip install topo`, which replaced this package by a stranger's."""
    done = topo(foreign, "doctor")

    assert done.returncode == 1
    assert done.stderr.startswith(f"Error: this Python imports another package named topo, from {foreign}/topo/__init__.py")
    assert "pip uninstall topo" in done.stderr
    assert "pip install --force-reinstall --no-deps path/to/the/checkout" in done.stderr


def test_the_doctor_notices_a_file_of_the_users_called_topo(tmp_path: Path) -> None:
    """The user called a script topo.py and put its folder on PYTHONPATH."""
    (tmp_path / "topo.py").write_text("print('a script')\n")

    done = topo(tmp_path, "doctor")

    assert done.returncode == 1
    assert f"another package named topo, from {tmp_path}/topo.py: remove that (pip uninstall topo) or rename it" in done.stderr
    assert "a script" not in done.stdout


@pytest.mark.parametrize("command", ["run", "submit", "validate", "list"])
def test_every_command_says_so_before_it_executes_anything_of_it(foreign: Path, command: str) -> None:
    """The user runs a topology with a stranger's `topo` installed."""
    done = topo(foreign, command, "words.py")

    assert done.returncode == 1
    assert done.stderr.startswith("Error: this Python imports another package named topo")
    assert "Traceback" not in done.stderr


def test_the_doctor_warns_of_a_strangers_package_whose_files_are_overwritten(tmp_path: Path) -> None:
    """The user typed `pip install topo` first, and installed this project over it."""
    metadata = tmp_path / "topo-0.1.1.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text("Metadata-Version: 2.1\nName: topo\nVersion: 0.1.1\n")

    done = topo(tmp_path, "doctor", "--json")

    found = json.loads(done.stdout)[0]
    assert found["state"] == "warning" and "another project's package topo 0.1.1 is installed as well" in found["detail"]
