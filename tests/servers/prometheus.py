"""A Prometheus server with the configuration of deploy/, which scrapes an address of this machine each second."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import urlopen

from tests.servers.server import Server, need, refuse_missing, start_http_server

DEPLOY = Path(__file__).resolve().parents[2] / "deploy" / "prometheus"


def start(folder: Path, target: str) -> Server:
    """Start a server; its data and log are in `folder`. Skips the test where it is not installed."""
    need(("prometheus_client",), "prometheus")
    if shutil.which("prometheus") is None:
        refuse_missing("Prometheus", "prometheus")
    shutil.copy(DEPLOY / "alerts.yaml", folder)
    configuration = (DEPLOY / "prometheus.yml").read_text()
    configuration = configuration.replace("127.0.0.1:9464", target).replace("5s", "1s")
    (folder / "prometheus.yml").write_text(configuration)
    files = f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}"
    return start_http_server(
        lambda port: ["prometheus", *files, f"--web.listen-address=127.0.0.1:{port}"], folder / "prometheus.log", "/-/ready"
    )


def query(server: Server, expression: str) -> list[dict[str, Any]]:
    """Return the samples of an expression now. Raises ValueError with Prometheus' words when it refuses it."""
    try:
        with urlopen(f"{server.address}/api/v1/query?{urlencode({'query': expression})}", timeout=10) as answer:
            found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
            return found
    except HTTPError as error:
        raise ValueError(f"{expression}: {json.load(error)['error']}") from error


def rules(server: Server) -> list[dict[str, Any]]:
    """Return the rules that are loaded, with their last evaluation."""
    with urlopen(f"{server.address}/api/v1/rules", timeout=10) as answer:
        return [rule for group in json.load(answer)["data"]["groups"] for rule in group["rules"]]
