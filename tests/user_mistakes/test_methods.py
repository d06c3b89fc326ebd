"""Mistakes with methods: values that nothing takes, signatures of other engines, a forgotten `__init__`; and with settings."""

from __future__ import annotations

from typing import Any

import pytest

from topo import (
    AsyncBolt,
    BasicBolt,
    Bolt,
    IterableSpout,
    ProcessBolt,
    RetryingSpout,
    Spout,
    StatefulBolt,
    TopologyBuilder,
    WindowBolt,
    windows,
)
from topo.errors import TopologyError
from topo.master.outcome import OutcomeKind
from topo.testing import TopologyTest, run_bolt


def refused(component: Any, *, spout: bool = False, **more: Any) -> str:
    """Return the message of build() for a topology with this component."""
    builder = TopologyBuilder("methods")
    if spout:
        builder.set_spout("mine", component, **more)
    else:
        builder.set_spout("numbers", IterableSpout([1, 2, 3], fields=("n",)))
        builder.set_bolt("mine", component, **more).shuffle_grouping("numbers")
    with pytest.raises(TopologyError) as caught:
        builder.build()
    (problem,) = caught.value.problems
    return problem


class Yields(BasicBolt):
    outputs = ("n",)

    def execute(self, tup: Any, collector: Any) -> Any:
        yield (tup["n"],)


class Awaits(BasicBolt):
    outputs = ("n",)

    async def execute(self, tup: Any, collector: Any) -> None:  # type: ignore[override]
        collector.emit((tup["n"],))


class StormBolt(Bolt):
    outputs = ("n",)

    def prepare(self, conf: Any, context: Any, collector: Any) -> None:  # type: ignore[override]
        self.collector = collector

    def execute(self, tup: Any) -> None:
        self.collector.ack(tup)


class StormBasic(BasicBolt):
    def prepare(self, conf: Any, context: Any) -> None:  # type: ignore[override]
        pass

    def execute(self, tup: Any, collector: Any) -> None:
        pass


class NoCollector(BasicBolt):
    def execute(self, tup: Any) -> None:  # type: ignore[override]
        pass


class PlainCall(AsyncBolt):
    def open(self, context: Any) -> None:  # type: ignore[override]
        pass

    async def call(self, tup: Any) -> None:
        pass


class YieldingProcess(ProcessBolt):
    def process(self, tup: Any, context: Any, collector: Any) -> Any:
        yield (1,)


@pytest.mark.parametrize(
    ("bolt", "text"),
    [
        (Yields(), "Yields.execute is a generator, which nothing would run; call collector.emit(...) instead of yield"),
        (Yields, "Yields.execute is a generator"),
        (Awaits(), "Awaits.execute is async def, and nothing would await it; make it def, or take an AsyncBolt"),
        (StormBolt(), "defined as prepare(self, conf, context, collector), but it is called as prepare(context, collector)"),
        (StormBasic(), "defined as prepare(self, conf, context), but it is called as prepare(context)"),
        (NoCollector(), "defined as execute(self, tup), but it is called as execute(tup, collector)"),
        (PlainCall(), "PlainCall.open is awaited on the event loop; make it async def"),
        (YieldingProcess(None), "YieldingProcess.process is a generator"),
    ],
)
def test_a_bolt_method_that_cannot_be_called_is_refused_at_build(bolt: Any, text: str) -> None:
    """The user yields rows, awaits, or writes Storm's signatures; the answer names file and line."""
    problem = refused(bolt)
    assert text in problem and "component 'mine': " in problem and "test_methods.py:" in problem


class YieldingSpout(Spout):
    outputs = ("n",)

    def next_tuple(self) -> Any:
        yield (1,)


class StormSpout(RetryingSpout):
    outputs = ("n",)

    def open(self, conf: Any, context: Any, collector: Any) -> None:  # type: ignore[override]
        pass

    def next_tuple(self) -> None:
        pass


class OneArgument(Spout):
    outputs = ("n",)
    wants_values = True

    def next_tuple(self) -> None:
        pass

    def fail(self, message_id: Any) -> None:
        pass


