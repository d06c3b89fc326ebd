"""An S3 server, of moto. It keeps everything in memory."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from tests.servers.server import Server, ServerEndedError, free_port, need, start_server


def start(folder: Path) -> Server:
    """Start a server; its log is in `folder`. Skips the test where a package is missing."""
    need(("moto", "flask", "s3fs"))
    for attempt in range(3):
        # Somebody else may take the port before the server does.
        address = f"http://127.0.0.1:{(port := free_port())}"
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
        try:
            return start_server(command, folder / "s3.log", address, partial(_answers, address))
        except ServerEndedError:
            if attempt == 2:
                raise
    raise AssertionError("unreachable")


def _answers(address: str) -> bool:
    try:
        with urlopen(f"{address}/moto-api/", timeout=5) as answer:
            return bool(answer.status == 200)
    except (URLError, OSError):
        return False
