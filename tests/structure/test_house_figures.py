"""The script that measures the structure counts right, on a small tree with one of each."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def tree(tmp_path: Path, **sources: str) -> Any:
    """Return a tree of modules `topo.NAME` with these sources."""
    (tmp_path / "topo").mkdir()
    (tmp_path / "cli").mkdir()
    for name, source in sources.items():
        (tmp_path / "topo" / f"{name}.py").write_text(source)
    return runpy.run_path(str(ROOT / "scripts" / "house_figures.py"))["Tree"].read(tmp_path)


def test_depth_follows_own_ancestors_across_modules(tmp_path: Path) -> None:
    found = tree(
        tmp_path,
        a="class One: ...\nclass Two(One): ...",
        b="from topo.a import Two as Second\nclass Three(Second): ...",
        c="from typing import Protocol\nclass Port(Protocol): ...\nclass Wide(Port, Protocol): ...\nclass Bad(ValueError): ...",
    )
    depths = {name: found.depth(name) for name in found.bases}
    assert depths == {"topo.a.One": 0, "topo.a.Two": 1, "topo.b.Three": 2, "topo.c.Port": 0, "topo.c.Wide": 0, "topo.c.Bad": 0}


def test_circles_include_imports_inside_of_functions(tmp_path: Path) -> None:
    found = tree(
        tmp_path,
        a="from topo import b",
        b="def late():\n    from topo.c import thing",
        c="import topo.a\nthing = 1",
        d="import topo.a",
    )
    assert found.circles == [["topo.a", "topo.b", "topo.c"]]


def test_collisions_are_names_that_two_modules_define(tmp_path: Path) -> None:
    found = tree(tmp_path, a="class Row: ...\nShare = int | str", b="Row = tuple[int]\nfrom topo.a import Share", c="ROW = 1")
    assert found.collisions == {"Row": ["topo.a", "topo.b"]}
