"""Event time of a component's output: timestamps and watermarks of a `WatermarkStrategy`, or those that the component emits.

Watermarks only rise within an epoch; each epoch starts without one. `floor` keeps them below the messages that will be replayed.
A source keeps its watermark over an epoch, because it knows its replays; a bolt drops it, since replays of older rows pass it.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from functools import partial
from operator import index, itemgetter
from typing import Any

from topo.api.column_batch import ColumnBatch
from topo.api.watermarks import TimestampOf, WatermarkStrategy
from topo.emission.emitter import checked_timestamp
from topo.emission.partition_watermarks import PartitionWatermarks
from topo.errors import EmitError
from topo.hot import NO_TIMESTAMP, Row, pack_timestamps
from topo.operators.time.watermarks import (
    AlwaysIdle,
    BoundedOutOfOrderness,
    InputStatus,
    NoWatermarks,
    PunctuatedWatermarks,
    WatermarkSource,
    WatermarksWithIdleness,
)
from topo.user_errors import blame, kind_and_message
from topo.wire.frames import MAX_WATERMARK, MIN_WATERMARK

UnreadableRows = dict[int, Exception]
"""Why rows have no timestamp that can be carried, by row."""

_NONE = pack_timestamps([NO_TIMESTAMP])
"""Is found at any alignment, so in a few other columns, too."""


def build_generator(strategy: WatermarkStrategy, now_ms: Callable[[], int]) -> WatermarkSource:
    """Return the generator that a strategy describes."""
    generator: Any
    if strategy.kind == "bounded":
        generator = BoundedOutOfOrderness(strategy.bound_ms)
    elif strategy.kind == "punctuated" and strategy.generator is not None:
        generator = PunctuatedWatermarks(strategy.generator)
    elif strategy.kind == "own" and strategy.generator is not None:
        generator = strategy.generator()
    else:
        generator = NoWatermarks()
    if strategy.idleness_ms is not None:
        advances = strategy.advances_when_idle
        generator = WatermarksWithIdleness(generator, strategy.idleness_ms, now_ms, advances=advances)
    return generator  # type: ignore[no-any-return]


def timestamp_reader(
    timestamp: TimestampOf | None, fields: Sequence[str], *, columnar: bool = False
) -> Callable[[Row], int | None] | None:
    """Return what reads a row's timestamp; None when rows are given theirs otherwise.

    Of a stream of batches it gives all rows of a batch their timestamps, and returns the earliest.
    """
    if timestamp is None or callable(timestamp):
        return timestamp
    if columnar:
        field = timestamp if isinstance(timestamp, str) else fields[timestamp]
        return lambda row: _earliest(row[0], field)
    return itemgetter(fields.index(timestamp) if isinstance(timestamp, str) else timestamp)


def _whole(stamps: Sequence[Any]) -> list[int]:
    """Return timestamps as ints; raise if one may be none. An array takes integers of other libraries, too."""
    column = array("q", stamps)
    if _NONE in column.tobytes():
        raise OverflowError
    return column.tolist()


def _earliest(batch: ColumnBatch, field: str) -> int | None:
    batch.stamp(batch[field])
    return batch.earliest


class OutputWatermarks:
    """The event time of one task's output.

    Args:
        columnar: the main stream has batches; the generator is shown the latest timestamp of each.
        component: whose output it is.
        report: takes an exception of the user's own generator.
        by_partition: the rows belong to partitions, each with its generator.
        stays_idle: there will be no rows.

    Attributes:
        partitions: the watermarks of the partitions; None without partitions, or without a strategy.
        latest: the last watermark that was made; MIN_WATERMARK before the first.
        is_idle: whether readers do not wait for watermarks of this task.
    """

    def __init__(
        self,
        strategy: WatermarkStrategy | None,
        fields: Sequence[str],
        now_ms: Callable[[], int],
        interval_s: float,
        component: str,
        report: Callable[[Exception], None],
        *,
        columnar: bool = False,
        by_partition: bool = False,
        stays_idle: bool = False,
    ) -> None:
        if strategy is not None and strategy.kind == "emitted":
            strategy = None
        self.strategy = strategy
        self._columnar = columnar
        self._by_partition, self._stays_idle = by_partition, stays_idle
        self._component = component
        self._report = report
        self._reader = None if strategy is None else timestamp_reader(strategy.timestamp, fields, columnar=columnar)
        self._now_ms = now_ms
        self._interval_s = interval_s
        self._generator: WatermarkSource | None = None
        self.partitions: PartitionWatermarks | None = None
        self._build()
        self.next_probe: float | None = None
        self.latest = MIN_WATERMARK
        self.is_idle = False
        self._sent = MIN_WATERMARK
        self._sent_idle = False

    @property
    def is_used(self) -> bool:
        """Whether this component makes watermarks, and does not only pass on those of its inputs."""
        return self.strategy is not None

    def _build(self) -> None:
        strategy = self.strategy
        if strategy is not None and self._by_partition:
            make = partial(build_generator, strategy, self._now_ms)
            self.partitions = PartitionWatermarks(make, self, advances_when_idle=strategy.advances_when_idle)
        elif strategy is not None:
            self._generator = AlwaysIdle() if self._stays_idle else build_generator(strategy, self._now_ms)

    @property
    def reads(self) -> bool:
        """Whether the strategy reads timestamps from the rows; inherited ones then do not count."""
        return self._reader is not None

    @property
    def cuts(self) -> bool:
        """Whether the strategy may make a watermark at any row: the rows before it then have to leave before the watermark."""
        return self.strategy is not None and self.strategy.generator is not None

    def reset(self, now: float, *, forget: bool) -> None:
        """Begin an epoch, in which nothing has been sent.

        Args:
            now: monotonic seconds.
            forget: drop the watermark and the generator's state of the last epoch, too.
        """
        self._sent = MIN_WATERMARK
        self._sent_idle = False
        if forget:
            self.latest = MIN_WATERMARK
            self.is_idle = False
            self._build()
        if self.is_used:
            self.next_probe = now + self._interval_s

    def restore(self, watermark: int) -> None:
        """Continue from a checkpoint that was taken when the output had reached this watermark."""
        self.latest = self._sent = watermark

    def read(self, rows: Sequence[Row], given: Sequence[int | None] | None) -> tuple[Sequence[int | None], UnreadableRows]:
        """Return the rows' timestamps (those given, else those that the strategy reads), and the errors of unusable ones."""
        reader = self._reader
        if reader is None:
            return [None] * len(rows) if given is None else given, {}
        try:
            if given is None:
                stamps = list(map(reader, rows))
            else:
                stamps = [reader(row) if stamp is None else stamp for row, stamp in zip(rows, given, strict=True)]
            try:
                return _whole(stamps), {}
            except TypeError:
                known = iter(_whole([stamp for stamp in stamps if stamp is not None]))
                return [None if stamp is None else next(known) for stamp in stamps], {}
        except Exception:
            return self._read_one_by_one(reader, rows, given)

    def _read_one_by_one(
        self, reader: Callable[[Row], int | None], rows: Sequence[Row], given: Sequence[int | None] | None
    ) -> tuple[Sequence[int | None], UnreadableRows]:
        stamps: list[int | None] = list(given) if given is not None else [None] * len(rows)
        refused: UnreadableRows = {}
        for place, row in enumerate(rows):
            if stamps[place] is None:
                try:
                    stamps[place] = self._read_one(reader, row)
                except Exception as error:
                    refused[place] = error
        return stamps, refused

    def _read_one(self, reader: Callable[[Row], int | None], row: Row) -> int | None:
        assert self.strategy is not None
        where = self.strategy.timestamp
        who = f"component {self._component!r}"
        try:
            stamp = reader(row)
        except Exception as error:
            raise EmitError(f"{who}: no timestamp of {row!r}: {kind_and_message(error)}") from error
        if stamp is None:
            return None
        whole = index(stamp) if hasattr(stamp, "__index__") else stamp
        try:
            what = "the timestamp function returned" if callable(where) else f"timestamp field {where!r} is"
            return checked_timestamp(whole, f"{who}: {what}")
        except EmitError as error:
            if callable(where):
                blame(error, where)
            raise

    def show(
        self,
        rows: Sequence[Row],
        stamps: Sequence[int | None] | None,
        changed: Callable[[int], object] = lambda _shown: None,
        ids: Sequence[Any] = (),
    ) -> None:
        """Pass rows and their timestamps to the generator. A call of a user's generator that raises is reported and rolled back.

        Args:
            rows: in the order of emission.
            stamps: by row; a row without one is not passed.
            changed: called with the number of rows passed so far when one of them has changed the watermark or the idleness.
            ids: of the messages; the first part of one names its partition, where there are partitions.
        """
        generator, partitions = self._generator, self.partitions
        if stamps is None or (generator is None and partitions is None):
            return
        if partitions is not None:
            if not self.cuts and None not in stamps:
                partitions.on_rows(ids, rows, stamps)  # type: ignore[arg-type]
                return
            for shown, (row, stamp, message) in enumerate(zip(rows, stamps, ids, strict=True), 1):
                if stamp is not None and self._ask(partial(partitions.on_row, message[0], row, stamp)):
                    changed(shown)
            return
        assert generator is not None
        if self._columnar:
            rows, stamps = [row[0] for row in rows], [row[0].latest for row in rows]
        if not self.cuts and None not in stamps:
            generator.on_events(rows, stamps, self)  # type: ignore[arg-type]
            return
        for shown, (row, stamp) in enumerate(zip(rows, stamps, strict=True), 1):
            if stamp is not None and self._ask(partial(generator.on_event, row, stamp, self)):
                changed(shown)

    def probe(self, now: float) -> None:
        """Ask the generator, when it is time. A call of a user's generator that raises is reported and rolled back."""
        if self.is_used and self.next_probe is not None and now >= self.next_probe:
            self.next_probe = now + self._interval_s
            if self.partitions is not None:
                self._ask(self.partitions.on_periodic_emit)
            elif self._generator is not None:
                self._ask(partial(self._generator.on_periodic_emit, self))

    def end_partition(self, name: str) -> None:
        """Remove a partition, after its generator was asked: it may have begun and ended between two probes."""
        if self.partitions is not None:
            self._ask(partial(self.partitions.ask, name))
            self.partitions.end(name)

    def _ask(self, call: Callable[[], object]) -> bool:
        """Make one call of the generator. Returns whether it has changed the watermark or the idleness."""
        before = self.latest, self.is_idle
        try:
            call()
        except Exception as error:
            self.latest, self.is_idle = before
            self._report(error)
        return (self.latest, self.is_idle) != before

    def mark_idle(self) -> None:
        """Declare the output idle: readers do not wait for its watermarks."""
        self.is_idle = True

    def mark_active(self) -> None:
        """Take the idleness back."""
        self.is_idle = False

    def watermark(self, timestamp: int) -> None:
        """Promise that no row with a timestamp <= `timestamp` follows. Raises EmitError for anything but a watermark."""
        if type(timestamp) is not int or not MIN_WATERMARK <= timestamp <= MAX_WATERMARK:
            timestamp = checked_timestamp(timestamp, f"component {self._component!r} emitted watermark")
        self.is_idle = False
        self.latest = max(self.latest, timestamp)

    @property
    def has_updates(self) -> bool:
        """Whether `drain_updates` may return something."""
        return self.latest > self._sent or self.is_idle != self._sent_idle

    def drain_updates(self, floor: int | None = None) -> list[int | InputStatus]:
        """Return the updates to send now, in order. ACTIVE precedes a watermark, since readers ignore watermarks of idle inputs.

        Args:
            floor: the least timestamp of the messages that will be replayed; watermarks stay below it.
        """
        updates: list[int | InputStatus] = []
        if self._sent_idle and not self.is_idle:
            updates.append(InputStatus.ACTIVE)
        allowed = self.latest if floor is None else min(self.latest, floor - 1)
        if allowed > self._sent:
            if self._sent_idle and self.is_idle:
                # Readers would ignore it: it waits for the end of the idleness, unless event time advances without rows.
                if self.strategy is None or not self.strategy.advances_when_idle:
                    return updates
                updates.append(InputStatus.ACTIVE)
                self._sent_idle = False
            self._sent = allowed
            updates.append(allowed)
        if self.is_idle and not self._sent_idle:
            updates.append(InputStatus.IDLE)
        self._sent_idle = self.is_idle
        return updates
