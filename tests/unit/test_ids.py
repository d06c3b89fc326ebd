from __future__ import annotations

from topo.ids import REPLAYED_BIT, IdSource


def test_roots_of_messages_are_without_the_mark_and_as_random_below_it() -> None:
    roots = IdSource(b"seed").unmarked_roots(1000)
    assert roots == [word & ~REPLAYED_BIT for word in IdSource(b"seed").roots(1000)]
    assert len(set(roots)) == 1000 and all(0 < root < REPLAYED_BIT for root in roots)


def test_no_roots_are_drawn_for_no_messages() -> None:
    assert IdSource(b"seed").unmarked_roots(0) == []


def test_a_root_of_which_only_the_mark_was_drawn_is_drawn_again() -> None:
    class OnlyTheMark(IdSource):
        times = 0

        def column(self, count: int) -> bytes:
            self.times += 1
            return REPLAYED_BIT.to_bytes(8, "little") if self.times == 1 else super().column(count)

    source = OnlyTheMark(b"seed")
    (root,) = source.unmarked_roots(1)
    assert root and source.times == 2
