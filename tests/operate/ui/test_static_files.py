"""The scripts of the page: small, one subject each, and without ways to make markup or code of text."""

from __future__ import annotations

import re

from topo.ui.assets import FOLDER

OWN = sorted(FOLDER.glob("*.js"))
MOST_BYTES = 120_000
UNSAFE = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|dangerouslySetInnerHTML|srcdoc"
)


def test_own_scripts_stay_within_their_budget() -> None:
    assert sum(path.stat().st_size for path in OWN) <= MOST_BYTES


def test_no_script_makes_markup_or_code_of_text() -> None:
    assert {path.name: found for path in OWN if (found := UNSAFE.findall(path.read_text()))} == {}


def test_every_page_says_what_it_is_in_its_first_line() -> None:
    assert [path.name for path in OWN if not path.read_text().startswith("// ")] == []
