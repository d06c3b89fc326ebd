"""A program as text: components, the operators that are fused into them, and where records move."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from topo.api.streams import DEFAULT_STREAM
from topo.streams.chain import ChainStep, Leaf
from topo.streams.graph import MAIN
from topo.streams.lowering import LoweredComponent


def explained(name: str, components: Sequence[LoweredComponent]) -> str:
    """Return the text: a block for each component."""
    lines = [f"program {name}"]
    for component in components:
        lines += ["", f"{component.id} x{component.parallelism}  ({component.label})"]
        for edge, how in component.reads:
            stream = "" if edge.stream == DEFAULT_STREAM else f" {edge.stream}"
            lines.append(f"    reads {edge.component}{stream}, {how}")
        for chain in component.chains:
            lines += _tree(chain.tree, 1)
    return "\n".join(lines) + "\n"


def _tree(parts: Sequence[ChainStep | Leaf], depth: int) -> Iterator[str]:
    for part in parts:
        indent = "    " * depth
        if isinstance(part, Leaf):
            fields = ", ".join((["key"] if part.keyed else []) + list(part.layout.fields if part.with_record else ()))
            yield f"{indent}-> ({fields}) to {part.label}"
            continue
        yield f"{indent}{part.label}"
        for output, then in part.then.items():
            if output != MAIN:
                yield f"{indent}  {output}:"
            # A single reader continues on the same level: a chain reads as a list.
            yield from _tree(then, depth if output == MAIN and len(then) == 1 else depth + 1)
