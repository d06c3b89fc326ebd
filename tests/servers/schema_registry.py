"""A schema registry, Apicurio's, which has the API of Confluent's, too; on a Java of the machine.

`make registry`, which is `python -m tests.servers.schema_registry`, starts it in the foreground at the usual port.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

from tests.servers.server import Server, ServerEndedError, free_port, in_foreground, need, refuse_missing, start_server

VERSION = "2.6.13.Final"
PROGRAM = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "topo", f"apicurio-registry-{VERSION}")
"""Where scripts/servers.sh puts it; all checkouts share it."""
_JAVA = ("-Xms64m", "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_PATH = "/apis/ccompat/v7"


@dataclass
class RegistryServer(Server):
    """A registry that answers.

    Attributes:
        folder: its data and log.
        port: where it listens, on loopback.
    """

    folder: Path = field(default_factory=Path)
    port: int = 0

    def start_again(self) -> None:
        """Start it again on its data, at its address, after `stop` or `kill`."""
        self.process = start(self.folder, self.port).process

    def client(self) -> Any:
        """Return a client of another program's."""
        from confluent_kafka.schema_registry import SchemaRegistryClient

        return SchemaRegistryClient({"url": self.address})


def start(folder: Path, port: int = 0) -> RegistryServer:
    """Start a registry on the data that `folder` has. Skips the test where it or a client is missing.

    Args:
        folder: for data and the log.
        port: where it listens; 0: a free one.
    """
    need(("confluent_kafka", "fastavro", "google.protobuf"), "registry")
    if not PROGRAM.is_dir() or shutil.which("java") is None:
        refuse_missing("a schema registry", "registry")
    for attempt in range(3):
        # Somebody else may take the port before the registry does.
        chosen = port or free_port()
        settings = {
            "quarkus.http.host": "127.0.0.1",
            "quarkus.http.port": chosen,
            "quarkus.http.access-log.enabled": "false",
            # A kill loses nothing that was answered.
            "quarkus.datasource.jdbc.url": f"jdbc:h2:file:{folder / 'registry'};WRITE_DELAY=0",
            "java.io.tmpdir": folder,
        }
        options = [f"-D{name}={value}" for name, value in settings.items()]
        command = ["java", *_JAVA, *options, "-jar", str(PROGRAM / f"apicurio-registry-app-{VERSION}-runner.jar")]
        address = f"http://127.0.0.1:{chosen}{_PATH}"
        try:
            server = start_server(command, folder / "registry.log", address, partial(_answers, address), ready_s=120)
        except ServerEndedError:
            if attempt == 2 or port:
                raise
        else:
            return RegistryServer(server.address, server.process, folder, chosen)
    raise AssertionError("unreachable")


def _answers(address: str) -> bool:
    try:
        with urlopen(f"{address}/subjects", timeout=5) as answer:
            return bool(answer.status == 200)
    except (URLError, OSError):
        return False


def main() -> None:
    """Start a registry at port 8081 until it is interrupted."""
    in_foreground("Schema registry", lambda folder: start(folder, 8081))


if __name__ == "__main__":
    main()
