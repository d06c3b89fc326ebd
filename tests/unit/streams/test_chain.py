"""The generated function of a chain: calls that it spares, and chains that cannot be one function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from topo import TopologyError
from topo.streams import StreamBuilder
from topo.streams.chain import inlined

NAME = "x"


def attribute(record: Any) -> Any:
    return record.name


class Callable1:
    def __call__(self, record: Any) -> Any:
        return record


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda record: record, "r"),
        (lambda click: click.user, "r.user"),
        (attribute, "r.name"),
        (lambda record: record.user.name, None),
        (lambda record: record[0], None),
        (lambda record: NAME, None),
        (lambda record: None, None),
        (lambda record, other: record, None),
        (lambda record, other=1: other, None),
        (lambda *records: records, None),
        (lambda *, record: record, None),
        (str.lower, None),
        (len, None),
        (str, None),
        (Callable1(), None),
    ],
)
def test_only_an_argument_or_its_attribute_is_written_in_place_of_the_call(
    function: Callable[..., Any], expected: str | None
) -> None:
    assert inlined(function, "r") == expected


def test_a_lambda_within_a_function_is_written_in_place_too() -> None:
    assert inlined(lambda word: word, "r") == "r"


def test_a_file_without_annotations_from_the_future_has_its_lambdas_written_in_place_too() -> None:
    code = compile("lambda click: click.user", "program.py", "eval", dont_inherit=True)
    assert inlined(eval(code), "r") == "r.user"


def test_a_closure_that_returns_its_variable_is_called() -> None:
    kept = "kept"
    assert inlined(lambda record: kept, "r") is None


def test_a_missing_attribute_is_blamed_on_the_line_of_the_operator() -> None:
    from topo.testing import TopologyTest

    def build() -> StreamBuilder:
        flow = StreamBuilder("program")
        flow.from_iterable([1]).map(lambda n: n.missing).to(print)
        return flow

    test = TopologyTest(build, attempts=1)
    test.run()
    (error,) = test.errors()
    assert error.kind == "AttributeError" and error.file.endswith("test_chain.py")
    assert error.line == build.__code__.co_firstlineno + 2


def test_operators_nested_too_deeply_are_refused_at_build() -> None:
    flow = StreamBuilder("deep")
    stream = flow.from_iterable([1])
    for _ in range(25):
        stream = stream.flat_map(lambda item: [item])
    stream.to(print)
    with pytest.raises(TopologyError, match=r"nested too deeply.*rebalance\(\)"):
        flow.build()
