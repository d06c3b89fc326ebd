"""The sending half of a task around its outbox: opening frames, event time, the end, and receivers that fall silent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from topo.hot import Row, pack_words
from topo.ids import TaskId
from topo.operators.time.watermarks import InputStatus
from topo.task.error_reports import Reports
from topo.task.flow_control import UNLIMITED_WINDOW, OutEdge
from topo.task.inbound import KEEP_ALIVE_S
from topo.task.outbox import Outbox
from topo.task.state import TaskState
from topo.wire.codec import Codec
from topo.wire.frames import (
    MAX_WATERMARK,
    Frame,
    FrameKind,
    SenderStamp,
    SenderStatus,
    barrier_frame,
    open_frame,
    signal_frame,
    watermark_frame,
)

RejectNamed = Callable[[Row, Sequence[int], Exception], None]

UNWATCHED_SILENCE_S = 3600.0
"""How long a receiver may be silent when `progress_timeout` is off: then user code may take as long as it likes."""

DRY_SHARE = 0.2
"""The share of `flush_interval` for which rows wait when a source has nothing more at this moment."""


class Outbound:
    """All edges that leave one task.

    Args:
        state: of the task.
        reports: of the task.
        codec: packs rows.
        targets: of all out-edges, and whether it carries verdicts.
        reject: takes a row that cannot be packed, and its roots, which are to fail.

    Attributes:
        outbox: buffers and windows of the edges.
        consumers: the tasks that read the output; the other edges lead to ackers.
    """

    def __init__(
        self, state: TaskState, reports: Reports, codec: Codec, targets: Sequence[tuple[TaskId, bool]], reject: RejectNamed
    ) -> None:
        self._state = state
        self._reports = reports
        self._targets = targets
        self._reject_row = reject
        config, plan = state.config, state.plan
        self.consumers = tuple(target for target in plan.downstream_tasks(state.id) if target not in plan.ackers)
        self._linger_s = config.flush_interval_s
        # The master replaces a stuck or silent worker, and first: behind a new epoch its crash marker would blame no message.
        # A watchdog looks once a heartbeat, and speaks behind the second one without a turn.
        noticed_s = max(config.progress_timeout_s or UNWATCHED_SILENCE_S, config.worker_timeout_s, 2 * config.heartbeat_s)
        self._silence_limit_s = noticed_s + config.heartbeat_s + KEEP_ALIVE_S
        self.outbox = Outbox(
            codec,
            state.commands,
            self._reject,
            lambda stream: plan.streams(state.component_id)[stream].fields,
            batch_size=config.batch_size,
            batch_bytes=config.batch_bytes,
            limit=config.outbox_limit,
            max_frame=config.max_frame_bytes,
            max_control_frame=config.max_control_frame_bytes,
            observer=state.observer,
        )

    def begin_epoch(self) -> None:
        """Forget all that has not left, and make new edges."""
        # In a busy worker all other tasks have a slice before this one has the next. Rows that are overdue by then, each time,
        # would leave after every slice, in small frames.
        self._linger_s = self._state.config.flush_interval_s * max(1, len(self._state.local))
        self.outbox.open(self._state.stamp, [self._edge(target, control) for target, control in self._targets])

    def _edge(self, target: TaskId, control: bool) -> OutEdge:
        window = UNLIMITED_WINDOW if control else self._state.config.edge_window
        return OutEdge(target, window, local=target in self._state.local, carries_verdicts=control)

    def _reject(self, stream: int, values: Row, roots: Sequence[int], error: Exception) -> None:
        """Name stream and component in the error of a row that cannot be carried."""
        plan, component = self._state.plan, self._state.component_id
        wrapped = type(error)(f"component {component!r}, stream {plan.streams(component)[stream].name!r}: {error}")
        vars(wrapped).update(vars(error))
        self._reject_row(values, roots, wrapped)

    def send_opening(self, status: SenderStatus, watermark: int) -> None:
        """Send the first frame of every edge."""
        for target in self.outbox.edges:
            self.outbox.signal(target, lambda stamp, to, _number: open_frame(stamp, to, status, watermark))

    def send_time(self, news: Sequence[int | InputStatus]) -> None:
        """Send event time to the consumers, behind the rows that were emitted before it.

        The last watermark is not sent: it comes with the end of the input.
        """
        for one in news:
            if isinstance(one, InputStatus):
                kind = FrameKind.IDLE if one is InputStatus.IDLE else FrameKind.ACTIVE
                self._signal_consumers(partial(signal_frame, kind))
            elif one < MAX_WATERMARK:
                self._signal_consumers(partial(watermark_frame, watermark=one))

    def send_end(self) -> None:
        """Send END to the consumers."""
        self._signal_consumers(partial(signal_frame, FrameKind.END))

    def send_barrier(self, checkpoint: int, roots: Sequence[int]) -> int:
        """Send a barrier to the consumers, behind the rows before it, anchored on `roots`; return the XOR each root owes."""
        owed, packed = 0, pack_words(roots)
        for target in self.consumers:
            edge = self._state.ids.roots(1)[0]
            owed ^= edge
            edges = pack_words([edge] * len(roots))
            self.outbox.signal(target, partial(barrier_frame, checkpoint=checkpoint, roots=packed, edges=edges))
        return owed

    def _signal_consumers(self, make: Callable[[SenderStamp, TaskId, int], Frame]) -> None:
        for target in self.consumers:
            self.outbox.signal(target, make)

    def report_silent_receiver(self, now: float) -> None:
        """Report the receiver that has confirmed nothing for too long."""
        since = self.outbox.silent_since
        if since is None or now < since + self._silence_limit_s:
            return
        silent = self.outbox.unconfirmed_since()
        if silent is not None and now >= silent[1] + self._silence_limit_s:
            target, since = silent
            self.outbox.edges[target].unconfirmed_since = now
            self._reports.edge_lost(target, f"task {target} confirmed nothing for {now - since:.0f} s")

    def is_flush_due(self, now: float, *, is_dry: bool = False) -> bool:
        """Whether buffered rows have waited for `flush_interval`, once for each task of the worker; for less if more is not near.

        Args:
            now: monotonic seconds.
            is_dry: the source has nothing more at this moment.
        """
        oldest = self.outbox.oldest
        return oldest is not None and now >= oldest + (self._linger_s * DRY_SHARE if is_dry else self._linger_s)

    def on_idle(self) -> None:
        """Send rows. Those wait for `flush_interval` whose receiver would only queue them: their frames become larger."""
        self.outbox.flush(self._linger_s)

    def deadlines(self) -> list[float | None]:
        """Return when rows have to leave, and when to look for a receiver that has been silent for too long."""
        oldest, since = self.outbox.oldest, self.outbox.silent_since
        flush = None if oldest is None else oldest + self._linger_s
        return [flush, None if since is None else since + self._silence_limit_s]

    def validate(self) -> None:
        """Assert the invariants."""
        self.outbox.validate()
