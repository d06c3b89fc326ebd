"""Writes tests/user_mistakes/README.md, the index of what users got wrong in good faith: python scripts/mistakes_page.py"""

from __future__ import annotations

import ast
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "tests" / "user_mistakes"
HEAD = """# Mistakes of users

What users write in good faith, and the answer that topo gives: it works, or it is refused with what, where and the way out. The
docstring of each test says the mistake in a sentence. The first lines of the files; `python scripts/mistakes_page.py` writes this
page:

| file | subject |
| --- | --- |
"""


def page() -> str:
    """Return the page as the files say it."""
    rows = []
    for path in sorted(FOLDER.glob("test_*.py")):
        module = ast.parse(path.read_text())
        subject = (ast.get_docstring(module) or "").partition("\n")[0].rstrip(".:")
        rows.append(f"| [{path.stem.removeprefix('test_')}]({path.name}) | {subject} |\n")
    return HEAD + "".join(rows)


if __name__ == "__main__":
    (FOLDER / "README.md").write_text(page())
