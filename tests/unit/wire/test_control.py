from __future__ import annotations

import typing

import msgpack
import msgspec
import pytest

from topo.errors import FrameError
from topo.wire import control
from topo.wire.control import (
    Activate,
    Alive,
    BarrierAcked,
    BeginCheckpoint,
    Cause,
    CheckpointAborted,
    CheckpointComplete,
    CheckpointPublished,
    CheckpointWanted,
    Close,
    Closed,
    ComponentError,
    Deactivate,
    DeadLetter,
    DeadLettersStored,
    Drain,
    EdgeLost,
    FromMaster,
    FromWorker,
    Go,
    Heartbeat,
    LettersReplayed,
    LetterToReplay,
    Observe,
    Observed,
    PartToRead,
    PositionReport,
    Probe,
    Quiet,
    Register,
    ReplayLetters,
    Reply,
    Request,
    RestoreFailed,
    Routes,
    SnapshotFailed,
    SnapshotTaken,
    Stop,
    Stuck,
    TaskReady,
    TaskRoute,
    TuplesFailed,
    Unobserve,
    encode,
    shortened,
)

BIGGEST = (1 << 64) - 1
FROM_WORKER = [
    Register(0, 99, 4711, "host", "3.11.7", "d1gest", [1, 2], "ipc://a"),
    Register(0, 99, 4711, "host", "3.11.7", "d1gest", [1, 2], "tcp://a", "key"),
    Heartbeat(0, 99, 1, 2, "count", {3: {"acked": 4, "by_stream": {"default": 5}}}),
    Heartbeat(0, 99, 1, 2, sent_count=17),
    Stuck(0, 3, "count", 31.5, 'File "a.py", line 3', "a.py", 3),
    Closed(3),
    TaskReady(3, 2),
    EdgeLost(3, 2, 1, "frame 7 came where 5 was due"),
    ComponentError(3, "count", "ValueError", "no", "Traceback", "a.py", 3, 12, 1_700_000_000_000),
    TuplesFailed(3, [(Cause("ValueError", "no", "count", "a.py", 3), [1, BIGGEST])]),
    PositionReport(3, 2, b"\x01", b"\x80"),
    DeadLetter(3, 8, b"\x01", b"\x91\x01", ["ValueError: no"], 3, BIGGEST, Cause("ValueError", "no", "count")),
    LettersReplayed(3, [8], [DeadLetter(3, 9, b"", b"", ["no"], 3, stream="default", stamp=7)]),
    Quiet(3, 2, 5, True, False, BIGGEST, 10, 2, "2 messages pending"),
    SnapshotTaken(3, 2, 7, "7/3-99", 1 << 40, "c0ffee", 1.5, 0.25, 80.0),
    SnapshotFailed(3, 2, 7, "No space left on device"),
    RestoreFailed(3, 2, 7, "7/3-99 is damaged: its checksum is wrong"),
    BarrierAcked(3, 2, 7),
    CheckpointWanted(3, 2),
    CheckpointPublished(3, 2, 7),
    Observed(1, 3, [{"fields": {"word": "the"}}], 100, 10, 2, 1, "a problem"),
]
PART = PartToRead(
    file="7/3-99", length=12, checksum="c0ffee", component="count", task=3, index=1, groups=(0, 63), takes_values=True
)
FROM_MASTER = [
    Routes(4, 2, [TaskRoute(1, 0, 99, "tcp://a", "key")], [BIGGEST], True, {1: b"\x01"}, {1: b"\x80"}),
    Routes(4, 3, [], checkpoint=7, folder="/save", restore={3: [PART]}),
    BeginCheckpoint(2, 7),
    CheckpointComplete(7),
    CheckpointAborted(7),
    Go(2),
    Activate(),
    Deactivate(),
    Drain(),
    Probe(5, 2),
    DeadLettersStored(3, [8, 9]),
    ReplayLetters(3, [LetterToReplay(8, "default", None, b"\x91\x01")]),
    Observe(1, "tap", [3], {"rate": 2.5, "where": ""}, 60.0),
    Unobserve(1),
    Close(2, True),
    Alive(),
    Alive(17),
    Stop("killed by topo kill"),
]


@pytest.mark.parametrize("message", FROM_WORKER, ids=lambda message: type(message).__name__)
def test_what_a_worker_says_arrives_typed_and_is_nothing_a_master_says(message):
    assert control.decode_from_worker(encode(message)) == message
    with pytest.raises(FrameError, match="not a control message"):
        control.decode_from_master(encode(message))


