"""Keyed state: by key and namespace, merging, time to live, snapshots by key group."""

from __future__ import annotations

from typing import Any

import pytest

from topo.api.aggregates import AggregateFunction
from topo.errors import UserError
from topo.operators.state.keyed_state import KeyContext, KeyedState


class Mean(AggregateFunction):
    def create_accumulator(self) -> Any:
        return (0, 0)

    def add(self, value: Any, accumulator: Any) -> Any:
        return (accumulator[0] + value, accumulator[1] + 1)

    def get_result(self, accumulator: Any) -> Any:
        return accumulator[0] / accumulator[1]

    def merge(self, first: Any, second: Any) -> Any:
        return (first[0] + second[0], first[1] + second[1])


class Store:
    def __init__(self, restored: dict[int, dict[str, Any]] | None = None) -> None:
        self.now_ms = 0
        self.keys = KeyContext()
        self.state = KeyedState(self.keys, lambda: self.now_ms)
        if restored is not None:
            self.state.restore(restored)


@pytest.fixture
def store() -> Store:
    return Store()


def test_a_value_belongs_to_its_key_and_namespace(store: Store) -> None:
    value = store.state.value("count", default=0)
    for key, namespace, number in [("a", None, 1), ("b", None, 2), ("a", "window", 3)]:
        store.keys.key, value.namespace = key, namespace
        assert value.get() == 0
        value.set(number)
    store.keys.key, value.namespace = "a", None
    assert value.get() == 1
    value.clear()
    assert value.get() == 0
    value.namespace = "window"
    assert value.get() == 3
    assert store.state.entries == 2


def test_setting_a_value_to_none_clears_it(store: Store) -> None:
    value = store.state.value("v")
    value.set(1)
    value.set(None)
    assert value.get() is None
    assert store.state.entries == 0


def test_two_handles_of_a_name_share_the_state_and_not_the_namespace(store: Store) -> None:
    first, second = store.state.value("v"), store.state.value("v")
    second.namespace = "w"
    first.set(1)
    assert second.get() is None
    second.namespace = None
    assert second.get() == 1


def test_a_list_keeps_the_order_and_gives_out_lists_of_the_callers_own(store: Store) -> None:
    elements = store.state.list("l")
    assert elements.get() == []
    elements.add(1)
    elements.extend([2, 3])
    elements.get().append(4)
    assert elements.get() == [1, 2, 3]
    elements.replace([9])
    assert elements.get() == [9]
    elements.replace([])
    assert elements.get() == [] and store.state.entries == 0


def test_a_list_is_not_changed_by_what_happens_to_the_list_it_was_filled_from(store: Store) -> None:
    mine = [1]
    elements = store.state.list("l")
    elements.extend(mine)
    mine.append(2)
    assert elements.get() == [1]


def test_a_map_has_entries(store: Store) -> None:
    entries = store.state.map("m")
    assert "x" not in entries and entries.get("x") is None and entries.get("x", 7) == 7
    entries.put("x", 1)
    entries.update({"y": 2, "z": None})
    assert entries.get("z", 5) is None
    assert (len(entries), entries.items()) == (3, {"x": 1, "y": 2, "z": None})
    entries.remove("x")
    entries.remove("x")
    assert "x" not in entries and "y" in entries
    entries.remove("y")
    entries.remove("z")
    assert store.state.entries == 0


def test_a_reducing_state_reduces_in_the_order_of_arrival(store: Store) -> None:
    text = store.state.reducing("r", lambda first, second: first + second)
    assert text.get() is None
    for part in "abc":
        text.add(part)
    assert text.get() == "abc"


def test_an_aggregating_state_gives_the_result_of_its_accumulator(store: Store) -> None:
    mean = store.state.aggregating("m", Mean())
    assert mean.get() is None
    mean.add(1)
    mean.add(4)
    assert mean.get() == 2.5


def forgets(first: dict[str, int], second: dict[str, int]) -> None:
    first.update(second)


class Forgets(Mean):
    def add(self, value: Any, accumulator: Any) -> Any:
        accumulator.append(value)


def test_a_function_that_forgets_its_result_is_refused_where_its_state_is_asked_for(store: Store) -> None:
    with pytest.raises(UserError, match="the state 'r': its function returns nothing, so it would keep nothing; return the comb"):
        store.state.reducing("r", forgets)
    with pytest.raises(UserError, match=r"the state 'm': Forgets\.add returns nothing, so it would keep nothing; return the acc"):
        store.state.aggregating("m", Forgets())
    store.state.reducing("max", max)
    store.state.reducing("some", lambda first, second: None if first == second else first)


