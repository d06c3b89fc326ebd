"""AckerRoutes: the acker of a root, and columns split among ackers."""

from __future__ import annotations

from topo.hot import Column, pack_words, unpack_words
from topo.ids import TaskId
from topo.tracking.acker_routes import AckerRoutes
from topo.wire.frames import FrameKind


def sent(ackers: list[int], roots: list[int], values: list[int]) -> list[tuple[int, list[int], list[int]]]:
    frames: list[tuple[int, list[int], list[int]]] = []

    def put_ids(kind: FrameKind, acker: TaskId, mine: Column, owed: Column) -> None:
        assert kind is FrameKind.ACK
        frames.append((acker, unpack_words(mine), unpack_words(owed)))

    AckerRoutes([TaskId(acker) for acker in ackers], put_ids).send(FrameKind.ACK, pack_words(roots), pack_words(values))
    return frames


def test_one_acker_gets_all_roots_in_order() -> None:
    assert sent([7], [5, 2, 9], [50, 20, 90]) == [(7, [5, 2, 9], [50, 20, 90])]


def test_roots_go_to_the_acker_at_their_remainder_with_their_values() -> None:
    assert sent([7, 8, 9], [6, 5, 3, 8], [60, 50, 30, 80]) == [(7, [6, 3], [60, 30]), (9, [5, 8], [50, 80])]


def test_kinds_without_values_send_roots_alone() -> None:
    assert sent([7, 8], [1, 2], []) == [(7, [2], []), (8, [1], [])]


def test_nothing_is_sent_without_roots_or_without_ackers() -> None:
    assert sent([7], [], []) == []
    assert sent([], [1], [2]) == []
