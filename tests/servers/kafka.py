"""A Kafka broker: one node that is its own controller, on a Java of the machine.

`make kafka`, which is `python -m tests.servers.kafka`, starts it in the foreground at the usual port.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from tests.servers.server import Server, ServerEndedError, free_port, in_foreground, need, refuse_missing, start_server

VERSION = "4.3.1"
JARS = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "topo", f"kafka-{VERSION}")
"""Where scripts/servers.sh puts Kafka; all checkouts share it."""
USER, PASSWORD, STRANGER = "topo", "planted-password", "stranger"
"""Who may do everything at `secured_address`, the password of both, and who may do nothing there."""
_READ_S = 60.0
_ENDING_S = 3.0
"""The broker ends a transaction in its logs after it has confirmed the commit. Readers do not see those of an open one."""
_JAVA = ("-Xms128m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
_SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECURED:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
    "listener.name.secured.sasl.enabled.mechanisms": "PLAIN",
    "listener.name.secured.plain.sasl.jaas.config": (
        f'{_MODULE} required user_{USER}="{PASSWORD}" user_{STRANGER}="{PASSWORD}";'
    ),
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": f"User:ANONYMOUS;User:{USER}",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    # A broker that was killed is let in again when its former session is over: 9 s by default.
    "broker.session.timeout.ms": "2500",
    "broker.heartbeat.interval.ms": "500",
}


@dataclass
class Broker(Server):
    """A broker that answers.

    Attributes:
        secured_address: where clients authenticate, by SASL PLAIN.
        folder: its settings, log and data.
    """

    secured_address: str = ""
    folder: Path = field(default_factory=Path)
    _producer: Any = None
    """Of `produce`: a new one needs half a second for its number."""

    def start_again(self) -> None:
        """Start it again on its data, at its addresses, after `stop` or `kill`."""
        self.process = start(self.folder).process

    def admin(self) -> Any:
        """Return a client for its topics. Keep it in a variable until its requests are done."""
        from confluent_kafka.admin import AdminClient

        return AdminClient({"bootstrap.servers": self.address, **_QUIET})

    def create_topic(self, partitions: int = 1, name: str | None = None, **config: str) -> str:
        """Create a topic and return its name, which is drawn where none is given; dots of settings are written as `_`."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import NewTopic

        name = name or f"topic-{secrets.token_hex(6)}"
        admin = self.admin()
        settings = {key.replace("_", "."): value for key, value in config.items()}
        until = time.monotonic() + _READ_S
        while True:
            try:
                admin.create_topics([NewTopic(name, partitions, 1, config=settings)], request_timeout=10)[name].result()
                break
            except KafkaException as error:
                if (code := error.args[0].name()) == "TOPIC_ALREADY_EXISTS":
                    break
                # A broker that is kept from its heartbeat on a busy machine has no place for partitions until it is let in again.
                if code not in ("INVALID_REPLICATION_FACTOR", "_TIMED_OUT", "REQUEST_TIMED_OUT") or time.monotonic() > until:
                    raise
                time.sleep(0.1)
        while name not in admin.list_topics(timeout=10).topics:
            pass
        return name

    def add_partitions(self, topic: str, count: int) -> None:
        """Have a topic have more partitions than it has, `count` in all, and wait until clients see them."""
        from confluent_kafka.admin import NewPartitions

        admin = self.admin()
        admin.create_partitions([NewPartitions(topic, count)])[topic].result(60)
        while len(admin.list_topics(topic, timeout=10).topics[topic].partitions) < count:
            time.sleep(0.01)
        self.forget()

    def delete_topic(self, topic: str) -> None:
        """Delete a topic, and wait until it is gone."""
        admin = self.admin()
        admin.delete_topics([topic])[topic].result(60)
        while topic in admin.list_topics(timeout=10).topics:
            time.sleep(0.01)
        self.forget()

    def grant(self, kind: str, name: str, *operations: str) -> None:
        """Let STRANGER do something with a TOPIC, GROUP or TRANSACTIONAL_ID whose name begins so; from its return on."""
        from confluent_kafka import admin

        kinds: Any = admin
        client = self.admin()
        rules = [_rule(kinds.AclBinding, kind, name, one) for one in operations]
        for answer in client.create_acls(rules).values():
            answer.result(60)
        for rule in [_rule(kinds.AclBindingFilter, kind, name, one) for one in operations]:
            while not client.describe_acls(rule).result(60):
                time.sleep(0.01)

    def forget(self) -> None:
        """Give up the producer, which knows the partitions of topics, and counts on from the records that it has written."""
        self._producer = None

    def produce(self, topic: str, values: Sequence[str | bytes], partition: int = 0, **options: Any) -> None:
        """Append records to one partition; options go to `produce`."""
        from confluent_kafka import Producer

        # Else it may append records twice when a broker answers late.
        settings = {"enable.idempotence": True, "reconnect.backoff.max.ms": 500}
        # It is kept unless it fails.
        producer, self._producer = self._producer or Producer({"bootstrap.servers": self.address, **settings, **_QUIET}), None
        for value in values:
            producer.produce(topic, value, partition=partition, **options)
        assert producer.flush(60) == 0
        self._producer = producer

    def records(self, topic: str) -> list[Any]:
        """Return the committed records, as messages of confluent-kafka: partition by partition, each to its end."""
        from confluent_kafka import Consumer, TopicPartition
        from confluent_kafka.error import KafkaError

        # A partition is known to be at its end when a request for more is answered, which the broker holds back by default.
        waits = {"fetch.wait.max.ms": 10}
        settings = {"group.id": "reader", "enable.auto.commit": False, "enable.partition.eof": True, **waits}
        committed, logs = (
            Consumer({"bootstrap.servers": self.address, "isolation.level": level, **settings, **_QUIET})
            for level in ("read_committed", "read_uncommitted")
        )
        try:
            partitions = sorted(logs.list_topics(topic, timeout=30).topics[topic].partitions)
            # For a reader of committed records a partition ends ahead of the first transaction that has not ended.
            ends = {number: logs.get_watermark_offsets(TopicPartition(topic, number), timeout=30)[1] for number in partitions}
            committed.assign([TopicPartition(topic, number, 0) for number in partitions])
            found: list[Any] = []
            reading, stopped = set(partitions), set[int]()
            """Those that are read, and of them those that have records of a transaction that has not ended, as of now."""
            until, patience = time.monotonic() + _READ_S, time.monotonic() + _ENDING_S
            while reading - (stopped if time.monotonic() > patience else set()):
                assert time.monotonic() < until, f"{topic} was not read to its end: partitions {reading}, {len(found)} records"
                # It waits that long when there are fewer than it may return.
                for message in committed.consume(1000, 0.05):
                    if message.error() is None:
                        found.append(message)
                        stopped.discard(message.partition())
                    elif message.error().code() == KafkaError._PARTITION_EOF:
                        is_whole = message.offset() >= ends[message.partition()]
                        (reading.discard if is_whole else stopped.add)(message.partition())
                    else:
                        raise RuntimeError(str(message.error()))
            return sorted(found, key=lambda message: message.partition())
        finally:
            committed.close()
            logs.close()


