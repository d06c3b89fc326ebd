"""Rows of dead letters: none has values that keep it from being stored."""

from __future__ import annotations

import json
from datetime import date
from typing import Any

import pytest

from topo.dead_letters.records import known_letters, letter_row
from topo.dead_letters.registry import Waiting
from topo.ids import Incarnation, TaskId, WorkerId
from topo.wire.codec import MAX_ELEMENTS, Codec
from topo.wire.control import Cause, DeadLetter
from topo.wire.serializers import SerializerRegistry


class Point:
    def __init__(self, data: bytes) -> None:
        self.data = data

    def __repr__(self) -> str:
        return f"Point({self.data!r})"


class Mute:
    def __repr__(self) -> str:
        raise ValueError("no")


def types() -> SerializerRegistry:
    registry = SerializerRegistry()
    registry.register(Point, 40, lambda point: point.data, Point)
    registry.register(Mute, 41, lambda _: b"m", lambda _: Mute())
    return registry


def row(values: Any, position: Any = 7, reader: Codec | None = None) -> dict[str, Any]:
    codec = Codec(types())
    cause = Cause("ValueError", "no", "count", "/copy/a.py", 3)
    dead_letter = DeadLetter(TaskId(3), 1, codec.pack_value(position), codec.pack_value(values), ["/copy/a.py"], 3, cause=cause)
    line = letter_row(dead_letter, "lines", reader or codec, 5, lambda text: text.replace("/copy", "/own"))
    found: dict[str, Any] = json.loads(line)
    return found


def test_a_row_says_what_was_given_up_by_whom_and_why_in_the_users_own_terms() -> None:
    assert row(("x", 1), (3, 40)) == {
        "at_ms": 5,
        "component": "lines",
        "task": 3,
        "message": [3, 40],
        "values": ["x", 1],
        "identity": None,
        "attempts": 3,
        "errors": ["/own/a.py"],
        "cause": {"kind": "ValueError", "message": "no", "component": "count", "file": "/own/a.py", "line": 3},
        "fixed": "with delivery=exactly_once a checkpoint has passed it",
    }


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ({(1, 2): 3}, {"(1, 2)": 3}),
        ({b"k": {date(2024, 1, 2): 4}}, {"b'k'": {"datetime.date(2024, 1, 2)": 4}}),
        ([{(1,): date(2024, 1, 2)}], [{"(1,)": "datetime.date(2024, 1, 2)"}]),
        (Point(b"x"), "Point(b'x')"),
        ({"x": [float("nan"), 1.5], float("-inf"): None}, {"x": ["nan", 1.5], "-inf": None}),
    ],
)
def test_values_that_json_does_not_know_are_shown_in_words(value: Any, shown: Any) -> None:
    assert row((value,))["values"] == [shown]
    assert row((), value)["message"] == shown


def test_what_cannot_be_shown_is_said_to_be_so_and_the_rest_of_the_row_is_kept() -> None:
    assert row((Mute(),))["values"].startswith("cannot be shown: 4 bytes")
    unknown = row((Point(b"x"),), reader=Codec())
    assert unknown["values"].startswith("cannot be shown: 4 bytes (") and "ext type 40" in unknown["values"]
    assert row(([1] * (MAX_ELEMENTS + 1),))["values"].startswith("cannot be shown: 10")
    assert unknown["message"] == 7


def test_a_master_knows_the_letters_on_disk_by_the_identities_in_their_rows() -> None:
    identity = (1 << 64) - 3
    dead_letter = DeadLetter(TaskId(3), identity, b"\xc0", b"\x90", [], 3, identity=identity)
    stored = json.loads(letter_row(dead_letter, "lines", Codec(), 5))
    known = known_letters([row(()), stored, {"identity": "unknown"}])
    waiting = Waiting(WorkerId(0), Incarnation(9), TaskId(3), identity)
    assert known.is_stored(waiting, dead_letter)
    assert known.count == 3
