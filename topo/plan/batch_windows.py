"""Which windows take batches of columns whole, and which of those emit batches.

Windows take them where all that they read are batches, and all that is declared of them can be done by columns
(`WindowBolt.takes_columns`). They emit batches where all their readers take batches; else tuples, as other windows do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from topo.api.columns import ColumnBolt
from topo.api.groupings import Custom, Direct, PartialKey
from topo.api.operator_bolts import WindowBolt
from topo.api.streams import DEFAULT_STREAM
from topo.api.topology import ComponentSpec, Input
from topo.errors import ConfigError

IsColumnar = Callable[[Input], bool]


def takes_columns(spec: ComponentSpec, is_columnar: IsColumnar) -> bool:
    """Whether a component has windows that take batches of columns whole; `is_columnar` tests an input."""
    bolt = spec.component
    return isinstance(bolt, WindowBolt) and bolt.takes_columns and bool(spec.inputs) and all(map(is_columnar, spec.inputs))


def choose_outputs(specs: Sequence[ComponentSpec]) -> None:
    """Have the windows of a topology emit batches or tuples. Mistakes in the topology are found later."""
    by_id = {spec.id: spec for spec in specs}

    def is_columnar(declared: Input) -> bool:
        source = by_id.get(declared.source)
        try:
            return source is not None and any(s.columnar and s.name == declared.stream for s in source.streams)
        except ConfigError:
            return False

    windows = [(spec, spec.component) for spec in specs if isinstance(spec.component, WindowBolt)]
    for _, bolt in windows:
        bolt.emits_batches = False
    # One window may read another: each pass decides one more of such a row.
    for _ in windows:
        for spec, bolt in windows:
            bolt.emits_batches = takes_columns(spec, is_columnar) and _may_emit_batches(spec, specs)


def _may_emit_batches(spec: ComponentSpec, specs: Sequence[ComponentSpec]) -> bool:
    # The strategy of a bolt may read each row; and one bolt under two names has one kind of output.
    if spec.watermarks is not None or sum(other.component is spec.component for other in specs) > 1:
        return False
    readers = [(reader, one) for reader in specs for one in reader.inputs if one.source == spec.id]
    takers = [_takes_batches(reader) for reader, one in readers if one.stream == DEFAULT_STREAM]
    can_split = not any(isinstance(one.grouping, PartialKey | Custom | Direct) for _, one in readers)
    return bool(takers) and all(takers) and can_split


def _takes_batches(reader: ComponentSpec) -> bool:
    bolt = reader.component
    return issubclass(reader.type, ColumnBolt) or (isinstance(bolt, WindowBolt) and bolt.takes_columns)
