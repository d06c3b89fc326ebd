"""A Spark session of this process."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from importlib import util
from typing import TYPE_CHECKING

from topo.errors import TopoEnvironmentError
from topo.extras import EXTRAS, pip_install
from topo.launch.spark.java import use_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Spark's default forgets that a timestamp is a moment.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}


def check_spark() -> None:
    """Say so when the packages are missing that Spark needs.

    Raises:
        TopoEnvironmentError: they are; names the extra to install.
    """
    missing = [name for name in ("pyspark", "pyarrow") if util.find_spec(name) is None]
    if missing:
        raise TopoEnvironmentError(f"{' and '.join(missing)} cannot be imported: {pip_install(EXTRAS['spark'])}")


def make_session(name: str, master: str = "local[*]", config: Mapping[str, str] | None = None) -> SparkSession:
    """Return the process's Spark session, started if there is none; with one, its master and static settings stay.

    Args:
        name: shown in Spark's own pages.
        master: as Spark takes it.
        config: settings of Spark; they win over topo's.

    Raises:
        TopoEnvironmentError: pyspark or Java is missing.
    """
    check_spark()
    use_java()
    from pyspark.sql import SparkSession

    settings = dict(_SETTINGS)
    if master.startswith("local"):
        # A machine may not know its own name.
        settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(name).master(master)
    for key, value in {**settings, **(config or {})}.items():
        builder = builder.config(key, value)
    session: SparkSession = builder.getOrCreate()
    return session
