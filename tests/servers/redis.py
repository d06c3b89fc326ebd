"""A Redis server that syncs each command to disk before it answers.

`make redis`, which is `python -m tests.servers.redis`, starts it in the foreground at the usual port.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from tests.servers.server import Server, in_foreground, need, refuse_missing, start_server

PASSWORD = "planted-password"
"""Of a server that wants one."""


@dataclass
class RedisProcess(Server):
    """A server that answers.

    Attributes:
        folder: its data and log.
        options: further arguments of its command.
    """

    folder: Path = field(default_factory=Path)
    options: tuple[str, ...] = ()

    def start_again(self) -> None:
        """Start it again on its data, at its address, after `stop` or `kill`."""
        self.process = start(self.folder, *self.options).process

    def client(self) -> Any:
        """Return a client of another program's."""
        return client_at(self.address)


def client_at(address: str) -> Any:
    """Return a client that decodes texts."""
    import redis

    return redis.Redis.from_url(address, decode_responses=True, protocol=2)


def start(folder: Path, *options: str) -> RedisProcess:
    """Start a server on the data that `folder` has. Skips the test where the server or its client is missing.

    Args:
        folder: for data and the log.
        options: more settings of the server, such as "--maxmemory", "10mb"; "--port" has it listen there on loopback.
    """
    need(("redis", "hiredis"), "redis")
    if shutil.which("redis-server") is None:
        refuse_missing("redis-server", "redis")
    place = ["--bind", "127.0.0.1"] if "--port" in options else ["--port", "0", "--unixsocket", str(folder / "socket")]
    settings = ["--save", "", "--appendonly", "yes", "--appendfsync", "always", "--dir", str(folder)]
    port = options[options.index("--port") + 1] if "--port" in options else None
    address = f"redis://127.0.0.1:{port}" if port else f"unix://{folder / 'socket'}"
    command = ["redis-server", *place, *settings, *options]
    server = start_server(command, folder / "redis.log", address, partial(_answers, address))
    return RedisProcess(server.address, server.process, folder, options)


def _answers(address: str) -> bool:
    import redis

    try:
        return bool(redis.Redis.from_url(address).ping())
    except redis.AuthenticationError:
        return True
    except redis.RedisError:
        return False


def main() -> None:
    """Start a server at port 6379 until it is interrupted."""
    in_foreground("Redis", lambda folder: start(folder, "--port", "6379"))


if __name__ == "__main__":
    main()