_QUIET = {"log_level": 0}
"""Clients of the tests do not log that a broker is gone: the test has ended it."""


def _rule(make: Any, kind: str, name: str, operation: str) -> Any:
    from confluent_kafka import admin

    kinds: Any = admin
    resource, pattern = kinds.ResourceType[kind], kinds.ResourcePatternType.PREFIXED
    allow = kinds.AclPermissionType.ALLOW
    return make(resource, name, pattern, f"User:{STRANGER}", "*", kinds.AclOperation[operation], allow)


def sasl(user: str, password: str) -> dict[str, str]:
    """Return a client's settings for `secured_address`."""
    credentials = {"sasl.mechanism": "PLAIN", "sasl.username": user, "sasl.password": password}
    return {"security.protocol": "SASL_PLAINTEXT", **credentials}


def start(folder: Path, ports: Sequence[int] = (), settings: Mapping[str, str] | None = None) -> Broker:
    """Start a broker on new data, or again on the data in `folder`. Skips the test where Kafka or a client is missing.

    It ends with the thread that has started it.

    Args:
        folder: where it keeps everything.
        ports: for plain clients, secured ones and itself; drawn where none are given.
        settings: further lines of server.properties.
    """
    need(("confluent_kafka",), "kafka")
    if not JARS.is_dir() or shutil.which("java") is None:
        refuse_missing("Kafka", "kafka")
    properties = folder / "server.properties"
    for attempt in range(3):
        if not properties.exists():
            _format(folder, ports or [free_port() for _ in range(3)], settings or {})
        address, secured = properties.read_text().partition("\n")[0].removeprefix("# ").split()
        command = _java("kafka.Kafka", str(properties))
        try:
            server = start_server(command, folder / "kafka.log", address, partial(_answers, address), ready_s=120)
        except ServerEndedError:
            # Somebody else may have taken a port before the broker did. A broker with data keeps its ports.
            if attempt == 2 or ports or any((folder / "data").glob("*-*")):
                raise
            properties.unlink()
            shutil.rmtree(folder / "data")
        else:
            return Broker(server.address, server.process, secured, folder)
    raise AssertionError("unreachable")


