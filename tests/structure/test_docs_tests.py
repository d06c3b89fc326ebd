"""The tests that pages name exist, and tests hold each promise of the README and of the page on delivery."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NAME = re.compile(r"`([\w/]+\.py)::(\w+)`")
PAGES = ("reliability.md", "delivery.md")


def text_of(page: str) -> str:
    return (ROOT / "docs" / page).read_text()


def text_behind(path: str, name: str) -> str:
    """The code from the body of a test on; empty where there is no such test."""
    found = [file for folder in ("", "tests/integration", "tests/unit") if (file := ROOT / folder / path).is_file()]
    parts = [re.split(rf"\ndef {name}\([^)]*\) -> None:\n", file.read_text(), maxsplit=1)[1:] for file in found]
    return next((part[0] for part in parts if part), "")


def docstring_of(path: str, name: str) -> str:
    """The docstring of a test in one line."""
    return " ".join(text_behind(path, name).partition('"""')[2].partition('"""')[0].split())


def exists(path: str, name: str) -> bool:
    return text_behind(path, name) != ""


def rows_of(text: str) -> Iterator[list[str]]:
    """The cells of the rows of all tables in a text, without their heads."""
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        for line in table.splitlines()[2:]:
            yield [cell.strip() for cell in line.strip().strip("|").split(" | ")]


@pytest.mark.parametrize("page", PAGES)
def test_every_test_that_a_page_names_exists(page: str) -> None:
    named = NAME.findall(text_of(page))
    assert len(named) > 20
    assert [f"{path}::{name}" for path, name in named if not exists(path, name)] == []


def test_each_row_of_what_can_be_lost_or_come_twice_names_a_test() -> None:
    section = text_of("delivery.md").partition("## What can be lost or come twice\n")[2].partition("\n## ")[0]
    rows = list(rows_of(section))
    assert len(rows) == 27
    assert [row[0] for row in rows if not NAME.search(row[-1])] == []


def promises() -> list[str]:
    """The README's promises, kept and not: rows of the table, and items of the lists."""
    section = (ROOT / "README.md").read_text().partition("## Guarantees\n")[2].partition("\n## ")[0]
    items = re.findall(r"^- (.+(?:\n  .+)*)", section, re.MULTILINE)
    return [row[0] for row in rows_of(section)] + [re.sub(r"\s+", " ", item) for item in items]


def test_each_promise_of_the_readme_is_held_by_a_test() -> None:
    section = text_of("reliability.md").partition("## Promises of the README\n")[2].partition("\n## ")[0]
    held = {row[0]: row[1] for row in rows_of(section)}
    assert list(held) == promises(), "docs/reliability.md has a row for each promise, in the README's words and order"
    assert [promise for promise, tests in held.items() if not NAME.search(tests)] == []


def test_the_docstring_of_the_first_test_of_each_promise_repeats_it() -> None:
    section = text_of("reliability.md").partition("## Promises of the README\n")[2].partition("\n## ")[0]
    docstrings = {row[0]: docstring_of(*NAME.findall(row[1])[0]) for row in rows_of(section)}
    repeated = {promise: f"Promise of the README: {promise.replace('`', '').rstrip('.')}." for promise in docstrings}
    assert [promise for promise, docstring in docstrings.items() if repeated[promise] not in docstring] == []
