"""The example of requests in and out."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from tests.integration.conftest import no_process_is_left, scene
from tests.integration.support import Scene, eventually
from tests.servers.server import free_port, need

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.server, pytest.mark.xdist_group("http")]
__all__ = ["no_process_is_left", "scene"]


@pytest.fixture(autouse=True)
def aiohttp() -> None:
    need(("aiohttp",))


def test_the_example_answers_when_the_invoice_has_arrived(scene: Scene) -> None:
    port = next(found for found in iter(free_port, None) if found < 64_000)
    running = scene.cluster.submit(str(ROOT / "topologies" / "order_hooks.py"), parameters={"port": port})

    def is_answered() -> bool:
        try:
            order = Request(f"http://127.0.0.1:{port}/orders", json.dumps({"id": "o-1", "cents": 500}).encode())
            return bool(urlopen(order, timeout=30).status == 200)
        except OSError:
            return False

    eventually(is_answered, what="an answer of 200")
    running.kill()
