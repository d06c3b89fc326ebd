"""A real Prometheus scrapes a real topology, and evaluates the dashboard and the alerts; and the server itself is asked badly."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from tests.cli.drive import call, piped
from tests.servers import prometheus
from tests.servers.server import Server, need
from topo.storage.state_folder import StateFolder

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 60.0

pytestmark = [pytest.mark.server, pytest.mark.xdist_group("prometheus")]

TOPOLOGY = """
import time
from topo import BasicBolt, Spout, TopologyBuilder

class Numbers(Spout):
    outputs = ("n",)
    def open(self, context, collector):
        self.collector, self.number = collector, 0
    def next_tuple(self):
        time.sleep(0.005)
        self.collector.emit((self.number,), message_id=self.number)
        self.number += 1

class Work(BasicBolt):
    def prepare(self, context):
        self.seen = context.metrics.counter("seen numbers")
    def execute(self, tup, collector):
        self.seen.add()
        if tup["n"] % 50 == 0:
            raise ValueError("a number to fail on")

def topology():
    builder = TopologyBuilder("watched")
    builder.set_spout("numbers", Numbers())
    builder.set_bolt("work", Work()).shuffle_grouping("numbers")
    return builder.build()
"""


@pytest.fixture(scope="module", autouse=True)
def installed() -> None:
    need(("prometheus_client",), "prometheus")


@pytest.fixture(scope="module")
def home(installed: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A state folder with a topology that runs, and another that has ended."""
    folder = tmp_path_factory.mktemp("watched")
    (folder / "watched.py").write_text(TOPOLOGY)
    home = folder / "home"
    assert piped("submit", folder / "watched.py", "--name", "ended", "--home", home, "--wait").code == 0
    assert piped("kill", "ended", "-y", "--home", home).code == 0
    assert piped("submit", folder / "watched.py", "--home", home, "--wait").code == 0
    yield home
    piped("kill", "watched", "-y", "--home", home)