@pytest.mark.parametrize("message", FROM_MASTER, ids=lambda message: type(message).__name__)
def test_what_a_master_says_arrives_typed_and_is_nothing_a_worker_says(message):
    assert control.decode_from_master(encode(message)) == message
    with pytest.raises(FrameError, match="not a control message"):
        control.decode_from_worker(encode(message))


def test_every_message_of_either_union_is_tried_here():
    assert {type(message) for message in FROM_WORKER} == set(typing.get_args(FromWorker))
    assert {type(message) for message in FROM_MASTER} == set(typing.get_args(FromMaster))


def test_requests_and_replies_arrive():
    request = Request("kill", {"wait_s": 30.0, "now": False})
    assert control.decode_request(encode(request)) == request
    reply = Reply(True, {"tasks": [1, 2]})
    assert control.decode_reply(encode(reply)) == reply


def test_defaults_may_be_left_out_by_the_sender():
    assert control.decode_from_worker(msgpack.packb(["Heartbeat", 0, 99, 1, 2])) == Heartbeat(0, 99, 1, 2)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        b"\x91" * 100_000,
        msgpack.packb(["Go", 2]) + b"\x00",
        msgpack.packb(["Go"]),
        msgpack.packb(["Go", 2, "more"]),
        msgpack.packb(["Go", "2"]),
        msgpack.packb(["Went", 2]),
        msgpack.packb({"type": "Go", "epoch": 2}),
        msgpack.packb(["Stop", b"\xff"]),
        b"\x92\xa4Stop\xa1\xff",
        b"\x94\xa6Routes\x01\x02\xdd\xff\xff\xff\xff",
        b"\x95\xa6Routes\x01\x02\x90\xdd\xff\xff\xff\xff",
    ],
)
def test_anything_else_is_a_frame_error(data):
    with pytest.raises(FrameError, match="not a control message"):
        control.decode_from_master(data)


@pytest.mark.parametrize(
    "decode", [control.decode_from_worker, control.decode_from_master, control.decode_request, control.decode_reply]
)
def test_a_message_over_the_limit_is_refused_before_it_is_read(decode):
    with pytest.raises(FrameError, match="of 1048577 bytes; at most 1048576"):
        decode(b"\xc1" * (control.MAX_CONTROL + 1))
    with pytest.raises(FrameError, match="of 4 bytes; at most 3"):
        decode(b"1234", max_size=3)


def test_what_is_too_long_for_the_master_goes_without_the_metrics_of_users_or_its_values():
    counted = Heartbeat(1, 2, 3, 4, "count", {5: {"counters": {"late": 1}}})
    assert shortened(Heartbeat(1, 2, 3, 4, "count", {5: {"counters": {"late": 1}, "user": {"metrics": {}}}})) == counted
    dead_letter = DeadLetter(1, 2, b"\x07", b"x" * 1000, ["it failed"], 3)
    short = shortened(dead_letter)
    assert (short.position, short.errors) == (dead_letter.position, dead_letter.errors)
    assert msgpack.unpackb(short.values) == "left out: 1000 bytes are too many to keep"
    assert short.fixed == "its values were too long to keep"
    assert shortened(Closed(3)) == Closed(3)


def test_every_truncation_and_every_flipped_byte_is_a_message_or_a_frame_error():
    for message in FROM_WORKER:
        data = encode(message)
        for end in range(len(data)):
            with pytest.raises(FrameError):
                control.decode_from_worker(data[:end])
            for flip in (0x01, 0x80, 0xFF):
                mutated = bytearray(data)
                mutated[end] ^= flip
                try:
                    assert isinstance(control.decode_from_worker(bytes(mutated)), msgspec.Struct)
                except FrameError as error:
                    assert str(error).startswith("not a control message")


def test_a_cause_in_words_names_the_exception_the_place_and_the_component():
    assert str(Cause("ValueError", "no", "count", "/home/a/b.py", 3)) == "ValueError: no (b.py:3, component 'count')"
    assert str(Cause("", "the bolt called fail", "count")) == "the bolt called fail (component 'count')"


def test_lone_surrogates_in_what_user_code_says_are_escaped() -> None:
    shown = Reply(False, {"names": ["a\udcff", b"\xff"]}, "no file \udcff")
    assert control.decode_reply(encode(shown)) == Reply(False, {"names": ["a\\udcff", b"\xff"]}, "no file \\udcff")
