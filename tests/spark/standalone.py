"""A Spark standalone cluster of real daemons, from the pip package alone.

python -m tests.spark.standalone --workers 3 --cores 4       prints its URL and runs until it is interrupted
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

START_S = 60.0
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
LIGHT = {"spark.executor.extraJavaOptions": JAVA_OPTIONS}
"""Spark settings for executors on a machine with few cores."""


class StandaloneCluster:
    """A master and workers, each a separate JVM.

    Args:
        folder: for logs and work.
        host: the master's address.
        hosts: the address of each worker; on Linux a worker may live in a network namespace, see `namespaces`.
        cores: of each worker; a plain number, which need not be there.
        namespaces: of each worker, "" for none.
    """

    def __init__(self, folder: Path, host: str, hosts: Sequence[str], cores: int = 4, namespaces: Sequence[str] = ()) -> None:
        self.folder = folder
        self.cores = cores
        self._hosts = list(hosts)
        self._namespaces = list(namespaces) or [""] * len(self._hosts)
        self.daemons: dict[str, subprocess.Popen[bytes]] = {}
        master = self._start("master", "master.Master", ["--host", host, "--port", "0", "--webui-port", "0"], host)
        self.url = self._said(master, r"(spark://[\w.:-]+)")
        self.page = f"http://{host}:" + self._said(master, r"(?:MasterWebUI|MasterUI).*?:(\d+)")
        for number in range(len(self._hosts)):
            self.start_worker(number)
        self.wait_for_workers(len(self._hosts))

    def start_worker(self, number: int) -> None:
        """Start a worker, again if it has ended."""
        host, namespace = self._hosts[number], self._namespaces[number]
        arguments = ["--host", host, "--cores", str(self.cores), "--memory", "2g", "--webui-port", "0"]
        arguments += ["--work-dir", str(self.folder / f"work-{number}"), self.url]
        self._start(f"worker-{number}", "worker.Worker", arguments, host, namespace)

    def wait_for_workers(self, count: int) -> None:
        """Wait until all of the given number of workers are alive."""
        until = time.monotonic() + START_S
        while sum(worker["state"] == "ALIVE" for worker in self.state()["workers"]) < count:
            assert time.monotonic() < until, "the workers of the Spark cluster did not come up"
            time.sleep(0.05)

    def wait_until_idle(self) -> None:
        """Wait until no application holds a core."""
        until = time.monotonic() + START_S
        while self.state()["coresused"]:
            assert time.monotonic() < until, "an application did not let go of its cores"
            time.sleep(0.05)

    def state(self) -> dict[str, Any]:
        """Return the text of the master's page."""
        with urllib.request.urlopen(f"{self.page}/json/", timeout=5) as answer:
            found: dict[str, Any] = json.load(answer)
        return found

    def topology_workers(self) -> list[psutil.Process]:
        """The processes of topologies that agents of this cluster run."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                words = process.cmdline()
                if "topo.worker.process" in words and words[-1].startswith(str(self.folder)):
                    found.append(process)
        return found

    def close(self) -> None:
        """End all daemons, and the executors with them."""
        for daemon in self.daemons.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(daemon.pid, signal.SIGTERM)
        for daemon in self.daemons.values():
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(daemon.pid, signal.SIGKILL)
                daemon.wait(10)

    def _start(self, name: str, kind: str, arguments: list[str], host: str, namespace: str = "") -> Path:
        import pyspark

        home = Path(pyspark.__file__).parent
        log = self.folder / f"{name}.log"
        environment = {
            **os.environ,
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": host,
            "SPARK_LOCAL_DIRS": str(self.folder / "local"),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": os.environ.get("SPARK_DAEMON_JAVA_OPTS", JAVA_OPTIONS),
        }
        within = ["ip", "netns", "exec", namespace] if namespace else []
        with log.open("ab") as file:
            self.daemons[name] = subprocess.Popen(
                [*within, str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind}", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                env=environment,
                start_new_session=True,
            )
        return log

    def _said(self, log: Path, pattern: str) -> str:
        """Wait for a daemon to log something."""
        until = time.monotonic() + START_S
        while True:
            if found := re.search(pattern, log.read_text()):
                return found[1]
            assert self.daemons["master"].poll() is None, log.read_text()
            assert time.monotonic() < until, f"{log} does not say {pattern}"
            time.sleep(0.05)


def main() -> None:
    """Run a cluster until it is interrupted."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--cores", type=int, default=4)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="spark-cluster-") as folder:
        cluster = StandaloneCluster(Path(folder), "127.0.0.1", ["127.0.0.1"] * asked.workers, asked.cores)
        try:
            print(cluster.url, flush=True)
            signal.sigwait({signal.SIGINT, signal.SIGTERM})
        finally:
            cluster.close()


if __name__ == "__main__":
    sys.exit(main())
