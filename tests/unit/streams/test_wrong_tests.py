"""Wrong arguments of the test kits: each is refused at once, with the wrong value and the fix."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from topo import IterableSpout, NotFoundError, PrintBolt, Topology, TopologyBuilder, UserError
from topo.errors import TopoError
from topo.streams import SideOutput, Tumbling
from topo.testing import StreamTest, TopologyTest


def program(test: StreamTest) -> Any:
    words = test.source(str)
    test.collect(words.stream)
    return words


def windows(test: StreamTest) -> Any:
    return test.source(str).stream.with_event_time(len).key_by(str).window(Tumbling("1s"))


async def later(test: StreamTest) -> None: ...


def topology() -> Topology:
    builder = TopologyBuilder("words")
    builder.set_spout("words", IterableSpout(["a"]))
    builder.set_bolt("print", PrintBolt()).shuffle_grouping("words")
    return builder.build()


CASES: dict[str, tuple[Callable[[], object], str]] = {
    "a window": (
        lambda: (test := StreamTest()).collect(windows(test)),
        r"collect takes a stream; got a WindowedStream; end its windows before, as by .count\(\) or",
    ),
    "no stream": (lambda: StreamTest().collect(None), "collect takes a stream; got a NoneType"),  # type: ignore[call-overload]
    "side of no stream": (lambda: StreamTest().side(5, SideOutput("a", str)), "side takes a stream; got a int"),  # type: ignore[arg-type]
    "name for a type": (lambda: StreamTest().source("clicks"), "source takes the type of its records, such as str; got 'clicks'"),  # type: ignore[arg-type]
    "a number for parallelism": (
        lambda: StreamTest(parallelism=2),
        "parallelism=2; give numbers by component, such as {'visits'",
    ),  # type: ignore[arg-type]
    "a number of seeds": (lambda: StreamTest.every_seed(20), r"every_seed takes seeds, such as range\(20\); got 20"),  # type: ignore[arg-type]
    "an async test": (lambda: StreamTest.every_seed([1])(later), "every_seed was given an async function"),  # type: ignore[arg-type]
    "a test without parameter": (lambda: StreamTest.every_seed([1])(lambda: None), r"with 1 \(test\), but it takes"),  # type: ignore
    "a text for a time": (
        lambda: program(StreamTest()).send("a", at="5s"),
        "source 'source' was given at '5s' .str.; give whole",
    ),
    "a text for a watermark": (lambda: program(StreamTest()).watermark("5s"), "given the watermark '5s' .str.; give whole"),
    "a list for sources": (lambda: TopologyTest(topology(), sources=["a"]), "sources=.* must be items by spout"),  # type: ignore
    "a text for items": (
        lambda: TopologyTest(topology(), sources={"words": "a b"}),
        "source 'words' was given 'a b' .str.; give a",
    ),
    "a number for items": (lambda: TopologyTest(topology(), sources={"words": 5}), "'words' was given 5 .int.; give a list"),  # type: ignore
}


@pytest.mark.parametrize("case", CASES)
def test_a_wrong_argument_is_refused(case: str) -> None:
    call, problem = CASES[case]
    with pytest.raises(UserError, match=problem):
        call()


@pytest.mark.parametrize("component", [None, 0])
def test_what_is_no_name_of_a_component_is_not_found(component: Any) -> None:
    """difflib raised a bare TypeError."""
    test = StreamTest()
    program(test)
    for call in (test.crash, test.counters, TopologyTest(topology()).emitted):
        with pytest.raises(NotFoundError, match=f"no component {component}"):
            call(component)
    with pytest.raises(TopoError, match=f"no spout {component}"):
        TopologyTest(topology(), sources={component: []})
