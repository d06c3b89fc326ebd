"""A private working folder, and a program to write there, for tests that load code. `clean_imports` has them forget it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from topo.user_code import load as code

SOURCE = """
from topo import IterableSpout, TopologyBuilder
{extra}
def topology(count: int = 3, name="words"):
    builder = TopologyBuilder(name)
    builder.set_spout("numbers", IterableSpout, args=(range(count),))
    return builder.build()

ready = topology(1, "ready")
"""


@pytest.fixture(autouse=True)
def clean_imports(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """A private working folder; its imports are forgotten."""
    before = set(sys.modules)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(code, "_roots", [])
    (tmp_path / "work").mkdir()
    (tmp_path / "state").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    yield
    for name in set(sys.modules) - before:
        if not name.startswith("topo."):
            del sys.modules[name]


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


def write(path: str, extra: str = "", source: str = SOURCE) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(source.replace("{extra}", extra))
