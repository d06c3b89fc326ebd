"""Makes tasks: what runs one is chosen by the kind of its component, its guarantee by the delivery mode."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from topo.api.bolt import BasicBolt, Bolt
from topo.api.operator_bolts import WindowBolt
from topo.api.spout import Spout
from topo.api.topology import ComponentKind
from topo.api.two_phase import TwoPhaseSink
from topo.emission.collectors import BoltCollector, anchoring_collector
from topo.errors import TopoInternalError
from topo.hot import Row
from topo.task.bolt_output import BoltOutput
from topo.task.environment import TaskEnvironment, TaskSpec
from topo.task.guarantees.factory import (
    make_input_guarantee,
    make_source_guarantee,
    make_staged_output,
    make_verdict_delivery,
)
from topo.task.guarantees.inputs import InputGuarantee
from topo.task.parts import TaskParts
from topo.task.runners.acker import ACKER_FRAMES, LONG_REST_S, REST_S, AckerRunner
from topo.task.runners.basic_bolt import BasicBoltKind
from topo.task.runners.bolt import BoltKind
from topo.task.runners.held_watch import HeldInputsWatch
from topo.task.runners.input_end import InputEnd
from topo.task.runners.input_runner import INPUT_FRAMES, VERDICTS, InputRunner
from topo.task.runners.kind import KindOptions
from topo.task.runners.spout import SPOUT_FRAMES, SpoutRunner
from topo.task.task import Task


def make_task(spec: TaskSpec, env: TaskEnvironment) -> Task:
    """Return a new task."""
    kind = spec.plan.component_of(spec.task).kind
    if kind is ComponentKind.ACKER:
        return _acker_task(spec, env)
    return _spout_task(spec, env) if kind is ComponentKind.SPOUT else _bolt_task(spec, env)


def _acker_task(spec: TaskSpec, env: TaskEnvironment) -> Task:
    parts = TaskParts(spec, env, ACKER_FRAMES, _no_rows)
    delivery = make_verdict_delivery(parts)
    rest_s = LONG_REST_S if spec.plan.ids_may_wait else REST_S
    return Task(parts, AckerRunner(parts, delivery), delivery, rest_s=rest_s)


def _no_rows(values: Row, roots: Sequence[int], error: Exception) -> None:
    raise TopoInternalError(f"a row from an acker: {error}") from error


def _spout_task(spec: TaskSpec, env: TaskEnvironment) -> Task:
    spout = spec.component
    if not isinstance(spout, Spout):
        raise TopoInternalError(f"{spout!r} is not a Spout")

    # A part that calls a later one gets a function: the first call comes when the task is complete.
    def reject(values: Row, roots: Sequence[int], error: Exception) -> None:
        source.reject_row(values, roots, error)

    def run_mail(action: Callable[[], object]) -> None:
        runner.run_user_mail(action)

    parts = TaskParts(spec, env, SPOUT_FRAMES, reject, run_mail)
    source, output = make_source_guarantee(parts, spout)
    runner = SpoutRunner(parts, spout, output, source)
    return Task(parts, runner, source, user=runner)


def _bolt_task(spec: TaskSpec, env: TaskEnvironment) -> Task:
    def reject(values: Row, roots: Sequence[int], error: Exception) -> None:
        guarantee.reject_row(values, roots, error)

    def run_mail(action: Callable[[], object]) -> None:
        runner.run_user_mail(action)

    def close_task(now: float) -> None:
        task.close(now)

    accepts = INPUT_FRAMES | VERDICTS if isinstance(spec.component, WindowBolt) else INPUT_FRAMES
    parts = TaskParts(spec, env, accepts, reject, run_mail)
    runner, guarantee = _with_input(parts, close_task)
    task = Task(parts, runner, guarantee, user=runner)
    return task


def _with_input(parts: TaskParts, close_task: Callable[[float], object]) -> tuple[InputRunner, InputGuarantee]:
    """Return what runs a bolt, and its guarantee."""
    bolt = parts.spec.component
    if isinstance(bolt, BasicBolt):
        return _basic_bolt(parts, bolt)
    state = parts.state
    streams = state.plan.streams(state.component_id)
    collector = BoltCollector(state.component_id, streams, parts.reports.record_misuse, parts.env.codec)
    if isinstance(bolt, Bolt):
        return _bolt(parts, bolt, collector)
    # Most workers run none of these, and they are a tenth of what a worker would load.
    from topo.task.operator_factory import run_operator

    return run_operator(parts, bolt, collector, close_task)


def _basic_bolt(parts: TaskParts, bolt: BasicBolt) -> tuple[InputRunner, InputGuarantee]:
    state = parts.state
    streams = state.plan.streams(state.component_id)
    collector = anchoring_collector(state.component_id, streams, parts.reports.record_misuse, parts.env.codec)
    out = BoltOutput(parts, collector)
    guarantee = make_input_guarantee(parts, out)
    kind = BasicBoltKind(parts, bolt, guarantee, collector)
    options = KindOptions(pass_time=out.pass_time, tick=kind.tick)
    return InputRunner(parts, out, guarantee, kind, InputEnd(parts), options), guarantee


def _bolt(parts: TaskParts, bolt: Bolt, collector: BoltCollector) -> tuple[InputRunner, InputGuarantee]:
    out = BoltOutput(parts, collector, lambda: watch.time_floor())
    staged, end = make_staged_output(parts, bolt), InputEnd(parts)
    guarantee = make_input_guarantee(parts, out, staged=staged)
    watch = HeldInputsWatch(parts, out, guarantee, end)
    kind = BoltKind(parts, bolt, guarantee, collector, watch, end, staged)
    options = KindOptions(pass_time=out.pass_time, tick=kind.tick, timed=watch, unfinished=kind.unfinished)
    if isinstance(bolt, TwoPhaseSink):
        options = replace(options, takes_batches=bolt.takes_batches, has_room=lambda: bolt.has_room, refusal=lambda: bolt.refusal)
    return InputRunner(parts, out, guarantee, kind, end, options), guarantee
