"""An S3 server, of moto. It keeps everything in memory."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.servers.server import Server, need, start_http_server


def start(folder: Path) -> Server:
    """Start a server; its log is in `folder`. Skips the test where a package is missing."""
    need(("moto", "flask", "s3fs"))
    moto = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p"]
    return start_http_server(lambda port: [*moto, str(port)], folder / "s3.log", "/moto-api/")
