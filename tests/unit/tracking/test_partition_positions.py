from __future__ import annotations

from random import Random

import pytest

from topo.api.partition_values import Partition, StoredPartition
from topo.tracking.partition_positions import PartitionPositions, PartitionTracker

A, B = Partition("a"), Partition("t-3", "t", 3)


def tracked() -> tuple[set[tuple[str, int]], PartitionPositions, PartitionTracker]:
    still_open: set[tuple[str, int]] = set()
    positions = PartitionPositions()
    positions.begin(A, None)
    positions.begin(B, 10)
    return still_open, positions, PartitionTracker(still_open, positions)


def test_a_record_has_what_names_the_owner() -> None:
    _, positions, _ = tracked()
    assert positions.record({"t-3": 99}) == {"a": ("", None, None, None), "t-3": ("t", 3, 10, 99)}


def test_a_stored_partition_stays_and_begins_where_it_was() -> None:
    positions = PartitionPositions({"gone": StoredPartition("", None, 5), "a": StoredPartition("", None, 7)})
    assert not positions.begin(A, None)
    assert {name: kept[2] for name, kept in positions.record().items()} == {"gone": 5, "a": 7}
    assert positions.take_changes() == {"gone": 5, "a": 7} and positions.take_changes() == {}


def test_each_partition_has_its_own_prefix() -> None:
    still_open, positions, tracker = tracked()
    messages = [("a", 1), ("t-3", 11), ("a", 2), ("t-3", 12)]
    still_open.update(messages)
    tracker.emitted(messages)
    still_open -= {("t-3", 11), ("a", 2)}
    tracker.advance()
    assert positions.take_changes() == {"t-3": 11} and len(tracker) == 3
    still_open -= {("a", 1)}
    tracker.advance()
    assert positions.take_changes() == {"a": 2} and positions.take_changes() == {}


@pytest.mark.parametrize("seed", range(20))
def test_positions_are_those_of_a_naive_model(seed: int) -> None:
    chance = Random(seed)
    still_open, positions, tracker = tracked()
    emitted: dict[str, list[int]] = {"a": [], "t-3": []}
    for _ in range(60):
        name = chance.choice(["a", "t-3"])
        if chance.random() < 0.5:
            batch = [(name, len(emitted[name]) + n) for n in range(chance.randint(1, 3))]
            emitted[name] += [position for _, position in batch]
            still_open.update(batch)
            tracker.emitted(batch)
        else:
            still_open -= set(chance.sample(sorted(still_open), len(still_open) // 2))
            tracker.advance()
        tracker.advance()
        tracker.validate()
        for one, numbers in emitted.items():
            first_open = next((n for n in numbers if (one, n) in still_open), len(numbers))
            begins = {"a": None, "t-3": 10}[one]
            assert positions.record()[one][2] == (numbers[first_open - 1] if first_open else begins)


def test_messages_of_a_successor_have_ids_of_their_own_while_those_of_the_one_before_are_open() -> None:
    still_open, positions, tracker = tracked()
    before = [("a", 1), ("a", 2)]
    still_open.update(before)
    tracker.emitted(before)
    ids = [before]
    for _ in range(2):
        tracker.forget("a")
        positions.begin(A, None)
        tracker.begin("a")
        ids.append(list(tracker.ids_of([("a", 1), ("t-3", 11)]))[:1])
        still_open.update(ids[-1])
        tracker.emitted(ids[-1])
    messages = [message for some in ids for message in some]
    assert len(set(messages)) == 4 and all(message[:2] in before for message in messages)
    still_open -= {("a", 1), *ids[1]}
    tracker.forget("a")
    tracker.begin("a")
    assert tracker.ids_of([("a", 2)]) != [("a", 2)], "one of the first is open"
    still_open.clear()
    tracker.advance()
    tracker.forget("a")
    tracker.begin("a")
    assert tracker.ids_of([("a", 2)]) == [("a", 2)] and not tracker._gone


def test_the_messages_of_partitions_that_are_gone_are_let_go_in_turn() -> None:
    still_open, _, tracker = tracked()
    messages = [(f"p{number}", 1) for number in range(40)]
    still_open.update(messages)
    tracker.emitted(messages)
    for name, _ in messages:
        tracker.forget(name)
    still_open -= set(messages[::2])
    for _ in range(10):
        tracker.advance()
    assert [name for name, _ in messages[1::2]] == sorted(tracker._gone, key=lambda name: int(name[1:]))