def start_beside(first: Broker, folder: Path, number: int) -> Broker:
    """Start another broker of the cluster of `first`, with that number, and without secured clients."""
    folder.mkdir()
    lines = dict(line.partition("=")[::2] for line in (first.folder / "server.properties").read_text().splitlines())
    voters, plain = lines["controller.quorum.voters"], free_port()
    listeners = f"PLAINTEXT://127.0.0.1:{plain}"
    settings = {
        "process.roles": "broker",
        "node.id": str(number),
        # Brokers compute the coordinator of a group from it.
        "offsets.topic.num.partitions": lines["offsets.topic.num.partitions"],
        "controller.quorum.voters": voters,
        "listeners": listeners,
        "advertised.listeners": listeners,
    }
    return start(folder, (plain, free_port(), int(voters.rpartition(":")[2])), settings)


def _format(folder: Path, ports: Sequence[int], settings: Mapping[str, str]) -> None:
    plain, secured, controller = (f"127.0.0.1:{port}" for port in ports)
    places = {
        "controller.quorum.voters": f"1@{controller}",
        "listeners": f"PLAINTEXT://{plain},SECURED://{secured},CONTROLLER://{controller}",
        "advertised.listeners": f"PLAINTEXT://{plain},SECURED://{secured}",
        "log.dirs": str(folder / "data"),
    }
    lines = [f"{name}={value}" for name, value in {**_SETTINGS, **places, **settings}.items()]
    unfinished = folder / "server.properties.new"
    unfinished.write_text("\n".join([f"# {plain} {secured}", *lines, ""]))
    cluster = "MkU3OEVBNTcwNTJENDM2Qg"
    tool = _java("kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(unfinished))
    subprocess.run(tool, check=True, capture_output=True, timeout=120)
    unfinished.rename(folder / "server.properties")


def _java(*command: str) -> list[str]:
    # Java expands the star, and no shell.
    return ["java", *_JAVA, "-cp", f"{JARS}/*", *command]


def _answers(address: str) -> bool:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    client = AdminClient({"bootstrap.servers": address, **_QUIET})
    try:
        return bool(client.list_topics(timeout=1).brokers)
    except KafkaException:
        return False


def main(topics: Sequence[str]) -> None:
    """Start a broker at port 9092 with topics, each `name` or `name:partitions`, until it is interrupted."""

    def begin(folder: Path) -> Broker:
        broker = start(folder, ports=(9092, 9094, 9093))
        for topic in topics:
            name, _, partitions = topic.partition(":")
            broker.create_topic(int(partitions or 1), name)
        return broker

    in_foreground(f"Kafka {VERSION}", begin, about=f", topics: {', '.join(topics)}")


if __name__ == "__main__":
    main(sys.argv[1:] or ["orders:4", "totals:4"])
