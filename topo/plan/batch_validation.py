"""Finds mistakes in components of column batches: in the form of their columns, their groupings and their event time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from topo.api.column_batch import ARROW, FORMS, pyarrow
from topo.api.columns import ColumnBolt
from topo.api.groupings import Custom, PartialKey
from topo.api.streams import StreamDeclaration
from topo.api.topology import ComponentSpec
from topo.api.watermarks import WatermarkStrategy
from topo.errors import ConfigError


def batch_problems(specs: Sequence[ComponentSpec], streams: Mapping[str, tuple[StreamDeclaration, ...] | None]) -> Iterator[str]:
    """Yield the mistakes: one sentence each, with the fix.

    Args:
        streams: the output streams of each component; None where they are invalid, which has been reported.
    """
    for spec in specs:
        where = f"component {spec.id!r}"
        if issubclass(spec.type, ColumnBolt):
            yield from (f"{where}: {problem}" for problem in _form(spec.type))
        has_function = isinstance(spec.watermarks, WatermarkStrategy) and callable(spec.watermarks.timestamp)
        if has_function and any(stream.columnar for stream in streams.get(spec.id) or ()):
            yield f"{where}: it emits batches, whose timestamps are a column: name it with timestamp=, in place of the function"
        for declared in spec.inputs:
            if not isinstance(declared.grouping, PartialKey | Custom):
                continue
            outputs = streams.get(declared.source) or ()
            if any(stream.columnar and stream.name == declared.stream for stream in outputs):
                kind = declared.grouping.kind
                yield (
                    f"bolt {spec.id!r}: {declared.source!r} emits batches, which a {kind} grouping cannot split; use a fields "
                    "grouping, or a grouping that gives whole batches, such as shuffle_grouping"
                )


def _form(cls: type[ColumnBolt]) -> Iterator[str]:
    if cls.columns not in FORMS:
        yield f"columns = {cls.columns!r} of {cls.__name__} is not one of {', '.join(map(repr, FORMS))}"
    elif cls.columns == ARROW:
        try:
            pyarrow()
        except ConfigError as error:
            yield f"columns = 'arrow' of {cls.__name__}: {error}, or set columns = 'lists'"
