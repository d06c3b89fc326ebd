"""The store of checkpoints in virtual time: the real `CheckpointStore` on files in memory, written by threads that take time.

A write can be slow, fail with nothing written, fail although everything was written, or be torn; and so can a write that is
under way when its process dies. Stored parts can be damaged or lost, and a power cut takes all content and names that are not
synced. All processes share the files, as in a folder.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain, repeat
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from tests.simulator.memory_files import File, MemoryFileSystem, WriteEnding
from topo.checkpoint.manifest import Manifest
from topo.checkpoint.store_messages import CommitCheckpoint, FindCheckpoint, StoreAnswer, StoreCommand
from topo.errors import TopoEnvironmentError
from topo.master.ending import EndingStage
from topo.master_process.checkpoint_thread import RETRY_S, CheckpointWriterThread
from topo.master_process.restore_point import checkpoint_to_restore
from topo.storage.checkpoint_store import MANIFEST, CheckpointStore
from topo.storage.files import LocalFiles

if TYPE_CHECKING:
    from tests.simulator.simulation import Simulation

SLOWER = 100
"""How many times as long a slow disk takes."""
ROOT = Path("checkpoints")


class VirtualFiles(LocalFiles):
    """The real files of a folder, on a file system in memory.

    Attributes:
        system: what they are stored in.
        fails: asked at each write and removal how it fails; None: it does not.
        is_unreadable: asked before each read.
    """

    def __init__(self, root: Path = ROOT, system: MemoryFileSystem | None = None) -> None:
        self.system = system or MemoryFileSystem()
        super().__init__(root, self.system)
        self.fails: Callable[[], WriteEnding | None] = lambda: None
        self.is_unreadable: Callable[[], bool] = lambda: False

    def write(self, name: str, chunks: Iterable[bytes]) -> None:
        """Write a file, unless that fails."""
        with self._failing():
            super().write(name, chunks)

    def read(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        """Return bytes of a file, unless that fails."""
        if self.is_unreadable():
            raise TopoEnvironmentError(f"cannot read {name}: Input/output error")
        return super().read(name, start, length)

    def remove(self, name: str) -> None:
        """Remove a file, unless that fails."""
        with self._failing():
            super().remove(name)

    @contextmanager
    def _failing(self) -> Iterator[None]:
        self.system.ending = self.fails()
        try:
            yield
        finally:
            self.system.ending = None


class Disk:
    """What all processes of a run write to.

    Attributes:
        slow_until, failing_until, unreadable_until: in virtual seconds.
        torn_next: the next write is torn.
        start_from: the savepoint that the run begins from; "" for none.
    """

    def __init__(self, simulation: Simulation, random: Random) -> None:
        self._simulation = simulation
        self._random = random
        self._base_s = random.choice((0.0002, 0.001, 0.004))
        self.files = VirtualFiles()
        self.files.is_unreadable = self._is_unreadable
        self.slow_until = self.failing_until = self.unreadable_until = 0.0
        self.torn_next = False
        self.start_from = ""

    def store(self) -> CheckpointStore:
        """Return the store of the run's topology."""
        plan = self._simulation.plan
        return CheckpointStore(self.files, plan.name, plan.config.checkpoint_keep)

    def files_in(self, folder: str) -> VirtualFiles:
        """Return the files of another folder, which fail as those of the store do."""
        files = VirtualFiles(Path(folder), self.files.system)
        files.fails, files.is_unreadable = lambda: self.files.fails(), self._is_unreadable
        return files

    def begin_from(self, earlier: Disk, savepoint: str) -> None:
        """Have the run begin from a savepoint that another one has written."""
        folder = Path(savepoint).parts[0]
        kept, root = earlier.files.system.root.entries[folder], self.files.system.root
        root.entries[folder] = root.synced[folder] = kept
        self.start_from = savepoint

    def after_power_cut(self) -> CheckpointStore:
        """Return what would certainly be left of the store if the power failed now."""
        return CheckpointStore(LocalFiles(ROOT, self.files.system.after_power_cut()), self._simulation.plan.name)

    def left_of(self, savepoint: str) -> Manifest | None:
        """Return the last checkpoint in a savepoint's folder that a run could begin from if the power failed now.

        Raises:
            TopoError: none could be restored.
        """
        system, plan = self.files.system.after_power_cut(), self._simulation.plan
        nothing = CheckpointStore(LocalFiles(ROOT, MemoryFileSystem()), plan.name)
        return checkpoint_to_restore(
            nothing, plan, start_from=savepoint, reach=lambda folder: LocalFiles(Path(folder), system)
        ).manifest

    def may_be_complete(self, checkpoint: int) -> bool:
        """Whether a checkpoint may be complete after a power cut."""
        return self.files.system.may_be_left(ROOT / f"{checkpoint:010d}" / MANIFEST)

    def lose_power(self) -> None:
        """Forget all that is not synced."""
        self.files.system.lose_power(self._random)

    def takes_s(self, now: float) -> float:
        """Draw how long a write takes."""
        return self._base_s * self._random.uniform(0.5, 3) * (SLOWER if now < self.slow_until else 1)

    def perform(self, work: Callable[[], None], *, is_dying: bool = False) -> None:
        """Do the work of a thread on the disk, which may fail. Errors of the work are raised."""
        now = self._simulation.now
        if is_dying:
            ending = self._random.choice(list(WriteEnding))
            self._simulation.history.count(f"death in a write: {ending.value}")
            endings: Iterator[WriteEnding | None] = chain([ending], repeat(WriteEnding.NOTHING))
            self.files.fails = lambda: next(endings)
            self.files.system.is_dying = True
        elif self.torn_next:
            self.torn_next = False
            endings = chain([self._failed(WriteEnding.TORN)], repeat(None))
            self.files.fails = lambda: next(endings)
        elif now < self.failing_until:
            self.files.fails = lambda: self._failed(self._random.choice(list(WriteEnding)))
        try:
            work()
        finally:
            self.files.fails = lambda: None
            self.files.system.is_dying = False

    def _is_unreadable(self) -> bool:
        is_so = self._simulation.now < self.unreadable_until
        if is_so:
            self._simulation.history.count("read failed")
        return is_so

    def _failed(self, ending: WriteEnding) -> WriteEnding:
        self._simulation.history.count(f"write failed: {ending.value}")
        return ending

    def damage(self, pick: float) -> str | None:
        """Spoil a file of the last complete checkpoint; return which.

        None: there is none, nothing to fall back on, or it will not be read, since everything is over.
        """
        master = self._simulation.master.master
        if master is None or master.ending.stage is not EndingStage.SERVING or master.quiescence.is_still:
            return None
        complete = [stored for stored in self.store().checkpoints() if stored.manifest is not None]
        if len(complete) < 2 or complete[-1].manifest is None:
            return None
        parts = complete[-1].manifest.parts
        file = parts[int(pick * len(parts))].file
        try:
            part = self.files.system.find(ROOT / file)
        except FileNotFoundError:
            return None
        assert isinstance(part, File)
        way = self._random.choice(("cut short", "flipped", "lost"))
        if way == "lost":
            self.files.system.remove(ROOT / file)
        else:
            data = part.content
            place = self._random.randrange(len(data))
            part.content = part.synced = data[:place] if way == "cut short" else _flipped(data, place)
        self._simulation.history.count(f"part {way}")
        return f"{file} is {way}"


