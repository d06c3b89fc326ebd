"""Groupings: which task of the reading component gets which tuple. Declarations only; `topo.emission.groupers` resolves them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from enum import StrEnum
from typing import Any, ClassVar

from msgspec import Struct

from topo.api.context import TaskContext


class GroupingKind(StrEnum):
    """The kinds of grouping, as the plan names them."""

    SHUFFLE = "shuffle"
    LOCAL_OR_SHUFFLE = "local-or-shuffle"
    FIELDS = "fields"
    PARTIAL_KEY = "partial-key"
    ALL = "all"
    GLOBAL = "global"
    NONE = "none"
    DIRECT = "direct"
    CUSTOM = "custom"


class Shuffle(Struct, frozen=True):
    """Evenly over all tasks, rather to those that have room."""

    kind: ClassVar = GroupingKind.SHUFFLE


class LocalOrShuffle(Struct, frozen=True):
    """To tasks in the sender's own worker if there are any, else as `Shuffle`."""

    kind: ClassVar = GroupingKind.LOCAL_OR_SHUFFLE


class Fields(Struct, frozen=True):
    """Tuples with equal values of these fields always to the same task."""

    fields: tuple[str, ...]
    kind: ClassVar = GroupingKind.FIELDS


class PartialKey(Struct, frozen=True):
    """As `Fields`, but each key has two tasks, and the less used one is taken: for skewed keys. Join the partial results."""

    fields: tuple[str, ...]
    kind: ClassVar = GroupingKind.PARTIAL_KEY


class All(Struct, frozen=True):
    """Each tuple to every task."""

    kind: ClassVar = GroupingKind.ALL


class Global(Struct, frozen=True):
    """Everything to the first task."""

    kind: ClassVar = GroupingKind.GLOBAL


class NoneGrouping(Struct, frozen=True):
    """The reader does not care; today the same as `Shuffle`."""

    kind: ClassVar = GroupingKind.NONE


class Direct(Struct, frozen=True):
    """The emitter names the task: `collector.emit_direct(task, values, stream=...)`. Only for direct streams."""

    kind: ClassVar = GroupingKind.DIRECT


class CustomGrouping(ABC):
    """A user's own grouping. Each sending task prepares one and then asks it for every tuple."""

    def prepare(self, context: TaskContext, stream: str, target_tasks: Sequence[int]) -> None:
        """Called once in each sending task, before `choose`.

        Args:
            context: of the sending task.
            stream: the stream that is grouped.
            target_tasks: ids of the reader's tasks, by task index.
        """

    @abstractmethod
    def choose(self, values: tuple[Any, ...]) -> Sequence[int]:
        """Return the indexes (from 0) of the reader's tasks that get the tuple: one, several, or none to drop it."""


class Custom(Struct, frozen=True):
    """As a `CustomGrouping` decides."""

    grouping: CustomGrouping
    kind: ClassVar = GroupingKind.CUSTOM


Grouping = Shuffle | LocalOrShuffle | Fields | PartialKey | All | Global | NoneGrouping | Direct | Custom
