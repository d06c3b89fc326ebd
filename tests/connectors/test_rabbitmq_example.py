"""The example with RabbitMQ, on a real broker."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest

from tests.connectors.test_rabbitmq import PATIENCE_S, taken
from tests.integration.conftest import no_process_is_left, scene
from tests.integration.support import Scene, eventually
from tests.servers.rabbitmq import RabbitBroker

__all__ = ["no_process_is_left", "scene"]

pytestmark = [pytest.mark.server, pytest.mark.xdist_group("rabbitmq"), pytest.mark.timeout(600)]

EXAMPLE = Path(__file__).parents[2] / "topologies" / "rabbit_jobs.py"


def test_each_job_has_a_result_or_is_among_the_bad_ones(scene: Scene, rabbit_broker: RabbitBroker) -> None:
    example: dict[str, Any] = runpy.run_path(str(EXAMPLE))
    url = rabbit_broker.address
    example["put_jobs"](url, 40)
    running = scene.cluster.submit(str(EXAMPLE), parameters={"url": url})
    done = {"jobs": 0, "results": 36, "jobs.bad": 4}
    eventually(lambda: example["counts"](url) == done, PATIENCE_S, what="the jobs to be done")
    running.kill()
    results = {message_id: json.loads(body)["words"] for body, message_id in taken(rabbit_broker, "results")}
    assert results == {f"words-of-{n}": n % 7 + 1 for n in range(40) if n % 10 != 9}
    assert sorted(json.loads(body)["job"] for body, _ in taken(rabbit_broker, "jobs.bad")) == [9, 19, 29, 39]
