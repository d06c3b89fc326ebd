"""Expressions that the project does not use are held out of it, and out of more of it with each rewording.

`scripts/house_figures.py` has the list. The glossary of `docs/architecture.md` has the terms to use instead.
"""

from __future__ import annotations

import re
import runpy
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
BANNED: Mapping[str, str] = runpy.run_path(str(ROOT / "scripts" / "house_figures.py"))["BANNED"]

ALLOWED: Mapping[str, int] = {
    "tests/contract": 15,
    "topo/dead_letters": 1,
    "topo/launch": 1,
}
"""How many a place still has; every other place has none. Lower a number when you reword; move it along with files that move."""


def sources() -> Iterator[Path]:
    for folder in ("topo", "cli", "tests", "topologies"):
        yield from sorted({*(ROOT / folder).rglob("*.py")} - {Path(__file__)})
    yield from sorted([*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")])


def place_of(path: Path) -> str:
    """Return the place that a file counts for: its folder; a page, or a module beside the folders, counts for itself."""
    parts = path.relative_to(ROOT).parts
    return "/".join(parts[: 3 if parts[:2] == ("tests", "unit") else 1 if parts[0] in ("cli", "topologies") else 2])


def found_in(text: str) -> int:
    return sum(len(re.findall(pattern, text.lower())) for pattern in BANNED.values())


def counts() -> Counter[str]:
    found = Counter[str]()
    for path in sources():
        found[place_of(path)] += found_in(path.read_text())
    return +found


def test_no_place_gains_an_expression_that_the_project_does_not_use() -> None:
    allowed = {place: (count, ALLOWED.get(place, 0)) for place, count in counts().items()}
    grown = {place: f"{count}, allowed {limit}" for place, (count, limit) in allowed.items() if count > limit}
    assert grown == {}, "reword: the list is BANNED in scripts/house_figures.py"


def test_banned_expressions_are_found_in_any_case_and_dead_letters_are_not() -> None:
    assert found_in("What is there; the master tells it.") == 3
    assert found_in("dead letters, dead-letters, dead_letters, Dead\nletter") == 0


def test_every_term_of_the_glossary_is_used() -> None:
    glossary = (ROOT / "docs" / "architecture.md").read_text().partition("\n## Glossary\n")[2].partition("\n## ")[0]
    terms = [term for cell in re.findall(r"^\| ([a-z][^|]+) \|", glossary, re.MULTILINE)[1:] for term in cell.split(", ")]
    texts = [*(ROOT / "topo").rglob("*.py"), *(path for path in (ROOT / "docs").rglob("*.md") if path.name != "architecture.md")]
    used = "\n".join(path.read_text() for path in texts).lower()
    assert len(terms) > 60
    assert [term for term in terms if not re.search(rf"\b{term}s?\b", used)] == []
