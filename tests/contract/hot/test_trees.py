"""The rows of the table of states, then the cases around them. Edges are small numbers where chance plays no part."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType

import pytest

from tests.contract.hot.listed_trees import ListedTrees
from topo.hot import pack_words, unpack_words
from topo.ids import TaskId

SPOUT, OTHER = TaskId(7), TaskId(8)
ROOT = 0xFEDC_BA98_7654_3210
E1, E2, E3 = 0x8000_0000_0000_0001, 0x0123_4567_89AB_CDEF, 0x7777_0000_0000_1111


@pytest.fixture
def trees(hot: ModuleType) -> Iterator[ListedTrees]:
    trees = ListedTrees(hot)
    yield trees
    trees.validate()


def acked(*roots: int) -> dict[TaskId, list[tuple[str, int]]]:
    return {SPOUT: [("acked", root) for root in roots]}


def failed(*roots: int) -> dict[TaskId, list[tuple[str, int]]]:
    return {SPOUT: [("failed", root) for root in roots]}


def reset(*roots: int) -> dict[TaskId, list[tuple[str, int]]]:
    return {SPOUT: [("reset", root) for root in roots]}


def test_an_init_and_the_acks_of_all_edges_complete_a_tree(trees: ListedTrees) -> None:
    trees.init(SPOUT, [ROOT], [E1])
    trees.ack([ROOT], [E1 ^ E2 ^ E3])
    trees.ack([ROOT], [E2])
    assert trees.verdicts() == {}
    trees.ack([ROOT], [E3])
    assert trees.verdicts() == acked(ROOT)
    assert len(trees.trees) == 0


def test_verdicts_are_taken_once(trees: ListedTrees) -> None:
    trees.init(SPOUT, [ROOT], [E1])
    trees.ack([ROOT], [E1])
    assert trees.verdicts() == acked(ROOT)
    assert trees.verdicts() == {}


def test_an_ack_before_the_init_completes_when_the_init_arrives(trees: ListedTrees) -> None:
    trees.ack([ROOT], [E1])
    assert trees.verdicts() == {}
    trees.init(SPOUT, [ROOT], [E1])
    assert trees.verdicts() == acked(ROOT)


def test_acks_that_cancel_each_other_before_the_init_complete_nothing(trees: ListedTrees) -> None:
    trees.ack([ROOT], [E2])
    trees.ack([ROOT], [E2])
    assert trees.verdicts() == {}
    trees.init(SPOUT, [ROOT], [E1])
    assert trees.verdicts() == {}


def test_a_fail_of_an_open_tree_is_answered_at_once(trees: ListedTrees) -> None:
    trees.init(SPOUT, [ROOT], [E1])
    trees.fail([ROOT])
    assert trees.verdicts() == failed(ROOT)


def test_a_fail_before_the_init_is_answered_when_the_init_arrives(trees: ListedTrees) -> None:
    trees.fail([ROOT])
    assert trees.verdicts() == {}
    trees.init(SPOUT, [ROOT], [E1])
    assert trees.verdicts() == failed(ROOT)


def test_a_fail_wins_over_a_zero_that_the_init_completes(trees: ListedTrees) -> None:
    trees.fail([ROOT])
    trees.ack([ROOT], [E1])
    trees.init(SPOUT, [ROOT], [E1])
    assert trees.verdicts() == failed(ROOT)


def test_a_fail_after_early_acks_wins_over_their_zero(trees: ListedTrees) -> None:
    trees.ack([ROOT], [E1])
    trees.fail([ROOT])
    trees.init(SPOUT, [ROOT], [E1])
    assert trees.verdicts() == failed(ROOT)


def test_late_acks_after_a_fail_are_absorbed_by_the_failed_record(trees: ListedTrees) -> None:
    trees.init(SPOUT, [ROOT], [E1])
    trees.fail([ROOT])
    assert trees.verdicts() == failed(ROOT)
    trees.ack([ROOT], [E1])
    trees.ack([ROOT], [E2])
    assert trees.verdicts() == {}
    assert len(trees.trees) == 1


def test_a_second_fail_has_no_answer(trees: ListedTrees) -> None:
    trees.init(SPOUT, [ROOT], [E1])
    trees.fail([ROOT])
    trees.fail([ROOT])
    assert trees.verdicts() == failed(ROOT)
    trees.fail([ROOT])
    assert trees.verdicts() == {}


def test_two_fails_before_the_init_are_answered_once(trees: ListedTrees) -> None:
    trees.fail([ROOT, ROOT])
    trees.init(SPOUT, [ROOT], [E1])
    trees.fail([ROOT])
    assert trees.verdicts() == failed(ROOT)


def test_a_failed_record_stays_marked_as_answered_until_it_rotates_out(trees: ListedTrees) -> None:
    trees.fail([ROOT])
    trees.init(SPOUT, [ROOT], [E1])
    assert trees.verdicts() == failed(ROOT)
    for _ in range(2):
        assert len(trees.rotate()) == 0
        trees.init(SPOUT, [ROOT], [E1])
    assert trees.verdicts() == {}
    assert len(trees.rotate()) == 0
    assert len(trees.trees) == 0


def test_a_double_ack_leaves_an_open_tree_open(trees: ListedTrees) -> None:
    trees.init(SPOUT, [ROOT], [E1 ^ E2])
    trees.ack([ROOT], [E1])
    trees.ack([ROOT], [E1])
    trees.ack([ROOT], [E2])
    assert trees.verdicts() == {}
    assert [len(trees.rotate()) for _ in range(3)] == [0, 0, 1]


def test_a_double_ack_after_the_tree_closed_is_an_orphan_that_ages_out(trees: ListedTrees) -> None:
    trees.init(SPOUT, [ROOT], [E1])
    trees.ack([ROOT], [E1])
    trees.ack([ROOT], [E1])
    assert trees.verdicts() == acked(ROOT)
    assert [len(trees.rotate()) for _ in range(3)] == [0, 0, 0]
    assert len(trees.trees) == 0


def test_a_fail_after_the_tree_closed_has_no_answer(trees: ListedTrees) -> None:
    trees.init(SPOUT, [ROOT], [E1])
    trees.ack([ROOT], [E1])
    trees.fail([ROOT])
    assert trees.verdicts() == acked(ROOT)


def test_a_child_anchored_twice_in_one_tree_carries_the_xor_of_both_ids(trees: ListedTrees) -> None:
    trees.init(SPOUT, [ROOT], [E1])
    trees.ack([ROOT], [E1 ^ E2 ^ E3])
    trees.ack([ROOT], [E2 ^ E3])
    assert trees.verdicts() == acked(ROOT)


def test_a_fail_of_a_tuple_with_two_roots_fails_both_at_their_own_spouts(trees: ListedTrees) -> None:
    trees.init(SPOUT, [1], [E1])
    trees.init(OTHER, [2], [E2])
    trees.fail([1, 2])
    assert trees.verdicts() == {SPOUT: [("failed", 1)], OTHER: [("failed", 2)]}


def test_answers_go_to_the_spout_of_the_init(trees: ListedTrees) -> None:
    trees.init(SPOUT, [1], [E1])
    trees.init(OTHER, [2, 3], [E2, E3])
    trees.ack([2, 1], [E2, E1])
    trees.fail([3])
    assert trees.verdicts() == {SPOUT: [("acked", 1)], OTHER: [("acked", 2), ("failed", 3)]}


def test_an_init_without_edges_is_done_at_once(trees: ListedTrees) -> None:
    trees.init(SPOUT, [ROOT], [0])
    assert trees.verdicts() == acked(ROOT)


def test_a_repeated_init_does_not_complete_a_tree(trees: ListedTrees) -> None:
    trees.init(SPOUT, [ROOT], [E1])
    trees.init(SPOUT, [ROOT], [E1])
    assert trees.verdicts() == {}
    trees.ack([ROOT], [E1])
    assert trees.verdicts() == acked(ROOT)


def test_an_init_twice_in_one_frame_does_not_complete_a_tree(trees: ListedTrees) -> None:
    trees.init(SPOUT, [ROOT, ROOT], [E1, E1])
    assert trees.verdicts() == {}


def test_a_repeat_of_all_messages_does_not_complete_a_tree(trees: ListedTrees) -> None:
    for _ in range(2):
        trees.init(SPOUT, [ROOT], [E1 ^ E2])
        trees.ack([ROOT], [E1])
    assert trees.verdicts() == {}


def test_an_init_of_another_spout_for_an_open_root_is_refused(trees: ListedTrees) -> None:
    trees.init(SPOUT, [ROOT], [E1])
    trees.init(OTHER, [ROOT], [E1])
    trees.ack([ROOT], [E1])
    assert trees.verdicts() == acked(ROOT)


def test_a_reset_of_an_open_tree_is_answered(trees: ListedTrees) -> None:
    trees.init(SPOUT, [ROOT], [E1])
    trees.reset([ROOT])
    assert trees.verdicts() == reset(ROOT)


def test_a_reset_before_the_init_has_no_answer(trees: ListedTrees) -> None:
    trees.reset([ROOT])
    trees.init(SPOUT, [ROOT], [E1])
    assert trees.verdicts() == {}


def test_a_reset_between_an_early_ack_and_the_init_refreshes_without_an_answer(trees: ListedTrees) -> None:
    trees.ack([ROOT], [E1])
    trees.rotate()
    trees.rotate()
    trees.reset([ROOT])
    trees.rotate()
    trees.init(SPOUT, [ROOT], [E1])
    assert trees.verdicts() == acked(ROOT)


def test_a_reset_of_a_closed_root_is_ignored(trees: ListedTrees) -> None:
    trees.init(SPOUT, [1, 2], [E1, E2])
    trees.ack([1], [E1])
    trees.fail([2])
    trees.verdicts()
    trees.reset([1, 2])
    assert trees.verdicts() == {}
    assert len(trees.trees) == 1


def test_a_reset_does_not_prolong_the_record_of_a_failed_tree(trees: ListedTrees) -> None:
    trees.init(SPOUT, [ROOT], [E1])
    trees.fail([ROOT])
    for _ in range(3):
        trees.reset([ROOT])
        trees.rotate()
    assert len(trees.trees) == 0


def test_an_open_tree_expires_at_the_third_rotation_without_a_verdict(trees: ListedTrees) -> None:
    trees.init(SPOUT, [ROOT], [E1])
    assert [len(trees.rotate()) for _ in range(3)] == [0, 0, 1]
    assert trees.verdicts() == {}
    trees.ack([ROOT], [E1])
    assert trees.verdicts() == {}


def test_an_ack_does_not_refresh_the_age(trees: ListedTrees) -> None:
    trees.init(SPOUT, [ROOT], [E1])
    trees.rotate()
    trees.rotate()
    trees.ack([ROOT], [E1 ^ E2])
    assert len(trees.rotate()) == 1


def test_an_init_does_not_refresh_the_age_of_an_early_record(trees: ListedTrees) -> None:
    trees.ack([ROOT], [E2])
    trees.rotate()
    trees.rotate()
    trees.init(SPOUT, [ROOT], [E1])
    assert len(trees.rotate()) == 1


def test_a_reset_refreshes_the_age(trees: ListedTrees) -> None:
    trees.init(SPOUT, [ROOT], [E1])
    trees.rotate()
    trees.rotate()
    trees.reset([ROOT])
    assert [len(trees.rotate()) for _ in range(3)] == [0, 0, 1]


def test_a_fail_refreshes_the_age(trees: ListedTrees) -> None:
    trees.ack([ROOT], [E2])
    trees.rotate()
    trees.rotate()
    trees.fail([ROOT])
    trees.rotate()
    trees.rotate()
    trees.init(SPOUT, [ROOT], [E1])
    assert trees.verdicts() == failed(ROOT)


def test_cleared_trees_know_nothing_of_the_epoch_before(trees: ListedTrees) -> None:
    trees.init(SPOUT, [1, 2, 3], [E1, E2, E3])
    trees.ack([1], [E1])
    trees.fail([2])
    trees.clear()
    assert trees.verdicts() == {}
    assert len(trees.trees) == 0
    trees.ack([3], [E3])
    assert trees.verdicts() == {}
    trees.init(SPOUT, [3], [E3])
    assert trees.verdicts() == acked(3)


def test_columns_of_unequal_length_are_refused(trees: ListedTrees) -> None:
    with pytest.raises(ValueError):
        trees.ack([1, 2], [E1])


def test_open_roots_are_those_with_an_init_and_no_verdict(trees: ListedTrees) -> None:
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
