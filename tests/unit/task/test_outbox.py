from __future__ import annotations

from typing import Any

from tests.rows import rows_of
from tests.tasks.environment import CODEC
from topo.hot import pack_words
from topo.ids import TaskId
from topo.task.commands import SendFrame, TaskCommand
from topo.task.flow_control import UNLIMITED_WINDOW, OutEdge
from topo.task.outbox import Outbox
from topo.wire.frames import Anchoring, Columns, Frame, FrameKind, SenderStamp, open_frame, parse, signal_frame

STAMP = SenderStamp(1, 9, 77)


class Box:
    """An outbox with edges to tasks 2 and 3, and one with verdicts."""

    def __init__(self, window: int = 2, limit: int = 4, batch_size: int = 4, *, local: bool = False, **limits: int) -> None:
        self.commands: list[TaskCommand] = []
        self.rejected: list[tuple[int, Any, list[int], str]] = []
        self.outbox = Outbox(
            CODEC,
            self.commands,
            lambda stream, values, roots, error: self.rejected.append((stream, values, list(roots), str(error))),
            lambda stream: ("value",),
            batch_size=batch_size,
            batch_bytes=1 << 16,
            limit=limit,
            **{"max_frame": 1 << 24, "max_control_frame": 1 << 20, **limits},
        )
        edges = [OutEdge(TaskId(target), window, local=local) for target in (2, 3)]
        spout = OutEdge(TaskId(4), UNLIMITED_WINDOW, local=False, carries_verdicts=True)
        self.outbox.open(STAMP, [*edges, spout])
        self.outbox.now = 10.0

    def put(self, *values: Any, target: int = 2, stream: int = 0, roots: list[int] | None = None) -> None:
        rows = [(value,) for value in values]
        words = pack_words(roots or [])
        columns = Columns(Anchoring.SINGLE if roots else Anchoring.NONE, rows, words, words)
        self.outbox.put(TaskId(target), stream, columns)

    def take(self) -> list[str]:
        """The frames sent since the last call, readable."""
        lines = []
        for command in self.commands:
            assert isinstance(command, SendFrame)
            frame = parse(command.frame) if isinstance(command.frame, bytes) else command.frame
            rows = [row[0] for row in rows_of(frame, CODEC)] if frame.kind is FrameKind.DATA else frame.root_list()
            lines.append(f"{frame.kind.name} {frame.target}#{frame.number} {rows}")
        self.commands.clear()
        for edge in self.outbox.edges.values():
            edge.validate()
        return lines


def test_a_batch_leaves_when_it_is_full_and_the_rest_waits_for_a_flush() -> None:
    box = Box()
    box.put(1, 2, 3)
    assert box.take() == []
    box.put(4, 5)
    assert box.take() == ["DATA 2#0 [1, 2, 3, 4]"]
    box.outbox.flush()
    assert box.take() == ["DATA 2#1 [5]"]


def test_the_oldest_row_counts_from_the_last_flush() -> None:
    box = Box()
    assert box.outbox.oldest is None
    box.put(1)
    box.outbox.now = 11.0
    box.put(2)
    assert box.outbox.oldest == 10.0
    box.outbox.flush()
    assert box.outbox.oldest is None
    box.put(3)
    assert box.outbox.oldest == 11.0


def test_rows_that_a_busy_receiver_would_only_queue_stay_until_they_are_old() -> None:
    box = Box(window=8)
    box.put(1)
    box.outbox.flush(0.5)
    assert box.take() == ["DATA 2#0 [1]"], "before the first confirmation no load is known"
    box.put(2)
    box.outbox.flush()
    box.outbox.confirm(TaskId(2), 0, load=95)
    box.take()
    box.put(3)
    box.put(4, target=3)
    box.outbox.now = 10.4
    box.outbox.flush(0.5)
    assert (box.take(), box.outbox.oldest) == (["DATA 3#0 [4]"], 10.0), "the other receiver is sent its row"
    assert not box.outbox.is_quiet
    box.put(5)
    box.outbox.now = 10.5
    box.outbox.flush(0.5)
    assert (box.take(), box.outbox.oldest) == (["DATA 2#2 [3, 5]"], None)


