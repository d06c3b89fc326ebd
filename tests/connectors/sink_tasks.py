"""A task with a two-phase sink that keeps its reported errors."""

from __future__ import annotations

from dataclasses import replace

from tests.contract.two_phase_sinks import SinkTask
from topo import TaskContext, TopologyConfig, TwoPhaseSink
from topo.api.streams import declared_streams
from topo.checkpoint.staged_output import StagedOutput
from topo.emission.collectors import BoltCollector


class ReportingTask(SinkTask):
    """A task whose reported errors are kept in `errors`."""

    def __init__(self, sink: TwoPhaseSink, delivery: str = "exactly_once") -> None:
        self.sink, self.errors = sink, list[BaseException]()
        self.collector = BoltCollector("sink", declared_streams(sink.outputs), self.errors.append)
        config = replace(TopologyConfig(), delivery=delivery)  # type: ignore[arg-type]
        sink.prepare(TaskContext("test", "sink", 1, config=config), self.collector)
        self.output = StagedOutput(sink)
        if delivery == "exactly_once":
            self.output.restore(None)

    def texts(self) -> list[str]:
        """The errors so far; they are taken out."""
        texts = [str(error) for error in self.errors]
        self.errors.clear()
        return texts
