from __future__ import annotations

from topo.ids import TaskId
from topo.tracking.ack_ledger import Verdicts
from topo.tracking.acker import Acker
from topo.tracking.pending import SpoutPending

SPOUT = TaskId(3)


def test_frames_in_verdicts_out() -> None:
    acker = Acker(30.0, now=0.0)
    acker.on_init(SPOUT, [1, 2, 3], [10, 20, 30])
    acker.on_ack([1], [10])
    acker.on_fail([2])
    acker.on_reset([3])
    assert acker.verdicts() == {SPOUT: Verdicts(acked=[1], failed=[2], reset=[3])}
    acker.validate()


def test_an_open_tree_outlives_two_timeouts_and_is_gone_after_three() -> None:
    acker = Acker(30.0, now=0.0)
    acker.on_init(SPOUT, [1], [10])
    assert acker.next_deadline == 30.0
    assert acker.on_time(60.0) == []
    assert acker.on_time(89.9) == []
    assert len(acker.on_time(90.0)) == 1
    assert acker.next_deadline == 120.0


def test_the_entries_that_expire_are_counted_at_each_rotation() -> None:
    acker = Acker(30.0, now=0.0)
    acker.on_init(SPOUT, [1, 2], [10, 20])
    acker.on_time(30.0)
    acker.on_init(SPOUT, [3], [30])
    acker.on_time(90.0)
    assert acker.statistics().expired_last == 2
    acker.on_time(100.0)
    assert acker.statistics().expired_last == 2
    acker.on_time(120.0)
    assert (acker.statistics().expired_last, acker.statistics().ledger.expired) == (1, 3)


def test_the_acker_outlives_the_timeout_of_the_spout() -> None:
    acker, pending = Acker(30.0, now=0.0), SpoutPending[str](30.0, now=0.0)
    acker.on_init(SPOUT, [1], [10])
    pending.add([1], ["message"])
    now = 0.0
    while len(pending):
        assert pending.next_deadline is not None
        now = pending.next_deadline
        assert acker.on_time(now) == []
        pending.expire(now)
    assert 30.0 < now <= 33.0


def test_at_a_new_epoch_everything_is_forgotten() -> None:
    acker = Acker(30.0, now=0.0)
    acker.on_init(SPOUT, [1], [10])
    acker.on_reset_epoch()
    acker.on_ack([1], [10])
    assert acker.verdicts() == {}


def test_without_a_timeout_nothing_expires() -> None:
    acker = Acker(None, now=0.0)
    acker.on_init(SPOUT, [1], [10])
    assert acker.next_deadline is None
    assert acker.on_time(1e9) == []
    acker.on_ack([1], [10])
    assert acker.verdicts() == {SPOUT: Verdicts(acked=[1])}
