"""`flow.topology_builder`: spouts and bolts beside a program of streams, which read its streams."""

from __future__ import annotations

from typing import Any

import pytest

from topo import BasicBolt, BasicCollector, TopologyError, Tuple
from topo.streams import StreamBuilder
from topo.testing import TopologyTest


class Both(BasicBolt):
    """Prints the rows of all its inputs."""

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        print(tup.origin.component, dict(zip(tup.fields, tup.values, strict=True)))


def program() -> StreamBuilder:
    flow = StreamBuilder("mixed")
    lines = flow.from_iterable(["to be", "or"], name="lines")
    long, short = lines.branch(lambda line: " " in line)
    words = long.flat_map(str.split).merge(flow.from_iterable(["not"], name="more"))
    counts = words.key_by(lambda word: word).count(name="counts")
    counts.to(lambda _entry: None)
    both = flow.topology_builder.set_bolt("both", Both())
    both.shuffle_grouping(short.id).fields_grouping(counts.id, "key").shuffle_grouping(words.id)
    return flow


def test_a_bolt_reads_streams_of_a_program_by_their_ids(capsys: pytest.CaptureFixture[str]) -> None:
    test = TopologyTest(lambda: program().build())
    test.run()
    assert sorted(capsys.readouterr().out.splitlines()) == [
        *(f"counts {{'key': '{word}', 'value': 1}}" for word in ("be", "not", "to")),
        "lines {'value': 'be'}",
        "lines {'value': 'or'}",
        "lines {'value': 'to'}",
        "more {'value': 'not'}",
    ]


def test_a_program_with_bolts_is_built_again_as_it_was() -> None:
    flow = program()
    first, second = flow.build(), flow.build()
    assert [spec.id for spec in first.components] == [spec.id for spec in second.components]
    assert "-> (value) to reader at test_topology_builder.py:" in flow.explain()


def test_mistakes_in_the_bolts_are_reported_by_build() -> None:
    flow = program()
    flow.topology_builder.set_bolt("counts", Both()).shuffle_grouping("nowhere")
    with pytest.raises(TopologyError) as caught:
        flow.build()
    assert any("nowhere" in problem for problem in caught.value.problems)
    assert any("'counts'" in problem for problem in caught.value.problems)


def test_settings_of_the_builder_beneath_are_those_of_the_program() -> None:
    flow = program().config(workers=1)
    flow.topology_builder.config(delivery="at_most_once")
    config: Any = flow.build().config
    assert (config.workers, config.delivery) == (1, "at_most_once")
