from __future__ import annotations

import pytest

from topo.api.streams import TICK_STREAM
from topo.api.tuples import Origin, Tuple
from topo.errors import NotFoundError

ORIGIN = Origin("split", 3, "words", ("word", "length"))


def tup(*values: object) -> Tuple:
    return Tuple(values, ORIGIN, 1_000)


def test_values_are_read_by_name_position_and_slice() -> None:
    made = tup("owl", 3)
    assert (made["word"], made["length"], made[0], made[-1]) == ("owl", 3, "owl", 3)
    assert made[0:1] == ("owl",)
    assert list(made) == ["owl", 3]
    assert len(made) == 2
    assert made.as_dict() == {"word": "owl", "length": 3}


def test_an_unknown_field_is_named_with_the_fields_there_are() -> None:
    with pytest.raises(
        NotFoundError, match=r"stream 'words' from 'split' has no field 'wrod'; it has 'word', 'length'.*mean 'word'"
    ):
        tup("owl", 3)["wrod"]
    with pytest.raises(IndexError):
        tup("owl", 3)[2]


def test_it_says_where_it_comes_from() -> None:
    made = tup("owl", 3)
    assert (made.component, made.task, made.stream, made.fields) == ("split", 3, "words", ("word", "length"))
    assert made.timestamp == 1_000
    assert not made.is_tick
    assert "word" in made and "owl" not in made
    assert repr(made) == "Tuple(split#3:words word='owl', length=3)"


def test_tuples_are_equal_only_to_themselves_and_always_true() -> None:
    one, other = tup("owl", 3), tup("owl", 3)
    assert one != other and one == one
    assert len({one, other}) == 2
    assert Tuple((), Origin("x", 1))


def test_a_tick_is_known_by_its_stream() -> None:
    assert Tuple((), Origin("__system", 0, TICK_STREAM)).is_tick


def test_one_built_from_its_parts_is_like_any_other() -> None:
    made = object.__new__(Tuple)
    made.values, made.origin, made.timestamp = ("owl", 3), ORIGIN, None
    assert made["length"] == 3
    assert not hasattr(made, "__dict__")
