"""Parameters of a topology from the command line: texts become what its function takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pytest

from topo.errors import UserError
from topo.user_code.copy import parse_reference
from topo.user_code.load import bind_parameters


def test_parameters_are_names_and_values() -> None:
    assert parse_reference("words.py", ["path=a=b", "n=1"]).parameters == {"path": "a=b", "n": "1"}
    for wrong in ("path", "=1", "a b=1"):
        with pytest.raises(UserError, match="name=value"):
            parse_reference("words.py", [wrong])
    with pytest.raises(UserError, match="names no topology"):
        parse_reference("")


def test_text_becomes_what_the_parameter_is() -> None:
    def function(
        a: int, b: float | None, c: bool, d: str, e: Path, f=1.5, g=False, h=None, i=None, j=None, **more: object
    ) -> None: ...

    given = dict(zip("abcdefghijk", ["1", "2", "yes", "3", "x/y", "4", "off", "5", "6.5", "true", "text"], strict=True))
    assert list(bind_parameters(function, given, "f").values()) == [
        1,
        2.0,
        True,
        "3",
        Path("x/y"),
        4.0,
        False,
        5,
        6.5,
        True,
        "text",
    ]
    assert bind_parameters(function, {**given, "a": 9, "j": [1]}, "f")["j"] == [1]
    with pytest.raises(UserError, match="parameter c is bool, not 'perhaps'"):
        bind_parameters(function, {**given, "c": "perhaps"}, "f")


@pytest.mark.parametrize(
    "annotation",
    [
        "list[int]",
        list[int],
        "typing.Sequence[str] | None",
        "tuple[int, ...]",
        set,
        "dict[str, int]",
        "Optional[list[str]]",
        "None | list[str]",
        "t.Optional[t.List[str]]",
    ],
)
def test_text_is_no_collection(annotation: Any) -> None:
    def function(items: Any, one: Literal["list", "set"] = "list", both: str | list[str] = "a") -> None: ...

    assert bind_parameters(function, {"items": "5", "one": "set", "both": "b"}, "f") == {"items": 5, "one": "set", "both": "b"}
    function.__annotations__["items"] = annotation
    with pytest.raises(UserError, match=r"parameter items is .*, and -p gives one value"):
        bind_parameters(function, {"items": "5"}, "f")
    assert bind_parameters(function, {"items": [5]}, "f") == {"items": [5]}


@pytest.mark.parametrize("default", [["a"], ("a",), {}, {"a"}])
def test_nor_is_it_one_where_the_default_alone_says_so(default: Any) -> None:
    def function(items=default) -> None: ...

    with pytest.raises(UserError, match=r"parameter items is (list|tuple|dict|set), and -p gives one value"):
        bind_parameters(function, {"items": "a,b"}, "f")
