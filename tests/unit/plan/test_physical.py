from __future__ import annotations

import msgspec
import pytest

from tests.unit.plan.parts import Lines, Sink, diamond, word_count
from topo.api.groupings import GroupingKind
from topo.api.streams import ACKER_COMPONENT
from topo.builder import TopologyBuilder
from topo.plan.parallelism import with_overrides
from topo.plan.physical import PhysicalPlan, physical_plan


def plan(**settings: object) -> PhysicalPlan:
    return physical_plan(diamond(**settings))


def test_task_ids_count_from_one_in_the_order_of_declaration_and_ackers_come_last() -> None:
    made = plan(ackers=2)
    assert [(task.id, task.component, task.index) for task in made.tasks] == [
        (1, "lines", 0),
        (2, "split", 0),
        (3, "split", 1),
        (4, "count", 0),
        (5, "count", 1),
        (6, "count", 2),
        (7, "audit", 0),
        (8, "audit", 1),
        (9, ACKER_COMPONENT, 0),
        (10, ACKER_COMPONENT, 1),
    ]
    assert made.ackers == (9, 10)
    assert made.spouts == (1,)
    assert made.tasks_of("count") == (4, 5, 6)
    assert made.tasks_of("missing") == ()


def test_without_ackers_there_is_no_acker() -> None:
    made = plan(ackers=0)
    assert made.ackers == ()
    assert ACKER_COMPONENT not in made.task_ids
    assert made.downstream_tasks(4) == ()


def test_every_task_has_an_edge_to_its_readers_and_to_all_ackers() -> None:
    made = plan(ackers=2)
    assert made.downstream_tasks(1) == (2, 3, 7, 8, 9, 10)
    assert made.downstream_tasks(2) == (4, 5, 6, 7, 8, 9, 10)
    assert made.downstream_tasks(4) == (9, 10)
    assert made.downstream_tasks(9) == ()
    assert made.upstream_tasks(1) == ()
    assert made.upstream_tasks(7) == (1, 2, 3)
    assert made.upstream_tasks(9) == tuple(range(1, 9))


def test_edges_are_the_pairs_of_both_directions() -> None:
    made = plan()
    assert made.edges == tuple(sorted(made.edges))
    assert set(made.edges) == {(task.id, target) for task in made.tasks for target in made.downstream_tasks(task.id)}
    assert set(made.edges) == {(source, task.id) for task in made.tasks for source in made.upstream_tasks(task.id)}


def test_subscriptions_say_who_reads_what_and_how() -> None:
    made = plan()
    assert [(s.target, s.stream, s.grouping) for s in made.subscriptions_on("split")] == [
        ("count", "default", GroupingKind.FIELDS),
        ("audit", "replies", GroupingKind.DIRECT),
        ("audit", "default", GroupingKind.CUSTOM),
    ]
    (by_word, custom) = made.subscriptions_on("split", "default")
    assert (by_word.fields, by_word.key_indexes) == (("word",), (0,))
    assert (custom.input, custom.code) == (2, "ByLength")
    assert [(s.source, s.input) for s in made.inputs_of("audit")] == [("lines", 0), ("split", 1), ("split", 2)]


def test_streams_are_known_by_index_and_by_name() -> None:
    made = plan()
    assert made.stream_index("split", "replies") == 1
    assert made.fields("split", "default") == ("word", "length")
    assert made.streams("split")[1].direct
    with pytest.raises(KeyError):
        made.stream_index("split", "late")


def test_an_unknown_task_is_a_key_error() -> None:
    made = plan()
    for wrong in (0, -1, len(made.tasks) + 1):
        with pytest.raises(KeyError):
            made.task(wrong)
    assert made.task(len(made.tasks)).component == ACKER_COMPONENT
    assert made.component_of(4).id == "count"


def test_key_groups_follow_the_parallelism() -> None:
    made = plan()
    groups = [made.key_groups(task) for task in made.tasks_of("count")]
    assert [(g.start, g.end) for g in groups] == [(0, 42), (43, 85), (86, 127)]


