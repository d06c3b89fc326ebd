"""The properties that every run must have, whatever its faults.

| number | oracle |
| ------ | ------ |
| 0 | the engine's own invariants hold, and nothing raises where no user code runs |
| 1 | no loss: at a call of `ack` the message has all of its effects; at the end every message is acked or given up |
| 2 | one verdict for each emission: acked, failed, timed out in time, or reset with its epoch |
| 3 | no early ack: when an acker completes a tree, user code has acked each of its edges |
| 4 | commit prefix: everything up to a stored position is done |
| 5 | bounded: queues, outboxes, pending messages, trees in ackers |
| 6 | order: the frames of an edge are processed in order without a gap, in their epoch, and a gap is counted |
| 8 | a suspect is alone: a message that Routes have named is never in one call with others |
| 9 | single owner: no life of a worker works under the name of another |
| 10 | liveness: when the faults are over, so is the topology, soon |
| 11 | no silence: every fault leaves a row or a counter, and no row is without a cause |
| 12 | sometimes: over many seeds each situation of interest occurs; asserted over the set by who runs it |
| 13 | with checkpoints: nothing is late where timestamps and watermarks are in order; a restored task begins at no lower \
watermark than its checkpoint has |
| 14 | the rows of one sender on one stream are processed in the order of their sending; lost messages are replayed in theirs; \
the tokens of a sink are committed in theirs |
| 15 | the state folder has the record of an epoch before its Routes leave, and that of a worker's incarnation before its launch |
| 16 | spouts emit only when all tasks are ready; a sink commits a token only when a complete checkpoint covers it; the last \
`checkpoint_keep` complete checkpoints are kept |
| 17 | with partitions: every record comes out soon, and no window waits for a partition that is silent, gone or at its end |
| 18 | each request of a savepoint has one answer, a failure has its reason and row, and a written savepoint, from a checkpoint \
that began after the request (at the end: the last one), can be restored at any later time, also after a power cut |

The history checks 2, 3, 5, 6, 8, 9, 14 and 16 as things happen, the simulation 10.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from tests.simulator.external_world import ExternalWorld, message_key
from tests.simulator.faults import FaultKind
from tests.simulator.simulation import Simulation
from topo.ids import TaskId
from topo.master.outcome import OutcomeKind
from topo.master.positions import SpoutProgress
from topo.wire import control
from topo.wire.codec import Codec

if TYPE_CHECKING:
    from tests.simulator.scenarios import Scenario


class Oracles:
    """The oracles that know the effects that a topology must have."""

    def __init__(self, scenario: Scenario, outside: ExternalWorld) -> None:
        self._scenario = scenario
        self._outside = outside
        self._leaves = scenario.leaves()
        self._expected = max(1, sum(map(len, self._leaves.values())))
        self._codec = Codec()
        self._given_up: set[str] = set()
        self._checked: dict[TaskId, int] = {}
        self._simulation: Simulation
        outside.on_ack = self._acked

    def attach(self, simulation: Simulation) -> None:
        """Begin to watch a run."""
        self._simulation = simulation
        simulation.history.on_positions = self._stored_positions
        simulation.history.on_dead_letters = self._stored_dead_letters
        simulation.history.explains_timeouts = self._explains_timeouts
        positioned = {spout.name for spout in self._scenario.spouts if spout.has_positions}
        plan = simulation.plan
        simulation.history.replays_in_order = frozenset(task for task in plan.spouts if plan.task(task).component in positioned)
        single = self._scenario.takes_single_roots()
        simulation.history.takes_single_roots = frozenset(task.id for task in plan.tasks if task.component in single)

    def progress(self) -> float:
        """Return the share of the expected effects that has been seen."""
        return len(self._outside.effects) / self._expected

    # -- as it happens ---------------------------------------------------------------------------------------------------

    def _missing(self, key: str) -> list[tuple[str, str]]:
        return sorted(leaf for leaf in self._leaves[key] if leaf not in self._outside.effects)

    def _acked(self, key: str) -> None:
        if missing := self._missing(key):
            self._simulation.history.violated(1, f"message {key} was acked; missing are {missing[:3]}")

    def _stored_positions(self, progress: Mapping[TaskId, SpoutProgress]) -> None:
        plan = self._simulation.plan
        for task, stored in progress.items():
            if not stored.position:
                continue
            position = self._codec.unpack_value(stored.position)
            spec = plan.task(task)
            for number in range(self._checked.get(task, 0), position + 1):
                key = message_key(spec.component, spec.index, number)
                if self._missing(key) and key not in self._given_up:
                    self._simulation.history.violated(4, f"position {position} of task {task} is stored; {key} is not done")
                    return
            self._checked[task] = position + 1

    def _stored_dead_letters(self, dead_letters: Iterable[control.DeadLetter]) -> None:
        simulation = self._simulation
        for given_up in dead_letters:
            spec = simulation.plan.task(given_up.task)
            key = message_key(spec.component, spec.index, self._codec.unpack_value(given_up.position))
            if key in self._given_up and simulation.master.term == 1:
                simulation.history.violated(1, f"the dead letter of message {key} is written twice")
            if given_up.attempts < simulation.plan.config.attempts:
                simulation.history.violated(1, f"message {key} was given up after {given_up.attempts} attempts")
            self._given_up.add(key)

    def _explains_timeouts(self) -> bool:
        """Whether a fault has struck, or a bolt holds messages back; those that time out soon may wait for each other."""
        scenario, simulation = self._scenario, self._simulation
        is_slow = scenario.hangs or scenario.forgets or bool(scenario.poison) or scenario.settings["message_timeout"] != "3s"
        return is_slow or simulation.strikes.has_begun

    # -- in the end ------------------------------------------------------------------------------------------------------

    def judge(self) -> None:
        """Judge a run that has ended."""
        self._judge_outcome()
        self._judge_messages()
        self._judge_silence()
        self._gather()

    def _judge_messages(self) -> None:
        history, outside, scenario = self._simulation.history, self._outside, self._scenario
        has_positions = {spout.name: spout.has_positions for spout in scenario.spouts}
        doomed = {*scenario.hopeless, *scenario.poison}
        for key in self._leaves:
            is_positioned = has_positions[key.partition(".")[0]]
            given_up = key in (self._given_up if is_positioned else outside.given_up)
            if given_up and key not in doomed:
                history.violated(1, f"message {key} was given up without a reason")
            elif not given_up and key in doomed:
                history.violated(1, f"message {key} always fails, and was not given up")
            elif not given_up and self._missing(key):
                history.violated(1, f"message {key} is neither acked nor given up; missing are {self._missing(key)[:3]}")
            elif not is_positioned and not given_up and key not in outside.acked:
                history.violated(2, f"the spout of message {key} had neither ack nor fail")

    def _judge_outcome(self) -> None:
        simulation, scenario = self._simulation, self._scenario
        outcome = simulation.master.outcome
        assert outcome is not None
        if outcome.kind is OutcomeKind.CRASHED:
            simulation.history.violated(10, f"the topology was given up: {outcome.reason}")
            return
        positioned = {spout.name for spout in scenario.spouts if spout.has_positions}
        doomed = {*scenario.hopeless, *scenario.poison}
        allowed = {OutcomeKind.DONE}
        if any(key.partition(".")[0] in positioned for key in doomed):
            allowed = {OutcomeKind.DEAD_LETTERS}
        if any(key.partition(".")[0] not in positioned for key in doomed):
            # What a spout without positions has given up is forgotten with its process.
            is_whole = len(simulation.all_processes) == len(simulation.plan.workers)
            allowed = {OutcomeKind.FINALLY_FAILED} if is_whole else {*allowed, OutcomeKind.FINALLY_FAILED}
        if simulation.master.master is not None and simulation.master.master.ending.unclosed:
            allowed |= {OutcomeKind.RESULTS_LOST}
        if outcome.kind not in allowed:
            names = " or ".join(sorted(kind.value for kind in allowed))
            simulation.history.violated(1, f"the outcome is {outcome.kind.value} ({outcome.reason}), not {names}")

    def _judge_silence(self) -> None:
        simulation = self._simulation
        history = simulation.history
        rows = [row.kind for _, row in simulation.master.store.errors]
        kinds = [fault.kind for _, fault, _ in simulation.strikes.struck]
        # The death of a process that has closed its tasks is no loss.
        crashed = [one for one in simulation.all_processes if one.crash_plan is not None and one.crash_plan.has_come]
        deaths = sum(process.worker.exit is None for process in crashed)
        masters = kinds.count(FaultKind.MASTER)
        # A restart of a worker that has just died replaces it before its death is reported.
        if deaths and not masters and FaultKind.RESTART not in kinds and "WorkerLost" not in rows:
            history.violated(11, f"{deaths} processes died, and there is no row of it")
        if simulation.network.counts.repeated and not masters and not deaths:
            seen = sum(task.counters.duplicate_frames + task.counters.stale_frames + task.counters.fenced_frames
                       for process in simulation.all_processes for task in process.tasks)  # fmt: skip
            lost = sum(simulation.network.counts.lost.values())
            if not seen and not lost:
                history.violated(11, f"{simulation.network.counts.repeated} frames were repeated, and no counter shows it")
        last_epoch = max(process.worker.epoch for process in simulation.all_processes)
        for (epoch, sender, target), count in simulation.network.counts.lost.items():
            if epoch == last_epoch and not self._is_over(sender, target):
                history.violated(11, f"{count} frames {sender}->{target} of the last epoch were lost, and no task noticed")
        if "TupleStateError" in rows and not self._scenario.forgets:
            history.violated(11, "no bolt forgets an input, and there is a row of one")
        harmless = {FaultKind.SLOW_LINK, FaultKind.SLOW_WORKER, FaultKind.PAUSE, FaultKind.REPEAT}
        if set(kinds) <= harmless and not self._scenario.poison and ("EdgeLost" in rows or "WorkerLost" in rows):
            history.violated(11, f"nothing was lost, and there are rows {sorted(set(rows))}")

    def _is_over(self, sender: int, target: int) -> bool:
        """Whether a task of the edge had closed, so that frames in flight to it had no meaning any more."""
        over = {task.id for process in self._simulation.all_processes for task in process.tasks if task.is_closed}
        return sender in over or target in over

    def _gather(self) -> None:
        """Count situations of interest, for the oracle over many seeds."""
        simulation = self._simulation
        history = simulation.history
        for process in simulation.all_processes:
            for task in process.tasks:
                for name in ("stale_frames", "fenced_frames", "duplicate_frames", "gaps", "stale_tuples", "replayed", "reset"):
                    history.count(name, getattr(task.counters, name))
                if task.id in task.plan.spouts:
                    history.count("late acks", task.counters.late_acks)
                    history.count("timed out", task.counters.timed_out)
                elif task.id in task.plan.ackers:
                    history.count("trees expired", task.counters.expired_trees)
            exit_ = process.worker.exit
            if exit_ is not None:
                history.count(f"exit: {exit_.why.partition(':')[0]}")
            if not process.is_alive and exit_ is None:
                for task in process.tasks:
                    kind = "a spout" if task.id in task.plan.spouts else "an acker" if task.id in task.plan.ackers else "a bolt"
                    history.count(f"death of {kind}")
                    if task.statistics().levels.get("async_in_flight"):
                        history.count("death with calls in flight")
        history.count("dead letters", len(self._given_up))
        history.count("given up by a spout", len(self._outside.given_up))
        for _, row in simulation.master.store.errors:
            history.count("row: " + row.kind)
        for _, fault, _ in simulation.strikes.struck:
            history.count("fault: " + fault.kind.name)
        for _, fault, _ in simulation.strikes.struck:
            if fault.kind is FaultKind.CRASH:
                history.count("crash " + fault.point.value)
        if any(process.worker.epoch > 1 for process in simulation.all_processes):
            history.count("recovery")
        if simulation.master.term > 1:
            history.count("another master")
