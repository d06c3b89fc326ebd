"""`from topo import *` beside names of the standard library."""

from __future__ import annotations

import builtins
import collections
import typing
from typing import Any

import pytest

import topo


@pytest.mark.parametrize("module", [builtins, collections, typing], ids=lambda module: module.__name__)
def test_a_star_import_shadows_nothing_of_the_standard_library(module: Any) -> None:
    """The user writes `from collections import Counter`, then `from topo import *`, and counts words with a metric."""
    assert set(topo.__all__).isdisjoint(getattr(module, "__all__", dir(module)))


def test_the_names_that_it_leaves_out_can_be_imported_by_name() -> None:
    """The user annotates `execute(self, tup: Tuple)`."""
    from topo import Counter, Tuple

    assert Counter is not collections.Counter and Tuple is not tuple
