"""Avro and Protobuf with a schema registry: a real one, a real broker, and records of the client's own serializers."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from tests.connectors.kafka_sources import PatientSpout
from tests.connectors.registry_records import NOTED, ORDER, avro, order_class, protobuf, read_avro, read_protobuf
from tests.connectors.sink_tasks import ReportingTask
from tests.integration.conftest import no_process_is_left, scene
from tests.integration.support import Scene, eventually, flow
from tests.integration.test_docs_code import ROOT, code_of
from tests.servers.kafka import Broker
from tests.servers.schema_registry import RegistryServer
from tests.servers.server import free_port
from tests.unit.connectors.drive import tracked
from topo.errors import ConfigError, NotFoundError, TopoError, UserError
from topo.testing import TopologyTest
from topo.testing.partition_harness import PartitionHarness

pytest.importorskip("confluent_kafka")

from topo.connectors.kafka import Avro, KafkaSink, Protobuf

pytestmark = [pytest.mark.server, pytest.mark.xdist_group("kafka-out")]

__all__ = ["no_process_is_left", "scene"]

UNKNOWN = b"\x00" + (999_999).to_bytes(4, "big") + b"\x06ann"


@pytest.fixture
def topic(broker: Broker) -> str:
    """A topic of two partitions."""
    return broker.create_topic(2)


def harness_of(broker: Broker, topic: str, value: Any, **given: Any) -> PartitionHarness:
    settings = {"bootstrap_servers": broker.address, "value_deserializer": value, "discovery_interval": "10s", **given}
    return PartitionHarness(lambda: PatientSpout(topic, **settings))


def rows_of(harness: PartitionHarness, turns: int = 6) -> dict[str, list[Any]]:
    harness.turns(turns)
    found: dict[str, list[Any]] = {}
    for name, _, values in harness.all_rows():
        found.setdefault(name.rpartition("-")[2], []).append(values)
    return dict(sorted(found.items()))


def sink_of(broker: Broker, topic: Any, folder: Path, **given: Any) -> KafkaSink:
    return KafkaSink(topic, bootstrap_servers=broker.address, staging=folder, timestamp=None, **given)


def written(broker: Broker, topic: str, sink: KafkaSink, *rows: dict[str, Any]) -> list[bytes]:
    """Write rows with exactly_once, and return the records."""
    task = ReportingTask(sink)
    for row in rows:
        sink.execute(tracked(**row))
    task.snapshot(1)
    task.output.complete(1)
    assert task.texts() == []
    return [record.value() for record in broker.records(topic)]


# -- Avro --------------------------------------------------------------------------------------------------------------------


def test_avro_of_other_programs_is_read_schema_by_schema(broker: Broker, registry: RegistryServer, topic: str) -> None:
    old = avro(registry, topic, ORDER, {"user": "ann", "cents": 1}, {"user": "bob", "cents": 2})
    new = avro(registry, topic, NOTED, {"user": "eve", "cents": 3, "note": "late"})
    broker.produce(topic, [*old, *new, old[0]], 0)
    broker.produce(topic, new, 1)
    harness = harness_of(broker, topic, Avro(registry.address), fields=("user", "cents", "note?"))
    assert rows_of(harness) == {
        "0": [("ann", 1, None), ("bob", 2, None), ("eve", 3, "late"), ("ann", 1, None)],
        "1": [("eve", 3, "late")],
    }
    assert harness.errors == [] and harness.given_up == []


def test_a_schema_of_the_spout_is_what_other_ones_are_read_as(broker: Broker, registry: RegistryServer, topic: str) -> None:
    broker.produce(topic, avro(registry, topic, ORDER, {"user": "ann", "cents": 1}), 0)
    harness = harness_of(broker, topic, Avro(registry.address, NOTED))
    assert rows_of(harness) == {"0": [({"user": "ann", "cents": 1, "note": None},)]}


def test_keys_have_schemas_too(broker: Broker, registry: RegistryServer, topic: str) -> None:
    (key,) = avro(registry, topic, ORDER, {"user": "ann", "cents": 1}, field="key")
    broker.produce(topic, [b"x"], 0, key=key)
    harness = harness_of(broker, topic, "text", key_deserializer=Avro(registry.address), metadata=("key",))
    assert rows_of(harness) == {"0": [("x", {"user": "ann", "cents": 1})]}


def test_avro_that_is_written_is_read_by_other_programs(
    broker: Broker, registry: RegistryServer, topic: str, tmp_path: Path
) -> None:
    sink = sink_of(broker, topic, tmp_path, value_serializer=Avro(registry.address, NOTED))
    records = written(broker, topic, sink, {"user": "ann", "cents": 1, "note": "n"}, {"user": "bob", "cents": 2, "note": None})
    rows = [{"user": "ann", "cents": 1, "note": "n"}, {"user": "bob", "cents": 2, "note": None}]
    assert sorted((read_avro(registry, record) for record in records), key=str) == sorted(rows, key=str)
    number = registry.client().get_latest_version(f"{topic}-value").schema_id
    assert {int.from_bytes(record[1:5], "big") for record in records} == {number}


def test_without_a_schema_the_latest_of_the_subject_is_written_by(
    broker: Broker, registry: RegistryServer, topic: str, tmp_path: Path
) -> None:
    sink = sink_of(broker, topic, tmp_path, value_serializer=Avro(registry.address))
    with pytest.raises(NotFoundError, match=f"does not have a schema of subject '{topic}-value': register a schema, or give"):
        ReportingTask(sink)
    avro(registry, topic, ORDER, {"user": "ann", "cents": 1})
    avro(registry, topic, NOTED, {"user": "ann", "cents": 1, "note": "n"})
    (record,) = written(broker, topic, sink, {"user": "eve", "cents": 5, "note": "last"})
    assert read_avro(registry, record) == {"user": "eve", "cents": 5, "note": "last"}


def test_a_schema_that_refers_to_another_one_is_written_by(
    broker: Broker, registry: RegistryServer, topic: str, tmp_path: Path
) -> None:
    from confluent_kafka.schema_registry import Schema, SchemaReference

    client, part = registry.client(), f"part-{topic}"
    order = ORDER.replace('"Order"', f'"Order{topic[-6:]}"')
    client.register_schema(part, Schema(order, "AVRO"))
    field = {"name": "order", "type": f"Order{topic[-6:]}"}
    bill = json.dumps({"type": "record", "name": "Bill", "fields": [field]})
    references = [SchemaReference(f"Order{topic[-6:]}", part, 1)]
    client.register_schema(f"{topic}-value", Schema(bill, "AVRO", references))
    sink = sink_of(broker, topic, tmp_path, value_serializer=Avro(registry.address))
    task = ReportingTask(sink)
    with pytest.raises(UserError, match="field 'order': field 'cents': the schema has a long"):
        sink.execute(tracked(order={"user": "ann", "cents": 1.5}))
    sink.execute(tracked(order={"user": "ann", "cents": 1}))
    task.snapshot(1)
    task.output.complete(1)
    assert len(broker.records(topic)) == 1


def test_a_schema_that_the_registry_refuses_is_named(
    broker: Broker, registry: RegistryServer, topic: str, tmp_path: Path
) -> None:
    avro(registry, topic, ORDER, {"user": "ann", "cents": 1})
    registry.client().set_compatibility(f"{topic}-value", "BACKWARD")
    other = ORDER.replace('"long"', '"string"')
    sink = sink_of(broker, topic, tmp_path, value_serializer=Avro(registry.address, other))
    with pytest.raises(ConfigError, match=f"refuses a schema of subject '{topic}-value': .*[Ii]ncompatible"):
        ReportingTask(sink)


def test_a_tuple_that_does_not_fit_its_schema_fails_alone(
    broker: Broker, registry: RegistryServer, topic: str, tmp_path: Path
) -> None:
    sink = sink_of(broker, topic, tmp_path, value_serializer=Avro(registry.address, ORDER))
    task = ReportingTask(sink)
    sink.execute(tracked(user="ann", cents=1))
    for wrong in (
        {"user": "bob", "cents": "many"},
        {"user": "bob"},
        {"user": "bob", "cents": 1.5},
        {"user": "b", "cents": 1, "x": 1},
    ):
        with pytest.raises(UserError, match=r"value of a tuple from '.*' cannot be encoded"):
            sink.execute(tracked(**wrong))
    task.snapshot(1)
    task.output.complete(1)
    assert [read_avro(registry, record.value()) for record in broker.records(topic)] == [{"user": "ann", "cents": 1}]


def test_several_topics_need_the_name_of_the_subject(
    broker: Broker, registry: RegistryServer, topic: str, tmp_path: Path
) -> None:
    def given(**more: Any) -> KafkaSink:
        formats = {"value_serializer": Avro(registry.address, ORDER, **more)}
        return sink_of(broker, lambda tup: topic, tmp_path, marker_topic=topic, **formats)

    with pytest.raises(ConfigError, match="name the subject of the schema by subject="):
        given()
    (record,) = written(broker, topic, given(subject=f"shared-{topic}"), {"user": "ann", "cents": 1})
    assert read_avro(registry, record) == {"user": "ann", "cents": 1}
    assert f"shared-{topic}" in registry.client().get_subjects()


# -- Protobuf ----------------------------------------------------------------------------------------------------------------


def test_protobuf_of_other_programs_is_read_as_plain_values(broker: Broker, registry: RegistryServer, topic: str) -> None:
    order = order_class()
    full = {
        "user": "ann",
        "cents": 1 << 40,
        "place": {"town": "Ulm"},
        "marks": [b"\x00", b"\xff"],
        "colour": "BLUE",
        "counts": {"a": 1},
    }
    broker.produce(topic, protobuf(registry, topic, order, full, {"user": "bob"}), 0)
    harness = harness_of(broker, topic, Protobuf(registry.address, order))
    # Sequences of a tuple arrive as tuples.
    empty = {"user": "bob", "cents": 0, "place": None, "marks": (), "colour": "RED", "counts": {}}
    assert rows_of(harness) == {"0": [({**full, "marks": (b"\x00", b"\xff")},), (empty,)]}, harness.errors
    fields = harness_of(broker, topic, Protobuf(registry.address, order), fields=("user", "cents"))
    assert rows_of(fields) == {"0": [("ann", 1 << 40), ("bob", 0)]}


def test_protobuf_that_is_written_is_read_by_other_programs(
    broker: Broker, registry: RegistryServer, topic: str, tmp_path: Path
) -> None:
    order = order_class()
    sink = sink_of(broker, topic, tmp_path, value_serializer=Protobuf(registry.address, order))
    row = {"user": "ann", "cents": 5, "place": {"town": "Ulm"}, "marks": [b"m"], "colour": "BLUE", "counts": {"a": 1}}
    (record,) = written(broker, topic, sink, row)
    assert read_protobuf(registry, order, record) == order(**row)
    task = ReportingTask(sink_of(broker, topic, tmp_path, value_serializer=Protobuf(registry.address, order)))
    with pytest.raises(UserError, match=r"cannot be encoded: .*colours"):
        task.sink.execute(tracked(colours="BLUE"))


# -- bad records -------------------------------------------------------------------------------------------------------------


def test_what_cannot_be_decoded_is_given_up_with_its_bytes_and_others_are_read(
    broker: Broker, registry: RegistryServer, topic: str
) -> None:
    good = avro(registry, topic, ORDER, {"user": "ann", "cents": 1}, {"user": "bob", "cents": 2})
    broken = good[0][:7]
    plain = b'{"user": "eve"}'
    broker.produce(topic, [UNKNOWN, good[0], broken, UNKNOWN, plain, b"", good[1]], 0)
    harness = harness_of(broker, topic, Avro(registry.address), fields=("user", "cents"))
    assert rows_of(harness) == {"0": [("ann", 1), ("bob", 2)]}
    assert [record for _, _, record in harness.given_up] == [UNKNOWN, broken, UNKNOWN, plain, b""]
    assert harness.errors == []


def test_the_error_of_a_bad_record_names_its_schema(broker: Broker, registry: RegistryServer, topic: str) -> None:
    (good,) = avro(registry, topic, ORDER, {"user": "ann", "cents": 1})
    number = int.from_bytes(good[1:5], "big")
    for record, message in {
        UNKNOWN: f"the registry at {registry.address} does not have schema 999999: it was deleted, or",
        good[:7]: f"the record does not fit schema {number}",
        b'{"user"}': "begins with b'{\"use', and not with a zero byte and the id of a schema",
    }.items():
        name = broker.create_topic()
        broker.produce(name, [record])
        harness = harness_of(broker, name, Avro(registry.address), on_bad_record="fail")
        harness.turns(6)
        assert message in str(harness.errors[0]), harness.errors


# -- a registry that is away -------------------------------------------------------------------------------------------------


def test_partitions_wait_for_a_registry_that_is_away_and_are_read_on(
    broker: Broker, registry: RegistryServer, topic: str
) -> None:
    """It is reported once when it is lost and once when it answers; partitions of known schemas are read meanwhile."""
    old = avro(registry, topic, ORDER, {"user": "ann", "cents": 1}, {"user": "bob", "cents": 2})
    new = avro(registry, topic, NOTED, {"user": "eve", "cents": 3, "note": "late"})
    broker.produce(topic, old[:1], 0)
    harness = harness_of(broker, topic, Avro(registry.address), fields=("user", "cents"))
    assert rows_of(harness) == {"0": [("ann", 1)]}
    registry.kill()
    broker.produce(topic, [old[1], *new, old[1]], 0)
    broker.produce(topic, [old[1]], 1)
    assert rows_of(harness) == {"0": [("ann", 1), ("bob", 2)], "1": [("bob", 2)]}
    for _ in range(5):
        harness.clock.advance("6s")
        harness.turns(2)
    registry.start_again()
    harness.clock.advance("6s")
    assert rows_of(harness) == {"0": [("ann", 1), ("bob", 2), ("eve", 3), ("bob", 2)], "1": [("bob", 2)]}
    lost, found = map(str, harness.errors)
    assert lost.startswith("the schema registry is not reached, and it is tried again: the registry at http://127.0.0.1")
    assert found == "the schema registry is reached again"


def test_a_frozen_registry_holds_one_request_and_no_longer(broker: Broker, registry: RegistryServer, topic: str) -> None:
    broker.produce(topic, avro(registry, topic, ORDER, {"user": "ann", "cents": 1}), 0)
    harness = harness_of(broker, topic, Avro({"url": registry.address, "timeout": 0.3}), fields=("user", "cents"))
    registry.freeze()
    try:
        began = time.monotonic()
        assert rows_of(harness) == {}
        assert time.monotonic() - began < 15
    finally:
        registry.thaw()
    harness.clock.advance("6s")
    assert rows_of(harness) == {"0": [("ann", 1)]}


def test_a_sink_needs_the_registry_only_when_it_is_opened(
    broker: Broker, registry: RegistryServer, topic: str, tmp_path: Path
) -> None:
    sink = sink_of(broker, topic, tmp_path, value_serializer=Avro(registry.address, ORDER))
    task = ReportingTask(sink)
    registry.freeze()
    try:
        sink.execute(tracked(user="ann", cents=1))
        task.snapshot(1)
        task.output.complete(1)
    finally:
        registry.thaw()
    (record,) = broker.records(topic)
    assert read_avro(registry, record.value()) == {"user": "ann", "cents": 1}
    away = sink_of(broker, topic, tmp_path, value_serializer=Avro(f"http://127.0.0.1:{free_port()}", ORDER))
    away._maker.encoders[0].patience_s = 1.0
    with pytest.raises(TopoError, match=f"does not answer a request for a schema of subject '{topic}-value'"):
        ReportingTask(away)


@pytest.mark.parametrize("part", ["url", "settings"])
def test_a_planted_password_is_nowhere(
    broker: Broker, registry: RegistryServer, topic: str, caplog: pytest.LogCaptureFixture, part: str
) -> None:
    url = registry.address
    if part == "url":
        given: Any = url.replace("://", "://topo:planted@")
    else:
        given = {"url": url, "basic.auth.user.info": "topo:planted"}
    (good,) = avro(registry, topic, ORDER, {"user": "ann", "cents": 1})
    broker.produce(topic, [UNKNOWN, good[:7], good], 0)
    harness = harness_of(broker, topic, Avro(given), on_bad_record="drop")
    assert len(rows_of(harness)["0"]) == 1
    failing = harness_of(broker, topic, Avro(given), on_bad_record="fail")
    failing.turns(6)
    registry.freeze()
    try:
        settings = {"url": given} if part == "url" else given
        away = harness_of(broker, topic, Avro({**settings, "timeout": 0.3}))
        away.turns(6)
    finally:
        registry.thaw()
    assert failing.errors and away.errors
    shown = [repr(Avro(given)), repr(Avro(given).registry), caplog.text, *map(str, failing.errors), *map(str, away.errors)]
    assert "planted" not in "".join(shown)


@pytest.mark.timeout(400)
def test_a_topology_of_processes_waits_for_a_registry_and_reads_on(
    scene: Scene, broker: Broker, registry: RegistryServer, topic: str, tmp_path: Path
) -> None:
    rows = [{"user": "ann", "cents": n} for n in range(20)]
    broker.produce(topic, avro(registry, topic, ORDER, *rows), 0)
    out = tmp_path / "out.jsonl"
    registry.kill()
    given = f'{topic!r}, bootstrap_servers={broker.address!r}, value_deserializer=Avro({registry.address!r}), fields=("cents",)'
    source = f'builder.set_spout("in", KafkaSpout({given}), 2)'
    last = f'builder.set_bolt("out", JsonLinesSink({str(out)!r})).shuffle_grouping("in")'
    imports = "from topo.connectors.kafka import Avro\n"
    running = scene.submit(scene.file(imports + flow(source, last)), delivery="exactly_once", checkpoint_interval="200ms")
    try:
        eventually(lambda: "the schema registry is not reached" in str(running.errors()), 120, what="the error")
    finally:
        registry.start_again()
    eventually(lambda: out.exists() and len(out.read_text().splitlines()) == 20, 120, what="the rows")
    assert [json.loads(line)["cents"] for line in out.read_text().splitlines()] == list(range(20))
    assert "the schema registry is reached again" in str(running.errors())
    running.kill()


# -- the page ----------------------------------------------------------------------------------------------------------------


def test_the_topology_of_the_page_writes_each_bill_once(broker: Broker, registry: RegistryServer, tmp_path: Path) -> None:
    page: dict[str, Any] = {}
    exec(compile(code_of(ROOT / "docs" / "connectors" / "kafka.md"), "kafka.md", "exec"), page)
    source, target = broker.create_topic(2), broker.create_topic()
    rows = [{"user": "ann", "cents": n} for n in range(10)]
    for number in range(2):
        broker.produce(source, avro(registry, source, ORDER, *rows[number::2]), number)
    page["KafkaSpout"] = PatientSpout
    test = TopologyTest(lambda: page["bills"](broker.address, registry.address, source, target, tmp_path))
    test.advance("3s")
    test.crash("bills")
    test.advance("10s")
    bills = [read_avro(registry, record.value()) for record in broker.records(target)]
    assert sorted(bill["cents"] for bill in bills) == [*range(10)]
    assert page["orders_of_protobuf"](broker.address, registry.address, order_class()).outputs == ("user", "cents")
