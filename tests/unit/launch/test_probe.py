"""The messages about hosts that cannot run workers."""

from __future__ import annotations

import errno
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import cloudpickle
import pytest
import zmq

from topo.errors import UserError
from topo.launch.spark.agent_link import AgentLink
from topo.launch.spark.host_checks import check_findings, explain, foreign_package
from topo.launch.spark.host_probe import PACKAGES, HostFinding, probe_task
from topo.launch.spark.shipping import topo_digest
from topo.transport.zmq import new_key_pair

HERE = {"zmq": "27.1", "msgpack": "1.2", "msgspec": "0.20"}
GOOD: HostFinding = {
    "host": "h1", "python": "3.11.2", "executable": "/py", "packages": HERE, "topo": "", "curve": True, "reaches": True,
}  # fmt: skip


def complaint(*found: HostFinding) -> str:
    with pytest.raises(UserError) as raised:
        check_findings(found, "tcp://10.0.0.9:4000", HERE)
    return str(raised.value)


def test_good_hosts_pass() -> None:
    check_findings([GOOD, {**GOOD, "packages": {**HERE, "zmq": "27.3"}}], "tcp://10.0.0.9:4000", HERE)


def test_missing_packages_are_named_with_their_host_once() -> None:
    bare = {**GOOD, "packages": {}, "missing": {"zmq": "no", "msgspec": "no"}}
    shown = complaint(GOOD, bare, bare)
    assert shown.count("h1 (/py) lacks zmq, msgspec: on that host: pip install 'msgpack>=") == 1


def test_another_major_version_is_told() -> None:
    assert "h1 (/py) has zmq 25.0, and this machine 27.1" in complaint({**GOOD, "packages": {**HERE, "zmq": "25.0"}})


def test_a_host_that_cannot_reach_the_driver_is_told_with_the_way_out() -> None:
    shown = complaint({**GOOD, "reaches": False})
    assert "h1 (/py) cannot reach this machine at tcp://10.0.0.9:4000" in shown and "spark.driver.host=ADDRESS" in shown


@pytest.mark.parametrize(
    ("failure", "shown"),
    [
        (
            'Job aborted: java.io.IOException: Cannot run program "/opt/py": error=2, No such file or directory\n\tat x',
            "hosts of the cluster have no Python at /opt/py (No such file or directory): name theirs",
        ),
        (
            "x\npyspark.errors.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.9 than "
            "that in driver: 3.11, PySpark cannot run with different minor versions.\ny",
            "hosts of the cluster run Python 3.9 and this machine 3.11: name an equal one with PYSPARK_PYTHON",
        ),
        ("Error from python worker:\n  /usr/bin/python3: No module named pyspark", "has no module pyspark"),
        ("a\njava.lang.OutOfMemoryError: heap\n\tat c", "named by PYSPARK_PYTHON: java.lang.OutOfMemoryError: heap"),
        (
            "org.apache.spark.SparkException: Job aborted\nError from python worker:\n  Traceback\n  SyntaxError: invalid\n"
            "org.apache.spark.SparkException: EOFException occurred",
            "named by PYSPARK_PYTHON: SyntaxError: invalid",
        ),
    ],
)
def test_what_spark_says_is_told_in_one_line(failure: str, shown: str) -> None:
    assert shown in explain(failure)
    assert "\n" not in explain(failure)


@pytest.fixture
def link() -> Iterator[AgentLink]:
    made = AgentLink("127.0.0.1")
    yield made
    made.close()


def test_the_probe_finds_this_machine_fit(link: AgentLink) -> None:
    keys = new_key_pair()
    link.allow_list.replace([keys.public])
    found: list[HostFinding] = []
    task = probe_task(link.endpoint, link.public_key, keys.public, keys.secret, timeout_s=20.0)
    thread = threading.Thread(target=lambda: found.extend(task(())))
    thread.start()
    while thread.is_alive():
        for identity, _ in link.receive():
            link.send(identity, b"")
        thread.join(0.01)
    assert found[0]["reaches"] and found[0]["curve"]
    assert set(found[0]["packages"]) == set(PACKAGES)
    assert found[0]["topo"] == topo_digest()
    assert "foreign" not in found[0]


def test_the_probe_finds_a_driver_that_does_not_answer(link: AgentLink) -> None:
    keys = new_key_pair()
    (found,) = probe_task(link.endpoint, link.public_key, keys.public, keys.secret, timeout_s=0.3)(())
    assert found["reaches"] is False


def test_the_probe_of_a_host_that_cannot_encrypt_finds_that(link: AgentLink, monkeypatch: pytest.MonkeyPatch) -> None:
    class Plain(zmq.Socket):
        """A socket as a libzmq without CURVE has it."""

        def set(self, option: int, value: object) -> None:
            if option in (zmq.CURVE_SERVERKEY, zmq.CURVE_PUBLICKEY, zmq.CURVE_SECRETKEY):
                raise zmq.ZMQError(errno.EINVAL)
            super().set(option, value)

    monkeypatch.setattr(zmq, "has", lambda _: False)
    monkeypatch.setattr(zmq.Context, "_socket_class", Plain)
    keys = new_key_pair()
    (found,) = probe_task(link.endpoint, link.public_key, keys.public, keys.secret, timeout_s=0.3)(())
    assert "has a libzmq that cannot encrypt: pip install" in complaint({**GOOD, **found})


def test_the_probe_notices_another_projects_package_without_executing_it(tmp_path: Path) -> None:
    package = tmp_path / "topo"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit('a stranger has been executed')")
    task = cloudpickle.dumps(probe_task("tcp://127.0.0.1:9", "k" * 40, "k" * 40, "k" * 40, timeout_s=0.0))
    program = "import json, pickle, sys; print(json.dumps(next(pickle.load(sys.stdin.buffer)(()))))"

    done = subprocess.run(
        [sys.executable, "-P", "-c", program], input=task, env={"PYTHONPATH": str(tmp_path)}, capture_output=True
    )

    found = json.loads(done.stdout)
    assert found["foreign"] == str(package / "__init__.py")
    shown = foreign_package(found)
    assert f"has another project's package topo at {package}/__init__.py" in shown and "pip uninstall topo" in shown
