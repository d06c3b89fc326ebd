"""Records by schemas of a registry, in the wire format of Confluent: a zero byte, the schema's id in four bytes, and the record.

Requests to the registry block. So a decoder makes none: for the first record of a schema it raises SchemaNeeded, whose `fetch` is
called on another thread, and the record is decoded again then. An encoder asks when it is opened, and never after that.
"""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from topo.connectors.kafka.avro_values import misfit_of
from topo.connectors.kafka.registry import Registry, is_of_request
from topo.connectors.record_decoder import Deserialize
from topo.connectors.record_encoder import Serialize
from topo.errors import ConfigError, NotFoundError, TopoEnvironmentError

PATIENCE_S = 15.0
"""How long an encoder that is opened waits for a registry."""
_PAUSE_S = 0.5
_UNKNOWN_S = 30.0
"""How long an id counts as unknown before the registry is asked again."""
_PREFIX = 5


class SchemaNeeded(Exception):
    """A record's schema is not known yet. `fetch` has it known; it blocks, and raises TopoError where it cannot."""

    def __init__(self, decoder: RegistryDecoder, record: bytes) -> None:
        super().__init__(f"schema {schema_id_of(record)} is not known yet")
        self._decoder, self._record = decoder, record

    def fetch(self) -> bool:
        self._decoder.fetch(self._record)
        return True


class RegistryFormat(ABC):
    """A format of records by schemas of a registry.

    It is given as `value_deserializer` or `key_deserializer` of a `KafkaSpout`, or `value_serializer` or `key_serializer` of a
    `KafkaSink`.
    """

    registry: Registry
    _given: str | None
    """The subject."""

    def decoder(self) -> RegistryDecoder:
        """Return a function of the bytes of records."""
        # Each has its own client: an encoder closes it when it is open, and spouts and sinks of a worker may share this.
        registry = self.registry.apart()
        return RegistryDecoder(registry, self._decode(registry))

    def encoder(self, topic: str | None, part: str) -> RegistryEncoder:
        """Return a function that makes records, which is to be opened.

        Args:
            topic: that they are written to; None: several.
            part: "value" or "key".

        Raises:
            ConfigError: it is not known which subject has the schema.
        """
        if self._given is None and topic is None:
            raise ConfigError(
                f"{type(self).__name__}: with a function for topic= name the subject of the schema by subject=; "
                "of one topic it is 'TOPIC-value' or 'TOPIC-key'"
            )
        registry, subject = self.registry.apart(), self._given or f"{topic}-{part}"
        return RegistryEncoder(registry, subject, lambda: self._open(registry, subject))

    @abstractmethod
    def _decode(self, registry: Registry) -> Callable[[], Callable[[bytes], Any]]:
        """Return what makes the function that decodes, once the client may be made."""

    @abstractmethod
    def _open(self, registry: Registry, subject: str) -> Serialize:
        """Ask for the schema, and return the function that encodes."""


class Avro(RegistryFormat):
    """Avro.

        KafkaSpout("orders", bootstrap_servers=..., value_deserializer=Avro("http://localhost:8081"), fields=("user", "cents"))
        KafkaSink("totals", bootstrap_servers=..., value_serializer=Avro("http://localhost:8081", SCHEMA))

    Args:
        registry: a URL; or settings of confluent-kafka's SchemaRegistryClient, such as {"url": ..., "basic.auth.user.info": ...}.
        schema: its JSON. Of a sink: the schema of its records, registered when a task starts; None: the latest of the subject.
            Of a spout: the schema that records of others are read as, by the rules of Avro; None: that of each record.
        subject: of the registry, for a sink; None: "TOPIC-value" or "TOPIC-key".

    Raises:
        ConfigError: an argument cannot be used, or a package is missing.
    """

    def __init__(self, registry: str | Mapping[str, Any], schema: str | None = None, *, subject: str | None = None) -> None:
        self.registry = Registry("Avro", "kafka-avro", "avro", registry)
        if schema is not None:
            from fastavro import parse_schema

            try:
                parse_schema(json.loads(schema))
            except Exception as error:
                raise ConfigError(f"Avro: schema= is no schema: {type(error).__name__}: {error}") from error
        self._schema, self._given = schema, subject

    def _decode(self, registry: Registry) -> Callable[[], Callable[[bytes], Any]]:
        from confluent_kafka.schema_registry.avro import AvroDeserializer

        return lambda: AvroDeserializer(registry.client, self._schema)

    def _open(self, registry: Registry, subject: str) -> Serialize:
        from confluent_kafka.schema_registry.avro import AvroSerializer

        client = registry.client
        schema = client.get_latest_version(subject).schema if self._schema is None else self._schema
        conf = {"subject.name.strategy": lambda *_: subject, "auto.register.schemas": self._schema is not None}
        serializer = AvroSerializer(client, schema, None, conf)
        context = _context(subject)
        with _passing_over_records():
            # It asks the registry with the first value, before it looks whether that fits.
            serializer(object(), context)
        named: dict[str, Any] = {}
        misfit = misfit_of(_parsed(client, schema, named), named)

        def encode(value: Any) -> bytes:
            if why := misfit(value):
                raise ValueError(why)
            record: bytes = serializer(value, context)
            return record

        return encode


