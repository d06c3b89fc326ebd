from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.plan.parts import ByLength, Lines, Sink, Split, diamond, word_count
from topo.api.bolt import Bolt
from topo.api.spout import BlockingSpout, RetryingSpout, Spout
from topo.builder import TopologyBuilder
from topo.connectors.iterable_spout import IterableSpout
from topo.errors import TopologyError
from topo.plan.parallelism import with_overrides
from topo.plan.validation import problems_of, validate


class Unfinished(Spout):
    outputs = ("line",)


class Misspelt(Split):
    outputs = "word"


class Carried(Lines):
    wants_values = True


class WithPath(Lines):
    def __init__(self, path: str) -> None:
        self.path = path


Change = Callable[[TopologyBuilder], Any]


def problems(change: Change, builder: TopologyBuilder | None = None) -> list[str]:
    builder = builder or word_count()
    change(builder)
    with pytest.raises(TopologyError) as caught:
        builder.build()
    return list(caught.value.problems)


def test_a_good_topology_is_built() -> None:
    topology = diamond()
    assert [spec.id for spec in topology.components] == ["lines", "split", "count", "audit"]
    assert problems_of(topology) == []


RULES: list[tuple[str, Change, str]] = [
    (
        "values wanted back from checkpoints",
        lambda b: b.config(delivery="exactly_once").set_spout("x", Carried()),
        "component 'x': wants_values is set, but with delivery='exactly_once' no values are kept for ack and fail; leave it out",
    ),
    (
        "values wanted back from checkpoints, by a class",
        lambda b: b.config(delivery="exactly_once").set_spout("x", Carried),
        "keep by message id what they need, or set delivery='at_least_once'",
    ),
    (
        "unknown component",
        lambda b: b.set_bolt("x", Sink()).shuffle_grouping("splt"),
        "bolt 'x': reads from 'splt', which is not a component; did you mean 'split'?",
    ),
    (
        "unknown component, nothing near",
        lambda b: b.set_bolt("x", Sink()).shuffle_grouping("kafka"),
        "reads from 'kafka', which is not a component; there are 'lines', 'split', 'count', 'x'",
    ),
    (
        "unknown stream",
        lambda b: b.set_bolt("x", Sink()).shuffle_grouping("split", stream="reply"),
        "bolt 'x': reads stream 'reply' of 'split', which does not declare it; did you mean 'replies'?",
    ),
    (
        "source without outputs",
        lambda b: b.set_bolt("x", Sink()).shuffle_grouping("count"),
        "reads from 'count', which emits nothing; declare its outputs",
    ),
    (
        "source given as a class whose __init__ declares its outputs",
        lambda b: (b.set_spout("y", IterableSpout, args=([1],)), b.set_bolt("x", Sink()).shuffle_grouping("y")),
        """reads from 'y', which emits nothing; declare its outputs, such as outputs = ("field",), or give an instance where""",
    ),
    (
        "list as id",
        lambda b: b.set_bolt(["x"], Sink()).shuffle_grouping("lines"),
        "component id ['x'] is not allowed; use",
    ),
    (
        "list as source",
        lambda b: b.set_bolt("x", Sink()).shuffle_grouping(["lines"]),
        "bolt 'x': reads from ['lines'], which is no name; give each component its own grouping (test_validation.py:",
    ),
    (
        "list as stream",
        lambda b: b.set_bolt("x", Sink()).shuffle_grouping("lines", ["default"]),
        "bolt 'x': reads stream ['default'] of 'lines', which is no name; give that of one stream",
    ),
    (
        "text as grouping",
        lambda b: b.set_bolt("x", Sink()).grouping("lines", "shuffle"),
        "bolt 'x': the grouping on 'lines' is 'shuffle'; call shuffle_grouping('lines') or another of the declarer",
    ),
    (
        "unknown field",
        lambda b: b.set_bolt("x", Sink()).fields_grouping("split", "wrd"),
        "names 'wrd', which stream 'default' of 'split' does not have; did you mean 'word'?",
    ),
    (
        "unknown field of a partial key",
        lambda b: b.set_bolt("x", Sink()).partial_key_grouping("split", "zzz"),
        "does not have; there are 'word', 'length'",
    ),
    ("no field", lambda b: b.set_bolt("x", Sink()).fields_grouping("split"), "names no field; give at least one of word, length"),
    ("duplicate id", lambda b: b.set_bolt("split", Sink()).shuffle_grouping("lines"), "component id 'split' is used 2 times"),
    ("bad id", lambda b: b.set_bolt("a b", Sink()).shuffle_grouping("lines"), "component id 'a b' is not allowed; use 1 to 63"),
    ("empty id", lambda b: b.set_bolt("", Sink()).shuffle_grouping("lines"), "component id '' is not allowed"),
    ("long id", lambda b: b.set_bolt("x" * 64, Sink()).shuffle_grouping("lines"), "is not allowed; use 1 to 63"),
    ("reserved id", lambda b: b.set_bolt("__acker", Sink()).shuffle_grouping("lines"), "begins with '__', which is reserved"),
    ("bolt without input", lambda b: b.set_bolt("x", Sink()), "bolt 'x' reads nothing; say what with a grouping"),
    (
        "two groupings of one stream",
        lambda b: b.set_bolt("x", Sink()).shuffle_grouping("lines").all_grouping("lines"),
        "reads stream 'default' of 'lines' 2 times, so each tuple would come 2 times; keep one grouping",
    ),
    (
        "direct stream, other grouping",
        lambda b: b.set_bolt("x", Sink()).shuffle_grouping("split", stream="replies"),
        "is a direct stream; read it with direct_grouping('split', stream='replies')",
    ),
    (
        "direct grouping, other stream",
        lambda b: b.set_bolt("x", Sink()).direct_grouping("split"),
        "direct_grouping needs a direct stream, and 'default' of 'split' is none",
    ),
    (
        "custom grouping that is none",
        lambda b: b.set_bolt("x", Sink()).custom_grouping("split", ByLength),
        "needs an instance of a CustomGrouping",
    ),
    ("parallelism 0", lambda b: b.set_spout("x", Lines(), 0), "component 'x': parallelism is 0; it must be a whole number"),
    ("parallelism of text", lambda b: b.set_spout("x", Lines(), "2"), "parallelism is '2'; it must be a whole number"),
    (
        "parallelism above max",
        lambda b: b.set_spout("x", Lines(), 9, max_parallelism=8),
        "parallelism 9 is more than max_parallelism 8; raise max_parallelism or lower the parallelism",
    ),
    ("parallelism above all", lambda b: b.set_spout("x", Lines(), 40_000), "40000 is more than max_parallelism 32768; lower it"),
    ("unknown setting", lambda b: b.set_spout("x", Lines(), tick_intervall="1s"), "did you mean 'tick_interval'?"),
    (
        "setting of the topology",
        lambda b: b.set_spout("x", Lines(), ackers=2),
        "component 'x': ackers holds for the whole topology",
    ),
    ("bad setting", lambda b: b.set_spout("x", Lines(), message_timeout="soon"), "component 'x': message_timeout: 'soon' is not"),
    (
        "no timeout for one spout",
        lambda b: b.set_spout("x", Lines(), message_timeout=None),
        "component 'x': message_timeout is off while max_spout_pending is set",
    ),
    (
        "unknown setting of all",
        lambda b: b.config(worker=2),
        "settings of the topology: there is no setting 'worker'; did you mean",
    ),
    ("settings of all do not fit", lambda b: b.config(message_timeout=None), "settings of the topology: message_timeout is off"),
    ("a bolt as spout", lambda b: b.set_spout("x", Split()), "component 'x': Split is a bolt; add it with set_bolt"),
    ("a spout as bolt", lambda b: b.set_bolt("x", Lines).all_grouping("lines"), "component 'x': Lines is a spout; add it with"),
    ("neither", lambda b: b.set_spout("x", 3), "component 'x': 3 was given; set_spout takes a Spout"),
    ("a function", lambda b: b.set_spout("x", problems), "problems, which is no class, was given; set_spout takes a Spout"),
    ("abstract", lambda b: b.set_spout("x", Unfinished), "Unfinished does not define next_tuple; add the missing methods"),
    ("missing argument", lambda b: b.set_spout("x", WithPath), "cannot be made: missing a required argument: 'path'; give args="),
    (
        "arguments of an instance",
        lambda b: b.set_spout("x", Lines(), args=(1,)),
        "args and kwargs are for a class, but an instance",
    ),
    (
        "outputs malformed",
        lambda b: b.set_bolt("x", Misspelt()).all_grouping("lines"),
        "component 'x': outputs: stream 'default': ",
    ),
    (
        "code out of range",
        lambda b: b.register_type(Lines, 7, bytes, bytes),
        "register_type(Lines): code 7 is not one of 32 to 65535",
    ),
    (
        "code taken",
        lambda b: b.register_type(Lines, 40, bytes, bytes).register_type(Split, 40, bytes, bytes),
        "register_type: code 40 is registered 2 times",
    ),
    ("no class to carry", lambda b: b.register_type("Money", 40, bytes, bytes), "register_type: 'Money' is not a class"),
]