def test_rows_for_a_receiver_that_has_time_or_nothing_to_do_leave_when_the_task_is_idle() -> None:
    box = Box(window=8)
    box.put(1)
    box.outbox.flush(0.5)
    box.outbox.confirm(TaskId(2), 0, load=100)
    box.put(2)
    box.outbox.flush(0.5)
    assert box.take() == ["DATA 2#0 [1]", "DATA 2#1 [2]"], "it had processed all"
    box.put(3)
    box.outbox.confirm(TaskId(2), 0, load=89)
    box.outbox.flush(0.5)
    assert box.take() == ["DATA 2#2 [3]"], "its worker has time, by the latest confirmation"


def test_rows_for_a_task_of_the_same_idle_worker_leave_however_busy_it_was() -> None:
    box = Box(window=8, local=True)
    box.put(1)
    box.outbox.flush(0.5)
    box.put(2)
    box.outbox.flush(0.5)
    box.outbox.confirm(TaskId(2), 0, load=100)
    box.take()
    box.put(3)
    box.outbox.flush(0.5)
    assert box.take() == ["DATA 2#2 [3]"], "its confirmations wait, and it has processed all"


def test_rows_without_room_gather_and_leave_with_the_confirmation_that_makes_room() -> None:
    box = Box(window=1)
    box.put(1)
    box.outbox.flush()
    box.put(2)
    box.outbox.flush()
    box.put(3)
    box.outbox.flush()
    assert box.take() == ["DATA 2#0 [1]"]
    assert not box.outbox.is_quiet
    box.outbox.confirm(TaskId(2), 0)
    assert box.take() == ["DATA 2#1 [2, 3]"]


def test_a_confirmation_lets_out_no_rows_that_are_not_due() -> None:
    box = Box(window=1)
    box.put(1)
    box.outbox.flush()
    box.put(2)
    box.put(3, target=3)
    box.take()
    box.outbox.confirm(TaskId(2), 0)
    assert box.take() == []


def test_full_batches_wait_in_order_for_room() -> None:
    box = Box(window=1, batch_size=1)
    box.put(1, 2, 3)
    assert (box.take(), box.outbox.waiting) == (["DATA 2#0 [1]"], 2)
    box.outbox.confirm(TaskId(2), 0)
    assert (box.take(), box.outbox.waiting) == (["DATA 2#1 [2]"], 1)
    box.outbox.confirm(TaskId(2), 1)
    assert (box.take(), box.outbox.waiting) == (["DATA 2#2 [3]"], 0)


