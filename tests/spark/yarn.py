"""A YARN of Hadoop's real daemons on loopback: a ResourceManager, and NodeManagers whose containers are processes of this user.

python -m tests.spark.yarn --nodes 2      prints HADOOP_CONF_DIR and runs until it is interrupted
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

from tests.servers.server import Server, free_port, refuse_missing, start_server
from topo.launch.spark.java import use_java

JARS = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "topo", "hadoop-3.5.0")
"""Where scripts/servers.sh puts Hadoop; all checkouts share it."""
_READY_S = 120.0
_JAVA = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "--add-opens=java.base/java.lang=ALL-UNNAMED")
_LOG = """log4j.rootLogger=INFO,A
log4j.appender.A=org.apache.log4j.ConsoleAppender
log4j.appender.A.layout=org.apache.log4j.SimpleLayout
"""
_RM = "yarn.resourcemanager"
_NM = "yarn.nodemanager"
_SETTINGS = {
    f"{_NM}.address": "127.0.0.1:0",
    f"{_NM}.localizer.address": "127.0.0.1:0",
    f"{_NM}.webapp.address": "127.0.0.1:0",
    f"{_NM}.collector-service.address": "127.0.0.1:0",
    # Java fills in the folder of a node.
    f"{_NM}.local-dirs": "${topo.node}/local",
    f"{_NM}.log-dirs": "${topo.node}/containers",
    f"{_NM}.resource.memory-mb": "8192",
    f"{_NM}.disk-health-checker.max-disk-utilization-per-disk-percentage": "100",
    f"{_RM}.nodemanagers.heartbeat-interval-ms": "100",
    "yarn.scheduler.minimum-allocation-mb": "128",
    # The default is ten minutes.
    "yarn.nm.liveness-monitor.expiry-interval-ms": "5000",
}
_QUEUES = {
    "yarn.scheduler.capacity.root.queues": "default",
    "yarn.scheduler.capacity.root.default.capacity": "100",
    "yarn.scheduler.capacity.maximum-am-resource-percent": "0.5",
}


class YarnCluster:
    """A ResourceManager and NodeManagers, each a separate Java. Skips the test where Hadoop is missing.

    Args:
        folder: for settings, logs and containers.
        nodes: how many NodeManagers.
    """

    def __init__(self, folder: Path, nodes: int) -> None:
        if not JARS.is_dir():
            refuse_missing("Hadoop", "hadoop")
        self._folder = folder
        self._java = str(use_java().home / "bin" / "java")
        self.settings = folder / "settings"
        """The value of HADOOP_CONF_DIR."""
        self.settings.mkdir()
        names = ("address", "scheduler.address", "resource-tracker.address", "admin.address", "webapp.address")
        places = {f"{_RM}.{name}": f"127.0.0.1:{free_port()}" for name in names}
        self._page = f"http://{places[f'{_RM}.webapp.address']}/ws/v1/cluster"
        self._write("core-site", {"fs.defaultFS": "file:///", "hadoop.tmp.dir": str(folder / "tmp")})
        self._write("yarn-site", {**places, f"{_RM}.hostname": "127.0.0.1", **_SETTINGS})
        self._write("capacity-scheduler", _QUEUES)
        (self.settings / "log4j.properties").write_text(_LOG)
        self.daemons: dict[str, Server] = {}
        try:
            self._start("master", "resourcemanager.ResourceManager", 0)
            self.start_nodes(*(f"node-{number}" for number in range(nodes)))
        except BaseException:
            self.close()
            raise

    def start_nodes(self, *names: str) -> None:
        """Start NodeManagers, again if they were killed, and wait until the ResourceManager counts on them."""
        there = len(self.nodes())
        for number, name in enumerate(names, 1):
            (self._folder / name).mkdir(exist_ok=True)
            # One beside the other: the last one waits for all.
            self._start(name, "nodemanager.NodeManager", there + number if number == len(names) else 0)

    def kill_node(self, name: str) -> None:
        """End a NodeManager and all its containers at once, as the loss of its machine would."""
        daemon = self.daemons.pop(name)
        containers = psutil.Process(daemon.pid).children(recursive=True)
        daemon.kill()
        kill_all(containers)

    def nodes(self) -> list[dict[str, Any]]:
        """Return the NodeManagers that the ResourceManager counts on."""
        found = (self._answer("nodes?states=RUNNING")["nodes"] or {}).get("node", [])
        return [found] if isinstance(found, dict) else list(found)

    def applications(self) -> list[dict[str, Any]]:
        """Return all applications, newest first."""
        found = (self._answer("apps")["apps"] or {}).get("app", [])
        return sorted([found] if isinstance(found, dict) else found, key=lambda app: -int(app["startedTime"]))

    def node_of_master(self) -> str:
        """Return the name of the NodeManager that has the ApplicationMaster of the newest application."""
        place = self.applications()[0]["amHostHttpAddress"]
        (number,) = (node["id"].rpartition(":")[2] for node in self.nodes() if node["nodeHTTPAddress"] == place)
        return next(name for name, daemon in self.daemons.items() if int(number) in ports_of(daemon.pid))

    def node_of(self, pid: int) -> str:
        """Return the name of the NodeManager in one of whose containers a process runs."""
        above = {parent.pid for parent in psutil.Process(pid).parents()}
        (name,) = (name for name, daemon in self.daemons.items() if daemon.pid in above)
        return name

    def containers(self) -> list[psutil.Process]:
        """Return the processes that containers consist of, those left by a killed NodeManager as well."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if "container_" in process.cwd() and process.cwd().startswith(str(self._folder)):
                    found.append(process)
        return found

    def close(self) -> None:
        """End all daemons and containers."""
        for name in list(self.daemons):
            self.kill_node(name)
        kill_all(self.containers())

    def _start(self, name: str, kind: str, nodes: int) -> None:
        path = os.pathsep.join([str(self.settings), f"{JARS}/*"])
        command = [self._java, *_JAVA, f"-Dtopo.node={self._folder / name}", "-cp", path]
        command.append(f"org.apache.hadoop.yarn.server.{kind}")
        log = self._folder / f"{name}.log"
        self.daemons[name] = start_server(command, log, self._page, lambda: self._counts(nodes), _READY_S)

    def _counts(self, nodes: int) -> bool:
        try:
            return len(self.nodes()) >= nodes
        except (urllib.error.URLError, OSError):
            return False

    def _answer(self, what: str) -> dict[str, Any]:
        with urllib.request.urlopen(f"{self._page}/{what}", timeout=5) as answer:
            found: dict[str, Any] = json.load(answer)
        return found

    def _write(self, name: str, settings: Mapping[str, str]) -> None:
        rows = "".join(f"<property><name>{name}</name><value>{value}</value></property>\n" for name, value in settings.items())
        (self.settings / f"{name}.xml").write_text(f"<configuration>\n{rows}</configuration>\n")


def kill_all(processes: list[psutil.Process]) -> None:
    """End processes at once, and wait until they are gone."""
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(processes, timeout=_READY_S)


def ports_of(pid: int) -> set[int]:
    """Return the ports at which a process listens."""
    return {one.laddr.port for one in psutil.Process(pid).net_connections("tcp") if one.status == psutil.CONN_LISTEN}


def main() -> None:
    """Run a cluster until it is interrupted."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=2)
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="topo-yarn-") as folder:
        cluster = YarnCluster(Path(folder), asked.nodes)
        try:
            print(f"export HADOOP_CONF_DIR={cluster.settings}", flush=True)
            while True:
                time.sleep(60)
        except KeyboardInterrupt:
            cluster.close()


if __name__ == "__main__":
    sys.exit(main())