@pytest.mark.parametrize(("change", "expected"), [rule[1:] for rule in RULES], ids=[rule[0] for rule in RULES])
def test_a_fault_is_reported_once_with_its_fix(change: Change, expected: str) -> None:
    found = problems(change)
    assert len([problem for problem in found if expected in problem]) == 1, found
    assert len(found) == 1, found


def test_a_topology_without_a_spout_is_refused() -> None:
    found = problems(lambda b: None, TopologyBuilder("empty"))
    line = test_a_topology_without_a_spout_is_refused.__code__.co_firstlineno + 1
    expected = "topology 'empty' has no spout, so nothing would ever happen; add one with set_spout(...)"
    assert found == [f"{expected} (test_validation.py:{line})"]


@pytest.mark.parametrize("name", ["", "word count", "a/b", "x" * 64, "grüße", "Words", "word_count"])
def test_a_name_that_cannot_name_a_folder_is_refused(name: str) -> None:
    builder = TopologyBuilder(name)
    builder.set_spout("lines", Lines())
    assert "use 1 to 63 of a-z, 0-9 and '-'" in problems(lambda b: None, builder)[0]


def test_a_name_that_is_refused_comes_with_one_that_is_not() -> None:
    builder = TopologyBuilder("Word_Count 2")
    builder.set_spout("lines", Lines())
    assert ", such as 'word-count-2' (test_validation.py:" in problems(lambda b: None, builder)[0]


