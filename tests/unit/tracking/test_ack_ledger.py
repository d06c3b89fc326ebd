"""The rows of the ledger's table, then the cases around them. Edges are small numbers where chance plays no part."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from topo.ids import TaskId
from topo.tracking.ack_ledger import AckLedger, Verdicts

SPOUT, OTHER = TaskId(7), TaskId(8)
ROOT = 0xFEDC_BA98_7654_3210
E1, E2, E3 = 0x8000_0000_0000_0001, 0x0123_4567_89AB_CDEF, 0x7777_0000_0000_1111


@pytest.fixture
def ledger() -> Iterator[AckLedger]:
    ledger = AckLedger()
    yield ledger
    ledger.validate()


def acked(*roots: int) -> dict[TaskId, Verdicts]:
    return {SPOUT: Verdicts(acked=list(roots))}


def failed(*roots: int) -> dict[TaskId, Verdicts]:
    return {SPOUT: Verdicts(failed=list(roots))}


def reset(*roots: int) -> dict[TaskId, Verdicts]:
    return {SPOUT: Verdicts(reset=list(roots))}


def test_an_init_and_the_acks_of_all_edges_complete_a_tree(ledger: AckLedger) -> None:
    ledger.init(SPOUT, [ROOT], [E1])
    ledger.ack([ROOT], [E1 ^ E2 ^ E3])
    ledger.ack([ROOT], [E2])
    assert ledger.take_verdicts() == {}
    ledger.ack([ROOT], [E3])
    assert ledger.take_verdicts() == acked(ROOT)
    assert ledger.statistics().entries == 0


def test_verdicts_are_taken_once(ledger: AckLedger) -> None:
    ledger.init(SPOUT, [ROOT], [E1])
    ledger.ack([ROOT], [E1])
    assert ledger.take_verdicts() == acked(ROOT)
    assert ledger.take_verdicts() == {}


def test_an_ack_before_the_init_completes_when_the_init_arrives(ledger: AckLedger) -> None:
    ledger.ack([ROOT], [E1])
    assert ledger.take_verdicts() == {}
    ledger.init(SPOUT, [ROOT], [E1])
    assert ledger.take_verdicts() == acked(ROOT)


def test_acks_that_cancel_each_other_before_the_init_complete_nothing(ledger: AckLedger) -> None:
    ledger.ack([ROOT], [E2])
    ledger.ack([ROOT], [E2])
    assert ledger.take_verdicts() == {}
    ledger.init(SPOUT, [ROOT], [E1])
    assert ledger.take_verdicts() == {}


def test_a_fail_of_an_open_tree_is_answered_at_once(ledger: AckLedger) -> None:
    ledger.init(SPOUT, [ROOT], [E1])
    ledger.fail([ROOT])
    assert ledger.take_verdicts() == failed(ROOT)


def test_a_fail_before_the_init_is_answered_when_the_init_arrives(ledger: AckLedger) -> None:
    ledger.fail([ROOT])
    assert ledger.take_verdicts() == {}
    ledger.init(SPOUT, [ROOT], [E1])
    assert ledger.take_verdicts() == failed(ROOT)


def test_a_fail_wins_over_a_zero_that_the_init_completes(ledger: AckLedger) -> None:
    ledger.fail([ROOT])
    ledger.ack([ROOT], [E1])
    ledger.init(SPOUT, [ROOT], [E1])
    assert ledger.take_verdicts() == failed(ROOT)


def test_a_fail_after_early_acks_wins_over_their_zero(ledger: AckLedger) -> None:
    ledger.ack([ROOT], [E1])
    ledger.fail([ROOT])
    ledger.init(SPOUT, [ROOT], [E1])
    assert ledger.take_verdicts() == failed(ROOT)


def test_late_acks_after_a_fail_are_absorbed_by_the_failed_record(ledger: AckLedger) -> None:
    ledger.init(SPOUT, [ROOT], [E1])
    ledger.fail([ROOT])
    assert ledger.take_verdicts() == failed(ROOT)
    ledger.ack([ROOT], [E1])
    ledger.ack([ROOT], [E2])
    assert ledger.take_verdicts() == {}
    assert ledger.statistics().entries == 1


def test_a_second_fail_has_no_answer(ledger: AckLedger) -> None:
    ledger.init(SPOUT, [ROOT], [E1])
    ledger.fail([ROOT])
    ledger.fail([ROOT])
    assert ledger.take_verdicts() == failed(ROOT)
    ledger.fail([ROOT])
    assert ledger.take_verdicts() == {}


def test_two_fails_before_the_init_are_answered_once(ledger: AckLedger) -> None:
    ledger.fail([ROOT, ROOT])
    ledger.init(SPOUT, [ROOT], [E1])
    ledger.fail([ROOT])
    assert ledger.take_verdicts() == failed(ROOT)


def test_a_failed_record_stays_marked_as_answered_until_it_rotates_out(ledger: AckLedger) -> None:
    ledger.fail([ROOT])
    ledger.init(SPOUT, [ROOT], [E1])
    assert ledger.take_verdicts() == failed(ROOT)
    for _ in range(2):
        assert len(ledger.rotate()) == 0
        ledger.init(SPOUT, [ROOT], [E1])
    assert ledger.take_verdicts() == {}
    assert ledger.statistics().repeated_inits == 2
    assert len(ledger.rotate()) == 0
    assert ledger.statistics().entries == 0


def test_a_double_ack_leaves_an_open_tree_open(ledger: AckLedger) -> None:
    ledger.init(SPOUT, [ROOT], [E1 ^ E2])
    ledger.ack([ROOT], [E1])
    ledger.ack([ROOT], [E1])
    ledger.ack([ROOT], [E2])
    assert ledger.take_verdicts() == {}
    assert [len(ledger.rotate()) for _ in range(3)] == [0, 0, 1]


def test_a_double_ack_after_the_tree_closed_is_an_orphan_that_answers_nobody_and_ages_out(ledger: AckLedger) -> None:
    ledger.init(SPOUT, [ROOT], [E1])
    ledger.ack([ROOT], [E1])
    ledger.ack([ROOT], [E1])
    assert ledger.take_verdicts() == acked(ROOT)
    assert [len(ledger.rotate()) for _ in range(3)] == [0, 0, 0]
    statistics = ledger.statistics()
    assert (statistics.entries, statistics.expired, statistics.orphans) == (0, 0, 1)


def test_a_fail_after_the_tree_closed_has_no_answer(ledger: AckLedger) -> None:
    ledger.init(SPOUT, [ROOT], [E1])
    ledger.ack([ROOT], [E1])
    ledger.fail([ROOT])
    assert ledger.take_verdicts() == acked(ROOT)


def test_a_child_anchored_twice_in_one_tree_carries_the_xor_of_both_ids(ledger: AckLedger) -> None:
    ledger.init(SPOUT, [ROOT], [E1])
    ledger.ack([ROOT], [E1 ^ E2 ^ E3])
    ledger.ack([ROOT], [E2 ^ E3])
    assert ledger.take_verdicts() == acked(ROOT)


def test_a_fail_of_a_tuple_with_two_roots_fails_both_at_their_own_spouts(ledger: AckLedger) -> None:
    ledger.init(SPOUT, [1], [E1])
    ledger.init(OTHER, [2], [E2])
    ledger.fail([1, 2])
    assert ledger.take_verdicts() == {SPOUT: Verdicts(failed=[1]), OTHER: Verdicts(failed=[2])}


def test_answers_go_to_the_spout_of_the_init(ledger: AckLedger) -> None:
    ledger.init(SPOUT, [1], [E1])
    ledger.init(OTHER, [2, 3], [E2, E3])
    ledger.ack([2, 1], [E2, E1])
    ledger.fail([3])
    assert ledger.take_verdicts() == {SPOUT: Verdicts(acked=[1]), OTHER: Verdicts(acked=[2], failed=[3])}


def test_an_init_without_edges_is_done_at_once(ledger: AckLedger) -> None:
    ledger.init(SPOUT, [ROOT], [0])
    assert ledger.take_verdicts() == acked(ROOT)


def test_a_repeated_init_does_not_complete_a_tree(ledger: AckLedger) -> None:
    ledger.init(SPOUT, [ROOT], [E1])
    ledger.init(SPOUT, [ROOT], [E1])
    assert ledger.take_verdicts() == {}
    assert ledger.statistics().repeated_inits == 1
    ledger.ack([ROOT], [E1])
    assert ledger.take_verdicts() == acked(ROOT)


def test_an_init_twice_in_one_frame_does_not_complete_a_tree(ledger: AckLedger) -> None:
    ledger.init(SPOUT, [ROOT, ROOT], [E1, E1])
    assert ledger.take_verdicts() == {}


def test_a_repeat_of_all_that_was_told_so_far_does_not_complete_a_tree(ledger: AckLedger) -> None:
    for _ in range(2):
        ledger.init(SPOUT, [ROOT], [E1 ^ E2])
        ledger.ack([ROOT], [E1])
    assert ledger.take_verdicts() == {}


def test_an_init_of_another_spout_for_an_open_root_is_refused(ledger: AckLedger) -> None:
    ledger.init(SPOUT, [ROOT], [E1])
    ledger.init(OTHER, [ROOT], [E1])
    ledger.ack([ROOT], [E1])
    assert ledger.take_verdicts() == acked(ROOT)


def test_a_reset_of_an_open_tree_is_answered(ledger: AckLedger) -> None:
    ledger.init(SPOUT, [ROOT], [E1])
    ledger.reset([ROOT])
    assert ledger.take_verdicts() == reset(ROOT)


def test_a_reset_before_the_init_has_no_answer(ledger: AckLedger) -> None:
    ledger.reset([ROOT])
    ledger.init(SPOUT, [ROOT], [E1])
    assert ledger.take_verdicts() == {}


def test_a_reset_between_an_early_ack_and_the_init_refreshes_without_an_answer(ledger: AckLedger) -> None:
    ledger.ack([ROOT], [E1])
    ledger.rotate()
    ledger.rotate()
    ledger.reset([ROOT])
    ledger.rotate()
    ledger.init(SPOUT, [ROOT], [E1])
    assert ledger.take_verdicts() == acked(ROOT)


def test_a_reset_of_a_closed_root_is_ignored(ledger: AckLedger) -> None:
    ledger.init(SPOUT, [1, 2], [E1, E2])
    ledger.ack([1], [E1])
    ledger.fail([2])
    ledger.take_verdicts()
    ledger.reset([1, 2])
    assert ledger.take_verdicts() == {}
    assert ledger.statistics().entries == 1


def test_a_reset_does_not_prolong_the_record_of_a_failed_tree(ledger: AckLedger) -> None:
    ledger.init(SPOUT, [ROOT], [E1])
    ledger.fail([ROOT])
    for _ in range(3):
        ledger.reset([ROOT])
        ledger.rotate()
    assert ledger.statistics().entries == 0


def test_an_open_tree_expires_at_the_third_rotation_and_nobody_is_told(ledger: AckLedger) -> None:
    ledger.init(SPOUT, [ROOT], [E1])
    assert [len(ledger.rotate()) for _ in range(3)] == [0, 0, 1]
    assert ledger.take_verdicts() == {}
    assert ledger.statistics().expired == 1
    ledger.ack([ROOT], [E1])
    assert ledger.take_verdicts() == {}


def test_an_ack_does_not_refresh_the_age(ledger: AckLedger) -> None:
    ledger.init(SPOUT, [ROOT], [E1])
    ledger.rotate()
    ledger.rotate()
    ledger.ack([ROOT], [E1 ^ E2])
    assert len(ledger.rotate()) == 1


def test_an_init_does_not_refresh_the_age_of_an_early_record(ledger: AckLedger) -> None:
    ledger.ack([ROOT], [E2])
    ledger.rotate()
    ledger.rotate()
    ledger.init(SPOUT, [ROOT], [E1])
    assert len(ledger.rotate()) == 1


def test_a_reset_refreshes_the_age(ledger: AckLedger) -> None:
    ledger.init(SPOUT, [ROOT], [E1])
    ledger.rotate()
    ledger.rotate()
    ledger.reset([ROOT])
    assert [len(ledger.rotate()) for _ in range(3)] == [0, 0, 1]


def test_a_fail_refreshes_the_age(ledger: AckLedger) -> None:
    ledger.ack([ROOT], [E2])
    ledger.rotate()
    ledger.rotate()
    ledger.fail([ROOT])
    ledger.rotate()
    ledger.rotate()
    ledger.init(SPOUT, [ROOT], [E1])
    assert ledger.take_verdicts() == failed(ROOT)


def test_a_cleared_ledger_knows_nothing_of_the_epoch_before(ledger: AckLedger) -> None:
    ledger.init(SPOUT, [1, 2, 3], [E1, E2, E3])
    ledger.ack([1], [E1])
    ledger.fail([2])
    ledger.clear()
    assert ledger.take_verdicts() == {}
    assert ledger.statistics().entries == 0
    ledger.ack([3], [E3])
    assert ledger.take_verdicts() == {}
    ledger.init(SPOUT, [3], [E3])
    assert ledger.take_verdicts() == acked(3)


def test_the_counts_add_up(ledger: AckLedger) -> None:
    ledger.init(SPOUT, [1, 2, 3], [E1, E2, E3])
    ledger.ack([1, 3], [E1, E2])
    ledger.fail([2])
    ledger.reset([3])
    ledger.take_verdicts()
    for _ in range(3):
        ledger.rotate()
    statistics = ledger.statistics()
    assert (statistics.inits, statistics.acks, statistics.fails, statistics.resets) == (3, 2, 1, 1)
    assert (statistics.completed, statistics.failed, statistics.expired, statistics.orphans) == (1, 1, 1, 1)


def test_columns_of_unequal_length_are_refused(ledger: AckLedger) -> None:
    with pytest.raises(ValueError, match="shorter"):
        ledger.ack([1, 2], [E1])
