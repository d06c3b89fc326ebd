"""Key group ranges that no task can own."""

from __future__ import annotations

from typing import Any

import pytest

from topo import ProcessBolt
from topo.errors import ConfigError
from topo.keys import KeyGroupRange
from topo.testing import OperatorHarness


@pytest.mark.parametrize(("start", "end"), [(-3, 2), (0, 32_768), (-1, -1), (1.5, 2), (0, "a")])
def test_range_outside_the_possible_key_groups_is_refused(start: Any, end: Any) -> None:
    """A range with a negative start, one beyond the largest number of key groups, or one of other values than int."""
    with pytest.raises(ConfigError, match=rf"KeyGroupRange\({start!r}, {end!r}\): key groups are numbered from 0 to 32767"):
        KeyGroupRange(start, end)


def test_range_beyond_the_maximum_of_its_operator_is_refused() -> None:
    """An operator with 128 key groups is given 200 of them."""

    class Count(ProcessBolt):
        def process(self, tup, context, collector):  # type: ignore[no-untyped-def]
            pass

    with pytest.raises(ConfigError, match=r"KeyGroupRange\(start=0, end=199\) lies beyond the key groups 0 to 127"):
        OperatorHarness(Count(key="word"), fields=("word",), key_groups=KeyGroupRange(0, 199))
