"""Two builds in one checkout share the C beside the sources and the folder `build`: the second waits for the first."""

from __future__ import annotations

import fcntl
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest
from setuptools import Distribution, Extension

SETUP = Path(__file__).parents[2] / "setup.py"


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The names of setup.py, run in an empty folder."""
    (tmp_path / "cli").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["setup.py", "--name"])
    return runpy.run_path(str(SETUP))


def is_held() -> bool:
    """Whether another open file has the lock."""
    try:
        with Path("build", "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def test_extension_modules_are_built_under_the_lock(script: dict[str, Any]) -> None:
    held: list[bool] = []

    class Build(script["BuildCompiled"]):  # type: ignore[misc]
        def build_extensions(self) -> None:
            held.append(is_held())

    command = Build(Distribution({"ext_modules": [Extension("module", [])]}))
    command.ensure_finalized()
    command.run()
    assert held == [True]
    assert not is_held()


def test_a_build_that_fails_leaves_no_lock(script: dict[str, Any]) -> None:
    with pytest.raises(RuntimeError), script["exclusive"]():
        assert is_held()
        raise RuntimeError("no compiler")
    assert not is_held()