def test_merging_namespaces_moves_what_the_current_key_has(store: Store) -> None:
    text = store.state.reducing("r", lambda first, second: first + second)
    mean = store.state.aggregating("m", Mean())
    elements = store.state.list("l")
    for key in ("k", "other"):
        store.keys.key = key
        for number, namespace in enumerate(("one", "two", "three")):
            text.namespace = mean.namespace = elements.namespace = namespace
            text.add(namespace[0])
            mean.add(number)
            elements.add(number)
    store.keys.key = "k"
    for handle in (text, mean, elements):
        handle.merge_namespaces("one", ["three", "missing", "one", "two"])
        handle.namespace = "one"
    assert (text.get(), mean.get(), elements.get()) == ("ott", 1, [0, 2, 1])
    for namespace in ("two", "three"):
        text.namespace = mean.namespace = elements.namespace = namespace
        assert (text.get(), mean.get(), elements.get()) == (None, None, [])
    store.keys.key = "other"
    assert elements.get() == [2]


def test_merging_into_an_empty_namespace_moves_the_sources_there(store: Store) -> None:
    text = store.state.reducing("r", lambda first, second: first + second)
    elements = store.state.list("l")
    text.namespace = elements.namespace = "source"
    text.add("x")
    elements.add("x")
    for handle in (text, elements):
        handle.merge_namespaces("target", ["source"])
        handle.namespace = "target"
    assert (text.get(), elements.get()) == ("x", ["x"])


def test_merging_nothing_leaves_nothing(store: Store) -> None:
    store.state.reducing("r", max).merge_namespaces("target", ["source"])
    store.state.list("l").merge_namespaces("target", ["source"])
    assert store.state.entries == 0


def test_rows_are_the_state_of_one_namespace_by_key_to_work_on_in_bulk(store: Store) -> None:
    counts = store.state.value("v")
    rows = counts.table.rows("window")
    for key in "aab":
        rows[key] = rows.get(key, 0) + 1
    counts.namespace, store.keys.key = "window", "a"
    assert counts.get() == 2
    assert counts.table.rows("elsewhere") == {}


def test_a_name_has_one_kind(store: Store) -> None:
    store.state.value("x")
    with pytest.raises(UserError, match="'x' is a value state without"):
        store.state.list("x")
    with pytest.raises(UserError, match="time to live"):
        store.state.value("x", ttl="1s")


def test_a_time_to_live_is_above_zero_and_forbids_work_in_bulk(store: Store) -> None:
    with pytest.raises(UserError, match="above zero"):
        store.state.value("x", ttl="0s")
    with pytest.raises(UserError, match="no table"):
        _ = store.state.value("x", ttl="1s").table


@pytest.mark.parametrize("refresh", [False, True])
def test_a_value_expires_when_it_was_not_written_for_its_time_to_live(store: Store, refresh: bool) -> None:
    value = store.state.value("v", default="none", ttl="10ms", refresh_on_read=refresh)
    value.set(1)
    store.now_ms = 9
    assert value.get() == 1
    store.now_ms = 10
    assert value.get() == (1 if refresh else "none")
    store.now_ms = 20
    assert value.get() == "none"
    value.set(2)
    store.now_ms = 25
    value.set(3)
    store.now_ms = 34
    assert value.get() == 3


def test_reducing_and_aggregating_start_anew_when_what_they_had_has_expired(store: Store) -> None:
    text = store.state.reducing("r", lambda first, second: first + second, ttl="10ms")
    mean = store.state.aggregating("a", Mean(), ttl="10ms")
    text.add("old")
    mean.add(100)
    store.now_ms = 10
    text.add("new")
    mean.add(1)
    assert (text.get(), mean.get()) == ("new", 1)


def test_each_element_of_a_list_expires_by_itself(store: Store) -> None:
    elements = store.state.list("l", ttl="10ms")
    elements.add(1)
    store.now_ms = 5
    elements.add(2)
    store.now_ms = 10
    assert elements.get() == [2]
    store.now_ms = 15
    assert elements.get() == []
    assert store.state.entries == 0


def test_reading_a_list_refreshes_all_of_it_if_wanted(store: Store) -> None:
    elements = store.state.list("l", ttl="10ms", refresh_on_read=True)
    elements.add(1)
    store.now_ms = 9
    assert elements.get() == [1]
    store.now_ms = 18
    assert elements.get() == [1]
    store.now_ms = 28
    assert elements.get() == []


def test_each_entry_of_a_map_expires_by_itself(store: Store) -> None:
    entries = store.state.map("m", ttl="10ms")
    entries.put("x", 1)
    store.now_ms = 5
    entries.put("y", 2)
    store.now_ms = 10
    assert (entries.items(), len(entries), "x" in entries, entries.get("x")) == ({"y": 2}, 1, False, None)
    store.now_ms = 15
    assert entries.items() == {}
    assert store.state.entries == 0


