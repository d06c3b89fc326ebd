"""The tests that a page names are there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
NAMED = re.findall(r"`([\w/]+\.py)::(\w+)`", (ROOT / "docs" / "reliability.md").read_text())


def test_every_test_that_the_page_on_reliability_names_exists() -> None:
    assert len(NAMED) > 20
    for path, name in NAMED:
        found = [file for folder in ("", "tests/integration", "tests/unit") if (file := ROOT / folder / path).is_file()]
        assert any(f"\ndef {name}(" in file.read_text() for file in found), f"{path}::{name}"