def test_max_parallelism_comes_from_the_component_or_the_topology_or_the_parallelism() -> None:
    builder = TopologyBuilder("t").config(max_parallelism=64)
    builder.set_spout("own", Lines(), 2, max_parallelism=16)
    builder.set_spout("general", Lines(), 2)
    made = physical_plan(builder.build())
    assert (made.component("own").max_parallelism, made.component("general").max_parallelism) == (16, 64)
    wide = TopologyBuilder("t")
    wide.set_spout("wide", Lines(), 100)
    assert physical_plan(wide.build()).component("wide").max_parallelism == 256


def test_a_component_has_its_own_settings_over_those_of_the_topology() -> None:
    made = plan(message_timeout="10s")
    assert made.config_of("lines").max_spout_pending == 7
    assert made.config_of("lines").message_timeout_s == 10.0
    assert made.config_of("count").tick_interval_s == 1.0
    assert made.config_of("split") == made.config


def test_settings_from_outside_replace_those_of_the_topology() -> None:
    topology = diamond(workers=3)
    made = physical_plan(with_overrides(topology, {"workers": 2, "ackers": 3}, {}))
    assert len(made.workers) == 2
    assert len(made.ackers) == 3


def test_the_ackers_outlive_the_longest_timeout_of_any_spout() -> None:
    builder = TopologyBuilder("t").config(message_timeout="5s")
    builder.set_spout("short", Lines())
    builder.set_spout("long", Lines(), message_timeout="1m")
    assert physical_plan(builder.build()).longest_message_timeout_s == 60.0
    builder.set_spout("endless", Lines(), message_timeout=None, max_spout_pending=None)
    assert physical_plan(builder.build()).longest_message_timeout_s is None


def test_a_plan_travels_as_json() -> None:
    made = plan(workers=2, backoff=("1s", "2s"))
    again = msgspec.json.decode(made.to_json(), type=PhysicalPlan)
    assert again == made
    assert again.to_json() == made.to_json()
    assert again.edges == made.edges
    assert again.config_of("lines") == made.config_of("lines")
    assert again.config_of("count") == made.config_of("count")
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(b'{"name": 3}', type=PhysicalPlan)


def test_the_digest_tells_apart_plans_settings_and_code() -> None:
    base = physical_plan(word_count().build())
    digests = [
        base.digest(),
        base.digest("other code"),
        plan().digest(),
        physical_plan(word_count(batch_size=7).build()).digest(),
        physical_plan(word_count(workers=2).build()).digest(),
    ]
    assert len(set(digests)) == len(digests)
    assert physical_plan(word_count().build()).digest() == base.digest()


def test_the_digest_depends_on_the_class_and_not_on_the_instance() -> None:
    def one(component: object) -> str:
        builder = TopologyBuilder("t")
        builder.set_spout("lines", Lines())
        builder.set_bolt("sink", component).shuffle_grouping("lines")  # type: ignore[arg-type]
        return physical_plan(builder.build()).digest()

    class Other(Sink):
        pass

    assert one(Sink()) == one(Sink()) == one(Sink)
    assert one(Other()) != one(Sink())


def test_more_messages_may_be_in_flight_with_many_tasks_unless_the_user_bounds_them() -> None:
    def in_flight(counts: int, spouts: int = 1, **settings: object) -> int | None:
        builder = TopologyBuilder("words").config(**settings)
        builder.set_spout("lines", Lines(), parallelism=spouts)
        builder.set_bolt("count", Sink(), parallelism=counts).shuffle_grouping("lines")
        return physical_plan(builder.build()).config_of("lines").max_spout_pending

    assert in_flight(7) == 10_000
    assert in_flight(15) == 20_000
    assert in_flight(63) == 40_000
    assert in_flight(18, spouts=2) == 12_500
    assert in_flight(60, spouts=8) == 10_000
    assert in_flight(63, max_spout_pending=10_000) == 10_000
    assert in_flight(63, max_spout_pending=None, message_timeout=None) is None
