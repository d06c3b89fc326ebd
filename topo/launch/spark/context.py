"""The Spark application of a topology: opened with its own log, asked for its slots."""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import util
from pathlib import Path
from typing import Any

from topo.errors import TopoEnvironmentError, UserError
from topo.extras import EXTRAS, pip_install
from topo.launch.spark.agent_spec import address_towards, host_and_port
from topo.launch.spark.cluster import SlotWatch, check_conf, registration_s
from topo.launch.spark.yarn import resource_managers
from topo.storage.submitted import SparkCluster

_LOG = logging.getLogger(__name__)
_MASTERS = ("spark://", "k8s://", "local")
_CONNECT_S = 3.0
_END_S = 10.0
_LOOK_S = 0.1


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
        UserError: no Spark has such a master, or the settings of a YARN are missing.
    """
    if cluster.master == "yarn":
        return _address_towards_yarn(cluster.conf)
    if not cluster.master.startswith(_MASTERS):
        raise UserError(
            f"{cluster.master!r} is not the URL of a Spark master: write spark://host:7077, k8s://https://host:443 or yarn"
        )
    answering = _answering_master(cluster.master) if cluster.master.startswith("spark://") else None
    if "spark.driver.host" in cluster.conf:
        return _address_of(cluster.conf["spark.driver.host"], "spark.driver.host=")
    if answering is not None:
        return address_towards(answering[0])
    if cluster.master.startswith("k8s://"):
        return address_towards(_api_server(cluster.master))
    return "127.0.0.1"


def _address_towards_yarn(conf: Mapping[str, str]) -> str:
    """Return the address by which the ResourceManager that answers sees this machine, if the settings have no other."""
    places = resource_managers(os.environ, conf)
    answering, refused = _first_that_answers(places)
    if places and answering is None:
        where = " and ".join(f"{host}:{port}" for host, port in places)
        raise TopoEnvironmentError(
            f"no ResourceManager of the YARN answers at {where}: {refused}; start it, or fix yarn-site.xml"
        )
    if "spark.driver.host" in conf:
        return _address_of(conf["spark.driver.host"], "spark.driver.host=")
    return _address_of(socket.gethostname()) if answering is None else address_towards(answering[0])


def _address_of(name: str, setting: str = "") -> str:
    try:
        return socket.gethostbyname(name)
    except OSError as error:
        raise TopoEnvironmentError(f"{setting}{name} is no address of this machine: {error}") from error


def _api_server(url: str) -> str:
    """Return the host of a Kubernetes API server, whose address may have a scheme. Raises UserError when it has no port."""
    try:
        return host_and_port("k8s://" + url.rpartition("://")[2])[0]
    except ValueError:
        raise UserError(f"{url!r} is not the URL of a Kubernetes API server: write k8s://https://host:443") from None


def _answering_master(url: str) -> tuple[str, int]:
    """The first master of a URL that takes a connection: Spark itself would try for a minute."""
    try:
        places = [host_and_port(f"spark://{place}") for place in url.removeprefix("spark://").split(",")]
    except ValueError:
        raise UserError(f"{url!r} is not the URL of a Spark master: write spark://host:7077") from None
    answering, refused = _first_that_answers(places)
    if answering is None:
        raise TopoEnvironmentError(f"no Spark master answers at {url}: {refused}; start it, or fix the URL")
    return answering


def _first_that_answers(places: Iterable[tuple[str, int]]) -> tuple[tuple[str, int] | None, str]:
    """Return the first place that takes a connection, None without one, and why the last one did not."""
    refused = ""
    for place in places:
        try:
            socket.create_connection(place, timeout=_CONNECT_S).close()
            return place, ""
        except OSError as error:
            refused = str(error)
    return None, refused


@contextlib.contextmanager
def spark_application(settings: Mapping[str, str], master: str, log: Path, is_asked: Callable[[], bool]) -> Iterator[Any]:
    """Open a SparkContext whose JVM writes to `log`, and stop it in the end.

    Raises:
        UserError: this process has a Spark session already.
        TopoEnvironmentError: Spark does not start; names the reason. Or somebody has asked for the end meanwhile.
    """
    from py4j.protocol import Py4JError
    from pyspark import SparkContext

    if SparkContext._active_spark_context is not None:
        raise UserError("this process has a Spark session already, and Spark allows one: submit the topology to the background")
    os.environ["PYSPARK_PYTHON"] = settings.get("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON") or sys.executable
    # It logs each thread that has ended, and to the root logger each call that ends with the JVM; its callers raise.
    logging.getLogger("py4j").setLevel(logging.WARNING)
    logging.getLogger().addFilter(_is_not_of_py4j)
    # The environment's say counts more with Spark than the setting of a context.
    os.environ.setdefault("SPARK_LOCAL_IP", settings["spark.driver.bindAddress"])
    begun: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def begin() -> None:
        try:
            begun.put(_started(settings, master, log))
        except BaseException as error:
            begun.put(error)

    # In another thread: YARN may let it wait in a queue for hours, and signals are the main thread's.
    threading.Thread(target=begin, name="start of Spark", daemon=True).start()
    is_ended = False
    while begun.empty() and not is_ended:
        is_ended = is_asked() and _end_java()
        time.sleep(_LOOK_S)
    context = begun.get()
    if is_ended or (isinstance(context, BaseException) and is_asked()):
        raise TopoEnvironmentError("it was asked to end while Spark started")
    if isinstance(context, BaseException):
        raise TopoEnvironmentError(f"Spark does not start: {reason_of(context)}; see {log}") from context
    context.setLogLevel("WARN")
    try:
        yield context
    finally:
        with contextlib.suppress(Py4JError, OSError):
            context.stop()


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    return record.module != "java_gateway"


def _started(settings: Mapping[str, str], master: str, log: Path) -> Any:
    """Return a SparkContext when the cluster has taken the application."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    conf = SparkConf().setMaster(master).setAll(list(settings.items()))
    if SparkContext._gateway is not None:
        return SparkContext(conf=conf)
    with open(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as file:
        launch: Any = launch_gateway
        gateway = launch(conf, {"stdout": file, "stderr": file})
    return SparkContext(conf=conf, gateway=gateway)


def _end_java() -> bool:
    """End the Java in which Spark starts; return whether there was one."""
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway
    if gateway is None:
        return False
    gateway.proc.terminate()
    try:
        gateway.proc.wait(_END_S)
    except subprocess.TimeoutExpired:
        gateway.proc.kill()
        gateway.proc.wait()
    SparkContext._gateway = SparkContext._jvm = None
    return True


def wait_for_slots(context: Any, cluster: SparkCluster, topology: str, needed: int, is_asked: Callable[[], bool]) -> None:
    """Wait until executors offer the slots that are needed, or until somebody asks for the end.

    Raises:
        UserError: they do not.
    """
    watch = SlotWatch(topology, cluster.master, needed, registration_s(cluster), time.monotonic())
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
