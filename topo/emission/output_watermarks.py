"""Event time of what a component emits: timestamps and watermarks by a `WatermarkStrategy`, or as the component says itself.

Watermarks only ever rise within an epoch, and begin anew with each. `floor` keeps them below what has to be emitted again. A
source goes on from where it was, for it knows what comes again; a bolt forgets, since replays of older rows come through it.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from functools import partial
from operator import index, itemgetter
from typing import Any

from topo.api.watermarks import TimestampOf, WatermarkStrategy
from topo.emission.emitter import checked_timestamp
from topo.errors import EmitError
from topo.operators.time.watermarks import (
    BoundedOutOfOrderness,
    InputStatus,
    NoWatermarks,
    PunctuatedWatermarks,
    WatermarkGenerator,
    WatermarksWithIdleness,
)
from topo.user_errors import blame
from topo.wire.frames import MAX_WATERMARK, MIN_WATERMARK

Row = tuple[Any, ...]
UnreadableRows = dict[int, Exception]
"""Why rows have no timestamp that can be carried, by row."""


def build_generator(strategy: WatermarkStrategy, now_ms: Callable[[], int]) -> WatermarkGenerator:
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


def timestamp_reader(timestamp: TimestampOf | None, fields: Sequence[str]) -> Callable[[Row], int | None] | None:
    """Return what reads a row's timestamp; None when rows are given theirs otherwise."""
    if timestamp is None or callable(timestamp):
        return timestamp
    return itemgetter(fields.index(timestamp) if isinstance(timestamp, str) else timestamp)


class OutputWatermarks:
    """The event time of one task's output.

    Args:
        component: whose output it is.
        report: takes what the user's own generator has raised.

    Attributes:
        latest: the last watermark that was made; MIN_WATERMARK before the first.
        is_idle: whether nobody is to wait for this task.
    """

    def __init__(
        self,
        strategy: WatermarkStrategy | None,
        fields: Sequence[str],
        now_ms: Callable[[], int],
        interval_s: float,
        component: str,
        report: Callable[[Exception], None],
    ) -> None:
        self.strategy = strategy
        self._component = component
        self._report = report
        self._reader = None if strategy is None else timestamp_reader(strategy.timestamp, fields)
        self._now_ms = now_ms
        self._interval_s = interval_s
        self._generator = None if strategy is None else build_generator(strategy, now_ms)
        self.next_probe: float | None = None
        self.latest = MIN_WATERMARK
        self.is_idle = False
        self._told = MIN_WATERMARK
        self._told_idle = False

    @property
    def is_used(self) -> bool:
        """Whether this component makes watermarks of its own."""
        return self._generator is not None

    @property
    def reads(self) -> bool:
        """Whether the strategy finds timestamps in the rows by itself; inherited ones then do not count."""
        return self._reader is not None

    @property
    def cuts(self) -> bool:
        """Whether the strategy may make a watermark at any row: what comes before that row has to leave before the watermark."""
        return self.strategy is not None and self.strategy.generator is not None

    def reset(self, now: float, *, forget: bool) -> None:
        """A new epoch: nothing has been told in it.

        Args:
            now: monotonic seconds.
            forget: what was seen before does not count any more either.
        """
        self._told = MIN_WATERMARK
        self._told_idle = False
        if forget:
            self.latest = MIN_WATERMARK
            self.is_idle = False
            if self.strategy is not None:
                self._generator = build_generator(self.strategy, self._now_ms)
        if self._generator is not None:
            self.next_probe = now + self._interval_s

    def restore(self, watermark: int) -> None:
        """Go on from a checkpoint that was taken when output had reached this watermark."""
        self.latest = self._told = watermark

    def read(self, rows: Sequence[Row], given: Sequence[int | None] | None) -> tuple[Sequence[int | None], UnreadableRows]:
        """Return the rows' timestamps: those that were given, else what the strategy reads; and which cannot be used, and why."""
        reader = self._reader
        if reader is None:
            return [None] * len(rows) if given is None else given, {}
        try:
            if given is None:
                stamps = list(map(reader, rows))
            else:
                stamps = [reader(row) if stamp is None else stamp for row, stamp in zip(rows, given, strict=True)]
            # An array takes integers of other libraries too, and raises for anything else.
            try:
                return array("q", stamps).tolist(), {}  # type: ignore[type-var]
            except TypeError:
                known = iter(array("q", [stamp for stamp in stamps if stamp is not None]).tolist())
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
            raise EmitError(f"{who}: no timestamp of {row!r}: {type(error).__name__}: {error}") from error
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
    ) -> None:
        """Show rows and their timestamps to the generator. A call of a user's own one that raises is reported and rolled back.

        Args:
            rows: in the order of emission.
            stamps: by row; a row without one is not shown.
            changed: called with the number of rows shown so far when one of them has changed the watermark or the idleness.
        """
        generator = self._generator
        if generator is None or stamps is None:
            return
        if not self.cuts and None not in stamps:
            generator.on_events(rows, stamps, self)  # type: ignore[arg-type]
            return
        for shown, (row, stamp) in enumerate(zip(rows, stamps, strict=True), 1):
            if stamp is not None and self._ask(partial(generator.on_event, row, stamp, self)):
                changed(shown)

    def probe(self, now: float) -> None:
        """Ask the generator, when it is time. A call of a user's own one that raises is reported and rolled back."""
        if self._generator is not None and self.next_probe is not None and now >= self.next_probe:
            self.next_probe = now + self._interval_s
            self._ask(partial(self._generator.on_periodic_emit, self))

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
        """Say that nobody is to wait for this task."""
        self.is_idle = True

    def mark_active(self) -> None:
        """Take the idleness back."""
        self.is_idle = False

    def watermark(self, timestamp: int) -> None:
        """Say that no row with a timestamp <= `timestamp` follows. Raises EmitError for what is no watermark."""
        if type(timestamp) is not int or not MIN_WATERMARK <= timestamp <= MAX_WATERMARK:
            timestamp = checked_timestamp(timestamp, f"component {self._component!r} emitted watermark")
        self.is_idle = False
        self.latest = max(self.latest, timestamp)

    @property
    def has_updates(self) -> bool:
        """Whether `drain_updates` may return something."""
        return self.latest > self._told or self.is_idle != self._told_idle

    def drain_updates(self, floor: int | None = None) -> list[int | InputStatus]:
        """Return what is to be told now, in order: an end of idleness before a watermark, which idle inputs are not heard on.

        Args:
            floor: the least timestamp of what has to be emitted again; watermarks stay below it.
        """
        news: list[int | InputStatus] = []
        if self._told_idle and not self.is_idle:
            news.append(InputStatus.ACTIVE)
        may_tell = self.latest if floor is None else min(self.latest, floor - 1)
        if may_tell > self._told:
            if self._told_idle and self.is_idle:
                # Told while idle it would be lost: it waits for the end of the idleness, unless event time goes on without rows.
                if self.strategy is None or not self.strategy.advances_when_idle:
                    return news
                news.append(InputStatus.ACTIVE)
                self._told_idle = False
            self._told = may_tell
            news.append(may_tell)
        if self.is_idle and not self._told_idle:
            news.append(InputStatus.IDLE)
        self._told_idle = self.is_idle
        return news