def test_a_burst_beyond_the_allowance_is_cut_into_frames_that_grow() -> None:
    box = Box(window=16, limit=1000, batch_size=256)
    box.outbox.confirm(TaskId(2), -1, 1)
    box.put(*range(2000))
    box.outbox.signal(TaskId(2), lambda stamp, to, number: signal_frame(FrameKind.END, stamp, to, number))
    leaving, done, number, offered = [], 0, -1, 0
    while frames := box.take():
        for line in frames:
            number += 1
            rows = 0 if "END" in line else line.count(",") + 1
            assert rows <= max(1, (offered - 1) // 4), "a quarter of the rows that the receiver has processed by then"
            leaving.append(rows)
            offered += rows
        # A receiver whose tuples take a second each never grants more than one.
        done += 1
        box.outbox.confirm(TaskId(2), number, 1)
    assert (sum(leaving), leaving[:6], leaving[-1]) == (2000, [1, 1, 1, 1, 1, 1], 0)
    assert len(leaving) <= 45


def test_rows_within_twice_the_allowance_leave_in_quarters_of_it() -> None:
    box = Box(window=16, batch_size=256)
    box.outbox.confirm(TaskId(2), -1, 40)
    box.put(*range(80))
    assert [line.count(",") + 1 for line in box.take()] == [10, 10, 10, 10]
    box.outbox.confirm(TaskId(2), 3, 40)
    assert [line.count(",") + 1 for line in box.take()] == [10, 10, 10, 10]


def test_rows_behind_waiting_frames_stay_behind_them() -> None:
    box = Box(window=1, batch_size=2)
    box.put(1, 2, 3, 4, 5)
    box.outbox.flush()
    box.take()
    box.outbox.confirm(TaskId(2), 0)
    assert box.take() == ["DATA 2#1 [3, 4]"]
    box.outbox.confirm(TaskId(2), 1)
    assert box.take() == ["DATA 2#2 [5]"]


def test_an_outbox_is_full_beyond_its_limit_of_waiting_frames() -> None:
    box = Box(window=1, limit=2, batch_size=1)
    box.put(1, 2, 3)
    assert not box.outbox.is_full
    box.put(4)
    assert box.outbox.is_full
    box.outbox.confirm(TaskId(2), 0)
    assert not box.outbox.is_full


def test_a_signal_goes_behind_the_rows_of_its_edge_and_leaves_other_edges_alone() -> None:
    box = Box()
    box.put(1)
    box.put(2, stream=1)
    box.put(3, target=3)
    box.outbox.signal(TaskId(2), lambda stamp, to, number: signal_frame(FrameKind.END, stamp, to, number))
    assert box.take() == ["DATA 2#0 [1]", "DATA 2#1 [2]"]
    box.outbox.confirm(TaskId(2), 0)
    assert box.take() == ["END 2#2 []"]


def test_verdicts_for_a_spout_have_no_window() -> None:
    box = Box(window=1)
    for root in range(1, 30):
        box.outbox.put_ids(FrameKind.ACKED, TaskId(4), pack_words([root]))
    assert len(box.take()) == 29


def test_ids_that_do_not_fit_a_frame_leave_in_several() -> None:
    box = Box(window=9, max_frame=57 + 3 * 16, max_control_frame=57 + 2 * 16)
    box.outbox.put_ids(FrameKind.ACK, TaskId(2), pack_words([1, 2, 3, 4, 5]), pack_words([6, 7, 8, 9, 10]))
    assert box.take() == ["ACK 2#0 [1, 2, 3]", "ACK 2#1 [4, 5]"]
    box.outbox.put_ids(FrameKind.ACKED, TaskId(4), pack_words([1, 2, 3]))
    assert box.take() == ["ACKED 4#0 [1, 2]", "ACKED 4#1 [3]"]


def test_a_new_epoch_forgets_rows_frames_and_numbers() -> None:
    box = Box(window=1, batch_size=1)
    box.put(1, 2, 3)
    box.take()
    box.outbox.open(SenderStamp(2, 9, 77), [OutEdge(TaskId(2), 1, local=False)])
    assert (box.outbox.waiting, box.outbox.is_quiet, box.outbox.sent) == (0, True, 0)
    box.outbox.signal(TaskId(2), lambda stamp, to, _: open_frame(stamp, to, 0))  # type: ignore[arg-type]
    assert box.take() == ["OPEN 2#0 []"]


def test_a_starved_edge_of_the_old_epoch_is_not_starved_in_the_new_one() -> None:
    box = Box(window=1)
    box.put(1)
    box.outbox.flush()
    box.put(2)
    box.outbox.flush()
    box.outbox.open(SenderStamp(2, 9, 77), [OutEdge(TaskId(2), 1, local=False)])
    assert box.outbox.is_quiet


def test_an_outbox_is_quiet_when_all_has_left_and_is_processed() -> None:
    box = Box()
    assert box.outbox.is_quiet
    box.put(1)
    assert not box.outbox.is_quiet
    box.outbox.flush()
    assert not box.outbox.is_quiet
    box.outbox.confirm(TaskId(2), 0)
    assert box.outbox.is_quiet


def test_rows_that_cannot_be_packed_are_refused_alone_with_their_roots() -> None:
    box, unknown = Box(batch_size=3), object()
    box.put("a", unknown, "b", roots=[7, 8, 9])
    assert box.take() == ["DATA 2#0 ['a', 'b']"]
    ((stream, values, roots, why),) = box.rejected
    assert (stream, values, roots) == (0, (unknown,), [8])
    assert why.startswith("field 'value': a value of type object: ")


def test_a_batch_of_nothing_but_refused_rows_leaves_no_frame_and_no_gap() -> None:
    box = Box(batch_size=1)
    box.put(object())
    box.put("fine")
    assert box.take() == ["DATA 2#0 ['fine']"]


def test_frames_to_a_task_of_the_same_worker_are_handed_over_as_they_are() -> None:
    box = Box(local=True, batch_size=1)
    value = object()
    box.put(value)
    (command,) = box.commands
    assert isinstance(command, SendFrame) and isinstance(command.frame, Frame)
    assert command.frame.rows == [(value,)]


def test_the_most_silent_receiver_is_found() -> None:
    box = Box()
    assert box.outbox.unconfirmed_since() is None
    box.put(1, target=3)
    box.outbox.flush()
    box.outbox.now = 12.0
    box.put(1)
    box.outbox.flush()
    assert box.outbox.unconfirmed_since() == (3, 10.0)
    box.outbox.confirm(TaskId(3), 0)
    assert box.outbox.unconfirmed_since() == (2, 12.0)


def test_frames_are_as_small_as_a_slow_receiver_wants_them() -> None:
    box = Box(window=16, limit=64)
    box.put(1)
    box.outbox.flush()
    box.outbox.confirm(TaskId(2), 0, 8)
    box.take()
    box.put(2, 3, 4, 5, 6)
    box.put(7, 8, 9, 10, stream=1)
    box.put(11, 12, 13, 14, target=3)
    lines = ["DATA 2#1 [2, 3]", "DATA 2#2 [4, 5]", "DATA 2#3 [7, 8]", "DATA 2#4 [9, 10]", "DATA 3#0 [11, 12, 13, 14]"]
    assert box.take() == lines


def test_an_outbox_is_full_when_an_edge_holds_twice_its_allowance() -> None:
    box = Box(window=16, limit=64)
    box.outbox.confirm(TaskId(2), -1, 4)
    assert box.outbox.room == 8
    box.put(1, 2, 3, 4, 5)
    assert (box.outbox.room, box.outbox.is_full) == (3, False)
    box.put(6, 7, 8)
    assert (box.outbox.room, box.outbox.is_full) == (1, True)
    assert [line.split()[1] for line in box.take()] == ["2#0", "2#1", "2#2", "2#3"]
    box.outbox.confirm(TaskId(2), 0, 4)
    assert (box.outbox.room, box.outbox.is_full) == (1, False)
    box.outbox.confirm(TaskId(2), 1, 1)
    assert box.outbox.is_full, "the receiver has become slow"
    box.outbox.open(STAMP, [OutEdge(TaskId(2), 2, local=False)])
    assert not box.outbox.is_full


def test_an_outbox_without_grants_has_room_for_any_number_of_rows() -> None:
    assert Box().outbox.room >= 1 << 60


def test_rows_that_wait_anywhere_on_the_way_out_are_known_by_their_roots() -> None:
    box = Box(window=1)
    box.put("out", roots=[11])
    box.outbox.flush()
    box.put("full", "full", "full", "full", roots=[12, 13, 13, 14])
    box.put("gathers", roots=[15])
    box.outbox.now = 20.0
    box.put("new", roots=[16], target=3)
    assert list(box.outbox.waiting_roots(15.0)) == [11, 12, 13, 14, 15]
    box.outbox.confirm(TaskId(2), 0)
    assert 11 not in box.outbox.waiting_roots(15.0)


def test_figures_of_an_edge_count_what_is_in_front_of_its_receiver_and_go_on_over_epochs() -> None:
    box = Box(window=1, batch_size=2)
    target = TaskId(2)
    assert box.outbox.edge_figures(target) == (0, 0, 0.0)
    box.put(*range(7))
    # One frame has left, two wait for the window, and a tuple fills no frame yet.
    assert box.outbox.edge_figures(target)[:2] == (6, 7)
    box.outbox.confirm(target, 0)
    assert box.outbox.edge_figures(target)[:2] == (6, 5)
    box.outbox.confirm(target, 1)
    assert box.outbox.edge_figures(target)[:2] == (6, 3)
    box.outbox.open(STAMP, [OutEdge(target, 1, local=False)])
    assert box.outbox.edge_figures(target) == (6, 0, 0.0)
    box.put(1, 2)
    assert box.outbox.edge_figures(target)[:2] == (8, 2)


def test_an_edge_is_full_from_the_moment_it_holds_twice_its_allowance_until_it_has_room() -> None:
    box = Box(window=8, batch_size=2)
    target = TaskId(2)
    box.outbox.confirm(target, -1, allowance=2)
    box.put(1, 2, 3, 4)
    assert box.outbox.is_full
    box.outbox.now = 12.5
    assert box.outbox.edge_figures(target).full_s == 2.5
    box.outbox.confirm(target, 3, allowance=2)
    box.outbox.now = 20.0
    assert not box.outbox.is_full
    assert box.outbox.edge_figures(target).full_s == 2.5
