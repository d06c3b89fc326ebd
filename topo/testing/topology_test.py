"""A whole topology under test: in one process, on a manual clock, with sources that follow a script."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from topo.api.bolt import BasicBolt, Bolt
from topo.api.component import Component
from topo.api.hooks import Hooks
from topo.api.operator_bolts import AsyncBolt, OperatorBolt
from topo.api.streams import ACKER_COMPONENT, DEFAULT_STREAM
from topo.api.topology import ComponentKind
from topo.config import format_duration, parse_duration
from topo.dead_letters.payload import in_words
from topo.errors import NotFoundError, UserError
from topo.hot import Ids, Row
from topo.ids import TaskId
from topo.master.commands import RecordError
from topo.master.events import DrainAsked
from topo.master.outcome import Outcome, OutcomeKind
from topo.observability.status import describe
from topo.plan.parallelism import with_overrides
from topo.plan.physical import PhysicalPlan, physical_plan
from topo.plan.validation import validate
from topo.task.context import make_context
from topo.task.environment import TaskEnvironment, TaskSpec
from topo.task.factory import make_task
from topo.task.guarantees.source import SourceGuarantee
from topo.task.router_factory import custom_groupings
from topo.task.task import Task
from topo.testing.clock import ClockDuration, ManualClock
from topo.testing.comparing import difference
from topo.testing.components import Instances, TopologyLike, watched
from topo.testing.in_process import Host, InProcessCluster
from topo.testing.recording import Record, Watch
from topo.testing.recording_spouts import SpoutWatch
from topo.testing.recording_tasks import TaskRecorder
from topo.testing.script import Crash, Script, ScriptedSpout, Stage, scripts_of
from topo.testing.wire_roundtrip import WireRoundtrip, as_row, codec_for

LONGEST_RUN = "10m"
LAST_ROUNDS = 1_000
"""Rounds in which what happened at the last moment of `advance` may show its effects."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that was given up: of which spout, its id and values, why, and after how many attempts."""

    component: str
    message_id: Any
    values: Row
    why: str
    attempts: int


