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
    "cli": 136,
    "docs/commands.md": 51,
    "docs/metrics.md": 1,
    "docs/simulation.md": 10,
    "tests/cli": 52,
    "tests/contract": 35,
    "tests/integration": 140,
    "tests/properties": 68,
    "tests/simulation": 46,
    "tests/simulator": 170,
    "tests/spark": 62,
    "tests/structure": 4,
    "tests/unit/checkpoint": 84,
    "tests/unit/dead_letters": 75,
    "tests/unit/emission": 16,
    "tests/unit/launch": 31,
    "tests/unit/master": 155,
    "tests/unit/master_process": 15,
    "tests/unit/observability": 4,
    "tests/unit/operators": 24,
    "tests/unit/task": 217,
    "tests/unit/testing": 64,
    "tests/unit/topologies": 6,
    "tests/unit/tracking": 18,
    "tests/unit/wire": 13,
    "tests/unit/worker": 50,
    "tests/user_mistakes": 117,
    "topo/checkpoint": 97,
    "topo/dead_letters": 121,
    "topo/emission": 78,
    "topo/launch": 126,
    "topo/master": 108,
    "topo/master_process": 50,
    "topo/observability": 13,
    "topo/operators": 173,
    "topo/task": 202,
    "topo/testing": 131,
    "topo/tracking": 131,
    "topo/wire": 40,
    "topo/worker": 63,
}
"""How many a place still has; every other place has none. Lower a number when you reword; move it along with files that move."""


def sources() -> Iterator[Path]:
    for folder in ("topo", "cli", "tests", "topologies"):
        yield from sorted({*(ROOT / folder).rglob("*.py")} - {Path(__file__)})
    yield from sorted([*(ROOT / "docs").glob("*.md"), *ROOT.glob("*.md")])


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
