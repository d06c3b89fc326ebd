"""What `explain` shows in a terminal and in a notebook."""

from __future__ import annotations

from topo.plan.describe import as_text
from topo.plan.physical import physical_plan
from topo.streams import SideOutput, StreamBuilder
from topo.testing import TopologyTest


def program() -> StreamBuilder:
    flow = StreamBuilder("words")
    words = flow.from_iterable(["a <b>"]).flat_map(str.split)
    words.key_by(lambda word: word, parallelism=2).count(name="counts").to(print)
    return flow


def test_a_notebook_draws_components_with_their_operators_and_how_records_move() -> None:
    shown = program().explain()
    bundle = shown._repr_mimebundle_()
    assert bundle["text/plain"] == shown
    assert bundle["text/html"].startswith("<pre>program words\n") and "-&gt; (key) to count" in bundle["text/html"]
    words, counts = (f"test_explaining.py:{program.__code__.co_firstlineno + line}" for line in (2, 3))
    assert (
        bundle["text/vnd.mermaid"]
        == shown._repr_mermaid_()
        == (
            "flowchart LR\n"
            f'    c0["items x1<br>flat_map at {words}<br>key_by at {counts}"]\n'
            f'    c1["counts x2<br>entries at {counts}<br>call at {counts}"]\n'
            '    c0 -->|"by key"| c1\n'
        )
    )


def test_the_graph_of_a_plan_names_the_operators_of_each_component() -> None:
    place = program.__code__.co_firstlineno
    shown = as_text(physical_plan(program().build()))
    assert f"runs flat_map at test_explaining.py:{place + 2}, key_by at test_explaining.py:{place + 3}\n" in shown


def test_the_status_names_the_operators_of_each_component() -> None:
    test = TopologyTest(lambda: program().build())
    test.run()
    place = program.__code__.co_firstlineno
    rows = {row["component"]: row["operators"] for row in test.status()["components"]}
    assert rows["items"][1:] == [f"flat_map at test_explaining.py:{place + 2}", f"key_by at test_explaining.py:{place + 3}"]


def test_a_component_of_operators_alone_names_each_once() -> None:
    bad = SideOutput("bad", str)
    flow = StreamBuilder("timed")
    numbers = flow.from_iterable(["1"]).parse_json(int, bad=bad)
    numbers.side(bad).rebalance(parallelism=1).to(print)
    numbers.with_event_time(lambda number: number).key_by(lambda number: number).count().to(print)
    components = {spec.id: list(spec.operators) for spec in flow.build().components}
    place = test_a_component_of_operators_alone_names_each_once.__code__.co_firstlineno + 5
    assert components["event-time"] == [f"with_event_time at test_explaining.py:{place}", f"key_by at test_explaining.py:{place}"]
