"""Sinks whose output is published when a checkpoint completes: a commit in two phases."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from topo.api.arguments import check_count, check_interval
from topo.api.bolt import Bolt, Collector, WithRequiredFields
from topo.api.context import TaskContext
from topo.api.tuples import Tuple
from topo.errors import RightMissingError, SinkBlockedError, TopoEnvironmentError
from topo.user_errors import message_of

_MOST_WAITING = 100_000
"""Tuples of the next batch that a sink takes at most while it repeats the last one."""


class NotPublishedError(Exception):
    """`publish` has published nothing, for its cause, an error of the environment: no tuple is at fault, and it is repeated."""


class TwoPhaseSink(Bolt, WithRequiredFields):
    """A sink that stages its output, and publishes it when the engine calls `commit`.

    The writes between `begin` and `pre_commit` are a *transaction*. `pre_commit` makes it durable, but not visible, and
    returns a token that stands for it; `commit` publishes it. With `delivery="exactly_once"` the engine calls `pre_commit` at a
    checkpoint and `commit` when that checkpoint is complete, so that each row is published once. With the other modes a
    transaction is a batch: it is published when `max_batch` tuples are in it, at a tick or at the end of the input, and its
    tuples are acked then; after a recovery rows may be repeated.

    The order of calls: `open`; `recover`, `begin`; `write` for each tuple; `pre_commit`, `begin`; `commit` for tokens of
    completed checkpoints, also between two `write`. In every new epoch, in surviving processes as in the new one:
    `abort(None)`, `abort` for tokens that do not count, `recover`, `begin`. At an orderly end `abort(None)` and `close`; a
    killed process calls nothing.

    What tokens stand for may be published by another process: of the same task after a crash, and of another task of the
    component when the parallelism has changed (that of task j by task j modulo the new parallelism). Let names of staged
    files, rows or transactions carry `context.topology`, `context.component`, `context.task_index` and a random part drawn in
    each process.

    Attributes:
        max_batch: tuples that are published together, but with `exactly_once`.
        flush_interval: the longest that a tuple waits for others, but with `exactly_once`. Must be well below `message_timeout`.
        takes_batches: whether a batch of columns is given to `write` as it is, as a tuple whose only value is a `ColumnBatch`
            (`tup.origin.columnar`). Otherwise its rows are, one by one.
        required_fields: fields that every tuple must have. An input without one of them is refused when a topology is built.
        refusal: text of the RightMissingError for which a publication is repeated; "": none.
    """

    max_batch: int = 1000
    flush_interval: str | timedelta | float = "100ms"
    takes_batches: bool = False
    refusal: str = ""
    component_settings = {"tick_interval": flush_interval}
    _token: Any = None
    """Of the transaction whose `commit` has begun: it may be published in part, so it is completed and never aborted."""
    _committing: Sequence[Tuple] = ()
    """The tuples that are acked then."""
    _is_repeating = False
    """Whether the next tick repeats `pre_commit` or `commit`."""
    _repeated_for = ""
    """The last error for which it does so."""

    def __init_subclass__(cls, **options: Any) -> None:
        """Have the ticks come at the class's own interval."""
        super().__init_subclass__(**options)
        if "flush_interval" in vars(cls):
            cls.component_settings = {**cls.component_settings, "tick_interval": cls.flush_interval}

    def __init__(self, *, max_batch: int | None = None, flush_interval: str | timedelta | float | None = None) -> None:
        """Keep settings other than the class's own. A subclass without such arguments need not call this.

        Raises:
            ConfigError: max_batch is no whole number from 1, or flush_interval no duration above zero.
        """
        if max_batch is not None:
            self.max_batch = max_batch
        check_count("max_batch", self.max_batch)
        if flush_interval is not None:
            check_interval("flush_interval", flush_interval)
            self.flush_interval = flush_interval
            self.component_settings = {**self.component_settings, "tick_interval": flush_interval}

    # -- for the author of a sink ----------------------------------------------------------------------------------------

    def open(self, context: TaskContext) -> None:
        """Called once in each process, first: connect. Remove nothing; what earlier processes have left is for `recover`."""

    def begin(self) -> None:
        """Start a transaction. Better without anything that can fail: the first `write` can create files or tables."""

    @abstractmethod
    def write(self, tup: Tuple) -> None:
        """Add one tuple to the transaction. If it raises it must have taken nothing: the tuple may be given again.

        Raises:
            SinkBlockedError: nothing can be written for now, whatever the tuple. With `exactly_once` the process ends, and all
                tasks go back to the last checkpoint; no tuple is given up for it.
        """

    @abstractmethod
    def pre_commit(self) -> Any:
        """Make everything written since `begin` durable, and publish none of it.

        If it raises, nothing may be lost: it is called again later, when more may have been written; or `abort(None)` is. If
        something is lost let it raise SinkBlockedError, as `write` does.

        Returns:
            A token for it: small, what msgpack carries (sequences come back as tuples). None when nothing was written.
        """

    @abstractmethod
    def commit(self, token: Any) -> None:
        """Publish what a token stands for, all of it or, if it raises, so that a repetition completes it.

        Called again after a crash or an error, whatever step was the last, also when everything has been published: that must
        change nothing. Tokens of one process come in the order of their `pre_commit`.
        """

    @abstractmethod
    def abort(self, token: Any) -> None:
        """Undo a transaction for which there is a token, or (None) the open transaction.

        There may be nothing to undo, or not any more: that is no error.
        """

    def recover(self, tokens: Sequence[Any]) -> None:
        """Start from the last completed checkpoint, before `begin`: commit `tokens`, and undo all else that is staged.

        `tokens` are those of the checkpoint, so they count; most have been committed already. What else tasks j of the same
        component of the same topology have staged, for each j that is `context.task_index` modulo `context.parallelism`, was
        left by a process that died: remove it. (Not what others have staged: they may be alive.) With the other modes `tokens`
        is empty.

        As it stands it commits the tokens and removes nothing.
        """
        for token in tokens:
            self.commit(token)

    def publish(self) -> None:
        """Make everything written since `begin` durable and visible. Not called with `exactly_once`. It ends the transaction.

        As it stands it is `pre_commit` and `commit`. A `commit` that raises is repeated at the next tick, and then its tuples are
        acked; so is a `pre_commit` that raises an OSError or a TopoEnvironmentError other than SinkBlockedError. Override it if
        the sink can do both in one cheaper step.
        """
        if self._token is None:
            try:
                self._token = self.pre_commit()
            except SinkBlockedError:
                raise
            except (OSError, TopoEnvironmentError) as error:
                raise NotPublishedError from error
        if self._token is not None:
            self.commit(self._token)
            self._token = None

    def close(self) -> None:
        """Called at an orderly end: release the resources of `open`. Staged data stays; a checkpoint may still publish it.

        Calling it again changes nothing.
        """

    # -- as a bolt -------------------------------------------------------------------------------------------------------

    def prepare(self, context: TaskContext, collector: Collector) -> None:
        """Open the sink. With `exactly_once` the engine recovers it and begins; otherwise this does."""
        self._collector = collector
        self._is_staged = context.config.delivery == "exactly_once"
        self._held: list[Tuple] = []
        self._has_ended = False
        self.open(context)
        if not self._is_staged:
            self.recover(())
            self.begin()

    def execute(self, tup: Tuple) -> None:
        """Write the tuple. With `exactly_once` it is acked; otherwise it is held until its batch is full, or a tick comes."""
        if self._is_staged:
            if not tup.origin.is_tick:
                self.write(tup)
                self._collector.ack(tup)
            return
        if not tup.origin.is_tick:
            self.write(tup)
            self._held.append(tup)
            is_full = len(self._held) >= self.max_batch or self._has_ended or self._has_full_output
            if self._is_repeating or not is_full:
                return
        self._publish_held()

    def end_of_input(self) -> None:
        """Publish the held rows; replays after the end are published at once. With `exactly_once` the last checkpoint does it."""
        self._has_ended = True
        if not self._is_staged:
            self._publish_held()

    def on_reset(self) -> None:
        """Drop the held rows: they are replayed."""
        self._has_ended = False
        if not self._is_staged:
            self._held.clear()
            self._committing, self._is_repeating = (), self._token is not None
            self.abort(None)
            self.begin()

    def cleanup(self) -> None:
        """Close the sink. Held rows have not been acked."""
        try:
            self.abort(None)
        finally:
            self.close()

    @property
    def has_room(self) -> bool:
        """Whether another tuple is taken: while one batch is repeated, no more than those of the next one are."""
        return not self._is_repeating or len(self._held) < min(self.max_batch, _MOST_WAITING)

    @property
    def _has_full_output(self) -> bool:
        """Whether the held rows are published before they are `max_batch`, such as those that fill a file."""
        return False

    def _publish_held(self) -> None:
        is_repeated = self._token is not None
        if not is_repeated:
            self._committing, self._held = self._held, []
            if not self._committing:
                return
        try:
            self.publish()
        except NotPublishedError as error:
            self._held, self._committing, self._is_repeating = [*self._committing, *self._held], (), True
            self._report_repeated(error.__cause__ or error)
            return
        except Exception as error:
            self._is_repeating = self._token is not None
            if self._token is not None:
                self._report_repeated(error)
            else:
                for tup in self._committing:
                    self._collector.fail(tup)
                self.abort(None)
            if not is_repeated:
                self.begin()
            if self._token is None:
                raise
            return
        self._is_repeating, self._repeated_for, self.refusal = False, "", ""
        if not is_repeated:
            self.begin()
        for tup in self._committing:
            self._collector.ack(tup)

    def _report_repeated(self, error: BaseException) -> None:
        """Report an error for which a batch is repeated: one row, not one at each tick."""
        text = message_of(error)
        self.refusal = text if isinstance(error, RightMissingError) else ""
        if text != self._repeated_for:
            self._repeated_for = text
            self._collector.report_error(error)