def test_reading_an_entry_of_a_map_refreshes_it_if_wanted(store: Store) -> None:
    entries = store.state.map("m", ttl="10ms", refresh_on_read=True)
    entries.update({"x": 1, "y": 2})
    store.now_ms = 9
    assert entries.get("x") == 1
    store.now_ms = 12
    assert entries.items() == {"x": 1}
    store.now_ms = 21
    assert entries.items() == {"x": 1}


def test_asking_for_an_entry_of_a_map_is_reading_it(store: Store) -> None:
    entries = store.state.map("m", ttl="10ms", refresh_on_read=True)
    entries.put("x", None)
    store.now_ms = 9
    assert "x" in entries and "y" not in entries
    store.now_ms = 18
    assert "x" in entries
    store.now_ms = 28
    assert "x" not in entries


def test_what_has_expired_is_dropped_though_nobody_reads_it(store: Store) -> None:
    value = store.state.value("v", ttl="10ms")
    elements = store.state.list("l", ttl="10ms")
    for key in range(100):
        store.keys.key = key
        value.set(key)
        elements.add(key)
    store.now_ms = 10
    store.keys.key = "busy"
    for _ in range(200):
        value.set(1)
        elements.replace([1])
    assert store.state.entries == 2


def test_what_has_expired_is_left_out_of_the_snapshot_and_the_rest_keeps_its_time(store: Store) -> None:
    store.keys.key = "A"
    value = store.state.value("v", ttl="10ms")
    elements = store.state.list("l", ttl="10ms")
    value.set(1)
    elements.add(1)
    store.now_ms = 6
    elements.add(2)
    store.now_ms = 10
    snapshot = store.state.snapshot()
    assert list(snapshot[104]) == ["l"]
    restored = Store(snapshot)
    restored.keys.key = "A"
    restored.now_ms = 15
    assert restored.state.list("l", ttl="10ms").get() == [2]
    restored.now_ms = 16
    assert restored.state.list("l", ttl="10ms").get() == []


def filled(store: Store) -> None:
    for key in ("A", "B"):
        store.keys.key = key
        store.state.value("value").set(f"value of {key}")
        store.state.list("list").extend([key, key])
        store.state.map("map").put(key, 1)
        handle = store.state.value("value")
        handle.namespace = (0, 10)
        handle.set("in a window")


def test_a_snapshot_is_by_key_group_and_can_be_restored_in_parts(store: Store) -> None:
    filled(store)
    snapshot = store.state.snapshot()
    assert set(snapshot) == {104, 17}
    part = Store({17: snapshot[17]})
    part.keys.key = "B"
    assert part.state.value("value").get() == "value of B"
    assert part.state.list("list").get() == ["B", "B"]
    assert part.state.map("map").items() == {"B": 1}
    windowed = part.state.value("value")
    windowed.namespace = (0, 10)
    assert windowed.get() == "in a window"
    part.keys.key = "A"
    assert windowed.get() is None


def test_a_snapshot_does_not_change_when_the_state_does_nor_when_it_is_restored(store: Store) -> None:
    filled(store)
    snapshot = store.state.snapshot()
    restored = Store(snapshot)
    for each in (store, restored):
        each.keys.key = "A"
        each.state.list("list").add("later")
        each.state.map("map").put("later", 1)
        each.state.value("value").set("later")
    fresh = Store(snapshot)
    fresh.keys.key = "A"
    assert fresh.state.list("list").get() == ["A", "A"]
    assert fresh.state.map("map").items() == {"A": 1}
    assert fresh.state.value("value").get() == "value of A"


def test_restored_state_that_nobody_asks_for_stays_in_the_next_snapshot(store: Store) -> None:
    filled(store)
    snapshot = store.state.snapshot()
    assert Store(snapshot).state.snapshot() == snapshot


def test_state_of_another_kind_is_not_restored(store: Store) -> None:
    filled(store)
    restored = Store(store.state.snapshot())
    with pytest.raises(UserError, match="'value' is a list state"):
        restored.state.list("value")
    late = Store()
    late.state.map("list")
    with pytest.raises(UserError, match="'list' is a map state"):
        late.state.restore(store.state.snapshot())


def test_namespaces_are_decoded_when_restored(store: Store) -> None:
    store.keys.key = "A"
    value = store.state.value("v")
    value.namespace = (1, 2)
    value.set("x")
    restored = Store()
    restored.state.restore(store.state.snapshot(), lambda encoded: ("window", *encoded))
    handle = restored.state.value("v")
    restored.keys.key, handle.namespace = "A", ("window", 1, 2)
    assert handle.get() == "x"


def test_integers_of_64_bits_survive(store: Store) -> None:
    store.keys.key = 2**63 - 1
    store.state.value("v").set(-(2**63))
    restored = Store(store.state.snapshot())
    restored.keys.key = 2**63 - 1
    assert restored.state.value("v").get() == -(2**63)