def _parsed(client: Any, schema: Any, named: dict[str, Any]) -> Any:
    """Return a schema as fastavro has it, and have `named` get its types with a name, and those that it refers to."""
    from fastavro import parse_schema

    if isinstance(schema, str):
        return parse_schema(json.loads(schema), named)
    for reference in schema.references or ():
        _parsed(client, client.get_version(reference.subject, reference.version, True).schema, named)
    return parse_schema(json.loads(schema.schema_str), named)


class Protobuf(RegistryFormat):
    """Protobuf. A decoded record is a dict of all fields of the message, by their names in the .proto file.

        KafkaSpout("orders", bootstrap_servers=..., value_deserializer=Protobuf("http://localhost:8081", Order), fields=("user",))
        KafkaSink("totals", bootstrap_servers=..., value_serializer=Protobuf("http://localhost:8081", Total))

    Args:
        registry: see `Avro`.
        message: the class of the message, which protoc has made. A sink registers its schema when a task starts.
        subject: see `Avro`.

    Raises:
        ConfigError: an argument cannot be used, or a package is missing.
    """

    def __init__(self, registry: str | Mapping[str, Any], message: type[Any], *, subject: str | None = None) -> None:
        self.registry = Registry("Protobuf", "kafka-protobuf", "protobuf", registry)
        if not isinstance(message, type) or not hasattr(message, "DESCRIPTOR"):
            raise ConfigError(f"Protobuf: message={message!r} must be a class that protoc has made")
        self._message, self._given = message, subject

    def _decode(self, registry: Registry) -> Callable[[], Callable[[bytes], Any]]:
        from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer

        def made() -> Callable[[bytes], Any]:
            # Without a client: the class of the message decodes, and a client would give it the text that `fetch` has asked for
            # where it needs a descriptor.
            deserializer = ProtobufDeserializer(self._message, {"use.deprecated.format": False})
            return lambda record: as_dict(deserializer(record))

        return made

    def _open(self, registry: Registry, subject: str) -> Serialize:
        from confluent_kafka.schema_registry.protobuf import ProtobufSerializer

        message, context = self._message, _context(subject)
        conf = {"use.deprecated.format": False, "subject.name.strategy": lambda *_: subject}
        serializer = ProtobufSerializer(message, registry.client, conf)
        with _passing_over_records():
            # The first message has the schema registered, whatever it has; also where it lacks required fields.
            serializer(message(), context)
        return lambda value: serializer(value if isinstance(value, message) else message(**value), context)


class RegistryDecoder:
    """Decodes records whose schemas are known.

    Args:
        registry: of the schemas.
        make: makes the function that decodes; it may ask the registry for a schema.
    """

    def __init__(self, registry: Registry, make: Callable[[], Callable[[bytes], Any]]) -> None:
        self._registry, self._make = registry, make
        self._decode: Callable[[bytes], Any] | None = None
        self._known: dict[bytes, tuple[str, float]] = {}
        """By the first bytes of a record: why its schema cannot be had, and until when that counts; "": it is known."""

    def __call__(self, record: bytes) -> Any:
        """Return what a record is.

        Raises:
            SchemaNeeded: its schema is not known yet.
            NotFoundError: the registry does not have its schema.
            ValueError: it does not fit its schema, or names none.
        """
        known = self._known.get(record[:_PREFIX])
        if known is None:
            raise SchemaNeeded(self, record)
        why, until = known
        if why:
            if time.monotonic() > until:
                raise SchemaNeeded(self, record)
            raise NotFoundError(why)
        assert self._decode is not None
        try:
            return self._decode(record)
        except Exception as error:
            raise ValueError(
                f"the record does not fit schema {schema_id_of(record)}: {type(error).__name__}: {self._registry.shown(error)}"
            ) from None

    def fetch(self, record: bytes) -> None:
        """Have the schema of a record known.

        Raises:
            TopoError: the registry is not reached, or refuses this user.
        """
        number = schema_id_of(record)
        why = ""
        try:
            if self._decode is None:
                self._decode = self._make()
            self._registry.client.get_schema(number)
            with _passing_over_records():
                # Schemas may refer to others, which are asked for when the first record is decoded.
                self._decode(record)
        except Exception as error:
            fix = "it was deleted, or the record was written with another registry"
            found = self._registry.explained(error, f"schema {number}", fix)
            if not isinstance(found, NotFoundError):
                raise found from None
            why = str(found)
        self._known[record[:_PREFIX]] = (why, time.monotonic() + _UNKNOWN_S)

    def close(self) -> None:
        """Close the connections. Schemas are asked for again."""
        self._decode = None
        self._known.clear()
        self._registry.close()


