"""`topo ui` as a process: binds, writes down where it listens, and serves until it is ended."""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Callable, Iterable
from errno import EADDRINUSE
from pathlib import Path
from typing import Any

from topo.errors import UserError
from topo.extras import EXTRAS, pip_install
from topo.storage.files import open_private
from topo.storage.state_folder import StateFolder, take_lock
from topo.ui.access import HomeRecord
from topo.ui.listening import Listening

PORT = 8088


def serve(
    home: Path, port: int | None, listening: Listening, announce: Callable[[str], None], *, read_only: bool = False
) -> None:
    """Serve the page of a home until SIGINT or SIGTERM.

    Args:
        port: None: that of the home's last server, else 8088, else a free one; behind a proxy, which knows it: 8088.
        listening: checked.
        announce: is called with the address, and the token in its fragment, when the server listens.

    Raises:
        UserError: the extra is missing, another process serves this home, or the address is taken or none of this machine.
    """
    family, address = listening.place()
    try:
        import uvicorn

        from topo.ui.app import make_app
    except ImportError as error:
        raise UserError(f"the page needs the extra `ui`: {pip_install(EXTRAS['ui'])}") from error
    StateFolder(home)
    with os.fdopen(open_private(home / "ui.lock", os.O_RDWR)) as lock, socket.socket(family) as listener:
        try:
            take_lock(lock.fileno())
        except BlockingIOError:
            raise UserError(f"the page of {home} is served already; `topo ui --print` prints where") from None
        ports = [PORT] if listening.behind_proxy else [*_last_port(home), PORT, 0]
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        port = _bind(listener, address, ports if port is None else [port])
        listener.listen(64)
        record = HomeRecord.new(home, listening.address(port), os.getpid())
        app = make_app(home, record.tokens, listening.served_names(port), read_only=read_only)
        announce(record.link(read_only=read_only))
        config = uvicorn.Config(
            app, log_level="error", access_log=False, server_header=False, proxy_headers=False, ws="websockets-sansio",
            ws_max_size=16 * 1024, ws_per_message_deflate=False, limit_concurrency=300, timeout_keep_alive=5,
            timeout_graceful_shutdown=1, lifespan="off", ssl_certfile=listening.cert, ssl_keyfile=listening.key,
        )  # fmt: skip
        uvicorn.Server(config).run(sockets=[listener])


def _bind(listener: socket.socket, address: Any, ports: Iterable[int]) -> int:
    """Bind to the first of these ports that is free, and return it."""
    host, _, *rest = address
    for port in ports:
        try:
            listener.bind((host, port, *rest))
            return int(listener.getsockname()[1])
        except OSError as error:
            refusal, refused = error, port
    remedy = "; --port 0 takes a free one" if refusal.errno == EADDRINUSE else ""
    raise UserError(f"cannot listen on {host}, port {refused}: {refusal.strerror}{remedy}") from refusal


def _last_port(home: Path) -> list[int]:
    """Return the port of the server before, so that open tabs find the next one."""
    record = HomeRecord.read(home)
    port = "" if record is None else record.address.rstrip("/").rpartition(":")[2]
    return [int(port)] if port.isdecimal() and 0 < int(port) < 65536 else []


def served(home: Path) -> HomeRecord | None:
    """Return the record of the process that serves the page of a home; None when there is none."""
    try:
        with (home / "ui.lock").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except (FileNotFoundError, IsADirectoryError):
        return None
    except BlockingIOError:
        return HomeRecord.read(home)
    return None
