"""Formats with a schema registry, as far as they need none: arguments, secrets, records whose schema is not known yet."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

pytest.importorskip("fastavro")
pytest.importorskip("google.protobuf")
pytest.importorskip("confluent_kafka")

from tests.connectors.registry_records import order_class
from tests.unit.connectors.registry_stub import registry_of
from tests.unit.connectors.test_kafka_records import Record
from topo.api.context import TaskContext
from topo.connectors.kafka import Avro, KafkaSink, KafkaSpout, Protobuf
from topo.connectors.kafka.records import Bad, DecodedRows, RecordFormat, SchemaMissing
from topo.connectors.kafka.schema_waits import SchemaWaits
from topo.connectors.kafka.schemas import SchemaNeeded
from topo.errors import ConfigError, NotFoundError, TopoEnvironmentError

URL = "http://127.0.0.1:1"
KNOWN = b"\x00\x00\x00\x00\x01x"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Avro("localhost:8081"), "Avro: the registry must be a URL"),
        (lambda: Avro({"timeout": 1}), "settings with 'url'"),
        (lambda: Avro(URL, "{"), "schema= is no schema"),
        (lambda: Avro(URL, json.dumps({"type": "recrod"})), "schema= is no schema: UnknownType"),
        (lambda: Protobuf(URL, dict), "must be a class that protoc has made"),
        (
            lambda: KafkaSink(lambda tup: "t", bootstrap_servers="b", marker_topic="m", value_serializer=Avro(URL, '"string"')),
            "name the subject of the schema by subject=",
        ),
    ],
)
def test_arguments_that_cannot_be_used_are_refused(make: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()


def test_settings_that_the_client_does_not_take_are_named_when_it_is_first_asked() -> None:
    decoder = Avro({"url": URL, "tiemout": 3, "basic.auth.user.info": "user:planted"}).decoder()
    with pytest.raises(ConfigError, match="tiemout") as refused:
        decoder.fetch(KNOWN)
    assert "planted" not in str(refused.value)


@pytest.mark.parametrize(("kind", "extra"), [("avro", "avro"), ("protobuf", "protobuf")])
def test_without_its_packages_a_format_names_what_installs_them(monkeypatch: pytest.MonkeyPatch, kind: str, extra: str) -> None:
    monkeypatch.setitem(sys.modules, f"confluent_kafka.schema_registry.{kind}", None)
    with pytest.raises(ConfigError, match=rf"needs packages that are missing: pip install 'confluent-kafka\[{extra}\]"):
        Avro(URL) if kind == "avro" else Protobuf(URL, dict)


def test_a_planted_password_is_in_no_repr() -> None:
    for given in ("http://user:planted@host:1", {"url": URL, "basic.auth.user.info": "user:planted"}):
        one = Avro(given)
        spout = KafkaSpout("orders", bootstrap_servers="b:9092", value_deserializer=one)
        assert "planted" not in f"{one!r} {one.registry!r} {one.registry} {spout!r}"


def test_a_registry_that_is_not_reached_has_a_record_wait_and_is_named() -> None:
    decoder = Avro(URL).decoder()
    with pytest.raises(SchemaNeeded) as needed:
        decoder(KNOWN)
    with pytest.raises(TopoEnvironmentError, match=r"the registry at http://127.0.0.1:1 does not answer a request for schema 1"):
        needed.value.fetch()


class WaitedEnoughError(Exception):
    pass


@pytest.mark.parametrize("kind", ["avro", "protobuf"])
def test_a_sink_waits_for_a_registry_that_is_not_reached_and_is_refused_then(kind: str) -> None:
    from google.protobuf.duration_pb2 import Duration

    made: Any = Avro(URL, '"string"') if kind == "avro" else Protobuf(URL, Duration)
    encoder, calls = made.encoder("totals", "value"), list[None]()

    def progress() -> None:
        calls.append(None)
        if len(calls) == 3:
            raise WaitedEnoughError

    with pytest.raises(WaitedEnoughError):
        encoder.open(progress)
    # However long the first request takes.
    encoder.patience_s = 0.0
    with pytest.raises(TopoEnvironmentError, match="does not answer a request for a schema of subject 'totals-value'"):
        encoder.open(lambda: calls.append(None))
    assert len(calls) == 4


def test_a_record_whose_schema_is_not_known_ends_the_rows_in_front_of_it() -> None:
    decoder = Avro(URL).decoder()

    def decode(value: bytes) -> str:
        if value == b"?":
            raise SchemaNeeded(decoder, KNOWN)
        return value.decode()

    made = RecordFormat(decode, "bytes", None, (), None, "emit")
    values = [b"a", b"\xff", b"b", b"?", b"c"]
    rows, bad, more, waiting = made.decoded([Record(number, value) for number, value in enumerate(values)], values)
    assert isinstance(rows, DecodedRows) and rows.values == [("a",)]
    assert isinstance(bad, Bad) and bad.offset == 1
    assert isinstance(more, DecodedRows) and more.values == [("b",)]
    assert isinstance(waiting, SchemaMissing) and waiting.offset == 3


# -- a registry that answers as Confluent's own ------------------------------------------------------------------------------


def decoded_by(decoder: Any, record: bytes) -> Any:
    try:
        return decoder(record)
    except SchemaNeeded as needed:
        needed.fetch()
        return decoder(record)


def test_a_registry_that_has_protobuf_as_text_is_enough_to_read_it() -> None:
    order = order_class()
    record = b"\x00\x00\x00\x00\x01\x00" + order(user="ann", marks=[b"m"], counts={"a": 1}).SerializeToString()
    text = {"schemaType": "PROTOBUF", "schema": 'syntax = "proto3"; package shop; message Order { string user = 1; }'}
    with registry_of({1: text}) as url:
        found = decoded_by(Protobuf(url, order).decoder(), record)
    assert found == {"user": "ann", "cents": 0, "place": None, "marks": [b"m"], "colour": "RED", "counts": {"a": 1}}


def test_only_codes_of_a_registry_say_that_a_schema_does_not_exist() -> None:
    with registry_of({}) as url, pytest.raises(NotFoundError, match="does not have schema 1"):
        decoded_by(Avro(url).decoder(), KNOWN)
    for answer in (b"<html>no such page</html>", b'{"error_code": 404, "message": "HTTP 404 Not Found"}'):
        with (
            registry_of({}, missing=answer) as url,
            pytest.raises(TopoEnvironmentError, match="its URL has the right path") as refused,
        ):
            decoded_by(Avro(url).decoder(), KNOWN)
        assert not isinstance(refused.value, NotFoundError)


def test_a_sink_that_is_opened_leaves_the_client_of_a_spout_with_the_same_format_open() -> None:
    with registry_of({1: {"schema": '"string"'}, 2: {"schema": '"long"'}}) as url:
        shared = Avro(url, '"string"')
        decoder, encoder = shared.decoder(), shared.encoder("totals", "value")
        assert decoded_by(decoder, b"\x00\x00\x00\x00\x01\x06ann") == "ann"
        encoder.open(lambda: None)
        assert encoder("bob") == b"\x00\x00\x00\x00\x01\x06bob"
        with pytest.raises(ValueError, match=r"does not fit schema 2: .*SchemaResolution"):
            decoded_by(decoder, b"\x00\x00\x00\x00\x02\x02")


def test_a_message_with_required_fields_is_written() -> None:
    from google.protobuf.descriptor_pb2 import UninterpretedOption

    part = UninterpretedOption.NamePart
    with registry_of({}) as url:
        encoder = Protobuf(url, part).encoder("parts", "value")
        encoder.open(lambda: None)
        record = encoder({"name_part": "a", "is_extension": True})
    # Behind the id of the schema are the numbers of a message that is in another one.
    assert record.startswith(b"\x00\x00\x00\x00\x01") and record.endswith(
        part(name_part="a", is_extension=True).SerializeToString()
    )


def test_a_schema_that_cannot_be_had_holds_up_no_partition_of_another() -> None:
    now, errors = [0.0], list[BaseException]()
    waits: SchemaWaits[str] = SchemaWaits(TaskContext("test", "spout", 1, clock=lambda: now[0]), errors.append)
    ready = set[str]()
    with registry_of({2: {"schema": '"string"'}}, missing=b'{"error_code": 404, "message": "of a proxy"}') as url:
        decoder = Avro(url).decoder()
        for number in (1, 2):
            waits.add(f"orders-{number}", SchemaNeeded(decoder, bytes([0, 0, 0, 0, number]) + b"\x06ann"))
        while "orders-2" not in ready and now[0] < 60:
            ready.update(waits.ready())
            now[0] += 5
    assert "orders-2" in ready and "the schema registry is not reached" in str(errors[0])
