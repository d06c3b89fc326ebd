"""docs/commands.md agrees with the help of every command."""

from __future__ import annotations

import re
import runpy
from importlib.metadata import version
from pathlib import Path

import pytest

from topo_cli.exits import Exit

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "commands.md"
GENERATOR = runpy.run_path(str(ROOT / "scripts" / "commands_page.py"))


@pytest.mark.skipif(tuple(map(int, version("click").split(".")[:2])) < (8, 2), reason="this click words the help otherwise")
def test_the_reference_is_what_the_commands_say() -> None:
    text = PAGE.read_text()

    assert text == GENERATOR["page"](text), "regenerate it: python scripts/commands_page.py"


@pytest.mark.parametrize("name", GENERATOR["COMMANDS"])
def test_a_command_and_each_of_its_options_are_on_the_page(name: str) -> None:
    section = PAGE.read_text().partition(f"## topo {name}\n")[2].partition("\n## ")[0]
    shown = [one for one in GENERATOR["commands"]()[name].params if not getattr(one, "hidden", False)]
    options = {option for parameter in shown for option in parameter.opts if option[0] == "-"}

    assert set(re.findall(r"`(--?[a-z][a-z-]*)`", section)) >= options


def test_every_exit_code_is_explained() -> None:
    rows = re.findall(r"^\| (\d+) \| ([A-Z]+) \|", PAGE.read_text(), re.MULTILINE)

    assert rows == [(str(code.value), code.name) for code in Exit]
