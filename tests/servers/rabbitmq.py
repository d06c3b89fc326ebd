"""A RabbitMQ broker of one node.

`make rabbitmq`, which is `python -m tests.servers.rabbitmq`, starts it in the foreground at the usual port.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from tests.servers.server import (
    Server,
    ServerEndedError,
    _end_with_parent,
    free_port,
    in_foreground,
    need,
    refuse_missing,
    start_server,
)

SCRIPTS = "/usr/lib/rabbitmq/lib"
MOST_BYTES = 100_000
"""Of a message that it takes."""
_READY_S = 180.0
"""It starts in 10 s on a free machine, and on a busy one in a minute."""


@dataclass
class RabbitBroker(Server):
    """A broker that answers.

    Attributes:
        folder: its data and log.
        port: where it listens, on loopback.
        tls_port: where it speaks TLS, if it does.
        epmd: the process by which Erlang finds nodes, of this broker alone.
        environment: of its process.
        queues: those that tests have declared.
    """

    folder: Path = field(default_factory=Path)
    port: int = 0
    tls_port: int = 0
    epmd: subprocess.Popen[bytes] | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    queues: list[str] = field(default_factory=list)

    def kill(self) -> None:
        """End it at once, but not within the seconds in which it loses a quorum queue that it has just declared."""
        until = time.monotonic() + _READY_S
        while not self._knows_queues() and time.monotonic() < until:
            time.sleep(0.05)
        super().kill()

    def _knows_queues(self) -> bool:
        """Whether the file of quorum queues has all of them: the broker writes it some seconds behind."""
        known = b"".join(file.read_bytes() for file in self.folder.glob("mnesia/*/quorum/*/names.dets"))
        return all(name.encode() in known for name in self.queues)

    def start_again(self) -> None:
        """Start it again on its data, at its address, after `stop` or `kill`."""
        self.process = _start(self.folder, self.port, self.environment).process

    def control(self, *words: str) -> None:
        """Run a command of rabbitmqctl."""
        command = [str(Path(_script()).with_name("rabbitmqctl")), "-n", self.environment["RABBITMQ_NODENAME"], *words]
        subprocess.run(command, env=self.environment, check=True, stdout=subprocess.DEVNULL)

    def end(self) -> None:
        """End it at once, and what belongs to it."""
        self.thaw()
        super().kill()
        if self.epmd is not None:
            self.epmd.kill()
            self.epmd.wait()

    def declare(self, **arguments: str | int) -> str:
        """Declare a quorum queue with a drawn name, and return it."""
        name = f"q-{secrets.token_hex(4)}"
        with channel_at(self.address) as channel:
            channel.queue_declare(name, durable=True, arguments={"x-queue-type": "quorum", **arguments})
        self.queues.append(name)
        return name


def channel_at(address: str) -> Any:
    """A channel of another program's connection, for a `with`."""
    import pika

    class Channel:
        def __enter__(self) -> Any:
            self.connection = pika.BlockingConnection(pika.URLParameters(address))
            channel = self.connection.channel()
            channel.confirm_delivery()
            return channel

        def __exit__(self, *_: object) -> None:
            self.connection.close()

    return Channel()


def start(
    folder: Path, port: int = 0, certificate: tuple[Path, Path] | None = None, *, wants_client: bool = False
) -> RabbitBroker:
    """Start a broker with its data in `folder`. Skips the test where it or its client is missing.

    Args:
        folder: for data and the log.
        port: where it listens; 0: a free one.
        certificate: with its key: the broker speaks TLS at a port more.
        wants_client: whether clients have to show a certificate there, which that one has signed.
    """
    need(("pika",), "rabbitmq")
    epmd_command = shutil.which("epmd")
    if not _script() or epmd_command is None:
        refuse_missing("rabbitmq-server", "rabbitmq")
    for attempt in range(3):
        chosen, epmd_port = port or free_port(), free_port()
        tls_port = 0 if certificate is None else free_port()
        environment = _environment(folder, chosen, epmd_port, tls_port, certificate)
        if wants_client:
            with (folder / "rabbitmq.conf").open("a") as settings:
                settings.write("ssl_options.verify = verify_peer\nssl_options.fail_if_no_peer_cert = true\n")
        # Otherwise Erlang starts it as a daemon.
        epmd = subprocess.Popen(
            [str(epmd_command), "-port", str(epmd_port), "-address", "127.0.0.1"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=_end_with_parent,
        )
        try:
            server = _start(folder, chosen, environment)
        except BaseException as error:
            epmd.kill()
            epmd.wait()
            # Somebody else may have taken a port before the server did.
            if attempt == 2 or port or not isinstance(error, ServerEndedError):
                raise
        else:
            return RabbitBroker(server.address, server.process, folder, chosen, tls_port, epmd, environment)
    raise AssertionError("unreachable")


def _script() -> str:
    found = sorted(Path(SCRIPTS).glob("rabbitmq_server-*/sbin/rabbitmq-server"))
    return str(found[-1]) if found else ""


def _environment(folder: Path, port: int, epmd_port: int, tls_port: int, certificate: tuple[Path, Path] | None) -> dict[str, str]:
    for name in ("mnesia", "log", "home"):
        (folder / name).mkdir(exist_ok=True)
    (folder / "plugins").write_text("[].\n")
    lines = list[str]()
    if certificate is not None:
        files = zip(("cacertfile", "certfile", "keyfile"), (certificate[0], *certificate), strict=True)
        lines = [f"listeners.ssl.1 = 127.0.0.1:{tls_port}", *(f"ssl_options.{name} = {file}" for name, file in files)]
    (folder / "rabbitmq.conf").write_text("\n".join(lines) + "\n")
    return {
        **os.environ,
        "HOME": str(folder / "home"),
        "RABBITMQ_NODENAME": f"topo-{port}@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_DIST_PORT": str(free_port()),
        "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
        "RABBITMQ_LOG_BASE": str(folder / "log"),
        "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": f"+S 1:1 +sbwt none -rabbit max_message_size {MOST_BYTES}",
        "ERL_EPMD_PORT": str(epmd_port),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        # The script becomes the server then, and is no parent of it.
        "RUNNING_UNDER_SYSTEMD": "1",
    }


def _start(folder: Path, port: int, environment: Mapping[str, str]) -> Server:
    settings = [f"{name}={value}" for name, value in environment.items() if name not in os.environ or os.environ[name] != value]
    address = f"amqp://guest:guest@127.0.0.1:{port}/%2F"
    command = ["env", *settings, _script()]
    return start_server(command, folder / "rabbitmq.log", address, partial(_answers, address), _READY_S)


def _answers(address: str) -> bool:
    try:
        with channel_at(address):
            return True
    except Exception:
        return False


def main() -> None:
    """Start a broker at port 5672 until it is interrupted."""
    in_foreground("RabbitMQ", lambda folder: start(folder, 5672), RabbitBroker.end)


if __name__ == "__main__":
    main()
