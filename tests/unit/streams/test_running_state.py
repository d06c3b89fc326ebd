"""What running results keep: state that a checkpoint gives back as it was, and results that are emitted though a chain raises."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import InitVar, dataclass
from decimal import Decimal
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec
import pytest

from tests.unit.connectors.drive import tracked
from tests.unit.streams.test_programs import Keep, run
from topo import UserError
from topo.api.context import TaskContext
from topo.api.streams import declared_streams
from topo.emission.collectors import AnchoringCollector
from topo.streams import AT_END, EACH, KeyedStream, Rows, StreamBuilder, every
from topo.streams.chain import Chain, Leaf, Maker
from topo.streams.components import RunningBolt
from topo.streams.graph import Site
from topo.streams.records import UNKNOWN, layout_of
from topo.streams.results import EmitWhen
from topo.streams.value_checks import check_key
from topo.testing import CRASH, PAUSE, StreamTest


class Total(msgspec.Struct):
    paid: int
    refunded: int


class Swapped(msgspec.Struct):
    refunded: int
    paid: int


class Longer(msgspec.Struct):
    refunded: int
    paid: int
    open: int = 7


class Renamed(msgspec.Struct):
    paid: int
    returned: int = 0


class WithoutDefault(msgspec.Struct):
    paid: int
    refunded: int
    open: int


@dataclass
class DataTotal:
    refunded: int
    paid: int


class NamedTotal(NamedTuple):
    refunded: int
    paid: int


def bolt_of(record: Any, kind: str = "fold", when: EmitWhen = EACH) -> RunningBolt:
    chain = Chain("totals", f"{kind} 'totals'", Site("program.py", 7), [])
    bolt = RunningBolt(chain, kind, lambda old, new: old, None, layout_of(record), layout_of(record), when, {})
    bolt.prepare(TaskContext("test", "totals", 1))
    return bolt


def stored(record: Any, kind: str = "fold", when: EmitWhen = EACH) -> dict[Any, Any]:
    bolt = bolt_of(type(record), kind, when)
    bolt._state["k"] = record
    return bolt.snapshot()


@pytest.mark.parametrize("other", [Swapped(2, 1), Longer(2, 1), DataTotal(2, 1), NamedTotal(2, 1)])
def test_state_is_restored_by_the_names_of_its_fields(other: Any) -> None:
    bolt = bolt_of(type(other))
    bolt.restore(stored(Total(1, 2)))
    assert bolt._state == {"k": other}


@pytest.mark.parametrize(
    ("kind", "when", "record", "message"),
    [
        ("reduce", EACH, Total, "state in the checkpoint is that of fold with emit each, and it is reduce with emit each now"),
        ("fold", AT_END, Total, "fold with emit each, and it is fold with emit at_end now"),
        ("fold", EACH, Renamed, "'refunded' may have become 'returned'.*stored are paid, refunded; Renamed has paid, returned"),
        ("fold", EACH, WithoutDefault, "'open' has no default"),
        ("fold", EACH, int, "are records with the fields paid, refunded, and are single values now"),
    ],
)
def test_state_of_another_operator_is_refused(kind: str, when: EmitWhen, record: Any, message: str) -> None:
    with pytest.raises(UserError, match=f"(?s){message}.*--drop-state totals"):
        bolt_of(record, kind, when).restore(stored(Total(1, 2)))


def append(words: dict[str, list[int]], word: str) -> dict[str, list[int]]:
    words.setdefault(word, []).append(1)
    return words


@pytest.mark.parametrize(
    ("initial", "fold"),
    [
        ([], lambda words, word: [*words, word]),
        ({}, append),
        (0, lambda _before, word: {"nested": (word, [word])}),
    ],
)
def test_state_that_a_checkpoint_would_change_fails_its_record(initial: Any, fold: Any) -> None:
    def draw(flow: StreamBuilder) -> None:
        flow.from_iterable([""]).key_by(lambda word: word).fold(initial, fold).map(len).values().to(print)

    (error,) = run(draw, {"items": ["a"]}, attempts=1).errors()
    assert "keeps a list, and its type is not known here" in error.message and "of=dict[str, list[int]]" in error.message


def tags_of_both(first: Any, second: Any) -> Any:
    return {"tags": [*first["tags"], *second["tags"]]}


@pytest.mark.parametrize("of", [None, dict[str, list[str]]])
@pytest.mark.parametrize(
    "reduce",
    [
        lambda keyed: keyed.reduce(tags_of_both, emit=AT_END, name="both").values(),
        lambda keyed: keyed.window(Rows(2)).reduce(tags_of_both, name="both").values().map(lambda window: window.value),
    ],
    ids=["running", "window"],
)
def test_the_type_of_what_reduce_keeps_is_declared_where_its_records_are_made(
    reduce: Callable[[KeyedStream[str, Any]], Any], of: Any
) -> None:
    """The advice was to declare it at the `reduce`, which does not take a type."""
    seen: list[Any] = []

    def draw(flow: StreamBuilder) -> None:
        tags: list[Any] = [{"tags": ["x"]}, {"tags": ["y"]}]
        reduce(flow.from_iterable(tags, of=of).key_by(lambda _record: "k")).to(seen.append)

    errors = run(draw, attempts=1).errors()
    if of is None:
        assert errors[0].message.endswith("or by map(..., of=...) before it")
    else:
        assert (seen, errors) == ([{"tags": ["x", "y"]}], [])


@dataclass
class Recent:
    words: deque[str]


def last_words(words: deque[str], word: str) -> deque[str]:
    return deque([*words, word], maxlen=3)


def recent(so_far: Recent, word: str) -> Recent:
    return Recent(last_words(so_far.words, word))


def nested(_before: object, word: str) -> dict[str, deque[str]]:
    return {word: deque([word])}


UNSTORABLE = pytest.mark.parametrize(
    ("initial", "fold"), [(deque(), last_words), (Recent(deque()), recent), (0, nested)], ids=["whole", "field", "part"]
)


@UNSTORABLE
def test_state_that_no_checkpoint_can_store_fails_its_record(initial: Any, fold: Any) -> None:
    def draw(flow: StreamBuilder) -> None:
        keyed = flow.from_iterable([""]).key_by(lambda word: word)
        keyed.fold(initial, fold, emit=AT_END).map(lambda state: 1).values().to(print)

    test = run(draw, {"items": ["a", "a"]}, attempts=1, checkpoint_interval="10ms")
    errors = test.errors()
    assert len(errors) == 2
    for error in errors:
        assert "fold at " in error.message and " that no checkpoint can store (deque: topo carries " in error.message
        assert "register a serializer" in error.message and "of=list[int]" in error.message
        assert (error.file or "").endswith("test_running_state.py")


@UNSTORABLE
def test_state_that_no_checkpoint_stores_may_be_anything(initial: Any, fold: Any) -> None:
    seen: list[Any] = []

    def draw(flow: StreamBuilder) -> None:
        flow.config(delivery="at_least_once")
        keyed = flow.from_iterable([""]).key_by(lambda word: word)
        keyed.fold(initial, fold, emit=AT_END).map(lambda state: 1).values().to(seen.append)

    run(draw, {"items": ["a", "a"]}, attempts=1).assert_all_acked()
    assert seen == [1]


def test_the_first_result_alone_is_looked_at() -> None:
    looked: list[Any] = []
    bolt = bolt_of(int, "reduce")
    bolt.prepare(TaskContext("test", "totals", 1, check_state=looked.append))
    out = AnchoringCollector("totals", declared_streams(()), _refuse)
    for amount in (1, 2, 3):
        bolt.execute(tracked(key="a", value=amount), out)
    assert looked == [1]


def test_a_declared_dict_of_lists_comes_back_with_its_lists() -> None:
    seen: list[Any] = []

    def draw(flow: StreamBuilder) -> None:
        keyed = flow.from_iterable([""]).key_by(lambda word: word)
        keyed.fold({}, append, of=dict[str, list[int]], emit=AT_END, name="lists").values().to(seen.append)

    test = run(draw, {"items": ["a", PAUSE("1s"), CRASH("lists"), "a"]}, checkpoint_interval="10ms")
    assert [one.kind for one in test.errors()] == ["WorkerLost"]
    assert seen == [{"a": [1, 1]}]


@pytest.mark.parametrize("key", [Decimal("NaN"), Decimal("sNaN"), (1, Decimal("NaN")), float("nan")])
def test_a_key_that_does_not_equal_itself_is_refused(key: Any) -> None:
    with pytest.raises(UserError, match="returned NaN"):
        check_key(key)


def test_unknown_state_of_scalars_and_tuples_is_admitted() -> None:
    check = UNKNOWN.state_check("fold")
    assert check is not None and check((1, {"a": (2, {3})})) == (1, {"a": (2, {3})})
    with pytest.raises(UserError, match="was given a Swapped, where records are of Total"):
        layout_of(Total).state_check("fold")(Swapped(1, 2))  # type: ignore[misc]


def failing(times: int) -> Callable[[int], int]:
    left = [times]

    def check(n: int) -> int:
        if n == 2 and left[0]:
            left[0] -= 1
            raise RuntimeError("not now")
        return n

    return check


@pytest.mark.parametrize("when", [AT_END, every("1s")], ids=["at_end", "every"])
def test_a_result_whose_chain_raises_once_is_emitted_later(when: EmitWhen) -> None:
    seen: list[Any] = []
    check = failing(1)

    def draw(flow: StreamBuilder) -> None:
        keyed = flow.from_iterable([""]).key_by(lambda word: word)
        # The first copy is emitted before the second raises.
        keyed.count(emit=when).flat_map(lambda n: [1, n]).map(check).to(Keep(seen))

    test = run(draw, {"items": ["a", "b", "b", PAUSE("3s")]})
    test.assert_all_acked()
    assert sorted(seen) == [("a", 1), ("a", 1), ("b", 1), ("b", 2)]


@pytest.mark.parametrize("when", [AT_END, every("1s")], ids=["at_end", "every"])
def test_a_result_whose_chain_keeps_raising_fails_the_run_and_no_other_result(when: EmitWhen) -> None:
    seen: list[Any] = []
    check = failing(1000)

    def draw(flow: StreamBuilder) -> None:
        flow.from_iterable([""]).key_by(lambda word: word).count(emit=when).map(check).to(seen.append)

    test = run(draw, {"items": ["a", "b", "b"]})
    assert seen == [("a", 1)]
    assert test.outcome is not None and test.outcome.exit_code == 1
    assert any("1 results of count" in error.message and "'b'" in error.message for error in test.errors())


def test_a_chain_that_changes_the_record_does_not_change_the_state() -> None:
    seen: list[Any] = []

    def draw(flow: StreamBuilder) -> None:
        totals = flow.from_iterable([1]).gather().fold({"n": 0}, lambda total, n: {"n": total["n"] + n})
        totals.map(lambda total: total.pop("n")).values().to(seen.append)

    run(draw, {"items": [1, 2]}).assert_all_acked()
    assert seen == [1, 3]


class Special(Total):
    pass


@dataclass
class Passed:
    at: int
    passed: InitVar[int]


T = TypeVar("T")


class Batch(msgspec.Struct, Generic[T]):
    items: list[T]


def test_a_record_that_would_arrive_as_another_is_refused() -> None:
    def cut(flow: StreamBuilder) -> None:
        flow.from_iterable([1]).map(lambda n: Special(n, n), of=Total).rebalance(parallelism=1).to(print)

    def opened(flow: StreamBuilder) -> None:
        flow.from_iterable([1]).map(lambda n: [Total(n, n)], of=list).rebalance(parallelism=1).to(print)

    (error,) = run(cut, {"items": [1]}, attempts=1).errors()
    assert "was given a Special, where records are of Total" in error.message
    (error,) = run(opened, {"items": [1]}, attempts=1).errors()
    assert "declare list[Total]" in error.message
    with pytest.raises(UserError, match=r"takes passed \(InitVar\)"):
        layout_of(Passed)


def test_type_variables_are_substituted_within_lists() -> None:
    layout = layout_of(Batch[Total])
    assert layout.unpacker()(layout.packer("map")(Batch([Total(1, 2)]))) == Batch([Total(1, 2)])


@pytest.mark.parametrize("when", [AT_END, every("1s")], ids=["at_end", "every"])
@pytest.mark.parametrize("items", [[3], [1, 2, 3]])
def test_a_record_that_is_replayed_behind_the_end_of_the_input_is_in_a_result(when: EmitWhen, items: list[int]) -> None:
    seen: list[Any] = []
    left = [1]

    def add(total: int, n: int) -> int:
        if n == 3 and left[0]:
            left[0] -= 1
            raise RuntimeError("not now")
        return total + n

    def draw(flow: StreamBuilder) -> None:
        flow.config(delivery="at_least_once")
        flow.from_iterable([1]).gather().fold(0, add, emit=when).values().to(seen.append)

    run(draw, {"items": items}).assert_all_acked()
    assert seen[-1] == sum(items)


def counting() -> tuple[RunningBolt, AnchoringCollector]:
    site = Site("program.py", 7)
    chain = Chain(
        "counts", "count 'counts'", site, [Leaf("to", site, Maker("count", site), "default", layout_of(int), keyed=True)]
    )
    bolt = RunningBolt(chain, "count", None, None, layout_of(int), layout_of(int), AT_END, {"default": ("key", "value")})
    bolt.prepare(TaskContext("test", "totals", 1))
    return bolt, AnchoringCollector("counts", declared_streams(bolt.outputs), _refuse)


def _refuse(error: BaseException) -> None:
    raise error


def test_a_run_that_reads_on_behind_the_end_emits_the_results_that_change() -> None:
    (first, out), (last, out_of_last) = counting(), counting()
    for key in "aab":
        first.execute(tracked(key=key), out)
    first.end_of_input(out)
    assert sorted(out.streams[0].rows) == [("a", 2), ("b", 1)]
    last.restore(first.snapshot())
    last.on_reset()
    last.execute(tracked(key="b"), out_of_last)
    assert not out_of_last.count()
    last.end_of_input(out_of_last)
    assert out_of_last.streams[0].rows == [("b", 2)]


def test_without_checkpoints_a_new_epoch_repeats_the_results_of_the_end() -> None:
    bolt, out = counting()
    bolt.execute(tracked(key="a"), out)
    bolt.end_of_input(out)
    bolt.on_reset()
    bolt.end_of_input(out)
    assert out.streams[0].rows == [("a", 1), ("a", 1)]


def test_a_result_that_had_changed_before_a_crash_and_was_not_emitted_comes_at_the_next_tick() -> None:
    with StreamTest() as test:
        words = test.source(str)
        seen = test.collect(words.stream.key_by(str).count(emit=every("1s"), name="counts"))
        words.send("a", "b", "a")
        test.advance("40ms")  # a checkpoint has completed, and no tick has come
        test.crash("counts")
        test.advance("2s")
        assert sorted(seen.take()) == [("a", 2), ("b", 1)]
