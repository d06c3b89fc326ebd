"""What a `PartitionedSpout` does in its task: finds partitions, assigns those of this task to the reader, and polls it.

A partition of this task is in one state:

| state    | meaning                              | leaves it by                                              |
| -------- | ------------------------------------ | --------------------------------------------------------- |
| waiting  | found, to be assigned at `assign_at` | `assign`; twice not found                                 |
| assigned | the reader reads it                  | `ended`; `failed`, or a poll that raises; twice not found |
| ended    | all of it was read                   | a restart; twice not found, and it is forgotten           |

Changes of this kind are passed on in another call than rows: when a poll raises, the engine drops all that its call has emitted.
It must not know: trees, checkpoints, what becomes of a row.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from math import inf, nan
from typing import Any, Literal, Protocol

from topo.api.context import TaskContext
from topo.api.partition_states import FIRST_WAIT_S, LONGEST_WAIT_S, HeldPartition, PartitionState, PollCall, PollOutput
from topo.api.partition_values import (
    Partition,
    PartitionReader,
    StoredPartition,
    StoredPartitions,
    as_partitions,
    begins_first,
    check_positions,
)
from topo.api.spout import SpoutCollector
from topo.errors import EmitError, TopoEnvironmentError

LAG_INTERVAL_S = 1.0


class PartitionCollector(SpoutCollector, Protocol):
    """The collector of a spout with partitions.

    Attributes:
        wanted: how many rows there is room for, those included that it holds.
    """

    wanted: int

    def count(self) -> int:
        """Return the number of rows that it holds."""

    def emit_rows(self, partition: str, values: Sequence[Any], positions: Sequence[Any], stamps: Sequence[int] | None) -> None:
        """Emit rows of a partition, whose positions were checked."""

    def partitions_found(self) -> None:
        """The partitions of the source are known: those found from here on begin at their beginning."""

    def expect_partition(self, name: str, watermark: int | None) -> None:
        """A partition will be read; its watermark counts already, so that those of others do not pass it."""

    def begin_partition(self, partition: Partition, position: Any) -> None:
        """An expected partition is read from here on behind that position."""

    def end_partition(self, name: str) -> None:
        """A partition is read no more; its watermark counts no more."""

    def forget_partition(self, name: str) -> None:
        """A partition that has ended is gone: its position is stored no more."""

    def give_up(self, partition: str, position: Any, record: Any, error: Exception | None) -> None:
        """Pass over a record at its place between the rows: as a dead letter, or without one where there is no error."""


class PartitionSettings(Protocol):
    """The part of a spout that its loop uses."""

    on_bad_record: Literal["dead_letter", "fail", "drop"]
    on_lost: Literal["fail", "skip"]
    batch_size: int
    lag_metric: str

    def partitions(self) -> Iterable[Partition | str]:
        """Return the partitions that there are."""


class PartitionLoop:
    """The partitions of one task.

    Args:
        spout: names the partitions, and has the settings.
        reader: reads them.
        interval_s: between two discoveries; None: there is one, and the input ends with its partitions.
        context: of the task.
        collector: of the task.
        stored: the progress of the partitions of this task; None at the first start.
    """

    def __init__(
        self,
        spout: PartitionSettings,
        reader: PartitionReader,
        interval_s: float | None,
        context: TaskContext,
        collector: PartitionCollector,
        stored: StoredPartitions | None,
    ) -> None:
        self._spout = spout
        self._reader = reader
        self._interval_s = interval_s
        self._context = context
        self._collector = collector
        self._clock = context.clock
        self._held: dict[str, HeldPartition] = {}
        self._found: list[Partition] | BaseException | None = None
        """The result of a discovery that is to be taken over."""
        self._passed_over: set[str] = set()
        """Names that cannot be stored, and were reported."""
        self._begins: dict[str, Any] = {}
        """Where partitions begin, decided since the task was started: it holds also where no checkpoint has it."""
        self._is_looking = False
        self._look_at = -inf
        self._look_wait_s = FIRST_WAIT_S
        self._was_found = False
        """Whether a discovery has succeeded since the start."""
        self._is_reported = False
        """Whether the engine knows that, since the start or the last restart."""
        metrics = context.metrics
        self._records, self._bad, self._lost = map(metrics.counter, ("records", "bad_records", "lost_records"))
        self._partitions_gauge = metrics.gauge("partitions")
        self._lag_at, self._has_lag = -inf, False
        self._begin(stored)

    def _begin(self, stored: StoredPartitions | None) -> None:
        self._begun_with = stored
        self._stored: dict[str, StoredPartition] = dict(stored or {})

    # -- called by the spout -------------------------------------------------------------------------------------------------

    def restart(self, stored: StoredPartitions | None) -> None:
        """Go back to what a checkpoint has; the reader lives on."""
        for held in self._held.values():
            self._release(held)
        before, self._held = self._held, {}
        self._is_reported = False
        self._begin(stored)
        for name, held in before.items():
            self._hold(held.partition, is_late=held.is_late)
            self._held[name].is_missing = held.is_missing

    def step(self) -> None:
        """Emit what there is. Changes of partitions leave before rows, since they are not taken back with a poll."""
        now = self._clock()
        if self._change(now):
            return
        if any(held.state is PartitionState.ASSIGNED for held in self._held.values()):
            self._poll(now)
        elif self._interval_s is None and self._was_found and self._is_all_ended:
            self._collector.end_of_input()
        if self._was_found and now >= self._lag_at:
            self._lag_at, lag = now + LAG_INTERVAL_S, None
            try:
                lag = self._reader.lag()
            except Exception as error:
                self._collector.report_error(error)
            if lag is not None or self._has_lag:
                # Made when it is known first: 0 would say that nothing is left to read. NaN is not shown.
                self._has_lag = True
                self._context.metrics.gauge(self._spout.lag_metric).set(nan if lag is None else lag)

    def set_ahead(self, names: Collection[str]) -> None:
        """Pause the partitions that are too far ahead in event time, and let the others continue."""
        for name, held in self._held.items():
            if held.is_paused != (name in names):
                held.is_paused = not held.is_paused
                if held.state is PartitionState.ASSIGNED:
                    try:
                        self._reader.pause(held.partition, held.is_paused)
                    except Exception as error:
                        self._fail(held, self._clock(), error)

    @property
    def _is_all_ended(self) -> bool:
        return all(held.state is PartitionState.ENDED for held in self._held.values())

    # -- discovery -----------------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        """Have `partitions` called on the helper thread, since it may block."""
        self._is_looking = True

        def look() -> None:
            found: list[Partition] | BaseException
            try:
                found = as_partitions(self._spout.partitions())
            except BaseException as error:
                # Also a SystemExit: it would end a thread alone, and no partition would ever be found.
                found = error
            executor = self._context.executor
            if executor is None:
                self._take_look(found)
            else:
                executor.execute(partial(self._take_look, found), "partitions were looked for")

        self._context.run_beside(look)

    def _take_look(self, found: list[Partition] | BaseException) -> None:
        self._is_looking = False
        self._found = found
        if isinstance(found, BaseException):
            self._look_at = self._clock() + self._look_wait_s
            self._look_wait_s = min(2 * self._look_wait_s, LONGEST_WAIT_S)
        else:
            self._look_at = inf if self._interval_s is None else self._clock() + self._interval_s
            self._look_wait_s = FIRST_WAIT_S

    def _take_found(self, found: Iterable[Partition]) -> bool:
        """Keep the partitions of this task that are new, and leave those that are gone. Returns whether anything has changed."""
        index, tasks = self._context.task_index, self._context.parallelism
        mine = {}
        for one in found:
            if one.can_be_stored:
                if one.owner(tasks) == index:
                    mine[one.name] = one
            elif one.name not in self._passed_over:
                self._passed_over.add(one.name)
                self._collector.report_error(
                    TopoEnvironmentError(f"partition {one.name!r} is not read: its name is not UTF-8; rename it")
                )
        has_changed = False
        for name, one in mine.items():
            held = self._held.get(name)
            if held is not None:
                held.is_missing = False
                continue
            self._hold(one, is_late=self._was_found or not begins_first(self._begun_with, one))
            has_changed = True
        for name in [name for name in self._held if name not in mine]:
            held = self._held[name]
            if held.is_missing:
                self._leave(held)
                has_changed = True
            else:
                # A listing may be wrong for a moment; the second one in a row counts.
                held.is_missing = True
        return has_changed

    def _hold(self, partition: Partition, *, is_late: bool) -> None:
        name, kept = partition.name, self._stored.get(partition.name)
        position = self._begins.get(name) if kept is None else kept.position
        held = self._held[name] = HeldPartition(partition, position, is_late)
        held.found_later = is_late or kept is not None or name in self._begins

    def _leave(self, held: HeldPartition) -> None:
        name, group, number = held.partition
        del self._held[name]
        if held.state is PartitionState.ENDED:
            # All of it was read: another one of that name would be new.
            self._stored.pop(name, None)
            self._begins.pop(name, None)
            self._collector.forget_partition(name)
            return
        self._release(held)
        if held.is_expected:
            self._collector.end_partition(name)
        if held.has_begun:
            self._stored[name] = StoredPartition(group, number, held.position)
        elif not self._held:
            # After a restart the engine has its watermark, and no partition to which it belongs.
            self._collector.mark_idle()
        where = "" if held.position is None else f" behind position {held.position!r}"
        self._collector.report_error(
            TopoEnvironmentError(f"partition {name!r} is gone: nothing of it is read{where}, unless it comes back")
        )

    # -- a step --------------------------------------------------------------------------------------------------------------

    def _change(self, now: float) -> bool:
        """Take over a discovery, and assign what waits. Returns whether the engine was given anything."""
        if not self._is_looking and now >= self._look_at and self._found is None:
            self._look()
        found, self._found = self._found, None
        has_changed = False
        if isinstance(found, BaseException):
            self._collector.report_error(found)
        elif found is not None:
            has_changed = self._take_found(found)
            self._was_found = True
            self._partitions_gauge.set(len(self._held))
        if self._was_found and not self._is_reported:
            self._is_reported = has_changed = True
            self._collector.partitions_found()
            if not self._held:
                # Readers do not wait for a task that has nothing to read.
                self._collector.mark_idle()
        waiting = [held for held in self._held.values() if held.state is PartitionState.WAITING]
        # All of them before the first one begins: event time would pass those that cannot be assigned yet.
        for held in waiting:
            if not held.is_expected:
                held.is_expected = has_changed = True
                kept = self._stored.get(held.partition.name)
                self._collector.expect_partition(held.partition.name, None if kept is None else kept.watermark)
        for held in waiting:
            if now >= held.assign_at:
                has_changed |= self._assign(held, now)
        return has_changed

    def _assign(self, held: HeldPartition, now: float) -> bool:
        name = held.partition.name
        try:
            position = self._reader.assign(held.partition, held.position, held.found_later)
            held.state = PartitionState.ASSIGNED
            if position is not None:
                check_positions(name, [position], None)
            if held.is_paused:
                self._reader.pause(held.partition, True)
        except Exception as error:
            self._fail(held, now, error)
            return False
        held.position = position
        if name not in self._stored:
            self._begins.setdefault(name, position)
        if held.has_begun:
            return False
        held.has_begun = held.found_later = True
        self._collector.begin_partition(held.partition, position)
        return True

    def _release(self, held: HeldPartition) -> None:
        if held.state is PartitionState.ASSIGNED:
            try:
                self._reader.release(held.partition)
            except Exception as error:
                self._collector.report_error(error)

    def _fail(self, held: HeldPartition, now: float, error: Exception | None = None) -> None:
        """Release a partition, which waits for the next attempt."""
        if error is not None:
            self._collector.report_error(error)
        self._release(held)
        held.fails(now)

    def _known(self, partition: Partition) -> HeldPartition:
        held = self._held.get(partition.name)
        if held is None:
            raise TopoEnvironmentError(f"the reader gave something of partition {partition.name!r}, which is not assigned to it")
        return held

    def _poll(self, now: float) -> None:
        output = PollOutput(self._known)
        wanted = self._collector.wanted - self._collector.count()
        room = output.room = int(max(1, min(self._spout.batch_size, self._context.config.max_task_emit, wanted)))
        try:
            self._reader.poll(output)
            count = sum(len(what[0]) for kind, _, what in output.calls if kind == "rows")
            if count > room:
                raise EmitError(f"the reader gave {count} rows in one poll; give at most output.room, which was {room}")
        except Exception:
            # The reader is behind rows that were not taken.
            for held in self._held.values():
                if held.state is PartitionState.ASSIGNED:
                    self._fail(held, now)
            raise
        # From here on nothing may raise: the engine would drop rows that the positions have passed.
        self._settle(self._pass_on(output.calls), now)

    def _pass_on(self, calls: Iterable[PollCall]) -> list[PollCall]:
        """Give rows and bad records to the collector, up to a failure of their partition, and move its position.

        Returns the calls up to there; what cannot be emitted is a failure.
        """
        taken, stopped = list[PollCall](), set[HeldPartition]()
        for call in calls:
            held = call[1]
            if held in stopped:
                continue
            try:
                is_over = self._take(*call)
            except Exception as error:
                is_over, call = True, ("failed", held, error)
            taken.append(call)
            if is_over:
                stopped.add(held)
        return taken

    def _take(self, kind: str, held: HeldPartition, what: Any) -> bool:
        """Pass on one call of the reader. Returns whether the partition fails by it."""
        name, collector = held.partition.name, self._collector
        if kind == "rows":
            values, positions, stamps = what
            check_positions(name, positions, held.position)
            collector.emit_rows(name, values, positions, stamps)
            held.position, held.wait_s = positions[-1], FIRST_WAIT_S
            self._records.add(len(values))
        elif kind == "bad" and self._spout.on_bad_record != "fail":
            position, record, error = what
            check_positions(name, [position], held.position)
            collector.give_up(name, position, record, error if self._spout.on_bad_record == "dead_letter" else None)
            held.position, held.wait_s = position, FIRST_WAIT_S
            self._bad.add()
        elif kind == "ended":
            collector.end_partition(name)
        else:
            return not (kind == "lost" and self._spout.on_lost == "skip")
        return False

    def _settle(self, calls: Iterable[PollCall], now: float) -> None:
        """Do what else the reader has reported; all rows have been taken."""
        stopped = set[HeldPartition]()
        for kind, held, what in calls:
            if kind == "ended":
                held.state, held.has_begun = PartitionState.ENDED, False
            elif kind == "lost":
                count, error = what
                self._lost.add(count or 1)
                self._collector.report_error(error)
                if self._spout.on_lost == "fail":
                    stopped.add(held)
            elif kind == "failed" or (kind == "bad" and self._spout.on_bad_record == "fail"):
                self._collector.report_error(what if kind == "failed" else what[2])
                stopped.add(held)
        for held in stopped:
            self._fail(held, now)

    def committed(self, positions: Mapping[str, Any]) -> None:
        """Pass on the positions up to which everything is done."""
        self._reader.committed(positions)

    def close(self) -> None:
        """Close the reader."""
        self._reader.close()
