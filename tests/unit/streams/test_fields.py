"""`to(sink, fields=...)` makes columns of records without known fields: of tuples and lists by place, of dicts by key."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from topo import JsonLinesSink
from topo.streams import StreamBuilder
from topo.testing import TopologyTest


class Click(msgspec.Struct):
    at: int
    url: str


class Pair(NamedTuple):
    left: int
    right: str


def program(out: Path, records: Sequence[Any]) -> TopologyTest:
    flow = StreamBuilder("program")
    items = flow.from_iterable(lambda: range(len(records)))
    items.map(lambda place: records[place]).to(JsonLinesSink(out), fields=("at", "url"))
    test = TopologyTest(flow.build(), attempts=1)
    test.run()
    return test


@pytest.mark.parametrize(
    "record",
    [(1, "/"), [1, "/"], Pair(1, "/"), {"url": "/", "at": 1, "more": 2}, {"at": 1, "url": "/"}, (one for one in (1, "/"))],
)
def test_a_row_has_the_values_by_place_or_by_key(record: Any, tmp_path: Path) -> None:
    program(out := tmp_path / "out.jsonl", [record]).assert_all_acked()
    assert msgspec.json.decode(out.read_bytes()) == {"at": 1, "url": "/"}


@pytest.mark.parametrize(
    ("record", "problem"),
    [
        ("ab", "was given 'ab' (str), and fields= is for tuples, lists and dicts; make a tuple of it"),
        ({1, 2}, "(set), and fields= is for tuples, lists and dicts"),
        (Click(1, "/"), "(Click), and fields= is for tuples, lists and dicts"),
        (5, "(int), and fields= is for tuples, lists and dicts"),
        ({"at": 1, "uri": "/"}, "was given a dict without 'url', which fields= names; its keys are 'at', 'uri'"),
    ],
)
def test_a_record_of_another_kind_fails_at_the_line_of_its_sink(record: Any, problem: str, tmp_path: Path) -> None:
    """The characters of a text, and the keys of a dict, became the columns."""
    test = program(tmp_path / "out.jsonl", [record, (1, "/")])
    (error,) = test.errors()
    assert problem in error.message and (error.file, error.line) == (__file__, program.__code__.co_firstlineno + 3)
    assert test.status()["dead_letters"] == 1
