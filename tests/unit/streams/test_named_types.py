"""Records and state whose types have names of Python 3.12: `type Scores = list[int]`."""

from __future__ import annotations

import sys
import typing
from dataclasses import dataclass, make_dataclass
from typing import Any, NamedTuple, TypeVar

import pytest

from topo import UserError
from topo.streams.functions import item_type
from topo.streams.records import layout_of
from topo.testing import StreamTest

pytestmark = pytest.mark.skipif(sys.version_info < (3, 12), reason="Python has no `type` statement")

T = TypeVar("T")


def alias(name: str, value: Any, *parameters: Any) -> Any:
    """Return what `type name = value` makes."""
    make: Any = getattr(typing, "TypeAliasType", lambda *_args, **_options: None)
    return make(name, value, type_params=parameters)


class Point(NamedTuple):
    x: int


@dataclass
class Plain:
    x: int


SCORES, NAMED, TREE = alias("Scores", list[int]), alias("Named", Point), alias("Tree", dict[str, list[T]], T)
OF_PLAIN = alias("OfPlain", Plain)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (SCORES, [1]),
        (typing.Optional[SCORES], [1]),  # noqa: UP045 - on 3.11 there is nothing to make a union of
        (dict[str, SCORES], {"a": [1]}),
        (NAMED, Point(1)),
        (OF_PLAIN, Plain(1)),
        (list[OF_PLAIN], [Plain(1)]),
        (TREE[Plain] if TREE else None, {"a": [Plain(1)]}),
    ],
)
def test_a_value_of_a_named_type_arrives_as_it_was(kind: Any, value: Any) -> None:
    record = make_dataclass("Record", [("part", kind)], namespace={"__module__": __name__})
    arrived: list[Any] = []
    with StreamTest() as test:
        of_field, itself = test.source(record), test.source(kind)
        of_field.stream.rebalance(parallelism=1).map(lambda one: one.part).to(arrived.append)
        itself.stream.rebalance(parallelism=1).to(arrived.append)
        of_field.send(record(value))
        itself.send(value)
    assert arrived == [value, value]
    assert {type(one) for one in arrived} == {type(value)}


def test_a_list_of_records_may_have_a_name() -> None:
    assert item_type(alias("Plains", list[Plain])) is Plain


def test_a_type_that_is_a_part_of_itself_is_sent_where_nothing_changes_and_refused_where_lists_would() -> None:
    space: dict[str, Any] = {}
    exec("type Nested = dict[str, Nested] | int\ntype Json = dict[str, Json] | list[Json] | int", space)
    assert layout_of(space["Nested"]).kinds == (None,)
    with pytest.raises(UserError, match="cannot be made again on arrival: it is a part of itself; declare Any"):
        layout_of(space["Json"])
