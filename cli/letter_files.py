"""The choice among the dead letters of a topology, and the request to emit them again."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import click

from topo.operate.dead_letter_rows import dead_letter_rows
from topo.storage.state_folder import TopologyFolder, json_lines

MOST_AT_ONCE = 100_000
"""Numbers in one message to the master, which accepts 1 MiB."""
_RANGE = re.compile(r"(\d{1,15})(?:-(\d+))?")


def chosen(folder: TopologyFolder, ids: str | None, where: str | None, component: str | None, cause: str | None) -> list[int]:
    """Return the numbers of the dead letters that meet all conditions; None: no condition.

    Raises:
        UsageError: `ids` cannot be read.
        UserError: `where` is no condition, or reads a field that no stream of the dead letters has.
    """
    last = 0 if ids is None else sum(1 for _ in json_lines(folder.dead_letters))
    wanted = None if ids is None else _numbers(ids, last)

    def rows() -> Iterator[dict[str, Any]]:
        # Not all at once: hundreds of thousands would be gigabytes.
        return (
            row
            for row in dead_letter_rows(folder)
            if (wanted is None or row["id"] in wanted)
            and (component is None or row["component"] == component)
            and (cause is None or (row["errors"] and cause in row["errors"][-1]))
        )

    # Numbers without a dead letter go along: the master refuses them.
    unknown = sorted(number for number in wanted or () if not 1 <= number <= last)
    return [row["id"] for row in (rows() if where is None else _meeting(folder, rows, where))] + unknown


def replayed(ask: Callable[..., dict[str, Any]], numbers: list[int], deadline_s: float, *, dry_run: bool) -> dict[str, Any]:
    """Have dead letters emitted again, in as many requests as it takes; return the answers as one.

    Args:
        ask: as `Client.request`.
    """
    answer: dict[str, Any] = {"asked": [], "known": {}, "refused": {}}
    for begin in range(0, len(numbers) or 1, MOST_AT_ONCE):
        found = ask("replay", deadline_s, numbers=numbers[begin : begin + MOST_AT_ONCE], dry_run=dry_run)
        answer["asked"] += found["asked"]
        answer["known"] |= found["known"]
        answer["refused"] |= found["refused"]
    return answer


def _meeting(folder: TopologyFolder, rows: Callable[[], Iterator[dict[str, Any]]], where: str) -> Iterator[dict[str, Any]]:
    from topo.expressions import Expression
    from topo.storage.submitted import SubmittedTopology

    condition = Expression(where)
    plan = SubmittedTopology.read(folder).plan
    names = {(component.id, stream.name): stream.fields for component in plan.components for stream in plan.streams(component.id)}
    used = {key for row in rows() if (key := (row["component"], row.get("stream"))) in names}
    condition.check_fields({field for key in used for field in names[key]}, folder.name) if used else None
    for row in rows():
        fields = names.get((row["component"], row.get("stream")))
        if fields is None or not isinstance(row["values"], list):
            continue
        try:
            if condition(dict(zip(fields, row["values"], strict=False))):
                yield row
        except Exception as error:
            raise click.UsageError(f"--where on dead letter {row['id']}: {type(error).__name__}: {error}") from error


def _numbers(text: str, last: int) -> set[int]:
    found: set[int] = set()
    for part in text.split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None or (match[2] and int(match[2]) < int(match[1])):
            raise click.UsageError(f"--ids {text!r}: write numbers and ranges, such as 3,7,10-20")
        first = int(match[1])
        found.update(range(first, min(int(match[2]), max(last, first)) + 1) if match[2] else [first])
    return found
