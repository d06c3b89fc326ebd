"""Components that emit timestamps by ways that their methods do not show at once: none of them is refused."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

import pytest

from topo import BasicBolt, IterableSpout, TopologyBuilder, WindowBolt, aggregates, windows
from topo.errors import TopologyError


def stamped(collector: Any, at: int) -> None:
    collector.emit((at,), timestamp=at)


def stamped_by_another(collector: Any, at: int) -> None:
    stamped(collector, at)


def without(collector: Any, at: int) -> None:
    collector.emit((at,))


def package() -> ModuleType:
    """A package `stamping` with a module `emitting`, as `import stamping.emitting` makes it."""
    outer, inner = ModuleType("stamping"), ModuleType("stamping.emitting")
    outer.emitting, inner.emit_row = inner, stamped  # type: ignore[attr-defined]
    sys.modules.update({"stamping": outer, "stamping.emitting": inner})
    return outer


stamping = package()


def repeated(function: Callable[..., None]) -> Callable[..., None]:
    """A decorator without `functools.wraps`."""

    def call(*args: Any) -> None:
        function(*args)

    return call


class Writer:
    def write(self, collector: Any, at: int) -> None:
        collector.emit((at,), timestamp=at)


class Base(BasicBolt):
    outputs = ("at",)


class InAComprehension(Base):
    def execute(self, tup: Any, collector: Any) -> None:
        [stamped(collector, at) for at in (tup["at"],)]


class InANestedFunction(Base):
    def execute(self, tup: Any, collector: Any) -> None:
        def later() -> None:
            stamped(collector, tup["at"])

        later()


class InAModuleOfAPackage(Base):
    def execute(self, tup: Any, collector: Any) -> None:
        stamping.emitting.emit_row(collector, tup["at"])


class ImportedInside(Base):
    def execute(self, tup: Any, collector: Any) -> None:
        from stamping.emitting import emit_row  # type: ignore[import-not-found]

        emit_row(collector, tup["at"])


class ImportedLater(Base):
    def execute(self, tup: Any, collector: Any) -> None:
        import not_imported_yet  # type: ignore[import-not-found]

        not_imported_yet.emit_row(collector, tup["at"])


class Starred(Base):
    def execute(self, tup: Any, collector: Any) -> None:
        row = [(tup["at"],)]
        collector.emit(*row, timestamp=tup["at"])


class MoreKeywords(Base):
    def execute(self, tup: Any, collector: Any) -> None:
        more: dict[str, Any] = {}
        collector.emit((tup["at"],), timestamp=tup["at"], **more)


class Decorated(Base):
    @repeated
    def execute(self, tup: Any, collector: Any) -> None:
        collector.emit((tup["at"],), timestamp=tup["at"])


class HelperOfAHelper(Base):
    def execute(self, tup: Any, collector: Any) -> None:
        stamped_by_another(collector, tup["at"])


class InAnObject(Base):
    def __init__(self) -> None:
        self.writer = Writer()

    def execute(self, tup: Any, collector: Any) -> None:
        self.writer.write(collector, tup["at"])


class InAPartial(Base):
    write = partial(stamped)

    def execute(self, tup: Any, collector: Any) -> None:
        type(self).write(collector, tup["at"])


class Raises:
    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name) if name == "__isabstractmethod__" else RuntimeError(name)


class OddAttribute(Base):
    odd = Raises()

    def execute(self, tup: Any, collector: Any) -> None:
        without(collector, tup["at"])


class NotStamped(Base):
    def execute(self, tup: Any, collector: Any) -> None:
        [without(collector, at) for at in (tup["at"],)]


def built(bolt: BasicBolt) -> Any:
    builder = TopologyBuilder("counts")
    builder.set_spout("source", IterableSpout([100], fields=("at",)))
    builder.set_bolt("between", bolt).global_grouping("source")
    window = windows.TumblingEventTimeWindows.of("1s")
    builder.set_bolt("counts", WindowBolt(key=None, window=window, aggregate=aggregates.Count())).global_grouping("between")
    return builder.build()


@pytest.mark.parametrize(
    "bolt",
    [
        InAComprehension,
        InANestedFunction,
        InAModuleOfAPackage,
        ImportedInside,
        ImportedLater,
        Starred,
        MoreKeywords,
        Decorated,
        HelperOfAHelper,
        InAnObject,
        InAPartial,
    ],
)
def test_timestamps_that_other_code_emits_are_recognised(bolt: Callable[[], BasicBolt]) -> None:
    """The call with `timestamp=` is in a function, a module or an object that the method comes to; or it cannot be followed."""
    assert built(bolt())


@pytest.mark.parametrize("bolt", [OddAttribute, NotStamped])
def test_code_without_timestamps_is_refused_however_it_is_written(bolt: Callable[[], BasicBolt]) -> None:
    """All of the code can be followed, and none of it gives a timestamp; an attribute may raise."""
    with pytest.raises(TopologyError, match="but the tuples of 'between' have none"):
        built(bolt())
