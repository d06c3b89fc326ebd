"""When a barrier has come on all edges, and what waits behind it until then."""

from __future__ import annotations

from collections import deque
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from topo.checkpoint.alignment import Alignment
from topo.hot import pack_words
from topo.ids import TaskId
from topo.task.flow_control import InEdge
from topo.wire.frames import Frame, FrameKind, barrier_frame

ROOTS = (11, 12)


def barrier(sender: int, checkpoint: int) -> Frame:
    edges = [sender * 100 + root for root in ROOTS]
    return barrier_frame((1, sender, 7), 9, 0, checkpoint, pack_words(ROOTS), pack_words(edges))


@given(st.integers(1, 4), st.integers(1, 4), st.randoms(use_true_random=False))
@settings(max_examples=200, deadline=None)
def test_an_aligned_barrier_follows_all_rows_before_it_and_no_others(senders: int, checkpoints: int, chance: Random) -> None:
    waiting: dict[int, deque[int | None]] = {}
    for sender in range(1, senders + 1):
        waiting[sender] = deque()
        for checkpoint in range(1, checkpoints + 1):
            waiting[sender].extend([checkpoint] * chance.randrange(3))
            waiting[sender].append(None)
    inputs = {sender: InEdge(TaskId(sender)) for sender in waiting}
    alignment = Alignment()
    passed = 0
    barriers = dict.fromkeys(waiting, 0)
    now = 10.0
    while any(waiting.values()):
        now += 1
        open_edges = [sender for sender, left in waiting.items() if left and not inputs[sender].is_behind_barrier]
        sender = chance.choice(open_edges)
        row = waiting[sender].popleft()
        if row is not None:
            assert row == passed + 1, "a row of another checkpoint is processed"
            continue
        barriers[sender] += 1
        aligned = alignment.arrived(inputs[sender], barrier(sender, passed + 1), inputs.values(), now)
        if min(barriers.values()) == passed:
            assert aligned is None
            assert inputs[sender].is_behind_barrier
        else:
            passed += 1
            assert aligned is not None and aligned.checkpoint == passed
            owed = 0
            for one in inputs:
                owed ^= one * 100 + ROOTS[0]
            assert aligned.roots[ROOTS[0]] == owed
            assert set(aligned.roots) == set(ROOTS)
            assert aligned.waited_s >= senders - 1 if senders > 1 else aligned.waited_s == 0
            assert not any(edge.is_behind_barrier for edge in inputs.values())
    assert passed == checkpoints


def test_a_new_epoch_forgets_the_barrier_that_was_under_way() -> None:
    alignment = Alignment()
    old = {sender: InEdge(TaskId(sender)) for sender in (1, 2)}
    assert alignment.arrived(old[1], barrier(1, 5), old.values(), 1.0) is None
    alignment.reset()
    new = {sender: InEdge(TaskId(sender)) for sender in (1, 2)}
    assert alignment.arrived(new[2], barrier(2, 6), new.values(), 2.0) is None
    aligned = alignment.arrived(new[1], barrier(1, 6), new.values(), 4.0)
    assert aligned is not None
    assert (aligned.checkpoint, aligned.waited_s) == (6, 2.0)
    assert aligned.roots == {root: (100 + root) ^ (200 + root) for root in ROOTS}
    assert barrier(1, 6).kind is FrameKind.BARRIER
