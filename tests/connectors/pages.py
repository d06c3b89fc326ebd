"""The code of a page of docs/, whose functions the tests call with the address of a server."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parents[2] / "docs"


def names_of(page: str) -> dict[str, Any]:
    """Return the names that the Python blocks of a page define together."""
    names: dict[str, Any] = {"__name__": page.removesuffix(".md")}
    for block in re.findall(r"^```python\n(.*?)^```", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL):
        exec(block, names)
    return names
