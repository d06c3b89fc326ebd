"""Makes the tasks of operators: windows, processes, asynchronous calls, batches, columns.

`task.factory` imports it for the first such task of a worker: these modules are a tenth of what a worker would load, in time and
in memory, and a topology of spouts and bolts needs none.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from topo.api.batch_bolt import BatchBolt
from topo.api.columns import ColumnBolt
from topo.api.operator_bolts import AsyncBolt, ProcessBolt, WindowBolt
from topo.emission.collectors import BoltCollector
from topo.errors import TopoInternalError
from topo.task.bolt_output import BoltOutput
from topo.task.guarantees.factory import make_input_guarantee
from topo.task.guarantees.inputs import InputGuarantee
from topo.task.guarantees.window_factory import make_windows
from topo.task.operator_output import OperatorOutput
from topo.task.parts import TaskParts
from topo.task.runners.async_calls import AsyncKind
from topo.task.runners.batch import BatchKind
from topo.task.runners.batch_calls import BatchCalls
from topo.task.runners.columns import ColumnCalls, ColumnKind
from topo.task.runners.input_end import InputEnd
from topo.task.runners.input_runner import InputRunner
from topo.task.runners.kind import KindOptions
from topo.task.runners.operator import OperatorKind
from topo.task.runners.process import ProcessKind
from topo.task.runners.window import WindowKind
from topo.task.timestamp_check import TimestampCheck
from topo.wire.control import Close


def run_operator(
    parts: TaskParts, bolt: object, collector: BoltCollector, close_task: Callable[[float], object]
) -> tuple[InputRunner, InputGuarantee]:
    """Return what runs a bolt that is neither a `Bolt` nor a `BasicBolt`, and its guarantee."""
    # Rows of an operator belong to the current call.
    collector.takes_calls = False
    out = BoltOutput(parts, collector)
    if isinstance(bolt, WindowBolt):
        return _windows(parts, bolt, out, collector)
    if isinstance(bolt, ColumnBolt):
        return _columns(parts, bolt, out, collector)
    if isinstance(bolt, BatchBolt):
        return _batches(parts, bolt, out, collector)
    guarantee = make_input_guarantee(parts, out)
    output = OperatorOutput(parts.state, collector, out, guarantee)
    if isinstance(bolt, ProcessBolt):
        process = ProcessKind(parts, bolt, guarantee, output)
        return InputRunner(parts, out, guarantee, process, InputEnd(parts), _operator_options(parts, process)), guarantee
    if isinstance(bolt, AsyncBolt):
        calls = AsyncKind(parts, bolt, guarantee, output, close_task)
        return InputRunner(parts, out, guarantee, calls, InputEnd(parts), _async_options(parts, calls)), guarantee
    raise TopoInternalError(f"no task runs {bolt!r}")


def _windows(parts: TaskParts, bolt: WindowBolt, out: BoltOutput, collector: BoltCollector) -> tuple[InputRunner, InputGuarantee]:
    whole = parts.state.plan.component(parts.state.component_id).takes_columns
    guarantee, calls, output, firings = make_windows(parts, out, collector, bolt.late_stream, takes_columns=whole)
    end = InputEnd(parts)
    kind = WindowKind(parts, bolt, guarantee, calls, output, end, takes_columns=whole)
    options = replace(_operator_options(parts, kind), takes_batches=whole, before_end=kind.end_clock, firings=firings)
    return InputRunner(parts, out, guarantee, kind, end, options), guarantee


def _batches(parts: TaskParts, bolt: BatchBolt, out: BoltOutput, collector: BoltCollector) -> tuple[InputRunner, InputGuarantee]:
    calls = BatchCalls(bolt, collector, parts.state.config.max_task_emit)
    guarantee = make_input_guarantee(parts, out, error_of=calls.error_of)
    kind = BatchKind(parts, bolt, guarantee, OperatorOutput(parts.state, collector, out, guarantee), calls)
    return InputRunner(parts, out, guarantee, kind, InputEnd(parts), _batch_options(parts, kind)), guarantee


def _columns(parts: TaskParts, bolt: ColumnBolt, out: BoltOutput, collector: BoltCollector) -> tuple[InputRunner, InputGuarantee]:
    state = parts.state
    calls = ColumnCalls(bolt, collector, state.plan.streams(state.component_id), state.config.max_task_emit)
    guarantee = make_input_guarantee(parts, out)
    kind = ColumnKind(parts, bolt, guarantee, OperatorOutput(state, collector, out, guarantee), calls)
    options = replace(_batch_options(parts, kind), takes_batches=True)
    return InputRunner(parts, out, guarantee, kind, InputEnd(parts), options), guarantee


def _batch_options(parts: TaskParts, kind: BatchKind) -> KindOptions:
    return replace(_operator_options(parts, kind), ready=kind, unfinished=kind.unfinished, latency=kind.latency)


def _operator_options(parts: TaskParts, kind: OperatorKind) -> KindOptions:
    check = TimestampCheck(parts.state, parts.reports)
    return KindOptions(
        pass_time=kind.pass_time, timed=kind, settle_mails=kind.settle_mails, levels=kind.levels, timestamp_check=check
    )


def _async_options(parts: TaskParts, kind: AsyncKind) -> KindOptions:
    return replace(
        _operator_options(parts, kind),
        messages={Close: kind.on_close},
        has_room=kind.has_room,
        opened=kind.invoke_restored,
        unfinished=kind.unfinished,
        act_last=kind.close_when_returned,
    )
