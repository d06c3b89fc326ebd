"""Data of a script that workers, which import its file again, would not have."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest

from topo import UserError
from topo.streams import running
from topo.streams.reimported import Comparison

FILE = """
from dataclasses import dataclass
from enum import Enum
from functools import partial

import msgspec

from topo.streams import AT_END, KeyedProcess, KeyedValue, StreamBuilder, Tumbling, agg

LIMIT = 0
FACTS = {"a": [1]}


class Kind(Enum):
    PLAIN = 1


KIND = Kind.PLAIN


@dataclass
class Order:
    number: int
    kind: Kind = Kind.PLAIN


class Rate(msgspec.Struct):
    cents: int


class Limited(KeyedProcess):
    kept = KeyedValue(int)

    def __init__(self, rate):
        self.rate = rate

    def process(self, record, context, out):
        if record > LIMIT:
            out.emit(record)


RATE = Rate(1)


def adds(number, record):
    return record + number + helped()


def helped():
    return len(FACTS["a"])


def above(number):
    return number + LIMIT


def over(limit):
    return lambda record: record > limit and KIND is Kind.PLAIN


def drawn(limit=1, size="1s", items=(1, 2), path="words.txt"):
    flow = StreamBuilder("flow").config(workers=1)
    numbers = flow.from_iterable(list(items), of=int).filter(over(limit)).map(partial(adds, limit))
    keyed = numbers.with_event_time(lambda number: number).key_by(lambda number: number)
    keyed.window(Tumbling(size)).aggregate(agg.count(), agg.max_of(above)).to(print)
    keyed.process(Limited(RATE)).to(print)
    flow.from_iterable([Order(1)], name="orders").map(lambda order: order.number).to(print)
    flow.from_files(path).key_by(lambda line: line).fold(limit, lambda so_far, line: so_far).to(print)
    return flow


flow = drawn()
"""


@pytest.fixture(autouse=True)
def imports(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The file as a script, and as a worker imports it."""
    code = compile(FILE, "program.py", "exec", dont_inherit=True)
    modules: list[Any] = [ModuleType(name) for name in ("script", "program")]
    for module in modules:
        # Annotations of records are read in the module of their class.
        monkeypatch.setitem(sys.modules, module.__name__, module)
        exec(code, vars(module))
    return modules


def test_two_imports_of_a_file_have_the_same_program(imports: Any) -> None:
    script, again = imports
    comparison = Comparison()
    assert comparison.same(script.flow.build(), again.flow.build()) and comparison.same(script.drawn, again.drawn)
    assert comparison.name == ""


def lower_limit(script: Any) -> str:
    script.LIMIT = 3
    return "LIMIT"


def more_facts(script: Any) -> str:
    script.FACTS["a"].append(2)
    return "FACTS"


def other_rate(script: Any) -> str:
    script.RATE.cents = 2
    return "cents"


def a_new_variable(script: Any) -> str:
    script.helped = lambda: 1
    return "helped"


@pytest.mark.parametrize("change", [lower_limit, more_facts, other_rate, a_new_variable])
@pytest.mark.parametrize("of", ["program", "function"])
def test_a_change_of_data_that_functions_read_is_found(imports: Any, change: Any, of: str) -> None:
    script, again = imports
    name = change(script)
    comparison = Comparison()
    pair = (script.flow.build(), again.flow.build()) if of == "program" else (script.drawn, again.drawn)
    assert not comparison.same(*pair)
    assert comparison.name == name or of == "function"


@pytest.mark.parametrize("other", [{"limit": 2}, {"size": "2s"}, {"items": (1, 2, 3)}, {"items": (1, 3)}, {"path": "other.txt"}])
def test_a_program_that_was_drawn_with_other_values_is_another(imports: Any, other: dict[str, Any]) -> None:
    script, again = imports
    assert not Comparison().same(script.drawn(**other).build(), again.flow.build())


def test_data_that_no_function_reads_does_not_matter(imports: Any) -> None:
    script, again = imports
    script.UNREAD = 3
    assert Comparison().same(script.flow.build(), again.flow.build())


def test_parts_that_refer_to_each_other_are_compared_once() -> None:
    one: list[Any] = [1]
    one.append(one)
    other: list[Any] = [1]
    other.append(other)
    assert Comparison().same(one, other)
    assert Comparison().same([float("nan"), {2, 1}], [float("nan"), {1, 2}])
    assert not Comparison().same([1], [1.0])


def test_changed_data_that_cannot_be_sent_are_named_with_the_fix(imports: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    script, again = imports
    lower_limit(script)
    monkeypatch.setitem(sys.modules, "cloudpickle", None)  # as where it is not installed
    with pytest.raises(UserError, match=r"'LIMIT' has another value here than .*; make the program in a function.*cloudpickle"):
        running._is_same(script.drawn, again.drawn)
