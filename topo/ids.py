"""Identifiers of topologies, tasks, epochs, streams and tuples."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import NewType

TaskId = NewType("TaskId", int)
"""A task of the physical plan, from 1 upwards; the same in every process that holds the plan."""

WorkerId = NewType("WorkerId", int)
"""A worker slot of the physical plan, from 0 upwards. A replacement keeps the slot's number."""

Epoch = NewType("Epoch", int)
"""Counts the recoveries of a running topology, from 1. Every frame carries it."""

Incarnation = NewType("Incarnation", int)
"""One life of a worker: a random 63-bit number drawn when it is launched, never used again."""

DEFAULT_STREAM = "default"
"""The stream of a component that names none."""

ID_BYTES = 8
REPLAYED_BIT = 1 << 63
"""Set in the roots of messages that have failed before, and so known of everything that descends from them."""
TRACED_BIT = 1 << 62
"""Set in the roots of messages that an operator traces, likewise."""
SUSPECT_BIT = 1 << 61
"""Set in the roots of messages that were in processing when a process died, likewise."""
_TOPOLOGY_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")


def is_replayed(roots: Iterable[int]) -> bool:
    """Whether one of the roots has `REPLAYED_BIT`."""
    return any(root & REPLAYED_BIT for root in roots)


def new_incarnation() -> Incarnation:
    """Draw an incarnation from the operating system, so that forked or restarted processes never agree."""
    return Incarnation(int.from_bytes(os.urandom(8), "little") >> 1 or 1)


def topology_name_problem(name: object) -> str | None:
    """Return the mistake in the name of a topology, with the fix; None if the name is valid. It names a folder as well."""
    if isinstance(name, str) and _TOPOLOGY_NAME.fullmatch(name):
        return None
    near = re.sub(r"[^a-z0-9]+", "-", str(name).lower()).strip("-")[:63]
    hint = f", such as {near!r}" if near else ""
    return f"topology name {name!r} is not allowed; use 1 to 63 of a-z, 0-9 and '-', and no '-' as the first{hint}"
