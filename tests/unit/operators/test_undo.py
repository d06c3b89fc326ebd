"""What a failed call has changed is taken back: state of every kind, timers of both domains."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from topo.keys import DEFAULT_MAX_PARALLELISM, KeyGroupRange
from topo.operators.base import KeyedOperator, OperatorContext
from topo.operators.mailbox.executor import MailboxExecutor
from topo.operators.mailbox.mailbox import TaskMailbox
from topo.operators.state.deep_copy import independent
from topo.operators.state.undo_log import UndoLog
from topo.operators.time.clock import ManualProcessingTime


class Nowhere:
    def emit(self, value: Any, timestamp: int | None) -> None: ...
    def side(self, stream: str, value: Any, timestamp: int | None) -> None: ...
    def watermark(self, timestamp: int) -> None: ...
    def mark_idle(self) -> None: ...
    def mark_active(self) -> None: ...


class Bare(KeyedOperator):
    def process_element(self, key: Any, value: Any, timestamp: int | None) -> None: ...

    def on_event_time(self, key: Any, namespace: Any, timestamp: int) -> None: ...

    def on_processing_time(self, key: Any, namespace: Any, timestamp: int) -> None: ...


def operator(*, can_undo: bool = True) -> Bare:
    made = Bare()
    executor = MailboxExecutor(TaskMailbox())
    groups = KeyGroupRange(0, DEFAULT_MAX_PARALLELISM - 1)
    log = UndoLog() if can_undo else None
    made.setup(OperatorContext(Nowhere(), ManualProcessingTime(), executor, DEFAULT_MAX_PARALLELISM, groups, log))
    made.open()
    return made


CHANGES = st.lists(
    st.tuples(
        st.sampled_from("ab"),
        st.sampled_from(
            [
                "set",
                "append",
                "add",
                "put",
                "grow",
                "remove",
                "items",
                "replace",
                "merge",
                "clear",
                "timer",
                "delete",
                "look",
                "splice",
            ]
        ),
        st.integers(0, 3),
    ),
    max_size=12,
)


def change(one: Bare, changes: list[tuple[str, str, int]]) -> None:
    value, some, entries = one.state.value("value"), one.state.list("list"), one.state.map("map")
    aged = one.state.map("aged", ttl="1d")
    timers, ordered = one.timers.get("t", one), one.state.sorted("ordered")
    for key, what, number in changes:
        one.keys.key = key
        if what == "set":
            value.set([*(value.get() or []), number])
        elif what == "append":
            # In place, as users do it.
            kept = value.get() or []
            kept.append(number)
            value.set(kept)
        elif what == "add":
            some.add(number)
        elif what == "put":
            entries.put(number, [number])
            aged.put(number, number)
        elif what == "grow":
            inner = entries.get(number, [])
            inner.append(number)
            entries.put(number, inner)
        elif what == "remove":
            entries.remove(number)
            aged.remove(number)
        elif what == "items":
            for inner in entries.items().values():
                inner.append(number)
        elif what == "replace":
            some.replace([number] * number)
        elif what == "merge":
            some.namespace = number
            some.add([number])
            some.namespace = None
            some.merge_namespaces(None, [number, number + 1])
        elif what == "look":
            assert (number in entries) == (number in entries.items()) and len(entries) == len(entries.items())
        elif what == "splice":
            start, end = sorted((number, 2))
            ordered.splice(min(start, len(ordered.get())), min(end, len(ordered.get())), range(number))
        elif what == "clear":
            value.clear()
            some.clear()
        elif what == "timer":
            timers.register_event_timer(None, number)
            timers.register_processing_timer(None, 10 + number)
        else:
            timers.delete_event_timer(None, number)
            timers.delete_processing_timer(None, 10 + number)


def everything(one: Bare) -> Any:
    keyed = one.snapshot().keyed
    return {
        group: (
            {
                name: sorted((key, repr(where), repr(cell)) for key, where, cell in part["rows"])
                for name, part in data["state"].items()
            },
            {name: [sorted(domain) for domain in domains] for name, domains in data["timers"].items()},
        )
        for group, data in keyed.items()
    }


@given(CHANGES, CHANGES, CHANGES)
def test_after_undo_everything_is_as_before_the_call(
    before: list[tuple[str, str, int]], failed: list[tuple[str, str, int]], after: list[tuple[str, str, int]]
) -> None:
    one, plain = operator(), operator(can_undo=False)
    for tried in (one, plain):
        change(tried, before)
    one.begin_call()
    change(one, failed)
    one.undo()
    assert everything(one) == everything(plain)
    one.begin_call()
    for tried in (one, plain):
        change(tried, after)
    assert everything(one) == everything(plain)


def test_restored_state_that_a_failed_call_was_the_first_to_ask_for_is_still_there() -> None:
    one, again = operator(), operator()
    one.keys.key = "a"
    one.state.value("value").set(1)
    again.restore(one.snapshot())
    again.begin_call()
    again.keys.key = "a"
    again.state.value("value").set(2)
    again.undo()
    assert again.state.value("value").get() == 1


def test_what_a_snapshot_holds_does_not_change_with_the_state() -> None:
    one = operator()
    one.keys.key = "a"
    one.state.value("value").set([1])
    taken = one.snapshot().keyed
    one.state.value("value").get().append(2)
    assert [row[2] for data in taken.values() for row in data["state"]["value"]["rows"]] == [[1]]


def test_what_can_be_changed_in_place_is_copied_and_nothing_else() -> None:
    fixed = ("a", 1, 2.0)
    assert independent(fixed) is fixed
    nested = (1, [2, {"k": {3}}])
    copied = independent(nested)
    nested[1][1]["k"].add(4)
    assert copied == (1, [2, {"k": {3}}])
