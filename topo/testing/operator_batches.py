"""The calls of a batching bolt under the operator harness: what they emit, and which inputs they ack and fail."""

from __future__ import annotations

from collections.abc import Callable

from topo.api.batch_bolt import BatchBolt
from topo.api.streams import streams_of
from topo.api.tuples import Origin
from topo.config import TopologyConfig
from topo.emission.collectors import BoltCollector, TrackedTuple
from topo.errors import UserError
from topo.hot import Row
from topo.operators.batching import BatchOperator
from topo.task.runners.batch_calls import BatchCalls
from topo.testing.operator_output import RecordedOutput
from topo.testing.recording import CheckedCollector
from topo.testing.wire_roundtrip import WireRoundtrip
from topo.wire.codec import Codec

_EPOCH = 1


class BatchesUnderTest:
    """Runs the calls of one `BatchBolt`, and is the function that its `BatchOperator` calls.

    Args:
        bolt: the bolt.
        codec: encodes and decodes emitted values.
        output: gives the recorded output, which takes the bolt's emits.

    Attributes:
        operator: groups the inputs.
        acked: values of each input that was acked, in order.
        failures: values and error of each input that failed, in order.
    """

    def __init__(self, bolt: BatchBolt, codec: Codec, output: Callable[[], RecordedOutput]) -> None:
        streams = streams_of(bolt)
        self.operator = BatchOperator(self, bolt.settings)
        self.acked: list[Row] = []
        self.failures: list[tuple[Row, BaseException]] = []
        self._bolt = bolt
        self._output = output
        self._collector = BoltCollector("bolt", streams, lambda _error: None, codec)
        most = TopologyConfig().max_task_emit
        self._calls = BatchCalls(
            bolt, self._collector, most, CheckedCollector(self._collector, WireRoundtrip(codec, "bolt", streams))
        )

    def input(self, row: Row, origin: Origin, timestamp: int | None) -> TrackedTuple:
        return TrackedTuple.made(row, origin, timestamp, _EPOCH, (), ())

    def run_ready(self) -> None:
        """Make the calls for the batches that are full or have waited long enough."""
        while self.operator.has_ready:
            self.operator.run_one()

    def flush(self) -> None:
        """Make the calls for everything that is held, as in front of a checkpoint."""
        self.operator.close_batches()
        self.run_ready()

    def end(self) -> None:
        """Make the bolt's last call. Its exception reaches the test."""
        try:
            self._bolt.end_of_input(self._calls.collector)
            self._pass_on()
        finally:
            self._collector.clear()

    def call(self, values: list[TrackedTuple]) -> None:
        self._calls.call(values)
        self._pass_on()
        self.acked += [tup.values for tup in self._collector.acked]
        for tup in self._collector.failed:
            error = self._calls.error_of(tup)
            self.failures.append((tup.values, error if error is not None else UserError("the bolt failed it without an error")))
        self._collector.clear()

    def split(self, error: Exception) -> None:
        pass

    def failed(self, value: TrackedTuple, error: Exception) -> None:
        self.failures.append((value.values, error))

    def _pass_on(self) -> None:
        output = self._output()
        for stream in self._collector.streams:
            for index, row in enumerate(stream.rows):
                output.side(stream.declaration.name, row, stream.stamps.get(index))
