"""A program as text and as a diagram: components, the operators that are fused into them, and where records move."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from typing import Any

from topo.api.streams import DEFAULT_STREAM
from topo.streams.chain import ChainStep, Leaf
from topo.streams.graph import MAIN
from topo.streams.lowered import LoweredComponent


class Explanation(str):
    """A program as text: a block for each component. A notebook shows a diagram of it.

    Attributes:
        mermaid: the source of the diagram.
    """

    __slots__ = ("mermaid",)

    mermaid: str

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        # IPython would print the literal of a str.
        printer.text(str(self))

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self)}</pre>"

    def _repr_mermaid_(self) -> str:
        return self.mermaid

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        return {"text/plain": str(self), "text/html": self._repr_html_(), "text/vnd.mermaid": self.mermaid}


def explanation(name: str, components: Sequence[LoweredComponent]) -> Explanation:
    """Return the text, and the diagram in it."""
    shown = Explanation(_text(name, components))
    shown.mermaid = _mermaid(components)
    return shown


def _mermaid(components: Sequence[LoweredComponent]) -> str:
    lines = ["flowchart LR"]
    names = {one.id: f"c{number}" for number, one in enumerate(components)}
    for one in components:
        parts = [f"{one.id} x{one.parallelism}", *one.labels()]
        lines.append(f'    {names[one.id]}["{"<br>".join(html.escape(part) for part in parts)}"]')
    for one in components:
        lines += [f'    {names[edge.component]} -->|"{how}"| {names[one.id]}' for edge, how in one.reads]
    return "\n".join(lines) + "\n"


def _text(name: str, components: Sequence[LoweredComponent]) -> str:
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
