"""Finds the rows for which a batch is refused as a whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from topo.connectors.staged_table import TableRow


def halved(
    rows: Sequence[TableRow], insert: Callable[[Sequence[TableRow]], None], is_of_row: Callable[[Exception], bool]
) -> dict[int, Exception]:
    """Insert rows all at once; those among which one is at fault in halves, so that it is alone in the end.

    Args:
        rows: in their order.
        insert: inserts some of them, or raises and inserts none.
        is_of_row: whether a row is at fault for an error that it raises; others are raised on.

    Returns:
        The error of each row that is at fault, by index.
    """
    bad: dict[int, Exception] = {}
    waiting = [(0, len(rows))]
    while waiting:
        first, end = waiting.pop()
        try:
            insert(rows[first:end])
        except Exception as error:
            if not is_of_row(error):
                raise
            if end - first == 1:
                bad[first] = error
            else:
                middle = (first + end) // 2
                waiting += [(middle, end), (first, middle)]
    return bad