def test_cycles_are_named_with_their_path_and_all_of_them() -> None:
    def tie(builder: TopologyBuilder) -> None:
        builder.set_bolt("a", Split()).shuffle_grouping("lines").shuffle_grouping("c")
        builder.set_bolt("b", Split()).shuffle_grouping("a")
        builder.set_bolt("c", Split()).shuffle_grouping("b")
        builder.set_bolt("d", Split()).shuffle_grouping("d").shuffle_grouping("b")

    found = problems(tie)
    assert [problem.split(";")[0] for problem in found] == [
        "the components form a cycle: a -> b -> c -> a",
        "the components form a cycle: d -> d",
    ]
    line = tie.__code__.co_firstlineno
    places = [", ".join(f"test_validation.py:{line + behind}" for behind in behinds) for behinds in ((1, 2, 3), (4,))]
    assert all(problem.endswith(f"({place})") for problem, place in zip(found, places, strict=True)), found


def test_a_problem_of_the_whole_topology_has_the_line_of_its_builder_or_of_config() -> None:
    builder = TopologyBuilder("Wrong name")
    builder.set_spout("lines", Lines())
    builder.config(message_timeout=None)
    first = test_a_problem_of_the_whole_topology_has_the_line_of_its_builder_or_of_config.__code__.co_firstlineno + 1
    named, settings = problems(lambda b: None, builder)
    assert named.endswith(f"(test_validation.py:{first})") and settings.endswith(f"(test_validation.py:{first + 2})")


def test_everything_that_is_wrong_is_reported_at_once() -> None:
    def spoil(builder: TopologyBuilder) -> None:
        for _, change, _ in RULES[:6]:
            change(builder)
        builder.config(message_timeout="off", worker=1)

    found = problems(spoil)
    assert len(found) >= 8
    with pytest.raises(TopologyError, match=r"^\d+ problems:\n  - "):
        raise TopologyError(found)


def test_settings_from_outside_are_checked_with_the_topology() -> None:
    topology = word_count().build()
    varied = with_overrides(topology, {"max_parallelism": 2}, {})
    assert problems_of(varied) == [
        "component 'count': parallelism 3 is more than max_parallelism 2; raise max_parallelism or lower the parallelism"
    ]
    with pytest.raises(TopologyError):
        validate(varied)
    validate(topology)


def test_a_chain_longer_than_the_recursion_limit_is_checked() -> None:
    class Pass(Bolt):
        outputs = ("line",)

        def execute(self, tup: object) -> None:
            """Take it."""

    builder = TopologyBuilder("long")
    builder.set_spout("n0", Lines())
    for number in range(1500):
        builder.set_bolt(f"n{number + 1}", Pass()).shuffle_grouping(f"n{number}")
    assert len(builder.build().components) == 1501


def test_a_spout_that_blocks_and_retries_is_refused() -> None:
    class Both(BlockingSpout, RetryingSpout):
        outputs = ("x",)

        def run(self) -> None: ...

        def cancel(self) -> None: ...

    builder = TopologyBuilder("t")
    builder.set_spout("both", Both())
    with pytest.raises(TopologyError, match="BlockingSpout and RetryingSpout, which do not go together"):
        builder.build()
