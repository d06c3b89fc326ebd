from __future__ import annotations

from typing import Any

import pytest

from topo import UnsupportedValueError, UserError
from topo.api.streams import StreamDeclaration
from topo.testing import ADVANCE, CRASH, END, FAIL_NEXT, PAUSE, message
from topo.testing.script import Message, Script, scripts_of
from topo.testing.wire_roundtrip import WireRoundtrip, codec_for


def read(items: list[Any], *fields: str, tasks: int = 1) -> list[Script]:
    streams = (StreamDeclaration("default", fields), StreamDeclaration("odd", ("number",)))
    return scripts_of("lines", items, streams, WireRoundtrip(codec_for(()), "lines", streams), tasks)


def messages(script: Script) -> list[tuple[Any, Any]]:
    return [(entry.message_id, entry.values) for entry in script.entries if isinstance(entry, Message)]


def test_an_item_is_a_value_or_values_and_messages_are_numbered_without_the_markers() -> None:
    (script,) = read(["a", PAUSE("1s"), ("b",), ["c"], END], "line")

    assert messages(script) == [(0, ("a",)), (1, ("b",)), (2, ("c",))]


def test_an_item_may_be_an_id_with_its_values() -> None:
    (one,) = read([("first", ("a",)), ((2, 7), ("b",))], "line")
    (three,) = read([(9, ("a", 1, True)), ("b", 2, False)], "line", "count", "flag")

    assert messages(one) == [("first", ("a",)), ((2, 7), ("b",))]
    assert messages(three) == [(9, ("a", 1, True)), (1, ("b", 2, False))]


def test_a_pair_that_may_be_two_values_is_refused_and_message_says_which_is_meant() -> None:
    with pytest.raises(UserError, match="may be two values or an id"):
        read([("a", (1, 2))], "word", "counts")

    (script,) = read([message("a", (1, 2)), ("b", 3)], "word", "counts")
    assert messages(script) == [(0, ("a", (1, 2))), (1, ("b", 3))]


def test_several_tasks_take_messages_in_turn_and_markers_go_with_what_follows() -> None:
    first, second = read(["a", FAIL_NEXT, "b", CRASH, PAUSE(2), "c", "d", END], "line", tasks=2)

    assert messages(first) == [(0, ("a",)), (2, ("c",))]
    assert messages(second) == [(1, ("b",)), (3, ("d",))]
    assert [entry for entry in first.entries if not isinstance(entry, Message)] == [CRASH, PAUSE("2s"), END]
    assert [entry for entry in second.entries if not isinstance(entry, Message)] == [FAIL_NEXT, PAUSE("2s"), END]


@pytest.mark.parametrize(
    ("items", "problem"),
    [
        ([END, "a"], "source 'lines', item 1: 'a' comes after END"),
        ([("a", "b")], "has 2 values for 1 fields"),
        ([(1, ("a",)), (1, ("b",))], "message id 1 occurs twice"),
        ([("x", ("a",)), "b", message("c", message_id="x")], "item 2: message id 'x' occurs twice"),
    ],
)
def test_an_item_that_cannot_be_one_is_refused_with_its_place(items: list[Any], problem: str) -> None:
    with pytest.raises(UserError, match=problem):
        read(items, "line")


def test_a_value_that_no_spout_could_emit_is_refused() -> None:
    with pytest.raises(UnsupportedValueError, match="component 'lines', stream 'odd', field 'number'"):
        read([message(object(), stream="odd")], "line")


def test_markers_say_what_they_are() -> None:
    assert repr([END, FAIL_NEXT]) == "[END, FAIL_NEXT]"
    assert CRASH("count", 1).component == "count"
    assert PAUSE("1m30s").seconds == 90
    assert ADVANCE(2).seconds == 2
