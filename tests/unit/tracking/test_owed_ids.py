"""Ids that a task owes the ackers."""

from __future__ import annotations

from topo.hot import unpack_words
from topo.ids import TaskId
from topo.tracking.acker_routes import AckerRoutes
from topo.tracking.owed_ids import OwedIds
from topo.wire.frames import FrameKind


class Sent:
    """One acker: notes the ids sent to it, in order, and each report of causes."""

    def __init__(self, batch_size: int = 100) -> None:
        self.log: list[tuple[str, list[int], list[int]]] = []
        routes = AckerRoutes((TaskId(9),), self._put)
        self.owed = OwedIds(routes, batch_size, 0.1, lambda: self.log.append(("causes", [], [])))

    def _put(self, kind: FrameKind, acker: TaskId, roots: object, values: object = b"") -> None:
        self.log.append((kind.name, list(unpack_words(roots)), list(unpack_words(values))))  # type: ignore[arg-type]

    def acked(self) -> dict[int, int]:
        self.owed.flush()
        return {
            root: value for kind, roots, values in self.log if kind == "ACK" for root, value in zip(roots, values, strict=True)
        }


def test_trees_leave_before_causes_and_these_before_fails_acks_and_touches() -> None:
    sent = Sent()
    sent.owed.touch([3])
    sent.owed.acks.add((1,), (5,), 2)
    sent.owed.fail([2])
    sent.owed.trees.append((4, 6))
    sent.owed.flush()
    assert sent.log == [
        ("INIT", [4], [6]),
        ("causes", [], []),
        ("FAIL", [2], []),
        ("ACK", [1], [7]),
        ("RESET", [3], []),
    ]
    sent.log.clear()
    sent.owed.flush()
    assert sent.log == []


def test_acks_wait_for_a_batch_or_the_interval_and_fails_for_nothing() -> None:
    sent = Sent(batch_size=2)
    sent.owed.acks.add((1,), (1,))
    sent.owed.flush_full(10.0)
    sent.owed.flush_full(10.05)
    assert sent.log == [] and sent.owed.deadline == 10.1
    sent.owed.acks.add((2,), (2,))
    sent.owed.flush_full(10.06)
    assert sent.log[1:] == [("ACK", [1, 2], [1, 2])]
    assert sent.owed.deadline is None
    sent.log.clear()
    sent.owed.acks.add((1,), (1,))
    sent.owed.fail([3])
    sent.owed.flush_full(11.0)
    assert [kind for kind, _, _ in sent.log] == ["causes", "FAIL", "ACK"] and sent.owed.deadline is None


def test_an_epoch_forgets_all_ids() -> None:
    sent = Sent()
    sent.owed.acks.add((1,), (1,))
    sent.owed.fail([2])
    sent.owed.touch([3])
    sent.owed.trees.append((4, 6))
    sent.owed.flush_full(0.0)
    sent.log.clear()
    sent.owed.acks.add((1,), (1,))
    sent.owed.clear()
    sent.owed.flush()
    assert sent.log == []