def _flipped(data: bytes, place: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


class VirtualThread:
    """A thread beside a process's own, which does one thing after another.

    Args:
        is_alive: whether its process is.
        is_stopped: whether its process stands still.
    """

    def __init__(self, simulation: Simulation, is_alive: Callable[[], bool], is_stopped: Callable[[], bool]) -> None:
        self._simulation = simulation
        self._is_alive = is_alive
        self._is_stopped = is_stopped
        self._waiting: deque[Callable[[], None]] = deque()
        self._pause_s = 0.0
        self._is_at_work = self._has_ended = False

    def submit(self, work: Callable[[], None]) -> None:
        """Have something done after what came before."""
        if self._has_ended:
            return
        self._waiting.append(work)
        if len(self._waiting) == 1:
            self._next()

    def again(self, after_s: float) -> None:
        """Called by the work at hand: it is done again a while later."""
        self._waiting.appendleft(self._waiting[0])
        self._pause_s = after_s

    def end(self) -> None:
        """Its process dies, in the midst of the work at hand: nothing is written after this call."""
        self._has_ended = True
        if self._waiting and not self._is_at_work:
            assert self._simulation.disk is not None
            self._simulation.disk.perform(self._waiting[0], is_dying=True)
            self._waiting.clear()

    def _next(self) -> None:
        simulation = self._simulation
        assert simulation.disk is not None
        takes_s = simulation.disk.takes_s(simulation.now) + self._pause_s
        self._pause_s = 0.0
        simulation.at(simulation.now + takes_s, self._do)

    def _do(self) -> None:
        simulation = self._simulation
        assert simulation.disk is not None
        if self._is_alive() and self._is_stopped():
            simulation.at(simulation.now + 0.01, self._do)
            return
        if not self._waiting:
            return
        self._is_at_work = True
        simulation.disk.perform(self._waiting[0], is_dying=not self._is_alive())
        self._is_at_work = False
        if not self._is_alive():
            self._waiting.clear()
            return
        self._waiting.popleft()
        if self._waiting:
            self._next()


class _Again(Exception):
    """The storage has failed; the command is tried again."""


class VirtualKeeper(CheckpointWriterThread):
    """The master's writer of the store, in virtual time.

    Args:
        is_alive: whether its master is.
        answer: takes answers.
    """

    def __init__(self, simulation: Simulation, is_alive: Callable[[], bool], answer: Callable[[StoreAnswer], None]) -> None:
        assert simulation.disk is not None
        self._store = simulation.disk.store()
        self._topology = simulation.plan.name
        self._wall_ms = simulation.wall_ms
        self._reach = simulation.disk.files_in
        self._simulation = simulation
        self._is_alive = is_alive
        self._answer = answer
        self._on_thread = VirtualThread(simulation, is_alive, lambda: False)

    def do(self, command: StoreCommand) -> None:
        """Have a command performed, after those before it."""
        self._on_thread.submit(lambda: self._work_on(command))

    def end(self) -> None:
        """The master dies."""
        self._on_thread.end()

    def _work_on(self, command: StoreCommand) -> None:
        simulation = self._simulation
        try:
            answer = self._perform(command)
        except (_Again, TopoEnvironmentError):
            self._on_thread.again(RETRY_S / 10)
            return
        simulation.trace("store", type(command).__name__, getattr(command, "checkpoint", ""))
        if answer is None or not self._is_alive():
            return
        if isinstance(command, CommitCheckpoint):
            simulation.history.committed(command.manifest.checkpoint, getattr(answer, "problem", ""))
        elif isinstance(command, FindCheckpoint):
            simulation.history.count("an earlier checkpoint was looked for")
        self._answer(answer)

    def _until_done(self, do: Callable[[], None]) -> bool:
        try:
            do()
        except TopoEnvironmentError as error:
            raise _Again from error
        return True
