"""Values that are nested without an end."""

from __future__ import annotations

import sys

import pytest

from topo.errors import UnsupportedValueError
from topo.wire.codec import Codec


@pytest.mark.parametrize("limit", [1_000, 100_000])
def test_a_value_that_is_nested_too_deeply_is_refused_whatever_the_recursion_limit(limit: int) -> None:
    """The user emits a linked list as pairs in pairs, and has raised the interpreter's recursion limit for it."""
    pairs: tuple[object, ...] | None = None
    for number in range(300):
        pairs = (number, pairs)
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(limit)
    try:
        with pytest.raises(
            UnsupportedValueError, match=r"field 0: tuple: is nested too deeply \(at most 256 levels are carried\)"
        ):
            Codec().pack_rows([(pairs,)])
    finally:
        sys.setrecursionlimit(before)


def test_a_value_that_contains_itself_is_refused() -> None:
    """The user emits a tree whose nodes know their parents."""
    parent: dict[str, object] = {"name": "root"}
    parent["children"] = [{"name": "leaf", "parent": parent}]
    with pytest.raises(UnsupportedValueError, match="or contains itself"):
        Codec().pack_rows([(parent,)])
