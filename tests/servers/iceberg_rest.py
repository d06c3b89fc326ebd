"""A REST catalog of Iceberg, that of Iceberg's own tests, on a Java of the machine."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tests.servers.server import Server, need, refuse_missing, start_http_server

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
    java = ["java", *_JAVA, "-cp", f"{JARS}/*", str(_SOURCE)]
    places = f"{folder}/warehouse", f"{folder}/catalog.db"
    return start_http_server(lambda port: [*java, str(port), *places], folder / "catalog.log", "/v1/config")
