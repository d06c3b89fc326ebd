"""Tuple trees beside the reference: the same frames give the same answers, in the same order, of any implementation."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topo.hot import pack_words, plain
from topo.ids import TaskId

roots = st.one_of(st.integers(1, 12), st.integers(1, 2**64 - 1))
values = st.one_of(st.integers(0, 3), st.integers(0, 2**64 - 1))
pairs = st.lists(st.tuples(roots, values), max_size=8)
bursts = st.builds(
    lambda first, count: [(number, number % 3) for number in range(first, first + count)],
    st.integers(1, 400),
    st.integers(60, 300),
)
frames = st.tuples(st.sampled_from(["init", "ack", "fail", "reset"]), st.sampled_from([1, 7, 2**40]), st.one_of(pairs, bursts))
others = st.tuples(st.sampled_from(["rotate", "rotate", "verdicts", "clear"]), st.none(), st.none())


COMPILED = pytest.mark.parametrize("hot", ["compiled"], indirect=True)
"""The reference beside itself would show nothing."""


def call(trees: Any, name: str, spout: Any, content: Any) -> Any:
    if content is None:
        result = getattr(trees, name)()
        return list(result.items()) if name == "verdicts" else result
    columns = pack_words([root for root, _ in content]), pack_words([value for _, value in content])
    if name == "init":
        return trees.init(TaskId(spout), *columns)
    return trees.ack(*columns) if name == "ack" else getattr(trees, name)(columns[0])


@COMPILED
@given(calls=st.lists(st.one_of(frames, frames, others), max_size=15), buckets=st.integers(2, 4))
def test_the_same_frames_give_the_same_answers(hot: ModuleType, calls: list, buckets: int) -> None:
    one, other = hot.Trees(buckets), plain.Trees(buckets)
    for name, spout, content in calls:
        assert call(one, name, spout, content) == call(other, name, spout, content)
        assert (len(one), one.open_roots()) == (len(other), other.open_roots())
        one.validate()


def test_many_trees_that_come_and_go_leave_nothing(hot: ModuleType) -> None:
    trees = hot.Trees()
    for first in range(1, 20_000, 100):
        opened, later = range(first, first + 200), range(first, first + 100)
        new = [root for root in opened if root >= first + 100 or first == 1]
        trees.init(TaskId(1), pack_words(new), pack_words(new))
        trees.ack(pack_words(later), pack_words(later))
        assert trees.verdicts()[TaskId(1)].acked == pack_words(later)
        assert len(trees) == 100
        trees.validate()
