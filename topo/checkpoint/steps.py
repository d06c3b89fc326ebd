"""Steps that the checkpoint coordinator asks of the topology master, besides its commands to the store."""

from __future__ import annotations

from msgspec import Struct

from topo.checkpoint.store_messages import StoreCommand
from topo.wire import control


class ToSources(Struct, frozen=True):
    """Send a message to each worker that hosts tasks without input: spouts, and bolts that read nothing but ticks."""

    message: control.BeginCheckpoint


class ToAll(Struct, frozen=True):
    """Send a message to each worker."""

    message: control.CheckpointComplete | control.CheckpointAborted


class Problem(Struct, frozen=True):
    """Record a row of `topo errors`; `kind` is CheckpointFailed, CheckpointDamaged or SavepointFailed."""

    kind: str
    message: str


Step = ToSources | ToAll | StoreCommand | Problem
