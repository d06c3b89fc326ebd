"""Has the Javas of the tests be ready soon rather than be fast later: most of them live for seconds.

A Java takes long to read and check Spark's classes. The first one does that for all: it leaves them in an archive.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

from tests.spark.standalone import JAVA_OPTIONS

_WARM_UP = """
from topo.spark.session import make_session
spark = make_session("warm-up", "local[2]", {"spark.ui.enabled": "true", "spark.ui.port": "0"})
spark.range(100).selectExpr("id % 7 AS key", "id").repartition(2).groupBy("key").count().write.parquet("rows")
spark.sql("SELECT key, max(count) FROM parquet.`rows` GROUP BY key").collect()
spark.sparkContext.parallelize([1, 2], 2).barrier().mapPartitions(list).collect()
for name in ("deploy.master.Master", "deploy.worker.Worker", "executor.CoarseGrainedExecutorBackend"):
    spark._jvm.java.lang.Class.forName("org.apache.spark." + name)
spark.stop()
"""


def quick_options(folder: Path) -> str:
    """Return options for every Java of Spark.

    Args:
        folder: for the archive of classes. Where none can be made, Javas start without.
    """
    archive = folder / "spark.jsa"
    options = f"{JAVA_OPTIONS} -XX:ArchiveClassesAtExit={archive} -Xlog:cds=off -Xlog:cds+dynamic=off"
    environment = {**os.environ, "SPARK_SUBMIT_OPTS": options}
    done = subprocess.run(
        [sys.executable, "-c", _WARM_UP], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    if not archive.exists():
        logging.getLogger(__name__).warning("Javas start slowly, without an archive of classes: %s", done.stderr[-500:])
        return JAVA_OPTIONS
    # It is read, not copied, where it lies at the address it was made for.
    return f"{JAVA_OPTIONS} -XX:SharedArchiveFile={archive} -XX:+UnlockDiagnosticVMOptions -XX:ArchiveRelocationMode=0"
