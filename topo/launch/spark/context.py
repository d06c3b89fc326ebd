"""The Spark application of a topology: opened with its own log, asked for its slots."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from importlib import util
from pathlib import Path
from typing import Any

from topo.config import parse_duration
from topo.errors import TopoEnvironmentError, UserError
from topo.extras import EXTRAS, pip_install
from topo.launch.spark.agent_spec import address_towards, host_and_port
from topo.launch.spark.cluster import SlotWatch, check_conf
from topo.storage.submitted import SparkCluster

_LOG = logging.getLogger(__name__)
_CONNECT_S = 3.0
_LOOK_S = 0.1
_REGISTER_S = {"spark": 30.0, "local": 60.0}
"""How long executors may take to come up. Where they are containers that is minutes."""
_CONTAINERS_S = 120.0
_WAIT_SETTING = "spark.scheduler.maxRegisteredResourcesWaitingTime"


def check_here(cluster: SparkCluster) -> str:
    """Check what a driver needs of this machine; return the address by which the cluster's hosts reach it.

    Raises:
        TopoError: PySpark or Java is missing, a Spark setting cannot be, or no Spark master answers.
    """
    from topo.launch.spark.java import use_java

    check_conf(cluster.conf)
    if util.find_spec("pyspark") is None:
        raise TopoEnvironmentError(f"PySpark is needed to run on a Spark cluster: {pip_install(EXTRAS['spark'])}")
    use_java()
    return address_of_driver(cluster)


def address_of_driver(cluster: SparkCluster) -> str:
    """Return the address by which the cluster's hosts reach this machine.

    Raises:
        TopoEnvironmentError: no Spark master answers, or there is no way to it.
    """
    if "spark.driver.host" in cluster.conf:
        return _address_of(cluster.conf["spark.driver.host"])
    if cluster.master.startswith("spark://"):
        return address_towards(_answering_master(cluster.master)[0])
    if cluster.master.startswith("k8s://"):
        return address_towards(host_and_port("//".join(["k8s:", *cluster.master.removeprefix("k8s://").split("://")[-1:]]))[0])
    if cluster.master.startswith("yarn"):
        return _address_of(socket.gethostname())
    return "127.0.0.1"


def _address_of(name: str) -> str:
    try:
        return socket.gethostbyname(name)
    except OSError as error:
        raise TopoEnvironmentError(f"{name} is no address of this machine: {error}") from error


def _answering_master(url: str) -> tuple[str, int]:
    """The first master of a URL that takes a connection: Spark itself would try for a minute."""
    refused = ""
    for place in url.removeprefix("spark://").split(","):
        try:
            host, port = host_and_port(f"spark://{place}")
        except ValueError:
            raise UserError(f"{url!r} is not the URL of a Spark master: write spark://host:7077") from None
        try:
            socket.create_connection((host, port), timeout=_CONNECT_S).close()
            return host, port
        except OSError as error:
            refused = str(error)
    raise TopoEnvironmentError(f"no Spark master answers at {url}: {refused}; start it, or fix the URL")


@contextlib.contextmanager
def spark_application(settings: Mapping[str, str], master: str, log: Path) -> Iterator[Any]:
    """Open a SparkContext whose JVM writes to `log`, and stop it in the end.

    Raises:
        UserError: this process has a Spark session already.
        TopoEnvironmentError: Spark does not start; names the reason.
    """
    from py4j.protocol import Py4JError
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkException
    from pyspark.java_gateway import launch_gateway

    if SparkContext._active_spark_context is not None:
        raise UserError("this process has a Spark session already, and Spark allows one: submit the topology to the background")
    os.environ["PYSPARK_PYTHON"] = settings.get("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON") or sys.executable
    # It logs each thread that has ended.
    logging.getLogger("py4j").setLevel(logging.WARNING)
    # The environment's say counts more with Spark than the setting of a context.
    os.environ.setdefault("SPARK_LOCAL_IP", settings["spark.driver.bindAddress"])
    conf = SparkConf().setMaster(master).setAll(list(settings.items()))
    try:
        if SparkContext._gateway is None:
            with open(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as file:
                launch: Any = launch_gateway
                gateway = launch(conf, {"stdout": file, "stderr": file})
            context = SparkContext(conf=conf, gateway=gateway)
        else:
            context = SparkContext(conf=conf)
    except (PySparkException, Py4JError, OSError) as error:
        raise TopoEnvironmentError(f"Spark does not start: {reason_of(error)}; see {log}") from error
    context.setLogLevel("WARN")
    try:
        yield context
    finally:
        with contextlib.suppress(Py4JError, OSError):
            context.stop()


def wait_for_slots(context: Any, cluster: SparkCluster, topology: str, needed: int, is_asked: Callable[[], bool]) -> None:
    """Wait until executors offer the slots that are needed, or until somebody asks for the end.

    Raises:
        UserError: they do not.
    """
    limit_s = _CONTAINERS_S
    if _WAIT_SETTING in cluster.conf:
        limit_s = parse_duration(cluster.conf[_WAIT_SETTING])
    elif cluster.master.startswith(("spark", "local")):
        limit_s = _REGISTER_S[cluster.master[:5]]
    watch = SlotWatch(topology, cluster.master, needed, limit_s, time.monotonic())
    while not is_asked():
        offered = slots_offered(context)
        if offered is None or watch.is_over(offered, time.monotonic()):
            return
        time.sleep(_LOOK_S)


def slots_offered(context: Any) -> int | None:
    """How many tasks can run at the same time, on the executors that have registered; None when this Spark does not report it."""
    from py4j.protocol import Py4JError

    try:
        scala = context._jsc.sc()
        return int(scala.maxNumConcurrentTasks(scala.resourceProfileManager().defaultResourceProfile()))
    except (Py4JError, TypeError):
        # It is no public interface. Too few slots show then when agents do not come up.
        _LOG.warning("this Spark does not report its number of slots")
        return None


def is_stopped(context: Any) -> bool:
    """Whether Spark itself has ended the application."""
    from py4j.protocol import Py4JError

    try:
        return context._jsc is None or bool(context._jsc.sc().isStopped())
    except (Py4JError, OSError):
        return True


def reason_of(error: BaseException) -> str:
    """The first line of Spark's message about a failure."""
    text = str(getattr(error, "java_exception", None) or error).strip()
    return text.splitlines()[0][:500] if text else type(error).__name__