class RegistryEncoder:
    """Makes records by one schema.

    Args:
        registry: of the schema.
        subject: that has it.
        make: asks for the schema, and makes the function that encodes.

    Attributes:
        patience_s: how long a registry that does not answer is waited for.
    """

    def __init__(self, registry: Registry, subject: str, make: Callable[[], Serialize]) -> None:
        self._registry, self._subject, self._make = registry, subject, make
        self._encode: Serialize | None = None
        self.patience_s = PATIENCE_S

    def open(self, progress: Callable[[], object]) -> None:
        """Ask for the schema. `progress` is called while the registry does not answer.

        Raises:
            TopoError: the registry is not reached, does not have the subject, or refuses the schema; with the fix.
        """
        until = time.monotonic() + self.patience_s
        while True:
            progress()
            try:
                self._encode = self._make()
                self._registry.close()
                return
            except Exception as error:
                fix = "register a schema, or give one to the format"
                found = self._registry.explained(error, f"a schema of subject {self._subject!r}", fix)
                if not isinstance(found, TopoEnvironmentError) or time.monotonic() > until:
                    raise found from None
            time.sleep(_PAUSE_S)

    def __call__(self, value: Any) -> bytes:
        """Return a record. Exceptions of the client pass: the value does not fit the schema."""
        assert self._encode is not None, "open() was called"
        return self._encode(value)


def deserializer_of_format(given: str | Deserialize | RegistryFormat, argument: str) -> str | Deserialize:
    """Return a deserializer as a name or a function of bytes. Raises ConfigError for the name of a format of registries."""
    if isinstance(given, RegistryFormat):
        return given.decoder()
    check_named(given, argument)
    return given


def check_named(given: object, argument: str) -> None:
    """Raise ConfigError for the name of a format that needs a registry."""
    if isinstance(given, str) and given.lower() in ("avro", "protobuf"):
        fix = f"give {given.capitalize()}('http://localhost:8081', ...) of topo.connectors.kafka"
        raise ConfigError(f"{argument}={given!r} needs a registry; {fix}")


def schema_id_of(record: bytes) -> int:
    """Return the id of a record's schema.

    Raises:
        ValueError: it has none.
    """
    if len(record) <= _PREFIX or record[0] != 0:
        raise ValueError(f"the record begins with {record[:_PREFIX]!r}, and not with a zero byte and the id of a schema")
    return int.from_bytes(record[1:_PREFIX], "big")


def as_dict(message: Any) -> dict[str, Any]:
    """Return a message of Protobuf as a dict, as a tuple may have it. An enum is its name; a message that is not set is None."""
    found: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            of_value = field.message_type.fields_by_name["value"]
            found[field.name] = {key: _plain(of_value, one) for key, one in value.items()}
        elif field.default_value == []:
            # Repeated: `is_repeated` is missing in older versions, and `label` in newer ones.
            found[field.name] = [_plain(field, one) for one in value]
        else:
            is_missing = field.has_presence and not message.HasField(field.name)
            found[field.name] = None if is_missing else _plain(field, value)
    return found


def _plain(field: Any, value: Any) -> Any:
    if field.message_type is not None:
        return as_dict(value)
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return value if known is None else known.name
    return value


@contextmanager
def _passing_over_records() -> Iterator[None]:
    """Pass over errors of a record; those of requests are raised."""
    try:
        yield
    except Exception as error:
        if is_of_request(error):
            raise


def _context(subject: str) -> Any:
    from confluent_kafka.serialization import MessageField, SerializationContext

    return SerializationContext(subject, MessageField.VALUE)
