"""A task with a two-phase sink that keeps its reported errors; and lives of a sink that end at any of its requests."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.contract.killing import Count, run_child
from tests.contract.test_killed_sinks import Master, check_recovery, life_of
from tests.contract.two_phase_sinks import SinkKind, SinkTask
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


def check_kills_at_requests(kind: SinkKind, folder: Path, count: Count, every: int = 1) -> None:
    """Kill processes of a sink before and behind each request that `count` counts, or each `every`-th, and recover each."""
    step, is_done, completed = 0, False, set[int]()
    while not is_done:
        target, master = folder / str(step), Master()
        is_done, reports = run_child(life_of(kind, target, master), step, count=count)
        master.note(reports)
        completed.add(master.complete)
        check_recovery(kind, target, master)
        step += every
    assert completed == {0, 1, 2, 4}
    assert step > 40