@pytest.mark.parametrize(
    ("spout", "text"),
    [
        (YieldingSpout(), "YieldingSpout.next_tuple is a generator"),
        (StormSpout(), "is defined as open(self, conf, context, collector), but it is called as open(context, collector)"),
        (OneArgument(), "is defined as fail(self, message_id), but it is called as fail(message_id, values)"),
    ],
)
def test_a_spout_method_that_cannot_be_called_is_refused_at_build(spout: Any, text: str) -> None:
    """The same for spouts."""
    assert text in refused(spout, spout=True)


class Returns(BasicBolt):
    outputs = ("n",)

    def execute(self, tup: Any, collector: Any) -> Any:
        return (tup["n"] * 2,)


class ReturnsTracked(Bolt):
    outputs = ("n",)

    def prepare(self, context: Any, collector: Any) -> None:
        self.collector = collector

    def execute(self, tup: Any) -> Any:
        self.collector.ack(tup)
        return (1,)


class ReturnsProcessed(ProcessBolt):
    outputs = ("n",)

    def __init__(self) -> None:
        super().__init__(key=None)

    def process(self, tup: Any, context: Any, collector: Any) -> Any:
        return (1,)


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
@pytest.mark.parametrize(("bolt", "method"), [(Returns, "execute"), (ReturnsTracked, "execute"), (ReturnsProcessed, "process")])
def test_a_returned_row_is_an_error_with_the_users_file_and_line(bolt: Any, method: str, delivery: str) -> None:
    """The user returns the row instead of emitting it."""
    builder = TopologyBuilder("returns").config(delivery=delivery, backoff="1s")
    builder.set_spout("numbers", IterableSpout([1, 2, 3], fields=("n",)))
    builder.set_bolt("mine", bolt()).shuffle_grouping("numbers")
    test = TopologyTest(builder.build())
    test.run()
    assert test.outcome is not None and test.outcome.kind is OutcomeKind.DEAD_LETTERS
    error = test.errors()[0]
    assert f"{method} returned " in error.message and "use collector.emit(...) and return None" in error.message
    assert error.file.endswith("test_methods.py") and error.line > 0


def test_a_returned_row_fails_its_input_in_run_bolt() -> None:
    """The same in the kit for one bolt."""
    run = run_bolt(Returns(), [(1,)], fields=["n"])
    assert run.failed == [0] and "execute returned (2,)" in str(run.errors[0])


class NoInit(ProcessBolt):
    outputs = ("n",)

    def __init__(self, more: int) -> None:
        self.more = more

    def process(self, tup: Any, context: Any, collector: Any) -> None:
        pass


class NoAsyncInit(AsyncBolt):
    outputs = ("n",)

    def __init__(self) -> None:
        self.session = None

    async def call(self, tup: Any) -> None:
        pass


class NoSpoutInit(IterableSpout):
    def __init__(self) -> None:
        self.more = 1


class NoInitButOutputs(IterableSpout):
    outputs = ("n",)

    def __init__(self) -> None:
        self.more = 1


class NoWindowInit(WindowBolt):
    outputs = ("n",)

    def __init__(self) -> None:
        self.more = 1


@pytest.mark.parametrize(
    ("component", "base", "more"),
    [
        (NoInit(1), "ProcessBolt", {}),
        (NoInit, "ProcessBolt", {"args": (1,)}),
        (NoAsyncInit(), "AsyncBolt", {}),
        (NoAsyncInit, "AsyncBolt", {}),
        (NoSpoutInit(), "IterableSpout", {"spout": True}),
        (NoInitButOutputs(), "IterableSpout", {"spout": True}),
        (NoWindowInit(), "WindowBolt", {}),
    ],
)
def test_a_forgotten_super_init_is_named_at_build(component: Any, base: str, more: Any) -> None:
    """The user's `__init__` does not call that of the base class."""
    problem = refused(component, **more)
    assert f"does not call super().__init__(...), so {base} is not set up; call it first" in problem


class Count(StatefulBolt):
    outputs = ("n",)
    key = "n"

    def prepare(self, context: Any) -> None:
        self.counts: dict[int, int] = {}

    def execute(self, tup: Any, collector: Any) -> None:
        self.counts[tup["n"]] = self.counts.get(tup["n"], 0) + 1

    def snapshot(self) -> Any:
        return self.counts

    def restore(self, state: Any) -> None:
        self.counts = dict(state or {})


