"""A REST catalog of Iceberg, that of Iceberg's own tests, on a Java of the machine."""

from __future__ import annotations

import os
import shutil
from functools import partial
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from tests.servers.server import Server, ServerEndedError, free_port, need, refuse_missing, start_server

VERSION = "1.10.0"
JARS = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "topo", f"iceberg-rest-{VERSION}")
"""Where scripts/servers.sh puts them; all checkouts share them."""
_SOURCE = Path(__file__).with_name("IcebergRest.java")
_JAVA = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


def start(folder: Path) -> Server:
    """Start a catalog with its warehouse in `folder`. Skips the test where it or pyiceberg is missing."""
    need(("pyiceberg", "pyarrow"))
    if not JARS.is_dir() or shutil.which("java") is None:
        refuse_missing("a REST catalog", "iceberg")
    for attempt in range(3):
        # Somebody else may take the port before the catalog does.
        address = f"http://127.0.0.1:{(port := free_port())}"
        given = [str(port), f"{folder}/warehouse", f"{folder}/catalog.db"]
        command = ["java", *_JAVA, "-cp", f"{JARS}/*", str(_SOURCE), *given]
        try:
            return start_server(command, folder / "catalog.log", address, partial(_answers, address))
        except ServerEndedError:
            if attempt == 2:
                raise
    raise AssertionError("unreachable")


def _answers(address: str) -> bool:
    try:
        with urlopen(f"{address}/v1/config", timeout=5) as answer:
            return bool(answer.status == 200)
    except (URLError, OSError):
        return False
