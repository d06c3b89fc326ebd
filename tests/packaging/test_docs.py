"""The index lists every page, and every link between files leads somewhere."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)#\s]+)")


def links_of(page: Path) -> set[Path]:
    return {(page.parent / target).resolve() for target in LINK.findall(page.read_text())}


def test_the_index_lists_every_page() -> None:
    index = ROOT / "docs" / "README.md"

    assert set(PAGES) - {index} <= links_of(index)


@pytest.mark.parametrize("page", [*sorted(ROOT.glob("*.md")), *PAGES], ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_between_files_leads_somewhere(page: Path) -> None:
    assert [target for target in links_of(page) if not target.exists()] == []


def test_the_index_of_mistakes_lists_every_file_with_its_subject() -> None:
    page = runpy.run_path(str(ROOT / "scripts" / "mistakes_page.py"))["page"]()

    assert (ROOT / "tests" / "user_mistakes" / "README.md").read_text() == page, "regenerate it: python scripts/mistakes_page.py"
    assert all(re.fullmatch(r"\| \[.+\| \S.+ \|", row) for row in page.splitlines()[9:])
