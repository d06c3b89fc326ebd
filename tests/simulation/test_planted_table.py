"""The table in docs/simulation.md names each planted fault, with its oracles and seeds."""

from __future__ import annotations

import runpy
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_table_is_that_of_the_planted_faults() -> None:
    generator = runpy.run_path(str(ROOT / "scripts" / "planted_page.py"))
    text = generator["PAGE"].read_text()
    assert text == generator["page"](text), "write it again: python scripts/planted_page.py"
