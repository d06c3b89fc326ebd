"""State of a user's own bolt follows its keys into any number of tasks."""

from __future__ import annotations

from typing import Any, ClassVar

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.properties.parallelism import FIELDS, keys, parallelisms
from topo.api.bolt import StatefulBolt
from topo.api.tuples import Origin, Tuple
from topo.builder import TopologyBuilder
from topo.checkpoint.alignment import Snapshot, StoredPart
from topo.checkpoint.assignment import manifest_of, parts_to_read
from topo.connectors.iterable_spout import IterableSpout
from topo.hot import Ids
from topo.ids import Epoch, TaskId
from topo.keys import key_group, owner_of
from topo.plan.parallelism import with_parallelism
from topo.plan.physical import physical_plan
from topo.storage.snapshots import TaskSnapshots
from topo.task.context import make_context
from topo.task.environment import TaskEnvironment, TaskSpec
from topo.task.factory import make_task
from topo.testing.memory_files import MemoryCheckpoints
from topo.wire.codec import Codec
from topo.wire.control import SnapshotTaken
from topo.wire.serializers import SerializerRegistry


class Logs(StatefulBolt):
    """Remembers its inputs by key."""

    key: ClassVar[str | None] = "key"

    def prepare(self, context: Any) -> None:
        self.state: dict[Any, list[int]] = {}

    def execute(self, tup: Tuple, collector: Any) -> None:
        self.state.setdefault(tup["key"], []).append(tup["n"])

    def snapshot(self) -> Any:
        return self.state

    def restore(self, state: Any) -> None:
        self.state = {key: list(numbers) for key, numbers in (state or {}).items()}


class Everywhere(Logs):
    """Has the same state in each task, whose inputs are the same."""

    key = None
    is_broadcast = True


class Nothing:
    """Notes no message."""

    def hold(self, task: TaskId, roots: bytes) -> None: ...

    def release(self) -> None: ...


class LogTasks:
    """A bolt as the tasks of a plan; their snapshots pass through files, and the shares that each task reads."""

    def __init__(self, kind: type[Logs] = Logs) -> None:
        self.kind = kind
        builder = TopologyBuilder("logs").config(delivery="exactly_once")
        builder.set_spout("source", IterableSpout((), fields=FIELDS))
        declared = builder.set_bolt("logs", kind())
        if kind.key is None:
            declared.all_grouping("source")
        else:
            declared.fields_grouping("source", "key")
        self.topology = builder.build()
        self.codec = Codec()
        self.checkpoint = 0
        self._plan(1)
        self.checkpoints = MemoryCheckpoints(self.plan, SerializerRegistry())
        self._open({})

    def _plan(self, parallelism: int) -> None:
        self.plan = physical_plan(with_parallelism(self.topology, {"logs": parallelism}, self.topology.config))

    def _open(self, snapshots: dict[TaskId, list[Snapshot]]) -> None:
        self.tasks: list[Any] = []
        for task in self.plan.tasks_of("logs"):
            bolt = self.kind()
            setup = TaskSpec(task, self.plan, self.plan.config_of("logs"), bolt, make_context(self.plan, task))
            stored = TaskSnapshots(self.plan, task, self.checkpoints.store, SerializerRegistry(), lambda work: work())
            ports = TaskEnvironment(Ids(b"logs"), lambda: 0.0, self.codec, Nothing(), snapshots=stored)
            made: Any = make_task(setup, ports)
            bolt.prepare(setup.context)
            made.runner.kind.restore(snapshots.get(task, []))
            self.tasks.append(made)

    def process(self, key: str, number: int) -> None:
        task = self.tasks[owner_of(key_group(key, 128), 128, len(self.tasks))]
        task.runner.kind.bolt.execute(Tuple((key, number), Origin("source", 1, "default", FIELDS)), None)

    def restart(self, parallelism: int) -> None:
        self.checkpoint += 1
        taken: dict[TaskId, SnapshotTaken] = {}

        def store(task: Any) -> None:
            def stored(part: StoredPart | None, error: Exception | None) -> None:
                assert part is not None, error
                taken[task.id] = SnapshotTaken(
                    task=task.id, epoch=Epoch(1), checkpoint=self.checkpoint,
                    file=part.file, length=part.length, checksum=part.checksum,
                )  # fmt: skip

            task._snapshots.store.write(self.checkpoint, task.runner.kind.snapshot(self.checkpoint), stored)

        for task in self.tasks:
            store(task)
        manifest = manifest_of(self.plan, self.checkpoint, taken, 0.0)
        self._plan(parallelism)
        ids = self.plan.tasks_of("logs")
        parts = parts_to_read(self.plan, manifest, ids)
        readers = {task: TaskSnapshots(self.plan, task, self.checkpoints.store, SerializerRegistry(), print) for task in ids}
        self._open({task: readers[task].read("", self.checkpoint, parts[task]) for task in ids})

    @property
    def state(self) -> dict[Any, list[int]]:
        found: dict[Any, list[int]] = {}
        for index, task in enumerate(self.tasks):
            for key, numbers in task.runner.kind.bolt.state.items():
                assert owner_of(key_group(key, 128), 128, len(self.tasks)) == index, "a key is with a task that does not own it"
                found[key] = numbers
        return found


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(keys, st.integers(0, 99), parallelisms), max_size=12))
def test_the_state_of_a_bolt_of_ones_own_follows_its_keys(script: list[tuple[str, int, int]]) -> None:
    tasks = LogTasks()
    expected: dict[str, list[int]] = {}
    for key, number, parallelism in script:
        tasks.process(key, number)
        expected.setdefault(key, []).append(number)
        tasks.restart(parallelism)
        assert tasks.state == expected


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(keys, st.integers(0, 99), parallelisms), max_size=12))
def test_each_task_is_given_the_one_copy_of_a_broadcast_state(script: list[tuple[str, int, int]]) -> None:
    tasks = LogTasks(Everywhere)
    expected: dict[str, list[int]] = {}
    for key, number, parallelism in script:
        for task in tasks.tasks:
            task.runner.kind.bolt.execute(Tuple((key, number), Origin("source", 1, "default", FIELDS)), None)
        copies = [task.runner.kind.snapshot(0).keyed() for task in tasks.tasks]
        assert [bool(copy) for copy in copies] == [True] + [False] * (len(copies) - 1)
        expected.setdefault(key, []).append(number)
        tasks.restart(parallelism)
        assert [task.runner.kind.bolt.state for task in tasks.tasks] == [expected] * len(tasks.tasks)
