"""A sink that publishes tuples to a JetStream stream."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

from topo.api.context import TaskContext
from topo.api.tuples import Tuple
from topo.api.two_phase import TwoPhaseSink
from topo.connectors.argument_checks import checks_arguments
from topo.connectors.name_templates import fields_in
from topo.connectors.nats.connection import NatsConnection, NatsServers, is_unreachable
from topo.connectors.nats.outgoing import (
    MESSAGE_ID,
    OutgoingMessage,
    StreamTarget,
    batches,
    is_subject,
    publish,
    subject_of,
    target_of,
)
from topo.connectors.nats.subject_feed import SubjectFeed
from topo.connectors.record_encoder import Select, Serialize, encoder_of, fields_named
from topo.connectors.server_link import ServerLink
from topo.connectors.staged_count import StagedCount
from topo.connectors.staged_rows import StagedRows, staging_of
from topo.errors import ConfigError, StagedRowsLostError, TopoEnvironmentError, UserError

_SCANNED = 1000
"""Messages of one request for those that were published."""


class NatsSink(TwoPhaseSink):
    """Publishes a message for each tuple. Several tasks, and topologies, may publish to one stream.

        builder.set_bolt("totals", NatsSink("nats://localhost", "totals.{shop}", stream="TOTALS")).shuffle_grouping("count")

    | delivery | promise |
    | --- | --- |
    | `at_least_once` | no message is missing; some repeat after a recovery, and where an acknowledgement was lost |
    | `exactly_once` | each row is one message, when its checkpoint is complete |
    | `at_most_once` | messages can be missing |

    With `exactly_once` rows are staged in files until their checkpoint is complete. Each is published under its own id,
    which the stream recognises within its `duplicate_window`; a publication that is repeated after an error or a crash first
    looks up in the stream which of its rows are there.
    """

    @checks_arguments
    def __init__(
        self,
        servers: str | Sequence[str],
        subject: str | Callable[[Tuple], str],
        *,
        stream: str,
        value: str | Select | None = None,
        value_serializer: str | Serialize = "json",
        staging: str | os.PathLike[str] | None = None,
        storage_options: Mapping[str, Any] | None = None,
        max_batch: int = 500,
        flush_interval: str | timedelta | float = "100ms",
        timeout: str | timedelta = "5s",
        config: Mapping[str, Any] | None = None,
    ) -> None:
        """Keep where to publish; nothing is connected yet.

        Args:
            servers: a URL, "nats://[user:password@]host:port", or several of one cluster.
            subject: names of fields in braces are replaced, as in "totals.{shop}"; or a function of the tuple.
            stream: the stream that stores the subject. It has to exist.
            value: the field, or a function of the tuple, that is the message's data; None: an object of all fields.
            value_serializer: "json", "text", "bytes", or a function of the value that returns bytes.
            staging: a folder or URL for staged rows that all workers reach. None: beside the checkpoints.
            storage_options: for fsspec, where `staging` is a URL.
            max_batch: tuples that are published together, but with `exactly_once`.
            flush_interval: the longest that a tuple waits for others, but with `exactly_once`.
            timeout: how long a reply may take before the server counts as lost.
            config: more arguments of `nats.connect`, such as `user_credentials`, `token` or `tls`.

        Raises:
            ConfigError: an argument cannot be used, or the client of NATS is missing.
        """
        super().__init__(max_batch=max_batch, flush_interval=flush_interval)
        if not isinstance(stream, str) or not stream or set(stream) & set(" .*>\t"):
            raise ConfigError(f"NatsSink: stream={stream!r} must be the name of a stream")
        self._subject, self._encode = subject_of(subject), encoder_of(value, value_serializer)
        self.required_fields = fields_named(*fields_in(subject, "NatsSink: subject="), value)
        self._only_subject = subject if isinstance(subject, str) and "{" not in subject else ">"
        """That of all messages, where it is one."""
        self._stream = stream
        self._staging, self._storage_options = staging, storage_options
        self._servers = NatsServers("NatsSink", servers, timeout, config or {})

    # -- connection ----------------------------------------------------------------------------------------------------------

    def open(self, context: TaskContext) -> None:
        """Connect, and look the stream up.

        Raises:
            ConfigError: the server refuses this user, there is no such stream, or it cannot keep the promise.
            TopoEnvironmentError: the server is not reached.
        """
        self._clock, self._progress = context.clock, context.progress
        metrics = context.metrics
        self._written, self._bytes = metrics.counter("rows"), metrics.counter("bytes")
        self._rejected, self._retries = metrics.counter("rejected_rows"), metrics.counter("retries")
        self._staged_count = StagedCount(metrics)
        self._publish_ms, self._commit_ms = metrics.histogram("publish_ms"), metrics.histogram("commit_ms")
        self._rows: list[OutgoingMessage] = []
        self._connection = NatsConnection(self._servers)
        self._link = ServerLink(self._servers, context, self._collector.report_error, is_unreachable)
        try:
            self._target = self._look()
            if self._is_staged:
                self._check_staging(context)
        except BaseException:
            self._connection.close()
            raise
        self._last = self._target.state.last
        """A sequence number that the stream had reached: rows that are not published yet come behind it."""
        if self._is_staged:
            place = staging_of(context, self._staging, "NatsSink")
            self._staged = StagedRows(context, place, "NatsSink", self._collector.report_error, self._storage_options)
            self._fresh: set[str] = set()
            """Staged files of this process whose publication has not begun."""

    def _look(self) -> StreamTarget:
        from nats.js.errors import NotFoundError

        try:
            target = self._connection.run(partial(target_of, stream=self._stream))
        except NotFoundError:
            raise ConfigError(
                f"NatsSink: {self._servers} has no stream {self._stream!r}; make it, as by `nats stream add {self._stream}`"
            ) from None
        except Exception as error:
            if not is_unreachable(error):
                raise
            shown = self._servers.shown(error)
            raise TopoEnvironmentError(f"NatsSink: {self._servers} is not reached: {shown}") from None
        if not target.subjects:
            raise ConfigError(f"NatsSink: stream {self._stream!r} stores no subjects, as a mirror; name the one it mirrors")
        if self._only_subject != ">":
            try:
                target.check(self._stream, self._only_subject, b"")
            except UserError as error:
                raise ConfigError(f"NatsSink: {error}") from None
        return target

    def _check_staging(self, context: TaskContext) -> None:
        needed_s = max(context.config.checkpoint_interval_s, self._connection.timeout_s)
        window_s = self._target.window_s
        if window_s < needed_s:
            raise ConfigError(
                f"NatsSink: stream {self._stream!r} recognises a repeated message for {window_s:g} s (its duplicate_window), "
                f"which exactly_once needs for {needed_s:g} s, the longer one of checkpoint_interval and timeout: "
                f"`nats stream edit {self._stream} --dupe-window=2m`"
            )
        if not self._target.keeps:
            raise ConfigError(
                f"NatsSink: stream {self._stream!r} removes messages that were read, so it cannot be looked up which rows were "
                "published before a crash. With exactly_once publish to a stream with limits retention, which a work queue may "
                "have as its source; or take at_least_once"
            )

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    # -- a transaction -------------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Start with no rows."""
        self._rows = []

    def write(self, tup: Tuple) -> None:
        """Add a message.

        Raises:
            UserError: the tuple makes none, or none that the stream takes.
            SinkBlockedError: nothing can be staged for now, and too many rows wait.
        """
        try:
            subject, data = self._subject(tup), self._encode(tup) or b""
            if not is_subject(subject):
                raise UserError(f"a tuple from {tup.component!r} has {subject!r} as its subject, which is none to publish to")
            self._target.check(self._stream, subject, data)
        except Exception:
            self._rejected.add()
            raise
        if self._is_staged:
            self._staged.add((subject, data), len(subject) + len(data))
        else:
            self._rows.append((subject, data))

    def pre_commit(self) -> Any:
        """Have the rows in a staged file. The token: the file, how many rows it has, and the place in the stream before them.

        In the other modes the token is the batch itself.
        """
        if not self._is_staged:
            return self._rows or None
        count = self._staged.count
        name = self._staged.seal()
        if name is None:
            return None
        self._fresh.add(name)
        self._staged_count.set(name, count)
        return [name, count, self._target.state.creation, self._last]

    def commit(self, token: Any) -> None:
        """Publish a transaction. A repetition leaves out the rows that the stream has."""
        if not self._is_staged:
            self._publish_batch(token)
            return
        began = self._clock()
        name, count, creation, before = token
        there = frozenset[int]()
        if name in self._fresh:
            self._fresh.discard(name)
        else:
            self._retries.add()
            there = self._link.ask(self._published, name, creation, before)
            if not self._staged.is_staged(name):
                # It is removed when its rows are published.
                if len(there) < count and not self._target.keeps_last:
                    self._collector.report_error(self._lost(name, count, len(there)))
                return
        try:
            rows = enumerate(self._staged.rows(name, count))
            for batch in batches((row, message) for row, message in rows if row not in there):  # type: ignore[misc]
                self._publish_staged(name, batch)
        except StagedRowsLostError as error:
            self._collector.report_error(error)
        self._staged.remove(name)
        self._staged_count.set(name, 0)
        self._commit_ms.record(1000 * (self._clock() - began))

    def _publish_staged(self, name: str, batch: Sequence[tuple[int, OutgoingMessage]]) -> None:
        ids = [message_id(name, row) for row, _ in batch]
        self._progress()
        done = self._link.ask(publish, self._connection, [message for _, message in batch], ids)
        self._last = max(self._last, done.last)
        self._written.add(len(batch) - len(done.refused))
        self._bytes.add(sum(len(message[1]) for _, message in batch))
        if done.refused:
            raise TopoEnvironmentError(
                f"stream {self._stream!r} at {self._servers} refuses {len(done.refused)} of {len(batch)} messages, and it is "
                f"tried again: {next(iter(done.refused.values()))}"
            )

    def _published(self, name: str, creation: int, before: int) -> frozenset[int]:
        """Return the rows of a transaction that the stream has, behind a place in it."""
        feed = SubjectFeed(self._connection, self._stream, self._only_subject, (creation, before), _SCANNED, headers_only=True)
        prefix = message_id(name, "")
        rows = set[int]()
        while True:
            self._progress()
            answer = feed.fetch()
            if answer.loss is not None:
                self._collector.report_error(
                    TopoEnvironmentError(f"{answer.loss[1]}: rows that were published and removed since may be published again")
                )
                continue
            for message in answer.messages:
                if (found := message.headers.get(MESSAGE_ID, "")).startswith(prefix):
                    rows.add(int(found.removeprefix(prefix)))
            if not answer.messages and feed.is_at_end:
                return frozenset(rows)

    def _publish_batch(self, rows: Sequence[OutgoingMessage]) -> None:
        """Publish a batch. The tuples of messages that the stream refuses fail, and no others."""
        began = self._clock()
        refused = dict[int, str]()
        for batch in batches(enumerate(rows)):
            done = self._link.ask(publish, self._connection, [message for _, message in batch])
            refused.update({batch[place][0]: why for place, why in done.refused.items()})
        self._publish_ms.record(1000 * (self._clock() - began))
        self._written.add(len(rows) - len(refused))
        self._bytes.add(sum(len(data) for _, data in rows))
        if refused:
            self._rejected.add(len(refused))
            self._collector.report_error(
                TopoEnvironmentError(
                    f"stream {self._stream!r} at {self._servers} refuses {len(refused)} of {len(rows)} messages, and their "
                    f"tuples fail: {next(iter(refused.values()))}"
                )
            )
            for place in refused:
                self._collector.fail(self._committing[place])
            self._committing = [tup for place, tup in enumerate(self._committing) if place not in refused]

    def abort(self, token: Any) -> None:
        """Drop staged rows; None: those of the open transaction."""
        if token is not None:
            self._fresh.discard(token[0])
            self._staged.remove(token[0])
            self._staged_count.set(token[0], 0)
        elif self._is_staged:
            self._staged.discard()

    def recover(self, tokens: Sequence[Any]) -> None:
        """Publish what counts; remove the other staged files of this task, and of tasks that no longer exist."""
        super().recover(tokens)
        if self._is_staged:
            self._staged.clean()

    def _lost(self, name: str, count: int, there: int) -> StagedRowsLostError:
        return StagedRowsLostError(
            f"{count} rows were staged in {name}, which is missing, and stream {self._stream!r} has {there} of them. Either it "
            "has removed them since, or somebody has removed the file, or an earlier worker has staged it elsewhere: staging="
        )


def message_id(name: str, row: int | str) -> str:
    """Return the id of a row. No two processes draw the same name of a staged file."""
    return f"{name.removesuffix('.rows')}.{row}"
