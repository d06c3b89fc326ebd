"""docs/streams-reference.md is as scripts/streams_page.py writes it."""

from __future__ import annotations

from scripts.streams_page import PAGE, page
from topo import streams


def test_the_page_is_current() -> None:
    assert PAGE.read_text() == page(), "run: python scripts/streams_page.py"


def test_the_page_has_every_public_name_and_each_has_a_description() -> None:
    parts = page().split("\n## ")[1:]
    assert sorted(part.partition("\n")[0] for part in parts) == sorted(streams.__all__)
    calls = [call for part in parts for call in part.split("\n### ")]
    assert [call for call in calls if len(call.rstrip().split("\n\n")) < 2] == []


def test_properties_have_no_parentheses() -> None:
    """The page had `current_processing_time() -> int`, and the int that a user got is not callable."""
    assert "    current_processing_time: int\n" in page() and "    key: K_co\n" in page()
