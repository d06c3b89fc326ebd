"""One Spark session for all tests, which makes and reads data; the product starts Spark in separate processes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.conftest import no_process_is_left, scene
from tests.spark.quick_java import quick_options
from tests.spark.standalone import LIGHT, StandaloneCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["no_process_is_left", "scene"]


@pytest.fixture(scope="session")
def quick_java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Have every Java be ready soon."""
    options = quick_options(tmp_path_factory.mktemp("java"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_SUBMIT_OPTS", options)
        patch.setenv("SPARK_DAEMON_JAVA_OPTS", options)
        patch.setitem(LIGHT, "spark.executor.extraJavaOptions", options)
        yield


@pytest.fixture(autouse=True)
def quick_java_for_spark(request: pytest.FixtureRequest) -> None:
    """What starts Spark in separate processes has that as well."""
    if request.node.get_closest_marker("spark"):
        request.getfixturevalue("quick_java")


@pytest.fixture(scope="session")
def spark(quick_java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local session of two cores, in UTC."""
    from topo.spark.session import make_session

    config: dict[str, Any] = {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.memory": "512m",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
    }
    session = make_session("tests", "local[2]", config)
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def standalone(quick_java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    """A Spark cluster of a master and three workers with four cores each, on loopback."""
    cluster = StandaloneCluster(tmp_path_factory.mktemp("standalone"), "127.0.0.1", ["127.0.0.1"] * 3)
    yield cluster
    cluster.close()
