"""The walks of `docs/architecture.md` name files and functions that exist; its layers and control messages are complete."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text()


def section(name: str) -> str:
    return PAGE.partition(f"\n## {name}\n")[2].partition("\n## ")[0]


WALKS = section("The five walks")
ROWS = re.findall(r"\| `([\w/]+\.py)` \| `([\w.]+)` \|", WALKS)


def file_of(path: str) -> Path:
    return ROOT / path if path.startswith("cli/") else ROOT / "topo" / path


def test_five_walks_name_a_function_in_each_row() -> None:
    assert WALKS.count("\n### ") == 5
    assert 20 < len(ROWS) == len(re.findall(r"^\| \d+ ", WALKS, re.MULTILINE))
    assert [path for path in re.findall(r"`([\w/]+\.py)`", WALKS) if not file_of(path).is_file()] == []


@pytest.mark.parametrize(("path", "name"), ROWS)
def test_each_function_of_a_walk_exists(path: str, name: str) -> None:
    tree = ast.parse(file_of(path).read_text())
    names = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    for kind in [node for node in tree.body if isinstance(node, ast.ClassDef)]:
        names |= {f"{kind.name}.{part.name}" for part in kind.body if isinstance(part, ast.FunctionDef)}
    assert name in names


def test_the_layers_name_each_folder_and_module_of_topo() -> None:
    named = set(re.findall(r"\w+", " ".join(re.findall(r"^    (.*)$", section("Layers"), re.MULTILINE))))
    parts = {path.stem for path in (ROOT / "topo").iterdir() if path.suffix in ("", ".py") and not path.name.startswith("_")}
    assert parts - named == set()


def test_the_list_of_control_messages_is_complete() -> None:
    sources = "".join((ROOT / "topo/wire/control" / f"{side}.py").read_text() for side in ("worker", "master"))
    messages = re.findall(r"^class (\w+)\(ControlMessage", sources, re.MULTILINE)
    assert len(messages) > 20
    assert set(messages) - set(re.findall(r"`(\w+)`", section("Control messages"))) == set()
