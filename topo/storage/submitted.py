"""The content of `topology.json`, which a submit writes, so that a later master, resume or rebalance runs the same topology."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from shlex import quote
from typing import Any, Self

import msgspec
from msgspec.structs import replace

from topo.config import RENAMED_SETTINGS
from topo.errors import NotFoundError, TopoEnvironmentError
from topo.plan.physical import PhysicalPlan
from topo.storage.state_folder import TopologyFolder, write_atomically

FIRST = "starts from the beginning"


class SubmissionDamaged(TopoEnvironmentError):
    """The `topology.json` of the last run exists and cannot be read."""


class SparkCluster(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster as a user names it.

    Attributes:
        master: Spark's URL of it: spark://host:7077, yarn, k8s://..., local-cluster[3,2,512].
        conf: Spark settings.
        py_files: modules and packages that workers need besides the topology's own: .py, .zip, .egg or .whl.
        slots: cores to use; workers share them. By default each worker has a core.
    """

    master: str
    conf: dict[str, str] = {}
    py_files: list[str] = []
    slots: int | None = None


class SubmittedTopology(msgspec.Struct, frozen=True, kw_only=True):
    """A topology as it was submitted; the fields are the keys of the file.

    Attributes:
        name: that it runs under.
        given: the reference as the user wrote it, or the name of a topology that was built in a process.
        reference: the copied code, `path[:attribute]`.
        code_hash: of the copied code.
        copied: names of the copied files.
        py_files: copied modules and archives that it imports from, besides its own folder.
        parameters: of the topology function.
        settings: that replace the topology's own, by public name.
        parallelism: tasks by component, where they differ from those in the code.
        submitted_ms: time of the submit, in milliseconds since 1970.
        run_ms: time at which its state began, which names the folder of checkpoints.
        files_ms: time of the start from the beginning since when components have kept files of their own; 0: not known.
        submitted_from: working folder of the submit.
        foreground: it ends with the process that starts it.
        start_from: path or URL of a savepoint that it begins from, until it has a checkpoint.
        drop_state: components of that savepoint whose state no task takes.
        spark: the cluster that its workers run on; None for this machine.
        cores: of this machine, for the number of its workers; None on a cluster.
        otherwise: text of a start that has nothing to continue from.
        moved: file beside this one, with positions renumbered for `plan`; it takes the place of those for the plan before when
            this file has. "" for none.
        folder: the state folder at the last save; after a move or a copy, the paths below it are below the new one.
        plan: its tasks.
    """

    name: str
    given: str
    reference: str
    code_hash: str
    copied: list[str] = []
    py_files: list[str] = []
    parameters: dict[str, Any]
    settings: dict[str, Any]
    parallelism: dict[str, int] = {}
    submitted_ms: int
    run_ms: int
    files_ms: int = 0
    submitted_from: str
    foreground: bool
    start_from: str = ""
    drop_state: list[str] = []
    spark: SparkCluster | None = None
    cores: int | None = None
    otherwise: str = FIRST
    moved: str = ""
    folder: str = ""
    plan: PhysicalPlan

    @classmethod
    def read(cls, folder: TopologyFolder) -> SubmittedTopology:
        """Return the last submission.

        Raises:
            NotFoundError: nothing was ever submitted under this name.
            SubmissionDamaged: the file cannot be read; names the ways out.
        """
        try:
            stored = msgspec.convert(json.loads(folder.topology.read_bytes()), cls)._relocated(str(folder.path))
            stored.plan.check()
            stored._place_positions(folder)
            # A file of an earlier version can hold the old names of settings.
            settings = {RENAMED_SETTINGS.get(name, name): value for name, value in stored.settings.items()}
            return replace(stored, settings=settings)
        except (OSError, ValueError, msgspec.MsgspecError) as error:
            kept = newest_checkpoints(folder)
            if isinstance(error, FileNotFoundError) and not kept:
                raise NotFoundError(f"topology {folder.name!r} was never submitted") from error
            way_out = (
                f"`topo submit` with `--from {quote(kept)}` continues from the last run's checkpoints, and "
                if kept
                else "`topo submit` replaces it: "
            )
            beginning = "without `--from` and `--resume-or-start` it starts from the beginning"
            raise SubmissionDamaged(f"{folder.topology} is damaged ({error}); {way_out}{beginning}") from error

    def save(self, folder: TopologyFolder) -> None:
        """Replace the file. The caller holds the folder's lock."""
        write_atomically(folder.topology, json.dumps(msgspec.to_builtins(replace(self, folder=str(folder.path)))).encode())
        self._place_positions(folder)

    def _relocated(self, folder: str) -> Self:
        old = self.folder + os.sep
        if not self.folder or self.folder == folder:
            return self

        def here(path: str) -> str:
            return str(Path(folder, path.removeprefix(old))) if path.startswith(old) else path

        spark = self.spark and replace(self.spark, py_files=[here(path) for path in self.spark.py_files])
        py_files = [here(path) for path in self.py_files]
        return replace(self, reference=here(self.reference), start_from=here(self.start_from), py_files=py_files, spark=spark)

    def _place_positions(self, folder: TopologyFolder) -> None:
        if self.moved:
            # Done at once; by the next reader where the process that wrote this file was ended in between.
            with suppress(FileNotFoundError):
                os.replace(folder.path / self.moved, folder.positions)

    def checkpoints(self, folder: TopologyFolder) -> str:
        """Return the path or URL of this run's own checkpoints, apart from those of earlier runs; "" when it takes none."""
        if self.plan.config.delivery != "exactly_once":
            return ""
        place, run = os.path.expanduser(self.plan.config.checkpoint_folder or ""), str(self.run_ms)
        if not place:
            return str(folder.checkpoints / run)
        own = f"{folder.name}/{run}"
        return f"{place.rstrip('/')}/{own}" if "://" in place else str(Path(self.submitted_from, place, own))

    @property
    def working_folder(self) -> Path:
        """Where relative paths of user code start: the folder of the submit, or the root when that is gone."""
        path = Path(self.submitted_from)
        return path if path.is_dir() else Path("/")


def last_run(folder: TopologyFolder) -> SubmittedTopology | None:
    """Return the last submission; None when there is none, or it cannot be read."""
    try:
        return SubmittedTopology.read(folder)
    except (NotFoundError, SubmissionDamaged):
        return None


def checkpoints_of(folder: TopologyFolder) -> str:
    """Return the path or URL of the last run's checkpoints; "" when it takes none, or was never submitted.

    Where topology.json is damaged or gone, it is the newest of the topology's own folder.
    """
    submitted = last_run(folder)
    return newest_checkpoints(folder) if submitted is None else submitted.checkpoints(folder)


def newest_checkpoints(folder: TopologyFolder) -> str:
    """Return the newest run's checkpoints in the topology's own folder; "" when there are none."""
    try:
        runs = [path for path in folder.checkpoints.iterdir() if path.name.isdecimal()]
    except OSError:
        return ""
    return str(max(runs, key=lambda path: int(path.name))) if runs else ""