@pytest.fixture(scope="module")
def address(home: Path) -> Iterator[str]:
    """The address of a server of metrics, in a thread."""
    from topo.operate.prometheus import MetricsServer, TopologyCollector

    server = MetricsServer(TopologyCollector(home), "127.0.0.1", 0)
    thread = threading.Thread(target=server.serve_forever, args=(0.1,))
    thread.start()
    yield server.address
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(scope="module")
def server(address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A Prometheus that has scraped for long enough for rates."""
    started = prometheus.start(tmp_path_factory.mktemp("prometheus"), address)
    wait_for(lambda: prometheus.query(started, 'rate(topo_errors_total{topology="watched", component="work"}[1m]) > 0'))
    yield started
    started.stop()


def wait_for(condition: Any) -> Any:
    until = time.monotonic() + PATIENCE_S
    while not (found := condition()):
        assert time.monotonic() < until
        time.sleep(0.2)
    return found


def get(address: str, path: str = "/metrics", method: str = "GET", headers: dict[str, str] | None = None) -> tuple[int, str]:
    connection = HTTPConnection(address, timeout=10)
    connection.request(method, path, headers=headers or {})
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


def panels() -> dict[str, list[str]]:
    """Return the expressions of the dashboard by title, for the topology that runs."""
    shown = json.loads((ROOT / "deploy" / "grafana" / "topo.json").read_text())["panels"]
    return {panel["title"]: [one["expr"].replace("$topology", "watched") for one in panel["targets"]] for panel in shown}


ALERTS = dict(re.findall(r"- alert: (\w+)\n +expr: (.+)", (ROOT / "deploy" / "prometheus" / "alerts.yaml").read_text()))
WITHOUT_SAMPLES = {"Watermark lag", "Checkpoints"}
"""Panels of what this topology has not."""


@pytest.mark.parametrize("title", panels())
def test_every_expression_of_the_dashboard_has_an_answer(server: Server, title: str) -> None:
    for expression in panels()[title]:
        found = prometheus.query(server, expression)
        assert bool(found) is (title not in WITHOUT_SAMPLES), expression
        # A line has one legend: a join that multiplies its samples would be refused or repeat them.
        assert len({json.dumps(sample["metric"], sort_keys=True) for sample in found}) == len(found)


def test_every_alert_is_loaded_and_evaluated(server: Server) -> None:
    found = wait_for(lambda: [rule for rule in prometheus.rules(server) if rule["health"] != "unknown"])
    loaded = wait_for(lambda: (now := prometheus.rules(server)) and all(one["health"] != "unknown" for one in now) and now)
    assert found and {rule["name"]: rule["health"] for rule in loaded} == dict.fromkeys(ALERTS, "ok")


def test_alerts_fire_for_the_topology_with_errors_and_for_nothing_else(server: Server) -> None:
    wait_for(lambda: prometheus.query(server, ALERTS["TopoErrors"]))
    firing = {(name, one["metric"].get("topology")) for name, expr in ALERTS.items() for one in prometheus.query(server, expr)}
    assert {topology for _, topology in firing} == {"watched"}
    assert {name for name, _ in firing} <= {"TopoErrors", "TopoDeadLetters"}, firing


def test_figures_are_those_of_topo_status(server: Server, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def executed() -> float:
        (sample,) = prometheus.query(server, 'topo_tuples_executed_total{topology="watched", component="work"}')
        return float(sample["value"][1])

    before = executed()
    status = json.loads(call(capsys, "status", "watched", "--home", home, "--json").out)
    (work,) = [row for row in status["components"] if row["component"] == "work"]
    shown = work["counters"]["executed"]
    assert before <= shown
    wait_for(lambda: executed() >= shown)
    (user,) = prometheus.query(server, 'topo_user_seen_numbers_total{topology="watched"}')
    assert user["metric"]["component"] == "work"


def test_what_is_served_passes_promtool_and_an_ended_topology_is_down(address: str) -> None:
    code, text = get(address)
    assert code == 200
    assert 'topo_up{topology="ended"} 0.0' in text and 'topo_up{topology="watched"} 1.0' in text
    assert 'topo_status{status="KILLED",topology="ended"} 1.0' in text
    assert not [
        line for line in text.splitlines() if 'topology="ended"' in line and not line.startswith(("topo_up", "topo_status"))
    ]
    if shutil.which("promtool") is None:
        pytest.skip("promtool is missing: sh scripts/servers.sh prometheus")
    subprocess.run(["promtool", "check", "metrics"], input=text, text=True, check=True, capture_output=True)


@pytest.mark.parametrize(
    ("path", "method", "code"),
    [("/", "GET", 404), ("/metrics/../topology.json", "GET", 404), ("/metrics", "POST", 405), ("/metrics", "DELETE", 405)],
)
def test_anything_but_a_scrape_is_refused(address: str, path: str, method: str, code: int) -> None:
    assert get(address, path, method)[0] == code


def test_many_scrapes_ask_the_master_once_a_second(home: Path) -> None:
    from topo.operate.prometheus import TopologyCollector

    asked, now = [0], [0.0]

    def ask(_folder: Any) -> None:
        asked[0] += 1

    collector = TopologyCollector(home, ["watched"], lambda: now[0], ask)
    for _ in range(5):
        assert b'topo_up{topology="watched"} 0.0' in collector.text()
    assert asked == [1]
    now[0] = 1.0
    collector.text()
    assert asked == [2]


def test_a_client_that_sends_nothing_holds_up_no_scrape_for_long(address: str) -> None:
    import socket

    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port))):
        assert get(address)[0] == 200


def test_the_command_prints_and_refuses(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown = call(capsys, "metrics", "watched", "--once", "--home", home)
    assert shown.code == 0 and 'topo_up{topology="watched"} 1.0' in shown.out and 'topology="ended"' not in shown.out
    for arguments, text in (
        (["--listen", "0.0.0.0:0"], "is reached by other machines"),
        (["--listen", "localhost"], "--listen takes HOST:PORT"),
        (["--listen", "[::1]:9464"], "a name or an IPv4 address"),
        (["--listen", "127.0.0.1:70000"], "--listen takes HOST:PORT"),
    ):
        refused = call(capsys, "metrics", *arguments, "--home", home)
        assert refused.code == 2 and text in refused.err
    assert StateFolder(home).names() == ["ended", "watched"]
