"""Expressions of `--where`: the answer of Python, or a refusal; never more."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topo.errors import UserError
from topo.expressions import MAX_LENGTH, Expression

FIELDS = {"count": 5, "share": 0.5, "word": "the", "none": None, "tags": ["a", "b"], "more": {"key": 1}}

atoms = st.one_of(
    st.sampled_from(sorted(FIELDS)),
    st.integers(-9, 9).map(repr),
    st.sampled_from(["'the'", "''", "0.5", "True", "None", "('a', 'the', 5)"]),
)


def combined(parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    compare = st.sampled_from(["==", "!=", "<", "<=", ">", ">=", "in", "not in", "is", "is not"])
    operators = st.one_of(compare, st.sampled_from(["and", "or", "+", "-", "*", "/", "//", "%"]))
    return st.one_of(
        st.tuples(parts, operators, parts).map(lambda three: f"({three[0]} {three[1]} {three[2]})"),
        st.tuples(parts, parts, parts).map(lambda three: f"({three[0]} < {three[1]} <= {three[2]})"),
        st.tuples(st.sampled_from(["not ", "-", "+"]), parts).map(lambda two: f"({two[0]}{two[1]})"),
        parts.map(lambda one: f"len({one})"),
        st.tuples(parts, parts).map(lambda two: f"({two[0]})[{two[1]}]"),
        parts.map(lambda one: f"word.startswith({one})"),
    )


@pytest.mark.filterwarnings("ignore::SyntaxWarning")
@given(st.recursive(atoms, combined, max_leaves=12))
def test_an_expression_has_the_value_that_python_gives_it(text: str) -> None:
    expected: Any
    try:
        expected = eval(text, {"__builtins__": {"len": len}}, dict(FIELDS))
    except Exception as error:
        expected = type(error)
    try:
        actual = Expression(text)(FIELDS)
    except UserError:
        assert len(text) > MAX_LENGTH or text.count("(") > 20
    except TypeError as error:
        # Arithmetic of texts and lists, beyond `+` of texts, is refused: it could take any amount of memory.
        assert expected is TypeError or "no arithmetic" in str(error)
    except Exception as error:
        assert type(error) is expected
    else:
        assert actual == expected and type(actual) is type(expected)


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os')", "word.__class__", "(lambda: 1)()", "[x for x in word]", "count ** 9", "1 << 9", "f'{word}'",
        "word[1:]", "open('x')", "word.join(tags)", "len(word, word)", "startswith(word)", "len(*tags)", "{1: 2}", "(count := 3)",
        "x if y else z", "1j", "...", "await_", "a b", "", "word.encode", "(" * 200,
    ],
)  # fmt: skip
def test_anything_else_is_refused_with_a_sentence(text: str) -> None:
    if text == "await_":
        with pytest.raises(UserError, match="Count has no field 'await_'; it has count, word"):
            Expression(text).check_fields({"count", "word"}, "Count")
        return
    with pytest.raises(UserError, match=r"may not stand in an expression|is not an expression"):
        Expression(text)


@pytest.mark.parametrize("text", ["'a' * 1000000000", "'%1000000000d' % count", "tags * 1000000000"])
def test_an_expression_does_not_take_the_memory_that_it_asks_for(text: str) -> None:
    with pytest.raises(TypeError, match="no arithmetic"):
        Expression(text)(FIELDS)


def test_length_and_depth_are_bounded() -> None:
    with pytest.raises(UserError, match="at most 1000 characters"):
        Expression("1" * 1001)
    with pytest.raises(UserError, match="nested 50 deep"):
        Expression("not " * 60 + "count")
