"""What users of Storm ask of their context and configuration, and the answer that they get."""

from __future__ import annotations

from typing import Any

import pytest

from topo import (
    BasicBolt,
    Connection,
    IterableSpout,
    NotFoundError,
    ProcessBolt,
    TimeDomain,
    Topology,
    TopologyBuilder,
    TopologyError,
)
from topo.testing import END, OperatorHarness, TopologyTest


class Asks(BasicBolt):
    """Keeps its context."""

    outputs = {"default": ("word", "length"), "odd": ("word",)}

    def prepare(self, context: Any) -> None:
        self.context = context

    def execute(self, tup: Any, collector: Any) -> None:
        pass


class Sink(BasicBolt):
    def execute(self, tup: Any, collector: Any) -> None:
        pass


def context_of(**settings: Any) -> Any:
    def build() -> Topology:
        builder = TopologyBuilder("asks").config(user={"model": "v1", "limits": [1, 2]}, tick_interval="1h")
        builder.set_spout("words", IterableSpout(["a"], fields=("word",)))
        builder.set_bolt("asks", Asks(), 2, **settings).fields_grouping("words", "word")
        builder.set_bolt("sink", Sink()).shuffle_grouping("asks", stream="odd").all_grouping("asks")
        return builder.build()

    test = TopologyTest(build, sources={"words": [END]})
    test.run()
    return test.bolt("asks").context


def test_a_bolt_can_ask_who_it_reads_and_who_reads_it() -> None:
    """The user ports `getThisSources` and `getThisTargets`."""
    context = context_of()
    assert context.sources == (Connection("words", "default", "asks", "fields", ("word",)),)
    assert {(one.target, one.stream, one.grouping) for one in context.targets} == {
        ("sink", "odd", "shuffle"),
        ("sink", "default", "all"),
    }
    assert len(context.connections) == 3


def test_a_bolt_can_ask_for_streams_and_fields() -> None:
    """The user ports `getThisStreams` and `getComponentOutputFields`."""
    context = context_of()
    assert dict(context.streams) == {
        "words": {"default": ("word",)},
        "asks": {"default": ("word", "length"), "odd": ("word",)},
        "sink": {},
    }
    assert context.output_fields() == ("word", "length")
    assert context.output_fields("default", "words") == ("word",)
    with pytest.raises(NotFoundError, match=r"no component 'wrods'.*'words'"):
        context.output_fields(component="wrods")
    with pytest.raises(NotFoundError, match="component 'asks' has no stream 'even'; it has 'default', 'odd'"):
        context.output_fields("even")


def test_settings_of_the_users_own_reach_the_context_and_a_component_adds_to_them() -> None:
    """The user keeps the path of a model in the configuration, as Storm's map takes any key."""
    assert context_of().config.user == {"model": "v1", "limits": [1, 2]}
    assert context_of(user={"model": "v2"}).config.user == {"model": "v2", "limits": [1, 2]}


def test_a_setting_of_the_users_own_can_be_given_from_outside() -> None:
    """The user overrides one key at `topo run -s user.model=v3`."""
    builder = TopologyBuilder("t").config(user={"model": "v1", "other": 1})
    builder.set_spout("words", IterableSpout(["a"], fields=("word",)))
    config = builder.build().config.with_settings({"user.model": "v3"})
    assert config.user == {"model": "v3", "other": 1}


@pytest.mark.parametrize(
    ("settings", "stated"),
    [
        ({"model_path": "/x"}, r"there is no setting 'model_path'; .*user=\{\.\.\.\} takes your own"),
        ({"user": {"client": object()}}, "user: 'client' is a object; a setting is None, a bool, a number"),
        ({"user": {"at": {1: 2}}}, "user: 'at' is a dict"),
        ({"user": "v1"}, r"user: 'v1' is no mapping: write user="),
    ],
)
def test_what_is_no_setting_is_refused_with_the_place_for_it(settings: dict[str, Any], stated: str) -> None:
    """The user writes keys of their own among topo's, or objects as values."""
    builder = TopologyBuilder("t").config(**settings)
    builder.set_spout("words", IterableSpout(["a"], fields=("word",)))
    with pytest.raises(TopologyError, match=stated):
        builder.build()


def test_a_timer_says_what_it_goes_by() -> None:
    """The user has timers of both kinds in one bolt and asks which one is due."""

    class Both(ProcessBolt):
        outputs = ("domain",)

        def __init__(self) -> None:
            super().__init__(key="k")

        def process(self, tup: Any, context: Any, collector: Any) -> None:
            assert context.domain is None
            context.register_event_time_timer(5)
            context.register_processing_time_timer(5)

        def on_timer(self, timestamp: int, context: Any, collector: Any) -> None:
            assert isinstance(context.domain, TimeDomain)
            collector.emit((context.domain.name,))

    with OperatorHarness(Both(), fields=("k",)) as harness:
        harness.process(("a",), 1)
        harness.watermark(5)
        harness.advance_clock(6)
        assert [values for values, _ in harness.outputs] == [("EVENT_TIME",), ("PROCESSING_TIME",)]
