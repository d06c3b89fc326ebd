from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.cli.drive import EXAMPLES, call
from topo.storage.state_folder import StateFolder

CLIENTS = {
    "delta_orders": "deltalake",
    "iceberg_visits": "pyiceberg",
    "kafka_orders": "confluent_kafka",
    "kafka_to_postgres": "confluent_kafka psycopg",
    "machine_alerts": "paho",
    "nats_orders": "nats",
    "order_hooks": "aiohttp",
    "postgres_orders": "psycopg",
    "rabbit_jobs": "pika",
    "redis_orders": "redis",
}
"""What examples with connectors need."""

WRONG = """
from topo import BasicBolt, TopologyBuilder


class Nothing(BasicBolt):
    def execute(self, tup, collector):
        pass


def topology():
    builder = TopologyBuilder("wrong")
    builder.set_bolt("one", Nothing()).shuffle_grouping("two")
    builder.set_bolt("two", Nothing()).shuffle_grouping("none")
    return builder.build()
"""


def test_a_valid_topology_is_said_to_be_valid(capsys: pytest.CaptureFixture[str], flow: Path) -> None:
    result = call(capsys, "validate", flow)
    assert (result.code, result.out) == (0, "flow is valid: 4 tasks in 4 workers, at_least_once\n")
    assert json.loads(call(capsys, "validate", flow, "--json").out) == {"ok": True, "problems": []}


def test_everything_that_is_wrong_is_told_at_once_and_exits_2(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "wrong.py"
    path.write_text(WRONG)
    result = call(capsys, "validate", path)
    assert result.code == 2
    assert "has no spout" in result.out and "'none', which is not a component" in result.out
    verdict = json.loads(call(capsys, "validate", path, "--json").out)
    assert not verdict["ok"] and len(verdict["problems"]) == len(result.out.splitlines())


def test_a_misspelt_setting_is_a_problem_with_the_nearest_name(capsys: pytest.CaptureFixture[str], flow: Path) -> None:
    result = call(capsys, "validate", flow, "-s", "message_timout=5s")
    assert result.code == 2
    assert "did you mean 'message_timeout'?" in result.out


def test_code_that_raises_is_shown_at_the_users_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "broken.py"
    path.write_text("import os\n\nraise ValueError('no config')\n")
    result = call(capsys, "validate", path)
    assert result.code == 2
    assert f"ValueError: no config ({path}, line 3)" in result.err


@pytest.mark.parametrize(
    ("form", "word"), [("text", "bolt double x1 (Double)"), ("mermaid", "flowchart LR"), ("json", '"components"')]
)
def test_a_graph_is_drawn_from_code_without_running_it(
    capsys: pytest.CaptureFixture[str], flow: Path, form: str, word: str
) -> None:
    result = call(capsys, "graph", flow, "--format", form)
    assert result.code == 0
    assert word in result.out


def test_a_misspelt_name_of_a_topology_is_answered_with_the_nearest(capsys: pytest.CaptureFixture[str], topo_home: Path) -> None:
    StateFolder(topo_home).create("word-count")
    result = call(capsys, "graph", "word-cuont")
    assert result.code == 2
    assert "there is no module word-cuont, and no topology is called 'word-cuont'. Did you mean 'word-count'" in result.err
    assert "there is no file nosuch.py.\n" in call(capsys, "graph", "nosuch.py").err


def test_options_change_what_the_graph_shows(capsys: pytest.CaptureFixture[str], flow: Path) -> None:
    plan = json.loads(call(capsys, "graph", flow, "--json", "--workers", "2", "--name", "other", "-s", "ackers=3").out)
    assert plan["name"] == "other"
    assert len(plan["workers"]) == 2
    assert sum(task["component"] == "__acker" for task in plan["tasks"]) == 3


@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_every_example_is_valid(capsys: pytest.CaptureFixture[str], example: Path) -> None:
    if "spark" in example.stem and find_spec("pyspark") is None:
        pytest.skip("needs the extra spark")
    if missing := [client for client in CLIENTS.get(example.stem, "").split() if find_spec(client) is None]:
        pytest.skip(f"needs {', '.join(missing)}, which `make connectors` installs")
    assert call(capsys, "validate", example).code == 0
