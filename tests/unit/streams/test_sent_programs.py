"""Programs of a notebook go to their workers as values, with the classes of their records, which no worker can import."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import NamedTuple, TypedDict

import pytest

from topo import IterableSpout, TopologyBuilder
from topo.streams import StreamBuilder
from topo.user_code.copy import pickle_topology


def test_a_class_that_was_read_from_json_or_is_a_part_of_a_record_can_be_sent(tmp_path: Path) -> None:
    @dataclass
    class Place:
        name: str

    class Pair(NamedTuple):
        first: int
        second: int

    class Page(TypedDict):
        url: str

    flow = StreamBuilder("program")
    places = flow.from_iterable(["{}"]).parse_json(Place)
    pairs = places.map(lambda place: [Pair(1, len(place.name))], of=list[Pair]).rebalance(parallelism=1)
    pairs.map(lambda _pairs: Page(url="/"), of=dict[str, Page]).rebalance(parallelism=1).to(print)
    pickle_topology(flow.build(), tmp_path, flow.held_values())


STRUCTS = """
from dataclasses import dataclass
from typing import Annotated, ClassVar, Generic, NamedTuple, NewType, TypeVar
import typing
import msgspec
from topo.streams.records import layout_of

T = TypeVar("T")

class Base(msgspec.Struct):
    tags: dict[str, list[int]]
    n: int = 3
    below: list[int] = []
    names: list[str] = msgspec.field(default_factory=lambda: ["a"])
    def twice(self): return Base(self.tags, 2 * self.n)

class Derived(Base, kw_only=True, frozen=True, tag="derived"):
    LEVEL: ClassVar[int] = 7
    price: int
    def twice(self): return super().twice(), self.price
    @property
    def cents(self): return 100 * self.price
    @classmethod
    def made(cls): return cls({}, price=1)

class Camel(msgspec.Struct, rename="camel", array_like=True):
    my_x: int
    my_y: int = 0
    def __post_init__(self):
        if self.my_x < 0: raise ValueError

class Box(msgspec.Struct, Generic[T], order=True, dict=True):
    item: T
    def __post_init__(self): self.made_by = Box

Cents = NewType("Cents", int)
Scores = getattr(typing, "TypeAliasType", lambda _name, value: value)("Scores", list[int])

class Pair(NamedTuple):
    camel: Camel
    cents: Cents
    scores: Scores
    more: "list[Pair]"

@dataclass
class Plain:
    box: Box[int]
    price: Annotated[int, msgspec.Meta(gt=0)] = 1

class Node(msgspec.Struct):
    plain: Plain
    below: "list[Node]" = []

def facts():
    yield [[str(kind) for kind in layout_of(one).kinds] for one in (Pair, Plain, Node)]
    first, second, one = Base({}), Base({}), Derived.made()
    first.below.append(1)
    yield first, second, one, Derived.LEVEL, one.cents, one.twice(), issubclass(Derived, Base), Derived.__name__
    yield msgspec.json.encode([one, Camel(1, 2)]), Camel.__struct_encode_fields__, Box(1) < Box(2), Box(1).made_by is Box
    yield msgspec.convert({"item": 1}, Box[int]), [str(one) for one in (Base, Derived, Box)]
    for wrong in (lambda: Camel(-1), lambda: setattr(one, "n", 1), lambda: msgspec.convert({"item": "a"}, Box[int]),
                  lambda: msgspec.convert({"box": {"item": 1}, "price": 0}, Plain)):
        try: yield wrong()
        except Exception as error: yield type(error)
"""
"""A cell of a notebook."""


@pytest.mark.parametrize("first", ["", "from __future__ import annotations"])
def test_a_class_of_records_arrives_with_all_that_it_has(first: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", module)
    space = vars(module)
    exec(compile(first + STRUCTS, "cell", "exec", dont_inherit=True), space)
    spout = IterableSpout(space["facts"])
    builder = TopologyBuilder("sent")
    builder.set_spout("facts", spout)
    code = pickle_topology(builder.build(), tmp_path)
    read = "import pickle, sys; print(list(pickle.load(open(sys.argv[1], 'rb')).component('facts').component._items()))"
    got = subprocess.run([sys.executable, "-c", read, code.reference], capture_output=True, text=True, check=True)
    assert got.stdout.strip() == repr(list(space["facts"]()))
