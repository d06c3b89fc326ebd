"""Watermarks by partition. Bound: 0 ms, so a row at t makes the watermark t - 1."""

from __future__ import annotations

from topo.emission.partition_watermarks import PartitionWatermarks
from topo.operators.time.watermarks import BoundedOutOfOrderness, WatermarksWithIdleness


class Output:
    """What readers of the task get."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.log: list[int | str] = []
        self.is_idle = False

    def watermark(self, timestamp: int) -> None:
        self.is_idle = False
        self.log.append(timestamp)

    def mark_idle(self) -> None:
        if not self.is_idle:
            self.log.append("idle")
        self.is_idle = True

    def mark_active(self) -> None:
        if self.is_idle:
            self.log.append("active")
        self.is_idle = False


class Marks(PartitionWatermarks):
    """Partitions under test, whose generators are idle after 1 s if asked."""

    def __init__(self, *names: str, idle: bool = False, advances: bool = False) -> None:
        self.out = out = Output()

        def make() -> BoundedOutOfOrderness | WatermarksWithIdleness:
            bounded = BoundedOutOfOrderness(0)
            return WatermarksWithIdleness(bounded, 1000, lambda: out.now_ms, advances=advances) if idle else bounded

        super().__init__(make, out, advances_when_idle=advances)
        for name in names:
            self.expect(name, None)
        if names:
            self.begin()

    def rows(self, name: str, *stamps: int) -> None:
        self.on_rows([(name, place) for place, _ in enumerate(stamps)], [()] * len(stamps), stamps)

    def ask(self, at_ms: int | None = None) -> list[int | str]:
        """Ask the generators, and return what that has put out."""
        self.out.now_ms = self.out.now_ms if at_ms is None else at_ms
        before = len(self.out.log)
        self.on_periodic_emit()
        return self.out.log[before:]


def test_the_combined_watermark_is_the_least_one() -> None:
    marks = Marks("a", "b")
    marks.rows("a", 100)
    assert marks.ask() == [], "b has no watermark"
    marks.rows("b", 50, 40)
    assert marks.ask() == [49]
    marks.rows("b", 200)
    assert marks.ask() == [99]


def test_rows_of_several_partitions_in_one_batch_go_to_their_generators() -> None:
    marks = Marks("a", "b")
    marks.on_rows([("a", 0), ("a", 1), ("b", 0), ("a", 2)], [()] * 4, [5, 6, 300, 7])
    assert marks.ask() == [6] and marks.reached == {"a": 6, "b": 299}


def test_a_silent_partition_holds_the_others_back_until_it_is_idle() -> None:
    marks = Marks("a", "b", idle=True)
    marks.rows("a", 100)
    assert marks.ask(0) == []
    marks.rows("a", 200)
    assert marks.ask(500) == []
    marks.rows("a", 300)
    assert marks.ask(1100) == [299]


def test_one_that_ended_counts_no_more_from_then_on() -> None:
    marks = Marks("a", "b")
    marks.rows("a", 100)
    marks.rows("b", 10)
    assert marks.ask() == [9]
    marks.end("b")
    assert marks.out.log[-1] == 99, "at once, not at the next row"


def test_without_partitions_the_task_is_idle_and_a_new_one_is_waited_for() -> None:
    marks = Marks("a")
    marks.end("a")
    assert marks.out.log == ["idle"]
    marks.expect("b", None)
    marks.begin()
    assert marks.out.log == ["idle", "active"] and marks.ask() == []


def test_a_partition_found_later_cannot_take_the_watermark_back() -> None:
    marks = Marks("a")
    marks.rows("a", 100)
    assert marks.ask() == [99]
    marks.expect("late", None)
    marks.begin()
    marks.rows("late", 5)
    marks.rows("a", 200)
    assert marks.ask() == []
    marks.rows("late", 150)
    assert marks.ask() == [149]


def test_a_partition_goes_on_from_the_watermark_of_a_checkpoint() -> None:
    marks = Marks()
    marks.expect("a", 80)
    marks.expect("b", 70)
    marks.begin()
    assert marks.reached == {"a": 80, "b": 70} and marks.out.log == [70], "not 80 first, behind which b would be late"


def test_all_idle_is_idle_and_one_that_is_behind_is_waited_for_again() -> None:
    marks = Marks("a", "b", idle=True)
    marks.rows("a", 100)
    marks.rows("b", 200)
    assert marks.ask(0) == [99]
    marks.ask(100)
    assert marks.ask(1200) == ["idle"]
    marks.rows("a", 50)
    assert marks.ask(1300) == ["active"], "its watermark is below the last one sent, but its rows are waited for"


def test_event_time_advances_while_all_are_idle_where_the_strategy_says_so() -> None:
    marks = Marks("a", idle=True, advances=True)
    marks.rows("a", 100)
    assert marks.ask(0) == [99]
    marks.ask(100)
    marks.ask(1200)
    assert marks.out.is_idle and max(one for one in marks.out.log if isinstance(one, int)) == 99 + 1100


def test_partitions_that_are_too_far_ahead_are_named() -> None:
    marks = Marks("a", "b", "c")
    marks.rows("a", 1_000)
    assert marks.ahead(100) == frozenset(), "there is nothing to compare with"
    marks.ask()
    marks.rows("b", 1_101)
    marks.rows("c", 5_000)
    marks.ask()
    assert marks.ahead(101) == {"c"} and marks.ahead(100) == {"b", "c"}


def test_one_that_is_far_ahead_stays_held_back_while_a_single_one_counts() -> None:
    marks = Marks("slow", "fast", idle=True)
    marks.rows("slow", 100)
    marks.rows("fast", 90_000)
    marks.ask(0)
    for at_ms in (100, 1200):
        marks.rows("slow", 100 + at_ms)
        marks.ask(at_ms)
    assert marks.ahead(1000) == {"fast"}, "it is idle, since it is paused"
