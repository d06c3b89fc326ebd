"""Spark at both ends of a topology: `from topo.spark import SparkSpout`. Needs the extra `spark` (docs/spark.md).

Names are imported when they are first used: pyarrow with a component, pyspark only where a Spark session is made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from topo.errors import TopoEnvironmentError
from topo.extras import EXTRAS, pip_install

if TYPE_CHECKING:
    from topo.spark.feed_query import feed
    from topo.spark.feed_spout import FeedSpout
    from topo.spark.session import make_session
    from topo.spark.spark_sink import SparkSink
    from topo.spark.spark_spout import SparkSpout

_LAZY = {
    "FeedSpout": "topo.spark.feed_spout",
    "SparkSink": "topo.spark.spark_sink",
    "SparkSpout": "topo.spark.spark_spout",
    "feed": "topo.spark.feed_query",
    "make_session": "topo.spark.session",
}

__all__ = ["FeedSpout", "SparkSink", "SparkSpout", "feed", "make_session"]


def __getattr__(name: str) -> Any:
    """Import the requested name; name the extra to install when the import fails."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    try:
        value = globals()[name] = getattr(import_module(_LAZY[name]), name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("pyarrow", "pyspark", "cloudpickle", "numpy"):
            raise
        raise TopoEnvironmentError(f"{name} needs {error.name}: {pip_install(EXTRAS['spark'])}") from error
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_LAZY])