GROUPINGS: list[tuple[str, tuple[Any, ...]]] = [
    ("shuffle", ()),
    ("local_or_shuffle", ()),
    ("none", ()),
    ("all", ()),
    ("global", ()),
    ("fields", ("m",)),
    ("fields", ("n", "m")),
    ("partial_key", ("n",)),
]


@pytest.mark.parametrize("delivery", ["auto", "at_least_once"])
@pytest.mark.parametrize(("grouping", "fields"), GROUPINGS)
def test_keyed_state_by_another_grouping_is_refused(grouping: str, fields: Any, delivery: str) -> None:
    """The tuples of a key of a StatefulBolt come to tasks that do not own the key: a recovery would lose its state."""
    builder = TopologyBuilder("state").config(delivery=delivery)
    builder.set_spout("good", IterableSpout([(1, 2)], fields=("n", "m")))
    builder.set_spout("bad", IterableSpout([(1, 2)], fields=("n", "m")))
    declared = builder.set_bolt("count", Count(), parallelism=4).fields_grouping("good", "n")
    getattr(declared, f"{grouping}_grouping")("bad", *fields)
    with pytest.raises(TopologyError, match=r"its key is 'n', but the tuples of 'bad' come by .*; use fields_grouping"):
        builder.build()


def test_one_task_may_have_keyed_state_by_any_grouping() -> None:
    """With a parallelism of 1 all keys belong to the one task; a rebalance to more is refused as above."""
    from topo.config import TopologyConfig
    from topo.plan.parallelism import with_parallelism
    from topo.plan.validation import validate

    builder = TopologyBuilder("state")
    builder.set_spout("source", IterableSpout([1], fields=("n",)))
    builder.set_bolt("count", Count()).shuffle_grouping("source")
    topology = builder.build()
    with pytest.raises(TopologyError, match="its key is 'n'"):
        validate(with_parallelism(topology, {"count": 2}, TopologyConfig()))


class Rules(Count):
    key = None  # type: ignore[assignment]
    is_broadcast = True


class KeyedRules(Count):
    is_broadcast = True


@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize("grouping", ["shuffle", "all"])
def test_broadcast_state_needs_an_input_that_all_tasks_are_given(grouping: str, parallelism: int) -> None:
    """A checkpoint has the state of the first task: that of the others would be lost if it were another."""
    builder = TopologyBuilder("state")
    builder.set_spout("source", IterableSpout([1], fields=("n",)))
    getattr(builder.set_bolt("rules", Rules(), parallelism=parallelism), f"{grouping}_grouping")("source")
    if grouping == "all" or parallelism == 1:
        builder.build()
    else:
        with pytest.raises(TopologyError, match=r"bolt 'rules': its state is_broadcast.* no input comes by all_grouping"):
            builder.build()


def test_broadcast_state_has_no_key() -> None:
    """State is split by its key, or the same everywhere."""
    assert "is_broadcast is for state without a key, but its key is 'n'" in refused(KeyedRules())


def test_a_setting_without_effect_is_refused() -> None:
    """The user sets a bolt's setting for a spout, and the reverse."""
    spout = IterableSpout([1])
    assert "tick_interval has no effect for a spout; set it for a bolt" in refused(spout, spout=True, tick_interval="1s")
    for name, value in (("max_spout_pending", 5), ("backoff", "1s")):
        assert f"{name} has no effect for a bolt; set it for a spout" in refused(Returns(), **{name: value})


class NamesItsOutputs(windows.ProcessWindowFunction):
    outputs = ("n", "count")

    def process(self, key: Any, elements: Any, context: Any, collector: Any) -> None:
        collector.emit((key, len(elements)))


def test_outputs_of_a_window_function_are_refused() -> None:
    """Fields declared on the function, as on a ProcessBolt, would leave the bolt with its default ones."""
    bolt = WindowBolt(key=None, window=windows.GlobalWindows.at_end_of_stream(), process=NamesItsOutputs())
    wanted = "NamesItsOutputs.outputs has no effect on a window function; declare them on the bolt: WindowBolt(outputs=...)"
    assert refused(bolt).rpartition(" (")[0].endswith(wanted)
