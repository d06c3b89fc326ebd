from __future__ import annotations

from typing import Any

import pytest

from topo.api.streams import StreamDeclaration, declared_streams, direct
from topo.errors import ConfigError


def test_a_tuple_of_fields_is_the_default_stream() -> None:
    assert declared_streams(("a", "b")) == (StreamDeclaration("default", ("a", "b")),)
    assert declared_streams(["a"]) == (StreamDeclaration("default", ("a",)),)


def test_a_mapping_declares_streams_in_its_order() -> None:
    assert declared_streams({"late": ("a",), "default": ["b"], "replies": direct("c", "d")}) == (
        StreamDeclaration("late", ("a",)),
        StreamDeclaration("default", ("b",)),
        StreamDeclaration("replies", ("c", "d"), direct=True),
    )


def test_the_default_stream_can_be_a_direct_one() -> None:
    assert declared_streams(direct("a")) == (StreamDeclaration("default", ("a",), direct=True),)


def test_an_empty_tuple_declares_nothing() -> None:
    assert declared_streams(()) == ()
    assert declared_streams({}) == ()


@pytest.mark.parametrize(
    ("outputs", "expected"),
    [
        ("word", "write ('word',) for one field"),
        ({"late": "word"}, "write ('word',) for one field"),
        (("a", "a"), "declared twice: 'a'"),
        (("a", 3), "field name must be"),
        (("",), "field name must be"),
        (("__a",), "reserved"),
        ({"__tick": ("a",)}, "reserved"),
        ({3: ("a",)}, "stream name must be"),
        (7, "must be a tuple of names, not int"),
        ({"a", "b"}, "must be a tuple of names, not set"),
    ],
)
def test_a_malformed_declaration_is_refused_with_the_fix(outputs: Any, expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        declared_streams(outputs)
    assert expected in str(caught.value)
