"""Finds the rows for which a batch is refused as a whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from topo.connectors.staged_table import TableRow


def halved(
    rows: Sequence[TableRow], insert: Callable[[Sequence[TableRow]], None], row_errors: tuple[type[Exception], ...]
) -> dict[int, Exception]:
    """Insert rows all at once; those among which one is at fault in halves, so that it is alone in the end.

    Args:
        rows: in their order.
        insert: inserts some of them, or raises and inserts none.
        row_errors: the errors that it raises when a row is at fault.

    Returns:
        The error of each row that is at fault, by index.
    """
    bad: dict[int, Exception] = {}
    waiting = [(0, len(rows))]
    while waiting:
        first, end = waiting.pop()
        try:
            insert(rows[first:end])
        except row_errors as error:
            if end - first == 1:
                bad[first] = error
            else:
                middle = (first + end) // 2
                waiting += [(middle, end), (first, middle)]
    return bad
