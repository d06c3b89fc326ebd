"""Positions of a partition of a topic, and the places where reading starts and stops: values, without a client.

A position is a pair, era and offset: `("000000.MkU3OEVBNTcwNTJENDM2Qg", 1700)`. The offset is that of a record. An era lasts as
long as offsets name the same records: it has a number, which rises when the topic was deleted and created once more or lost its
end, and the id of the topic. So positions rise in all eras, and each one shows to which topic its offset belongs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any

from topo.errors import ConfigError, TopoEnvironmentError

TopicPosition = tuple[str, int]
BEGINNING = -1
"""The offset of the position in front of the first record, wherever that is."""
Place = str | datetime | Mapping[str, int] | None
"""The value of `start` or `stop`."""


def era_of(number: int, topic_id: str) -> str:
    """Return an era."""
    return f"{number:06d}.{topic_id}"


def next_era(era: str, topic_id: str) -> str:
    """Return the era that follows."""
    return era_of(int(era.partition(".")[0]) + 1, topic_id)


def is_other_topic(era: str, topic_id: str) -> bool:
    """Whether an era is that of another topic of the same name. Brokers without topic ids cannot show it."""
    known = era.partition(".")[2]
    return bool(known and topic_id and known != topic_id)


def checked_position(name: str, position: Any) -> TopicPosition:
    """Return a stored position. Raises ConfigError when another kind of spout has stored it."""
    if isinstance(position, tuple | list) and list(map(type, position)) == [str, int]:
        return (position[0], position[1])
    raise ConfigError(f"partition {name!r} has the stored position {position!r}, which is none of KafkaSpout; start without it")


class Loss(Enum):
    """The reason why an offset cannot be read."""

    RETENTION = "retention"
    CUT = "cut"
    OTHER_TOPIC = "other topic"


@dataclass(frozen=True)
class Continuation:
    """Where reading continues after a loss.

    Attributes:
        loss: None: nothing is lost.
        era: from there on.
        offset: of the first record that is read; BEGINNING: the first that there is.
        count: how many records are lost; None: that is not known.
    """

    loss: Loss | None
    era: str
    offset: int
    count: int | None = None


def continuation(era: str, offset: int, topic_id: str, low: int, high: int, cut: int | None = None) -> Continuation:
    """Return where reading continues when the broker does not have an offset.

    Args:
        era: of the position.
        offset: the next record to read.
        topic_id: of the topic as it is now.
        low: the first offset that the partition has.
        high: the offset behind its last record.
        cut: from there on it has other records than before, if that was found: an unclean election of its leader.
    """
    if is_other_topic(era, topic_id):
        return Continuation(Loss.OTHER_TOPIC, next_era(era, topic_id), BEGINNING)
    if offset < low:
        return Continuation(Loss.RETENTION, era, low, low - offset)
    end = high if cut is None else min(high, cut)
    if offset > end:
        return Continuation(Loss.CUT, next_era(era, topic_id), end)
    return Continuation(None, era, offset)


def cut_of(text: str) -> tuple[int, int] | None:
    """Return, of the client's error text, the offset that it would read, and that from which on the leader has other records."""
    found = re.search(r"truncation detected at offset (\d+) .*broker end offset is (\d+)", text)
    return None if found is None else (int(found[1]), int(found[2]))


def loss_error(name: str, offset: int, found: Continuation) -> TopoEnvironmentError:
    """Return the error of a loss: the records, and what to do."""
    if found.loss is Loss.RETENTION:
        lost = f"partition {name!r} has no records {offset} to {found.offset - 1} any more: retention removed them"
    elif found.loss is Loss.CUT:
        lost = f"partition {name!r} ends at offset {found.offset} and {offset} is to be read next: the broker lost its end"
    else:
        lost = f"the topic of partition {name!r} was deleted and created once more: records behind offset {offset - 1} are lost"
    return TopoEnvironmentError(f"{lost}; with on_lost='skip' the partition is read from the next record that there is")


def checked_place(argument: str, given: Place, words: Iterable[str]) -> Place:
    """Return a value of `start` or `stop`.

    Raises:
        ConfigError: it is none of `words`, no moment with a time zone and no offsets by partition.
    """
    names = tuple(words)
    if isinstance(given, datetime):
        if given.tzinfo is None:
            raise ConfigError(f"{argument}={given!r} has no time zone; give one, such as datetime.now(timezone.utc)")
        return given
    if isinstance(given, Mapping):
        for name, offset in given.items():
            if not isinstance(name, str) or not isinstance(offset, int) or isinstance(offset, bool) or offset < 0:
                raise ConfigError(
                    f"{argument}= has {name!r}: {offset!r}; give offsets by partition, such as {{'orders-3': 1700}}"
                )
        return dict(given)
    if given is None or given in names:
        return given
    shown = ", ".join(map(repr, names))
    raise ConfigError(f"{argument}={given!r} must be {shown}, a datetime, or offsets by partition such as {{'orders-3': 1700}}")


def check_names(argument: str, given: Place, known: Iterable[str]) -> None:
    """Check that the partitions of `start` or `stop` exist. Raises ConfigError."""
    if isinstance(given, Mapping) and (unknown := sorted(set(given) - set(known))):
        raise ConfigError(
            f"{argument}= names {', '.join(map(repr, unknown))}; the partitions are {', '.join(map(repr, sorted(known)[:20]))}"
        )
