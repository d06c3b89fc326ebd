"""The rows of the table of states, then the cases around them. Edges are small numbers where chance plays no part."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import pytest

from tests.contract.hot.listed_trees import ListedTrees
from topo.hot import pack_words, unpack_words
from topo.ids import TaskId

SPOUT, OTHER = TaskId(7), TaskId(8)
ROOT = 0xFEDC_BA98_7654_3210
E1, E2, E3 = 0x8000_0000_0000_0001, 0x0123_4567_89AB_CDEF, 0x7777_0000_0000_1111

Step = Callable[[ListedTrees], object]
Verdicts = dict[TaskId, list[tuple[str, int]]]


def init(*values: int, roots: tuple[int, ...] = (), spout: TaskId = SPOUT) -> Step:
    return lambda trees: trees.init(spout, list(roots or (ROOT,) * len(values)), list(values))


def ack(*values: int, roots: tuple[int, ...] = ()) -> Step:
    return lambda trees: trees.ack(list(roots or (ROOT,) * len(values)), list(values))


def fail(*roots: int) -> Step:
    return lambda trees: trees.fail(list(roots or (ROOT,)))


def reset(*roots: int) -> Step:
    return lambda trees: trees.reset(list(roots or (ROOT,)))


def clear(trees: ListedTrees) -> None:
    trees.clear()


def gives(verdicts: Verdicts) -> Step:
    """The verdicts since the last look."""

    def look(trees: ListedTrees) -> None:
        assert trees.verdicts() == verdicts

    return look


def rotate(*expired: int) -> Step:
    """A rotation for each number, and how many trees expire by it."""

    def turn(trees: ListedTrees) -> None:
        assert [len(trees.rotate()) for _ in expired] == list(expired)

    return turn


def holds(count: int) -> Step:
    """The number of records."""

    def look(trees: ListedTrees) -> None:
        assert len(trees.trees) == count

    return look


NOTHING = gives({})
ACKED, FAILED, RESET = (gives({SPOUT: [(kind, ROOT)]}) for kind in ("acked", "failed", "reset"))

CASES: dict[str, list[Step]] = {
    "an init and the acks of all edges complete a tree": [
        *(init(E1), ack(E1 ^ E2 ^ E3), ack(E2), NOTHING, ack(E3), ACKED, holds(0)),
    ],
    "verdicts are taken once": [init(E1), ack(E1), ACKED, NOTHING],
    "an ack before the init completes when the init arrives": [ack(E1), NOTHING, init(E1), ACKED],
    "acks that cancel each other before the init complete nothing": [ack(E2), ack(E2), NOTHING, init(E1), NOTHING],
    "a fail of an open tree is answered at once": [init(E1), fail(), FAILED],
    "a fail before the init is answered when the init arrives": [fail(), NOTHING, init(E1), FAILED],
    "a fail wins over a zero that the init completes": [fail(), ack(E1), init(E1), FAILED],
    "a fail after early acks wins over their zero": [ack(E1), fail(), init(E1), FAILED],
    "late acks after a fail are absorbed by the failed record": [
        *(init(E1), fail(), FAILED, ack(E1), ack(E2), NOTHING, holds(1)),
    ],
    "a second fail has no answer": [init(E1), fail(), fail(), FAILED, fail(), NOTHING],
    "two fails before the init are answered once": [fail(ROOT, ROOT), init(E1), fail(), FAILED],
    "a failed record stays marked as answered until it rotates out": [
        *(fail(), init(E1), FAILED, rotate(0), init(E1), rotate(0), init(E1), NOTHING, rotate(0), holds(0)),
    ],
    "a double ack leaves an open tree open": [init(E1 ^ E2), ack(E1), ack(E1), ack(E2), NOTHING, rotate(0, 0, 1)],
    "a double ack after the tree closed is an orphan that ages out": [
        *(init(E1), ack(E1), ack(E1), ACKED, rotate(0, 0, 0), holds(0)),
    ],
    "a fail after the tree closed has no answer": [init(E1), ack(E1), fail(), ACKED],
    "a child anchored twice in one tree carries the xor of both ids": [init(E1), ack(E1 ^ E2 ^ E3), ack(E2 ^ E3), ACKED],
    "a fail of a tuple with two roots fails both at their own spouts": [
        *(init(E1, roots=(1,)), init(E2, roots=(2,), spout=OTHER), fail(1, 2)),
        gives({SPOUT: [("failed", 1)], OTHER: [("failed", 2)]}),
    ],
    "answers go to the spout of the init": [
        *(init(E1, roots=(1,)), init(E2, E3, roots=(2, 3), spout=OTHER), ack(E2, E1, roots=(2, 1)), fail(3)),
        gives({SPOUT: [("acked", 1)], OTHER: [("acked", 2), ("failed", 3)]}),
    ],
    "an init without edges is done at once": [init(0), ACKED],
    "a repeated init does not complete a tree": [init(E1), init(E1), NOTHING, ack(E1), ACKED],
    "an init twice in one frame does not complete a tree": [init(E1, E1), NOTHING],
    "a repeat of all messages does not complete a tree": [init(E1 ^ E2), ack(E1), init(E1 ^ E2), ack(E1), NOTHING],
    "an init of another spout for an open root is refused": [init(E1), init(E1, spout=OTHER), ack(E1), ACKED],
    "a reset of an open tree is answered": [init(E1), reset(), RESET],
    "a reset before the init has no answer": [reset(), init(E1), NOTHING],
    "a reset between an early ack and the init refreshes without an answer": [
        *(ack(E1), rotate(0, 0), reset(), rotate(0), init(E1), ACKED),
    ],
    "a reset of a closed root is ignored": [
        *(init(E1, E2, roots=(1, 2)), ack(E1, roots=(1,)), fail(2), gives({SPOUT: [("acked", 1), ("failed", 2)]})),
        *(reset(1, 2), NOTHING, holds(1)),
    ],
    "a reset does not prolong the record of a failed tree": [
        *(init(E1), fail(), reset(), rotate(0), reset(), rotate(0), reset(), rotate(0), holds(0)),
    ],
    "an open tree expires at the third rotation without a verdict": [init(E1), rotate(0, 0, 1), NOTHING, ack(E1), NOTHING],
    "an ack does not refresh the age": [init(E1), rotate(0, 0), ack(E1 ^ E2), rotate(1)],
    "an init does not refresh the age of an early record": [ack(E2), rotate(0, 0), init(E1), rotate(1)],
    "a reset refreshes the age": [init(E1), rotate(0, 0), reset(), rotate(0, 0, 1)],
    "a fail refreshes the age": [ack(E2), rotate(0, 0), fail(), rotate(0, 0), init(E1), FAILED],
    "cleared trees know nothing of the epoch before": [
        *(init(E1, E2, E3, roots=(1, 2, 3)), ack(E1, roots=(1,)), fail(2), clear, NOTHING, holds(0)),
        *(ack(E3, roots=(3,)), NOTHING, init(E3, roots=(3,)), gives({SPOUT: [("acked", 3)]})),
    ],
}


@pytest.mark.parametrize("case", CASES)
def test_trees_give_these_verdicts_and_hold_these_records(hot: ModuleType, case: str) -> None:
    trees = ListedTrees(hot)
    for step in CASES[case]:
        step(trees)
    trees.validate()


def test_columns_of_unequal_length_are_refused(hot: ModuleType) -> None:
    trees = ListedTrees(hot)
    with pytest.raises(ValueError):
        trees.ack([1, 2], [E1])


def test_open_roots_are_those_with_an_init_and_no_verdict(hot: ModuleType) -> None:
    trees = ListedTrees(hot)
    trees.init(SPOUT, [1, 2, 3], [E1, E2, E3])
    trees.rotate()
    trees.init(SPOUT, [4], [E1])
    trees.ack([1, 9], [E1, E2])
    trees.fail([2, 8])
    assert trees.open_roots() == [3, 4]
    assert len(trees.trees) == 5


def test_columns_may_be_slices_of_a_frame(hot: ModuleType) -> None:
    trees = hot.Trees()
    frame = memoryview(b"xyz" + pack_words([1, 2, E1, E2]))
    trees.init(SPOUT, frame[3:19], frame[19:])
    trees.ack(bytearray(pack_words([2])), pack_words([E2]))
    assert unpack_words(trees.verdicts()[SPOUT].acked) == [2]
