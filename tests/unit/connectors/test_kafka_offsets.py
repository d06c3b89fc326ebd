"""Positions in topics: eras, places to start and to stop, and where reading continues after a loss."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from topo.connectors.kafka.offsets import (
    BEGINNING,
    Loss,
    check_names,
    checked_place,
    checked_position,
    continuation,
    cut_of,
    era_of,
    is_other_topic,
    loss_error,
    next_era,
)
from topo.errors import ConfigError

ERA = era_of(0, "zz")


def test_positions_rise_from_era_to_era_whatever_the_ids_are() -> None:
    eras = [ERA]
    for topic_id in ("aa", "aa", *"xyz0123456"):
        eras.append(next_era(eras[-1], topic_id))
    assert eras == sorted(set(eras)) and eras[1] == era_of(1, "aa")
    assert (eras[0], 10**12) < (eras[1], 0)


def test_another_topic_of_that_name_is_known_by_its_id() -> None:
    assert is_other_topic(ERA, "aa") and not is_other_topic(ERA, "zz")
    assert not is_other_topic(ERA, "") and not is_other_topic(era_of(3, ""), "aa"), "without ids there is no telling apart"


@pytest.mark.parametrize(
    ("offset", "topic_id", "loss", "era", "next_offset", "count"),
    [
        (5, "zz", None, ERA, 5, None),
        (3, "zz", None, ERA, 3, None),
        (10, "zz", None, ERA, 10, None),
        (0, "zz", Loss.RETENTION, ERA, 3, 3),
        (11, "zz", Loss.CUT, era_of(1, "zz"), 10, None),
        (5, "aa", Loss.OTHER_TOPIC, era_of(1, "aa"), BEGINNING, None),
    ],
)
def test_reading_continues_at_the_next_record_that_exists(
    offset: int, topic_id: str, loss: Loss | None, era: str, next_offset: int, count: int | None
) -> None:
    found = continuation(ERA, offset, topic_id, low=3, high=10)
    assert (found.loss, found.era, found.offset, found.count) == (loss, era, next_offset, count)


def test_what_lies_behind_the_place_where_the_log_was_cut_is_lost() -> None:
    text = (
        "Partition log truncation detected at offset 10 (leader epoch 0): broker end offset is 5 (offset leader epoch 0). "
        "Reset to INVALID.: Local: Partition log truncation detected (broker 3)"
    )
    assert cut_of(text) == (10, 5) and cut_of("Local: No offset stored") is None
    found = continuation(ERA, 10, "zz", low=0, high=25, cut=5)
    assert (found.loss, found.era, found.offset) == (Loss.CUT, era_of(1, "zz"), 5)
    assert continuation(ERA, 5, "zz", low=0, high=25, cut=5).loss is None
    assert continuation(ERA, 10, "aa", low=0, high=25, cut=5).loss is Loss.OTHER_TOPIC


def test_each_loss_names_partition_offsets_and_the_way_out() -> None:
    cases = {
        (0, "zz"): "no records 0 to 2 any more",
        (11, "zz"): "ends at offset 10 and 11 is to be read next",
        (5, "aa"): "deleted and created once more: records behind offset 4",
    }
    for (offset, topic_id), expected in cases.items():
        text = str(loss_error("orders-3", offset, continuation(ERA, offset, topic_id, low=3, high=10)))
        assert "'orders-3'" in text and expected in text and "on_lost='skip'" in text


@pytest.mark.parametrize("position", [5, "5", ("a",), (ERA, "5"), (ERA, True), None])
def test_a_position_of_another_spout_is_refused(position: object) -> None:
    with pytest.raises(ConfigError, match="none of KafkaSpout"):
        checked_position("orders-3", position)


def test_a_position_that_was_stored_as_a_list_is_one() -> None:
    assert checked_position("orders-3", [ERA, 5]) == (ERA, 5)


@pytest.mark.parametrize("place", ["begin", 5, {"orders-3": -1}, {"orders-3": True}, {3: 3}, datetime(2026, 1, 1)])
def test_a_place_that_is_none_is_refused(place: object) -> None:
    with pytest.raises(ConfigError, match="start="):
        checked_place("start", place, ("earliest", "latest"))  # type: ignore[arg-type]


def test_places() -> None:
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    for place in ("latest", moment, {"orders-3": 0}, None):
        assert checked_place("stop", place, ("latest",)) == place


def test_a_place_in_a_partition_that_does_not_exist_is_refused() -> None:
    check_names("start", {"orders-0": 1}, ["orders-0", "orders-1"])
    with pytest.raises(ConfigError, match=r"start= names 'orders-7'; the partitions are 'orders-0', 'orders-1'"):
        check_names("start", {"orders-7": 1}, ["orders-1", "orders-0"])
