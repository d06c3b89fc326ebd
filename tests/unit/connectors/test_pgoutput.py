"""Messages of logical replication, and the log that the server may drop."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from topo.connectors.postgres.pgoutput import EPOCH_MS, ChangeDecoder, Confirmation, RowChange, feedback, lsn_of, lsn_text
from topo.errors import PeerError

INT, TEXT = 23, 25
RELATION = b"R" + struct.pack("!I", 7) + b"shop\0items\0d" + struct.pack("!H", 2)
RELATION += b"\1id\0" + struct.pack("!Ii", INT, -1) + b"\0name\0" + struct.pack("!Ii", TEXT, -1)


def load(type_: int, data: bytes) -> Any:
    return int(data) if type_ == INT else data.decode()


def begin(lsn: int, ms: int = 1000) -> bytes:
    return b"B" + struct.pack("!QQI", lsn, ms * 1000, 5)


def commit(lsn: int, end: int) -> bytes:
    return b"C\0" + struct.pack("!QQQ", lsn, end, 0)


def row(*values: Any) -> bytes:
    """The columns of a row; `...` is a value that is not sent."""
    found = struct.pack("!H", len(values))
    for value in values:
        if value is None:
            found += b"n"
        elif isinstance(value, bytes):
            found += b"t" + struct.pack("!i", len(value)) + value
        else:
            found += b"u"
    return found


def message(kind: bytes, rest: bytes) -> bytes:
    return kind + struct.pack("!I", 7) + rest


INSERT = message(b"I", b"N" + row(b"1", b"tea"))


def decoded(*messages: bytes) -> list[RowChange]:
    decoder = ChangeDecoder(load)
    return [change for one in (RELATION, *messages) for change in decoder.decode(one)]


@pytest.mark.parametrize(
    ("sent", "op", "new", "old"),
    [
        (INSERT, "insert", {"id": 1, "name": "tea"}, None),
        (message(b"I", b"N" + row(b"1", None)), "insert", {"id": 1, "name": None}, None),
        (message(b"U", b"N" + row(b"1", b"salt")), "update", {"id": 1, "name": "salt"}, None),
        (message(b"U", b"N" + row(b"1", ...)), "update", {"id": 1}, None),
        (message(b"U", b"K" + row(b"1", None) + b"N" + row(b"2", b"tea")), "update", {"id": 2, "name": "tea"}, {"id": 1}),
        (
            message(b"U", b"O" + row(b"1", b"tea") + b"N" + row(b"2", ...)),
            "update",
            {"id": 2, "name": "tea"},
            {"id": 1, "name": "tea"},
        ),
        (message(b"D", b"K" + row(b"1", None)), "delete", None, {"id": 1}),
        (message(b"D", b"O" + row(b"1", None)), "delete", None, {"id": 1, "name": None}),
        (b"T" + struct.pack("!IbI", 1, 0, 7), "truncate", None, None),
    ],
)
def test_a_message_is_a_change(sent: bytes, op: str, new: Any, old: Any) -> None:
    assert decoded(begin(90), sent) == [RowChange((90, 1), 1000 + EPOCH_MS, (op, "shop.items", new, old))]


def test_positions_count_the_rows_of_each_transaction() -> None:
    changes = decoded(begin(90), INSERT, INSERT, commit(90, 95), begin(120), INSERT)
    assert [change.position for change in changes] == [(90, 1), (90, 2), (120, 1)]


def test_a_value_that_cannot_be_loaded_makes_its_row_bad_and_counts() -> None:
    bad, good = decoded(begin(90), message(b"I", b"N" + row(b"x", b"tea")), INSERT)
    assert isinstance(bad.error, ValueError) and b"tea" in bad.raw
    assert (bad.position, good.position, good.error) == ((90, 1), (90, 2), None)


@pytest.mark.parametrize(
    "sent",
    [
        INSERT,
        begin(90)[:9],
        message(b"I", b"N" + row(b"1", b"tea"))[:-20],
        b"I" + struct.pack("!I", 8) + b"N" + row(b"1"),
    ],
)
def test_a_message_that_breaks_the_protocol_is_refused(sent: bytes) -> None:
    with pytest.raises(PeerError, match="cannot be read"):
        decoded(sent)


def test_messages_without_rows_are_passed_over() -> None:
    assert decoded(begin(90), b"O" + bytes(8) + b"x\0", b"Y" + bytes(4) + b"a\0b\0", b"M" + bytes(20)) == []


def test_places_in_the_log_are_numbers() -> None:
    assert lsn_of("16/B374D848") == 0x16B374D848
    assert lsn_text(0x16B374D848) == "16/B374D848"


def test_feedback_has_the_place_three_times() -> None:
    assert struct.unpack("!cQQQqb", feedback(77)) == (b"r", 77, 77, 77, 0, 0)


def test_what_is_in_flight_is_not_confirmed_and_the_end_of_the_log_is_when_nothing_is() -> None:
    confirmation = Confirmation((50, 0))
    confirmation.sent(60)
    assert confirmation.confirmed == 60
    for position in ((90, 1), (90, 2), (120, 1)):
        confirmation.given(position)
    ends = ((120, 1), 125)
    confirmation.seen(200)
    confirmation.sent(200)
    assert (confirmation.confirmed, confirmation.log_end) == (60, 200)
    confirmation.done((90, 1), ends)
    assert confirmation.confirmed == 90, "the transaction is needed again, from its first row on"
    confirmation.done((90, 2), ends)
    confirmation.sent(200)
    assert confirmation.confirmed == 90
    confirmation.done((120, 1), ends)
    assert confirmation.confirmed == 125
    confirmation.sent(210)
    assert confirmation.confirmed == 210
    confirmation.done((90, 2), ends)
    assert confirmation.confirmed == 210, "it never falls"


def test_a_position_within_a_transaction_keeps_all_of_it() -> None:
    confirmation = Confirmation((90, 1))
    confirmation.given((90, 2))
    confirmation.sent(200)
    assert confirmation.confirmed == 90
