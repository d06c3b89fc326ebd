"""A NATS server with JetStream.

`make nats`, which is `python -m tests.servers.nats`, starts it in the foreground at the usual port.
"""

from __future__ import annotations

import asyncio
import secrets
import shutil
import ssl
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from tests.servers.server import Server, ServerEndedError, free_port, in_foreground, need, refuse_missing, start_server

USER, PASSWORD = "topo", "planted-password"


@dataclass
class NatsProcess(Server):
    """A server that answers.

    Attributes:
        folder: its data and log.
        port: where it listens, on loopback.
        options: further arguments of its command.
        certificate: by which clients know it, and which they may show, and its key; None: it has no TLS.
    """

    folder: Path = field(default_factory=Path)
    port: int = 0
    options: tuple[str, ...] = ()
    certificate: tuple[Path, Path] | None = None

    def start_again(self) -> None:
        """Start it again on its data, at its address, after `stop` or `kill`."""
        self.process = start(self.folder, *self.options, port=self.port).process

    def run(self, action: Callable[[Any, Any], Coroutine[Any, Any, Any]]) -> Any:
        """Run a coroutine with another program's client and its JetStream context."""
        return run_at(self.address, action, self.certificate)

    def make_stream(self, **settings: Any) -> str:
        """Make a stream of the subjects NAME.>, and return its name, which is drawn unless it is given."""
        name = settings.pop("name", f"S{secrets.token_hex(4).upper()}")

        async def make(_client: Any, stream_context: Any) -> None:
            await stream_context.add_stream(name=name, subjects=[f"{name}.>"], **settings)

        self.run(make)
        return name

    def publish(self, subject: str, *messages: bytes) -> None:
        """Append messages to the stream of a subject."""

        async def append(_client: Any, stream_context: Any) -> None:
            for message in messages:
                await stream_context.publish(subject, message)

        self.run(append)


def run_at(
    address: str, action: Callable[[Any, Any], Coroutine[Any, Any, Any]], certificate: tuple[Path, Path] | None = None
) -> Any:
    """Run a coroutine with a new client."""
    import nats

    tls = None if certificate is None else ssl.create_default_context(cafile=certificate[0])
    if tls is not None and certificate is not None:
        tls.load_cert_chain(*certificate)

    async def with_client() -> Any:
        client = await nats.connect(address, allow_reconnect=False, connect_timeout=10, tls=tls)
        try:
            return await action(client, client.jetstream(timeout=10))
        finally:
            await client.close()

    return asyncio.run(with_client())


def start(folder: Path, *options: str, port: int = 0, certificate: tuple[Path, Path] | None = None) -> NatsProcess:
    """Start a server on the data that `folder` has. Skips the test where the server or its client is missing.

    Args:
        folder: for data and the log.
        options: more arguments, such as "--user", "topo", "--pass", "...".
        port: where it listens; 0: a free one.
        certificate: with its key: the server requires TLS.
    """
    need(("nats",), "nats")
    if shutil.which("nats-server") is None:
        refuse_missing("nats-server", "nats")
    if certificate is not None:
        options += ("--tls", "--tlscert", str(certificate[0]), "--tlskey", str(certificate[1]))
    for attempt in range(3):
        chosen = port or free_port()
        command = ["nats-server", "-a", "127.0.0.1", "-p", str(chosen), "-js", "-sd", str(folder), *options]
        address = f"nats://127.0.0.1:{chosen}"
        login = f"nats://{USER}:{PASSWORD}@127.0.0.1:{chosen}" if "--user" in options else address
        try:
            server = start_server(command, folder / "nats.log", address, partial(_answers, login, certificate))
        except ServerEndedError:
            # Somebody else may have taken the port before the server did.
            if attempt == 2 or port:
                raise
        else:
            return NatsProcess(server.address, server.process, folder, chosen, options, certificate)
    raise AssertionError("unreachable")


def _answers(address: str, certificate: tuple[Path, Path] | None) -> bool:
    async def ask(_client: Any, stream_context: Any) -> None:
        await stream_context.account_info()

    try:
        run_at(address, ask, certificate)
    except Exception:
        return False
    return True


def main() -> None:
    """Start a server at port 4222 until it is interrupted."""
    in_foreground("NATS", lambda folder: start(folder, port=4222))


if __name__ == "__main__":
    main()
