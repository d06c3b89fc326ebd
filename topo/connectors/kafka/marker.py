"""Markers: which transaction of a writer was the last that Kafka has published. The arithmetic, without a client.

A *writer* is a task of a sink, by the name `topology.component.task`. Its transactions have rising numbers. A marker is stored
in the same Kafka transaction as the rows, as an offset that a group of the writer's name has committed: the number, and the name
of the staged file as the offset's metadata. So a commit that is repeated, by any process, finds that it has been done.

The name shows a mistake that the number alone would hide: two topologies of one name that publish to the same brokers. Each would
take the other's transactions for those that it has staged, and rows would be missing without an error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from topo.errors import TopoEnvironmentError

NO_NUMBER = -1


class CommitMarker(NamedTuple):
    """The last published transaction of a writer: its number, and the name of its staged file."""

    number: int = NO_NUMBER
    name: str = ""


def has_published(writer: str, marker: CommitMarker, number: int, name: str, is_staged: Callable[[], bool]) -> bool:
    """Return whether a transaction was published, by the writer's marker.

    Args:
        writer: the writer.
        marker: as it was read behind the fence.
        number: of the transaction.
        name: of its staged file.
        is_staged: whether its file is still there. A published one is removed before the next is published.

    Raises:
        TopoEnvironmentError: the marker is that of another process which uses the same name.
    """
    if number > marker.number:
        return False
    if (marker.name != name) if number == marker.number else is_staged():
        raise conflict(writer)
    return True


def check_reopened(writer: str, known: CommitMarker, found: CommitMarker, number: int, name: str) -> None:
    """Check the marker that a process finds after its producer was fenced, or lost its connection while it committed.

    No marker is that of no other process: brokers drop it with the topic that it is stored for, and after a long time. The
    transaction would have set it again, so it was not published.

    Args:
        writer: the writer.
        known: the marker as this process knows it.
        found: the present one.
        number, name: of the transaction that this process is about to commit, or whose commit had an unknown end.

    Raises:
        TopoEnvironmentError: another process has published as this writer.
    """
    if found not in (known, CommitMarker(number, name), CommitMarker()):
        raise conflict(writer)


def conflict(writer: str) -> TopoEnvironmentError:
    """Return the error of a marker that another topology has written."""
    topology = writer.split(".")[0]
    return TopoEnvironmentError(
        f"another process has published to these brokers as writer {writer!r}, which is the name of this task: its staged rows "
        f"would be taken for published. Two topologies must not both be called {topology!r}: submit one under another name"
    )
