"""Which messages of a spout a checkpoint covers, against a model that keeps every message and every snapshot."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from topo.checkpoint.source_progress import UncommittedMessages

NAMES = ("emit", "emit", "emit", "snapshot", "complete", "complete again", "report one", "recover", "crash")
STEPS = st.lists(st.sampled_from(NAMES), max_size=60)


class Queue:
    """A source without positions, its spout task, and all that is known of both.

    Attributes:
        unacked: messages that the source delivers again to another process.
        taken: by checkpoint: the messages emitted before its snapshot.
    """

    def __init__(self) -> None:
        self.uncommitted = UncommittedMessages(has_positions=False, keeps_ids=True)
        self.unacked: list[int] = []
        self.emitted: list[int] = []
        self.taken: dict[int, list[int]] = {}
        self.states: dict[int, Any] = {}
        self.complete = 0
        self.checkpoint = 0
        self.fresh = 0

    def emit(self, message: int) -> None:
        if self.uncommitted.accept([message], [(message,)]) is None:
            self.emitted.append(message)

    def ack(self, message: int) -> None:
        assert message in self.taken.get(self.complete, ()), f"{message} is acked, and no complete checkpoint covers it"
        self.unacked.remove(message)

    def step(self, name: str) -> None:
        if name == "emit":
            self.fresh += 1
            self.unacked.append(self.fresh)
            self.emit(self.fresh)
        elif name == "snapshot":
            self.checkpoint += 1
            self.states[self.checkpoint] = self.uncommitted.snapshot(self.checkpoint)
            self.taken[self.checkpoint] = list(self.emitted)
        elif name == "complete" and self.checkpoint in self.states:
            self.complete = self.checkpoint
            self.uncommitted.complete(self.complete)
        elif name == "complete again" and self.complete:
            self.uncommitted.complete(self.complete)
        elif name == "report one":
            self.report(1)
        elif name in ("recover", "crash"):
            if name == "crash":
                self.uncommitted = UncommittedMessages(has_positions=False, keeps_ids=True)
            states = [self.states[self.complete]] if self.complete else []
            # The number of a checkpoint that was under way is not used again.
            self.states = {self.complete: self.states[self.complete]} if self.complete else {}
            self.emitted = list(self.taken.get(self.complete, ()))
            lost = self.uncommitted.restore(states, self.complete)
            for message in lost if name == "recover" else list(self.unacked):
                self.emit(message)
            self.uncommitted.complete(self.complete)

    def report(self, most: int) -> None:
        for message in self.uncommitted.report(most):
            self.ack(message)


@given(STEPS)
@settings(max_examples=300, deadline=None)
def test_each_message_of_a_queue_is_covered_once_and_acked_when_it_is(steps: list[str]) -> None:
    queue = Queue()
    for name in steps:
        queue.step(name)
        assert len(set(queue.emitted)) == len(queue.emitted), "a message was sent twice"
        assert set(queue.emitted) == set(range(1, queue.fresh + 1)), "a message was forgotten"
        assert queue.uncommitted.uncovered == len(set(queue.emitted) - set(queue.taken.get(queue.complete, ())))
    for name in ("snapshot", "complete"):
        queue.step(name)
    assert queue.uncommitted.uncovered == 0
    queue.step("crash")
    queue.report(queue.uncommitted.unreported)
    assert queue.unacked == [], (
        "messages that a complete checkpoint covers are acked, if not before the crash then when they are replayed"
    )


@given(st.lists(st.sampled_from(("emit", "emit", "snapshot", "complete", "recover")), max_size=40))
@settings(max_examples=200, deadline=None)
def test_a_source_with_positions_goes_on_behind_what_the_checkpoint_covers(steps: list[str]) -> None:
    uncommitted = UncommittedMessages(has_positions=True, keeps_ids=False)
    states: dict[int, Any] = {}
    positions: dict[int, int | None] = {0: None}
    position: int | None = None
    checkpoint = complete = 0
    for name in steps:
        if name == "emit":
            position = 0 if position is None else position + 1
            assert uncommitted.accept([position], [()]) is None
            uncommitted.reach(position)
        elif name == "snapshot":
            checkpoint += 1
            states[checkpoint], positions[checkpoint] = uncommitted.snapshot(checkpoint), position
        elif name == "complete" and checkpoint in states and checkpoint > complete:
            complete = checkpoint
            uncommitted.complete(complete)
            assert uncommitted.unreported == 0
            assert uncommitted.covered == 1 + (
                -1 if position is None else positions[complete] if positions[complete] is not None else -1
            )
        elif name == "recover":
            assert uncommitted.restore([states[complete]] if complete else [], complete) == []
            position = positions[complete]
            states = {number: state for number, state in states.items() if number == complete}
        assert uncommitted.position == position


def reported(uncommitted: UncommittedMessages, checkpoint: int) -> list[Any]:
    uncommitted.complete(checkpoint)
    return list(uncommitted.report(uncommitted.unreported))


def test_a_spout_is_notified_of_the_positions_that_a_checkpoint_covers() -> None:
    uncommitted = UncommittedMessages(has_positions=True, keeps_ids=True)
    uncommitted.accept([1, 2], [()] * 2)
    uncommitted.snapshot(7)
    uncommitted.accept([3], [()])
    assert reported(uncommitted, 7) == [1, 2]
    assert reported(uncommitted, 7) == []
    uncommitted.snapshot(8)
    assert reported(uncommitted, 8) == [3]


def test_a_completion_told_again_after_a_recovery_covers_nothing_new() -> None:
    uncommitted = UncommittedMessages(has_positions=False, keeps_ids=True)
    uncommitted.accept(["a"], [()])
    state = uncommitted.snapshot(3)
    assert reported(uncommitted, 3) == ["a"]
    assert uncommitted.restore([state], 3) == []
    assert uncommitted.accept(["b"], [()]) is None
    assert reported(uncommitted, 3) == []
    uncommitted.snapshot(4)
    assert reported(uncommitted, 4) == ["b"]


def test_messages_that_only_a_damaged_checkpoint_covered_are_replayed() -> None:
    uncommitted = UncommittedMessages(has_positions=False, keeps_ids=True)
    uncommitted.accept(["a"], [()])
    state = uncommitted.snapshot(1)
    uncommitted.accept(["b"], [()])
    uncommitted.snapshot(2)
    uncommitted.complete(2)
    assert uncommitted.unreported == 2
    assert uncommitted.restore([state], 1) == ["b"]
    assert list(uncommitted.report(2)) == ["a"]


def test_two_tuples_of_one_message_are_both_recognised_when_it_comes_again() -> None:
    uncommitted = UncommittedMessages(has_positions=False, keeps_ids=True)
    uncommitted.accept(["a", "b"], [()] * 2)
    uncommitted.accept(["a"], [()])
    state = uncommitted.snapshot(1)
    another = UncommittedMessages(has_positions=False, keeps_ids=True)
    assert another.restore([state], 1) == []
    assert another.accept(["a"], [()]) == ([], [])
    assert another.accept(["a", "c"], [()] * 2) == ([1], [])
    assert list(another.report(9)) == ["a", "a"]
    assert uncommitted.restore([state], 1) == []
    assert list(uncommitted.report(9)) == ["a", "b", "a"]


def test_the_digest_of_a_message_is_taken_once_and_not_in_the_snapshot() -> None:
    taken: list[Any] = []

    def digest(values: Any) -> int:
        taken.append(values)
        return len(taken)

    uncommitted = UncommittedMessages(has_positions=False, keeps_ids=True, digest=digest)
    uncommitted.accept(["a", "b"], [(1,), (2,)])
    assert taken == [(1,), (2,)]
    assert uncommitted.snapshot(1) == {"ids": ["a", "b"], "digests": [1, 2]}
    uncommitted.complete(1)
    assert uncommitted.snapshot(2) == {"ids": ["a", "b"], "digests": [1, 2]}
    uncommitted.restore([{"ids": ["a"], "digests": [1]}, {"ids": ["b"], "digests": [7]}], 1)
    assert uncommitted.unreported == 1 and len(taken) == 2
