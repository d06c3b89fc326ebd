from __future__ import annotations

import pytest

from tests.unit.plan.parts import ByLength, Lines, Sink, Split
from topo import TopologyBuilder, TopologyError
from topo.api import groupings
from topo.api.topology import CarriedType, Input


class Adjustable(Lines):
    outputs = ("line",)

    def __init__(self, fields: tuple[str, ...] = ("line",)) -> None:
        self.outputs = fields


def test_groupings_are_declared_in_a_chain() -> None:
    custom = ByLength()
    builder = TopologyBuilder("t")
    declarer = (
        builder.set_bolt("b", Sink())
        .shuffle_grouping("s")
        .local_or_shuffle_grouping("s", "one")
        .fields_grouping("s", "a", "b", stream="two")
        .partial_key_grouping("s", "a", stream="three")
        .all_grouping("s", "four")
        .global_grouping("s", "five")
        .none_grouping("s", "six")
        .direct_grouping("s", "seven")
        .custom_grouping("s", custom, "eight")
    )
    assert declarer.inputs == (
        Input("s", "default", groupings.Shuffle()),
        Input("s", "one", groupings.LocalOrShuffle()),
        Input("s", "two", groupings.Fields(("a", "b"))),
        Input("s", "three", groupings.PartialKey(("a",))),
        Input("s", "four", groupings.All()),
        Input("s", "five", groupings.Global()),
        Input("s", "six", groupings.NoneGrouping()),
        Input("s", "seven", groupings.Direct()),
        Input("s", "eight", groupings.Custom(custom)),
    )


def test_a_topology_has_its_components_settings_and_types() -> None:
    builder = TopologyBuilder("t").config(ackers=2).config(message_timeout="1s")
    builder.register_type(Split, 40, repr, len)  # type: ignore[arg-type]
    builder.set_spout("lines", Lines(), 3, max_spout_pending=5)
    topology = builder.build()
    assert (topology.config.ackers, topology.config.message_timeout_s) == (2, 1.0)
    assert topology.component("lines").parallelism == 3
    assert topology.component("lines").settings == {"max_spout_pending": 5}
    assert topology.carried_types == (CarriedType(Split, 40, repr, len),)
    with pytest.raises(KeyError):
        topology.component("missing")


def test_an_instance_runs_as_it_is_and_a_class_is_made() -> None:
    instance = Lines()
    builder = TopologyBuilder("t")
    builder.set_spout("instance", instance)
    builder.set_spout("class", Adjustable, kwargs={"fields": ("line",)})
    topology = builder.build()
    assert topology.component("instance").make() is instance
    made = topology.component("class").make()
    assert isinstance(made, Adjustable)
    assert made is not topology.component("class").make()


def test_a_class_whose_instances_emit_something_else_is_refused_when_it_is_made() -> None:
    builder = TopologyBuilder("t")
    builder.set_spout("lines", Adjustable, args=(("other",),))
    spec = builder.build().component("lines")
    with pytest.raises(TopologyError, match=r"changes outputs.*give set_spout\(\) an instance"):
        spec.make()


def test_a_builder_can_be_built_again_after_a_change() -> None:
    builder = TopologyBuilder("t")
    builder.set_spout("lines", Lines())
    bolt = builder.set_bolt("sink", Sink())
    with pytest.raises(TopologyError):
        builder.build()
    bolt.shuffle_grouping("lines")
    assert len(builder.build().components) == 2
