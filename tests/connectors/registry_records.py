"""Schemas, messages of Protobuf, and records of other programs with a schema registry."""

from __future__ import annotations

import json
from typing import Any

from tests.servers.schema_registry import RegistryServer

ORDER = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [{"name": "user", "type": "string"}, {"name": "cents", "type": "long"}],
    }
)
NOTED = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "user", "type": "string"},
            {"name": "cents", "type": "long"},
            {"name": "note", "type": ["null", "string"], "default": None},
        ],
    }
)


def order_class(package: str = "shop") -> Any:
    """Return the class of a message, as protoc makes it of a .proto file."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto3")
    colour = file.enum_type.add(name="Colour")
    colour.value.add(name="RED", number=0)
    colour.value.add(name="BLUE", number=1)
    place = file.message_type.add(name="Place")
    place.field.add(name="town", number=1, type=kinds.TYPE_STRING, label=kinds.LABEL_OPTIONAL)
    order = file.message_type.add(name="Order")
    order.field.add(name="user", number=1, type=kinds.TYPE_STRING, label=kinds.LABEL_OPTIONAL)
    order.field.add(name="cents", number=2, type=kinds.TYPE_INT64, label=kinds.LABEL_OPTIONAL)
    order.field.add(name="place", number=3, type=kinds.TYPE_MESSAGE, type_name=f".{package}.Place", label=kinds.LABEL_OPTIONAL)
    order.field.add(name="marks", number=4, type=kinds.TYPE_BYTES, label=kinds.LABEL_REPEATED)
    order.field.add(name="colour", number=5, type=kinds.TYPE_ENUM, type_name=f".{package}.Colour", label=kinds.LABEL_OPTIONAL)
    entry = order.nested_type.add(name="CountsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=kinds.TYPE_STRING, label=kinds.LABEL_OPTIONAL)
    entry.field.add(name="value", number=2, type=kinds.TYPE_INT32, label=kinds.LABEL_OPTIONAL)
    order.field.add(
        name="counts", number=6, type=kinds.TYPE_MESSAGE, type_name=f".{package}.Order.CountsEntry", label=kinds.LABEL_REPEATED
    )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.Order"))


def avro(registry: RegistryServer, topic: str, schema: str, *values: dict[str, Any], field: str = "value") -> list[bytes]:
    """Return records of another program, which registers the schema."""
    from confluent_kafka.schema_registry.avro import AvroSerializer

    return _serialized(AvroSerializer(registry.client(), schema), topic, field, values)


def protobuf(registry: RegistryServer, topic: str, message: Any, *values: dict[str, Any]) -> list[bytes]:
    """Return records of another program, which registers the schema."""
    from confluent_kafka.schema_registry.protobuf import ProtobufSerializer

    serializer = ProtobufSerializer(message, registry.client(), {"use.deprecated.format": False})
    return _serialized(serializer, topic, "value", [message(**value) for value in values])


def _serialized(serializer: Any, topic: str, field: str, values: Any) -> list[bytes]:
    from confluent_kafka.serialization import SerializationContext

    context = SerializationContext(topic, field)
    return [serializer(value, context) for value in values]


def read_avro(registry: RegistryServer, record: bytes) -> Any:
    """Return what another program reads."""
    from confluent_kafka.schema_registry.avro import AvroDeserializer

    return AvroDeserializer(registry.client())(record)


def read_protobuf(registry: RegistryServer, message: Any, record: bytes) -> Any:
    """Return what another program reads."""
    from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer

    return ProtobufDeserializer(message, {"use.deprecated.format": False}, registry.client())(record)
