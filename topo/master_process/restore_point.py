"""Chooses the checkpoint that a run continues from, when its master starts."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from msgspec import Struct
from msgspec.structs import replace

from topo.checkpoint.assignment import shapes_of
from topo.checkpoint.manifest import Manifest, misfits, reopened, without
from topo.errors import CheckpointMissingError, CheckpointRefusedError
from topo.plan.physical import PhysicalPlan
from topo.storage.checkpoint_store import CheckpointStore, locate, nothing_in
from topo.storage.files import Files, open_files


class Restored(Struct, frozen=True):
    """The state that a run continues from.

    Attributes:
        manifest: None: it starts from the beginning.
        folder: where the parts are, if not in the topology's own store; else "".
        problems: the damage of later checkpoints, for a warning.
        passed_over: the numbers of those of the run's own; to be abandoned before the run continues.
    """

    manifest: Manifest | None
    folder: str = ""
    problems: tuple[str, ...] = ()
    passed_over: tuple[int, ...] = ()


class Start(Struct, frozen=True):
    """The starting point of a run.

    Attributes:
        goes_on: whether from state that an earlier run has stored.
        text: the predicate of a sentence about the topology: "continues at checkpoint 41 of 10:32:07".
    """

    goes_on: bool
    text: str


def start_of(restored: Restored, start_from: str, positions_ms: int | None, otherwise: str) -> Start:
    """Return where a run starts.

    Args:
        restored: the checkpoint that it continues from, if any.
        start_from: the savepoint that it was started from, "" for none.
        positions_ms: when the positions that its spouts continue from were stored; None without any.
        otherwise: the text for a run that has nothing to continue from.
    """
    if restored.manifest is not None:
        checkpoint = f"checkpoint {restored.manifest.checkpoint} of {moment(restored.manifest.created_ms)}"
        where = f"from {start_from}, {checkpoint}" if restored.folder else f"at {checkpoint}"
        return Start(True, f"continues {where}{', since later ones are damaged' if restored.problems else ''}")
    if positions_ms is not None:
        return Start(True, f"continues from the positions of {moment(positions_ms)}")
    return Start(False, otherwise)


def moment(at_ms: int) -> str:
    """Return a moment as a user reads it: the time of day, with the date unless that is today's."""
    at = time.localtime(at_ms / 1000)
    is_today = at[:3] == time.localtime()[:3]
    return time.strftime("%H:%M:%S" if is_today else "%Y-%m-%d %H:%M:%S", at)


def checkpoint_to_restore(
    store: CheckpointStore,
    plan: PhysicalPlan,
    *,
    expected: int = 0,
    start_from: str = "",
    drop: Iterable[str] = (),
    reach: Callable[[str], Files] = open_files,
) -> Restored:
    """Return the last complete checkpoint of the run, else the savepoint that it was started from.

    Args:
        store: the run's own.
        plan: the plan that it is restored into; its parallelism may be another one.
        expected: a checkpoint that is known to have been complete; 0: none is.
        start_from: a savepoint, or a folder of checkpoints; "" for none.
        drop: components of `start_from` whose state is to be ignored.
        reach: returns the files at a path or URL.

    Raises:
        CheckpointMissingError: there is nothing where something was expected.
        CheckpointDamagedError: the named checkpoint is damaged.
        CheckpointRefusedError: it does not fit the plan, or belongs to another topology or a newer topo.
        TopoEnvironmentError: the storage fails.
    """
    try:
        found = store.latest(expected=expected)
    except CheckpointMissingError as error:
        raise CheckpointMissingError(f"{error}; {way_out(plan.name)}") from error
    restored = Restored(found.manifest, "", found.problems, found.passed_over)
    if found.manifest is None and start_from:
        named = _named(start_from, plan.name, reach)
        restored = replace(named, manifest=named.manifest and reopened(without(named.manifest, drop)))
    manifest = restored.manifest
    if manifest is not None and (wrong := misfits(manifest, plan.name, shapes_of(plan))):
        raise CheckpointRefusedError("; ".join(wrong))
    return restored


def settle(store: CheckpointStore, restored: Restored, begun: int = 0) -> None:
    """Make the start state of a run durable before anything acts on it: sinks publish on a checkpoint that is restored.

    Args:
        store: the run's own.
        begun: the last number that the run's former master has used; 0: none.

    Raises:
        TopoEnvironmentError: the storage fails.
    """
    own = 0 if restored.manifest is None or restored.folder else restored.manifest.checkpoint
    store.abandon(restored.passed_over)
    if store.acts_late and begun > own and begun not in restored.passed_over:
        # Its manifest may be on the way: the sinks that continue remove the rows staged for it.
        store.revoke(begun)
    if own:
        store.keep(own)


def way_out(topology: str) -> str:
    """Say how a run continues whose checkpoints cannot be restored."""
    return f"once its files can be read, `topo resume {topology}` restores it; with --from-beginning it discards the state"


def _named(url: str, topology: str, reach: Callable[[str], Files]) -> Restored:
    root, number = locate(url, reach)
    source = CheckpointStore(reach(root), topology)
    if number is None:
        found = source.latest()
        if found.manifest is None:
            raise nothing_in(root, reach)
        return Restored(found.manifest, source.url, found.problems)
    manifest = source.load(number)
    source.verify(manifest)
    return Restored(manifest, source.url)
