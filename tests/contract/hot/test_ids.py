from __future__ import annotations

from types import ModuleType

import pytest

from topo.hot import pack_words
from topo.ids import REPLAYED_BIT, SUSPECT_BIT, TRACED_BIT

MARKS = REPLAYED_BIT | TRACED_BIT | SUSPECT_BIT


def test_roots_of_messages_are_without_marks_and_as_random_below_them(hot: ModuleType) -> None:
    roots = hot.Ids(b"seed").unmarked_roots(1000)
    assert roots == [word & ~MARKS for word in hot.Ids(b"seed").roots(1000)]
    assert len(set(roots)) == 1000 and all(0 < root < SUSPECT_BIT for root in roots)


def test_no_roots_are_drawn_for_no_messages(hot: ModuleType) -> None:
    assert hot.Ids(b"seed").unmarked_roots(0) == []


@pytest.mark.parametrize("mark", [REPLAYED_BIT, TRACED_BIT, SUSPECT_BIT, MARKS])
def test_a_root_of_which_only_marks_were_drawn_is_drawn_again(hot: ModuleType, mark: int) -> None:
    class OnlyMarks(hot.Ids):
        times = 0

        def column(self, count: int) -> bytes:
            self.times += 1
            return mark.to_bytes(8, "little") if self.times == 1 else super().column(count)

    source = OnlyMarks(b"seed")
    (root,) = source.unmarked_roots(1)
    assert root and source.times == 2


def test_a_negative_number_of_ids_is_refused(hot: ModuleType) -> None:
    with pytest.raises(ValueError):
        hot.Ids(b"seed").column(-1)


@pytest.mark.parametrize("count", [0, 1, 2, 7, 300])
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_traced_roots_are_found_in_columns(hot: ModuleType, count: int, kind: type) -> None:
    roots = [place if place % 3 else place | TRACED_BIT for place in range(1, count + 1)]
    expected = [place for place, root in enumerate(roots) if root & TRACED_BIT]
    assert hot.traced_places(kind(pack_words(roots))) == expected
    assert hot.traced_places(memoryview(b"x" + pack_words(roots))[1:]) == expected


@pytest.mark.parametrize("count", [0, 1, 2, 7, 300])
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_a_suspect_is_found_among_roots(hot: ModuleType, count: int, kind: type) -> None:
    others = [REPLAYED_BIT | TRACED_BIT | SUSPECT_BIT >> 1 | place for place in range(1, count + 1)]
    assert not hot.has_suspect(kind(pack_words(others)))
    for place in {0, count // 2, count}:
        roots = pack_words([*others[:place], SUSPECT_BIT, *others[place:]])
        assert hot.has_suspect(kind(roots)) and hot.has_suspect(memoryview(b"x" + roots)[1:])


def test_roots_with_other_marks_are_not_traced(hot: ModuleType) -> None:
    assert hot.traced_places(pack_words([REPLAYED_BIT | 1, TRACED_BIT >> 1, (1 << 56) - 1])) == []