class TopologyTest:
    """Runs a topology with the task and master code of real processes, without processes.

        test = TopologyTest(topology, sources={"lines": ["a b", "b", END]})
        test.run()
        test.assert_all_acked()
        test.assert_emitted("split", ["a", "b", "b"])

    Every task has its own worker, whatever the setting `workers`, so that every tuple goes through the codec; a value
    that cannot be carried raises in the `emit` that has it. Time stands still but for what `run` and `advance` need, and what
    components do to the clock; sleeps of asynchronous calls take that time, threads and sockets of theirs are waited for. The
    same seed gives the same run, but for those.

    A source is a list of values, of tuples of values, of `(message_id, values)`, of `message(...)`, and of the markers END,
    CRASH, PAUSE, ADVANCE and FAIL_NEXT. It replays what fails, as a `RetryingSpout` does. A list that runs out leaves the source
    open and silent; END ends it. Several tasks of a spout take its messages in turn.

    Args:
        topology: a topology, a program of streams, or the function that builds one. The function is called again for every
            task, so that no two tasks share an object; of a topology, and of an instance that each call gives again, further
            tasks get copies.
        sources: scripts, by spout. Spouts without one run as they are.
        seed: of the scheduling order and of all ids.
        clock: the clock to run on, for components that read it or advance it; by default a clock that begins at 0.
        settings: replace the topology's own.

    Raises:
        ConfigError: a setting is wrong.
        NotFoundError: `sources` names no spout of the topology.
        UserError: a source has an item that cannot be one.
        UnsupportedValueError: a source has a value that cannot be emitted.
    """

    def __init__(
        self,
        topology: TopologyLike,
        sources: Mapping[str, Iterable[Any]] | None = None,
        seed: int = 0,
        clock: ManualClock | None = None,
        **settings: Any,
    ) -> None:
        check_seed(seed)
        self._instances = Instances(topology)
        built = self._instances.topology
        topology_as_run = with_overrides(built, {**settings, "workers": None}, {})
        validate(topology_as_run)
        self.plan = physical_plan(topology_as_run)
        self.clock = ManualClock() if clock is None else clock
        self._codec = codec_for(built.carried_types)
        self._record = Record()
        self._stage = Stage(self.clock, lambda source, values: self._record.refusals.append((source, values)))
        self._scripts: dict[tuple[str, int], Script] = {}
        self._lives: dict[tuple[str, int], Component] = {}
        if sources is not None and not isinstance(sources, Mapping):
            raise UserError(f"sources={sources!r:.60} must be items by spout, such as {{'lines': ['a b', END]}}")
        for component, items in (sources or {}).items():
            self._read_source(component, items)
        self._cluster = InProcessCluster(self.plan, self.clock, seed, self._codec, self._build_task, self._take_crashes)

    def _read_source(self, component: str, items: Iterable[Any]) -> None:
        spouts = [found.id for found in self.plan.components if found.kind is ComponentKind.SPOUT]
        if component not in spouts:
            raise NotFoundError(
                f"sources: the topology has no spout {component!r}; it has {', '.join(map(repr, spouts))}.",
                tuple(get_close_matches(str(component), spouts, n=2)),
            )
        streams = self.plan.emitted_streams(component)
        carrier = WireRoundtrip(self._codec, component, streams)
        for script in scripts_of(component, items, streams, carrier, len(self.plan.tasks_of(component))):
            self._scripts[component, script.task_index] = script
            for entry in script.entries:
                if isinstance(entry, Crash) and entry.component is not None:
                    self._task(entry.component, entry.task_index)

    # -- tasks -----------------------------------------------------------------------------------------------------------

    def _build_task(self, task_id: TaskId, host: Host) -> None:
        plan, task = self.plan, self.plan.task(task_id)
        chance = self._cluster.chance
        ports = TaskEnvironment(Ids(chance.randbytes(32)), self.clock, self._codec, host.tracker, lambda: self.clock.now_ms)
        is_checkpointed = plan.config.delivery == "exactly_once"
        if is_checkpointed:
            ports.snapshots = self._cluster.checkpoints.of(task_id)
        config, context = plan.config_of(task.component), make_context(plan, task_id)
        if task_id in plan.ackers:
            host.hosts(make_task(TaskSpec(task_id, plan, config, None, context), ports), None, None)
            return
        source = self._instances.source()
        script = self._scripts.get((task.component, task.index))
        component = self._instances.make(source, task) if script is None else ScriptedSpout(script, self._stage)
        carrier = WireRoundtrip(self._codec, task.component, plan.emitted_streams(task.component))
        watch = Watch(self._record, carrier, task.component, task.index, config.max_task_emit)
        runs = component if isinstance(component, OperatorBolt) else watched(component, watch)
        vars(runs)["declared_at"] = getattr(source.component(task.component).component, "declared_at", None)
        ports.observer = TaskRecorder(runs, watch)
        strategy = source.component(task.component).watermarks
        groupings = deepcopy(custom_groupings(source, task.component))
        chain = self._instances.chain(source, task)
        setup = TaskSpec(task_id, plan, config, runs, context, groupings, strategy, Hooks(source.hooks), chain=chain)
        self._lives[task.component, task.index] = component
        if isinstance(runs, SpoutWatch):
            spout_task = make_task(setup, ports)
            assert isinstance(spout_task, Task) and isinstance(spout_task.guarantee, SourceGuarantee)
            runs.is_open = spout_task.guarantee.is_open
            spout_task.guarantee.ids.is_ordered = not isinstance(component, ScriptedSpout)
            host.hosts(spout_task, runs.state, component if isinstance(component, ScriptedSpout) else None)
            return
        if isinstance(runs, AsyncBolt):
            from topo.testing.manual_loop import ManualLoop

            loop = host.calls = ManualLoop(lambda: self.clock.now_ms)
            weakref.finalize(host, loop.end)
            ports.run_async = lambda call, done, _on_blocked: loop.run(call, done)
        host.hosts(make_task(setup, ports), None, None)

    def _take_crashes(self) -> list[TaskId]:
        crashes = [self._task(component, index) for component, index in self._stage.crashes]
        self._stage.crashes.clear()
        return crashes

    def _task(self, component: str, task_index: int) -> TaskId:
        tasks = self.plan.tasks_of(known_component(self.plan, component))
        if not 0 <= task_index < len(tasks):
            raise NotFoundError(f"component {component!r} has {len(tasks)} tasks, and no task {task_index}.")
        return tasks[task_index]

    # -- time ------------------------------------------------------------------------------------------------------------

    def run(self, limit: ClockDuration = LONGEST_RUN, *, committed: bool = True) -> None:
        """Let the topology work until nothing is under way any more: it has ended, or all that is left to happen is that time
        passes.

        Back-off, timeouts and restarts pass on the clock, in no time.

        Args:
            limit: of the clock, without what scripts wait for. A spout that never rests needs `advance` instead.
            committed: with `exactly_once`: also wait for the checkpoint of each message that a script has emitted.

        Raises:
            AssertionError: the limit is reached, or the topology could not be started; the message gives the reason.
        """
        limit_s = parse_duration(limit)
        until = self.clock() + limit_s
        while not self._cluster.is_at_rest(committed=committed):
            until = max(until, self._cluster.scripts_wait_until() + limit_s)
            if self.clock() >= until:
                why = "\n".join([*self._cluster.unrest(), *self._last_errors()])
                raise AssertionError(f"not at rest after {format_duration(limit_s)} of its clock:\n{why}")
            self._cluster.step(until)
        self._cluster.validate()
        self._check_started()

    def advance(self, by: ClockDuration) -> None:
        """Let so much time pass: ticks, timeouts and whatever else is due happen at their moments.

        Raises:
            AssertionError: the topology could not be started.
        """
        cluster = self._cluster
        start_limit = self.clock() + parse_duration(LONGEST_RUN)
        while cluster.outcome is None and not cluster.has_run and self.clock() < start_limit:
            cluster.step(start_limit)
        until = self.clock() + parse_duration(by)
        while cluster.outcome is None and self.clock() < until:
            cluster.step(until)
        self.clock.advance_to(max(until, self.clock()))
        for _ in range(LAST_ROUNDS):
            if cluster.outcome is not None or not cluster.step(until):
                break
        self._check_started()

    def drain(self, timeout: ClockDuration = "30s") -> None:
        """End the topology as `topo kill` does: spouts emit nothing new, messages in flight finish, components are closed."""
        self._cluster.ask(DrainAsked(parse_duration(timeout)))
        until = self.clock() + parse_duration(timeout) + parse_duration(LONGEST_RUN)
        while self.outcome is None and self.clock() < until:
            self._cluster.step(until)

    def crash(self, component: str, task_index: int = 0) -> None:
        """Kill the worker of a task, with all it holds and all that is in flight from and to it. The master replaces it."""
        self._cluster.kill(self._task(component, task_index))

    def _check_started(self) -> None:
        outcome = self._cluster.outcome
        if outcome is not None and outcome.kind is OutcomeKind.CRASHED:
            raise AssertionError("\n".join([outcome.reason, *self._last_errors()]))

    # -- what happened ---------------------------------------------------------------------------------------------------

    @property
    def outcome(self) -> Outcome | None:
        """How the topology has ended; None while it runs."""
        return self._cluster.outcome

    def emitted(self, component: str, stream: str = DEFAULT_STREAM) -> list[Row]:
        """Return the values that a component's code has emitted on a stream, all tasks together, in order.

        Values are as they arrive: sequences are tuples. Of batches of columns these are the rows. Replays of the engine are not
        emitted again by the spout.

        Raises:
            NotFoundError: there is no such component, or it declares no such stream.
        """
        declared = self.plan.emitted_streams(known_component(self.plan, component))
        streams = [found.name for found in declared]
        if stream not in streams:
            raise NotFoundError(
                f"component {component!r} has no stream {stream!r}; it has {', '.join(map(repr, streams)) or 'none'}.",
                tuple(get_close_matches(str(stream), streams, n=2)),
            )
        emissions = self._record.emissions
        values = [found.values for found in emissions if found.component == component and found.stream == stream]
        if declared[streams.index(stream)].columnar:
            return [row for (batch,) in values for row in batch.rows()]
        return values

    def acked(self, spout: str | None = None) -> list[Any]:
        """Return the ids of the messages that were acked, in order; of one spout, or of all."""
        return self._of_spouts(self._record.acked, spout)

    def failed(self, spout: str | None = None) -> list[Any]:
        """Return the ids of the messages that failed or timed out, once for each time, in order, retried or not."""
        return self._of_spouts(self._record.failed, spout)

    def _of_spouts(self, ids: Mapping[str, list[Any]], spout: str | None) -> list[Any]:
        if spout is not None:
            return list(ids.get(known_component(self.plan, spout), []))
        return [found for of_spout in ids.values() for found in of_spout]

    def dead_letters(self) -> list[DeadLetter]:
        """Return the messages that were given up, in order."""
        unpack = self._codec.unpack_value
        return [
            DeadLetter(
                component=self.plan.task(dead_letter.task).component,
                message_id=unpack(dead_letter.position),
                values=unpack(dead_letter.values),
                why="; ".join(dead_letter.errors),
                attempts=dead_letter.attempts,
            )
            for dead_letter in self._cluster.records.dead_letters
        ]

    def errors(self) -> list[RecordError]:
        """Return what `topo errors` would show: exceptions with file and line, lost workers. Alike ones are counted together."""
        return list(self._cluster.records.errors)

    def status(self) -> dict[str, Any]:
        """Return what `topo status --json` would show at this moment."""
        self._cluster.beat_all()
        return describe(self._cluster.master, self.clock())

    def script(self, source: str, task_index: int = 0) -> Script:
        """Return the script of a source, which may grow while the topology runs.

        Raises:
            NotFoundError: no such script was given.
        """
        found = self._scripts.get((source, task_index))
        if found is None:
            raise NotFoundError(f"no script was given for source {source!r}, task {task_index}.")
        return found

    def bolt(self, component: str, task_index: int = 0) -> Any:
        """Return the bolt that runs, or ran last, in a task: the user's own object, to look at.

        Raises:
            NotFoundError: there is no such task.
            UserError: it is no bolt, or nothing has run yet.
        """
        self._task(component, task_index)
        found = self._lives.get((component, task_index))
        if found is None:
            raise UserError(f"component {component!r} has not been started; call run() or advance() first")
        if not isinstance(found, Bolt | BasicBolt | OperatorBolt):
            raise UserError(f"component {component!r} is no bolt")
        return found

    # -- assertions ------------------------------------------------------------------------------------------------------

    def assert_all_acked(self) -> None:
        """Raise AssertionError unless messages were emitted and each of them was acked."""
        given_up = {(one.component, one.message_id): one for one in self.dead_letters()}
        lines = [f"{spout}: message {in_words(one)} was refused for its id" for spout, one in self._record.refused]
        for spout, messages in self._record.messages.items():
            for message_id in messages.keys() - set(self._record.acked.get(spout, ())):
                one = given_up.get((spout, message_id))
                what = "is pending" if one is None else f"was given up after {one.attempts} attempts: {one.why}"
                if one is None and message_id in self._record.failed.get(spout, ()):
                    what = "failed"
                lines.append(f"{spout}: message {in_words(message_id)} {what}")
        if self.outcome is not None and self.outcome.unaccounted:
            lines.append(self.outcome.reason)
        if lines:
            raise AssertionError("\n".join([f"{len(lines)} messages were not acked:", *sorted(lines), *self._last_errors()]))
        if not any(self._record.messages.values()):
            raise AssertionError("\n".join(["no message was emitted with an id", *self._last_errors()]))

    def assert_emitted(
        self, component: str, expected: Iterable[Any], *, ordered: bool = False, stream: str = DEFAULT_STREAM
    ) -> None:
        """Raise AssertionError, with the difference, unless a component has emitted exactly these tuples.

        Args:
            component: whose tuples.
            expected: tuples of values; a value that is no sequence stands for a tuple of that value.
            ordered: whether their order matters. Between tasks it depends on the seed.
            stream: one of its streams.
        """
        if not isinstance(expected, Iterable):
            raise UserError(
                f"assert_emitted was given {expected!r:.60} as the tuples; give a list of them, such as [{expected!r:.60}]"
            )
        found = self.emitted(component, stream)
        carrier = WireRoundtrip(self._codec, component, self.plan.emitted_streams(component))
        wanted = [carrier.carried(as_row(item), stream) for item in expected]
        lines = difference(wanted, found, ordered=ordered)
        if lines:
            where = f"{component!r}" if stream == DEFAULT_STREAM else f"{component!r} on stream {stream!r}"
            head = f"{where} emitted {len(found)} tuples, {len(wanted)} were expected (- expected, + emitted)"
            raise AssertionError("\n".join([head, *lines, *self._last_errors()]))

    def _last_errors(self) -> list[str]:
        errors = self._cluster.records.errors[-3:]
        return [f"error in {error.component or 'the engine'}: {in_short(error)}" for error in errors]


def check_seed(seed: Any) -> None:
    """Raise UserError for anything but a seed."""
    if not isinstance(seed, int | float | str | bytes | None):
        raise UserError(f"seed={seed!r:.60} must be a number, such as seed=7; StreamTest.every_seed(...) takes several")


def known_component(plan: PhysicalPlan, name: str) -> str:
    """Return the name of a component; raise NotFoundError where there is none."""
    ids = [found.id for found in plan.components if found.kind is not ComponentKind.ACKER]
    if name not in (*ids, ACKER_COMPONENT):
        near = tuple(get_close_matches(str(name), ids, n=2))
        raise NotFoundError(f"the topology has no component {name!r}; it has {', '.join(ids)}.", near)
    return name


def in_short(error: RecordError) -> str:
    """Return kind, message and place of an error."""
    return f"{error.kind}: {error.message}" + (f" ({error.file}:{error.line})" if error.file else "")
