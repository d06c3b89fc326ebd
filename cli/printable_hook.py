"""A hook of rich consoles: texts of user code, such as those of exceptions, cannot command the terminal."""

from __future__ import annotations

from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderHook, RenderResult
from rich.segment import Segment

from topo_cli.control_characters import printable


class PrintableHook(RenderHook):
    """Writes control characters as in Python. Styles are segments of their own, and stay."""

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        return [_Printable(one) for one in renderables]


class _Printable:
    def __init__(self, content: ConsoleRenderable) -> None:
        self._content = content

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for segment in console.render(self._content, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)
