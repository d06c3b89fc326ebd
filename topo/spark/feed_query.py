"""From Structured Streaming into a topology: Spark's checkpoint moves on when the topology is through with a micro-batch."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from topo.config import parse_duration
from topo.errors import ConfigError, TopoEnvironmentError, UserError
from topo.launch.submission import open_home
from topo.spark.feed_push import Push
from topo.spark.feed_spout import address_path, read_address
from topo.transport.feed import FeedAddress

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

_LOOK_S = 0.1


def feed(
    frame: DataFrame,
    topology: str,
    component: str | None = None,
    *,
    checkpoint: str | os.PathLike[str],
    trigger: Mapping[str, Any] | None = None,
    window: int = 8,
    patience: str | timedelta | float = "30s",
    home: Path | None = None,
    folder: str | os.PathLike[str] | None = None,
) -> StreamingQuery:
    """Start a streaming query that sends a DataFrame's rows to the `FeedSpout` of a running topology.

    Each micro-batch ends, and is put into Spark's checkpoint, when every row of it is acked or dead-lettered. While the topology
    is paused or slow the batch waits. When the topology is gone the query fails, and continues with the same batch when it is
    started again from its checkpoint.

    Args:
        frame: a streaming DataFrame with the spout's fields.
        topology: name of the topology, which runs.
        component: id of the spout; may be left out if the topology has only one fed spout.
        checkpoint: folder for Spark's checkpoint, one for each query.
        trigger: as for Spark's `DataStreamWriter.trigger`, such as `{"processingTime": "1 second"}` or `{"availableNow": True}`.
        window: chunks that each Spark task has on the way.
        patience: how long a task of the topology may be silent before the batch fails. Restarts of a worker take less.
        home: topo's state folder; by default that of the environment.
        folder: the spout's `folder`, if it has been given one.

    Returns:
        Spark's query; `query.exception()` gives the reason of its end.

    Raises:
        NotFoundError: no topology has that name.
        TopoEnvironmentError: it does not run, or does not take rows.
        ConfigError: it has several components that are fed: name one. Or no chunk would fit the window.
    """
    if not isinstance(window, int) or window < 1:
        raise ConfigError(f"window={window!r} must be a whole number, at least 1")
    if not frame.isStreaming:
        raise UserError("feed() takes a streaming DataFrame, made by spark.readStream; use SparkSpout for any other")
    patience_s = parse_duration(patience)
    place = _Place(topology, component, home, None if folder is None else Path(folder))
    place.addresses(patience_s)
    token = secrets.token_hex(8)

    def send(batch: DataFrame, number: int) -> None:
        while True:
            addresses = place.addresses(patience_s)
            try:
                batch.mapInArrow(Push(addresses, token, number, window, patience_s), "rows long").collect()
                return
            except Exception:
                # A worker that has come back elsewhere gets the batch again.
                if place.addresses(patience_s) == addresses:
                    raise

    writer = frame.writeStream.foreachBatch(send).option("checkpointLocation", os.fspath(checkpoint))
    return (writer.trigger(**trigger) if trigger else writer).start()


class _Place:
    """Where a component's tasks say how they are reached."""

    def __init__(self, topology: str, component: str | None, home: Path | None, folder: Path | None) -> None:
        self._topology = topology
        self._state = None if folder is not None else open_home(home).find(topology)
        self._folder = folder if self._state is None else self._state.components
        self._component = component

    def addresses(self, patience_s: float) -> tuple[FeedAddress, ...]:
        """Return the addresses of all tasks, waiting for those that start."""
        until = time.monotonic() + patience_s
        while (found := self._addresses()) is None:
            if self._state is not None and not self._state.is_running():
                raise TopoEnvironmentError(f"topology {self._topology!r} does not run; start it, then feed it")
            if time.monotonic() > until:
                who = f"component {self._component!r}" if self._component else "no component"
                raise TopoEnvironmentError(
                    f"{who} of topology {self._topology!r} takes rows: is it a FeedSpout that has started?"
                )
            time.sleep(_LOOK_S)
        return found

    def _addresses(self) -> tuple[FeedAddress, ...] | None:
        if self._state is not None and not self._state.is_running():
            return None
        component = self._component or self._only_component()
        if component is None:
            return None
        assert self._folder is not None
        first = read_address(address_path(self._folder, component, 0))
        if first is None:
            return None
        others = [read_address(address_path(self._folder, component, task)) for task in range(1, first.tasks)]
        found = [address.for_clients() for address in (first, *others) if address is not None]
        return tuple(found) if len(found) == first.tasks else None

    def _only_component(self) -> str | None:
        assert self._folder is not None
        names = sorted(path.parent.name for path in self._folder.glob("*/feed.0.json"))
        if len(names) > 1:
            raise ConfigError(f"topology {self._topology!r} is fed at {', '.join(names)}: give feed() the component")
        return names[0] if names else None
