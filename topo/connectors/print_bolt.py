"""A bolt that prints."""

from __future__ import annotations

from topo.api.arguments import check_text
from topo.api.bolt import BasicBolt, BasicCollector
from topo.api.tuples import Tuple


class PrintBolt(BasicBolt):
    """Prints the values of each tuple on a line. Each task's output is captured and shows in the terminal and in `topo logs`."""

    def __init__(self, separator: str = " ") -> None:
        """Keep what to print between the values."""
        if separator is not None:
            check_text("separator", separator, ", ")
        self._separator = separator

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        """Print one tuple."""
        if not tup.is_tick:
            print(*tup.values, sep=self._separator)
