"""The files of a topology as the page shows them: the answers to its GET requests that no master is asked for."""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from topo.errors import UserError
from topo.operate.checkpoint_rows import checkpoint_report
from topo.operate.dead_letter_rows import dead_letter_rows
from topo.operate.distinct_errors import distinct
from topo.operate.log_files import LEVELS, LogFiles, LogRow, is_at_least, moment
from topo.operate.past import as_data, history
from topo.storage.shapes import ActionShape
from topo.storage.state_folder import TopologyFolder, json_lines
from topo.storage.submitted import SubmittedTopology

UrlQuery = Mapping[str, str]
_DEADLINE_S = 2.0
_MOST_VALUES = 2000


def past(folder: TopologyFolder, query: UrlQuery) -> Any:
    since_s, step_s = number(query, "since_s", 300, 14 * 86400), number(query, "step_s", 1, 86400)
    if since_s > 2000 * max(1, step_s):
        raise UserError("that is more than 2,000 points; take a greater step_s")
    subjects = query["subjects"].split(",") if "subjects" in query else None
    begin_s = int(time.time()) - since_s
    shown = as_data(history(folder, begin_s, max(1, step_s), subjects=subjects, deadline_s=_DEADLINE_S))
    acts = [row for row in json_lines(folder.operator, ActionShape) if row["at_ms"] >= 1000 * begin_s]
    marks = [*shown["marks"], *({"at_ms": row["at_ms"], "text": f"{row['action']} by an operator"} for row in acts)]
    return shown | {"marks": sorted(marks, key=lambda one: one["at_ms"])}


def errors(folder: TopologyFolder, query: UrlQuery) -> Any:
    return {"errors": distinct(folder.all_errors(), has_times=True)[-200:]}


def dead_letters(folder: TopologyFolder, query: UrlQuery) -> Any:
    wanted, latest, total = query.get("component", ""), deque[Any](maxlen=number(query, "number", 100, 1000)), 0
    rows = (row for row in dead_letter_rows(folder) if wanted in ("", row.get("component")))
    for row in rows:
        latest.append(row)
        total += 1
    for row in latest:
        if len(text := json.dumps(row.get("values"))) > _MOST_VALUES:
            row["values"] = f"{text[:_MOST_VALUES]}… ({len(text):,} characters)"
    return {"dead_letters": list(latest), "total": total}


def logs(folder: TopologyFolder, query: UrlQuery) -> Any:
    level = query.get("level", "info").upper()
    if level not in LEVELS:
        raise UserError(f"there is no level {level.lower()!r}; there are {', '.join(LEVELS).lower()}")
    earliest = moment(number(query, "since_s", 0, 14 * 86400)) if query.get("since_s") else ""
    after, component, text = query.get("after", ""), query.get("component", ""), query.get("text", "").lower()
    lines = number(query, "lines", 500, 2000)

    def is_wanted(row: LogRow) -> bool:
        is_there = is_at_least(row, level) and component in ("", row.get("component")) and text in str(row["message"]).lower()
        return is_there and str(row["time"]) >= max(earliest, after)

    with LogFiles(folder.logs, rotated=True, since=max(earliest, after)) as files:
        rows = files.new_rows(is_wanted=is_wanted, most=lines)[-lines:]
    # Workers write beside each other: a line of this moment may come after a later one was read.
    return {"rows": rows, "next": min(str(rows[-1]["time"]), moment(1.0)) if rows else after}


def settings(folder: TopologyFolder, query: UrlQuery) -> Any:
    submitted = SubmittedTopology.read(folder)
    defaults = type(submitted.plan.config)().settings()
    rows = [
        {"name": name, "value": value, "default": defaults[name], "given": name in submitted.settings}
        for name, value in submitted.plan.config.settings().items()
    ]
    return {
        "settings": rows,
        "parameters": submitted.parameters,
        "parallelism": submitted.parallelism,
        "code": {"given": submitted.given, "hash": submitted.code_hash, "reference": submitted.reference},
        "submitted_ms": submitted.submitted_ms,
        "spark": None if submitted.spark is None else {"master": submitted.spark.master},
    }


READ: Mapping[str, Callable[[TopologyFolder, UrlQuery], Any]] = {
    "history": past, "errors": errors, "dead-letters": dead_letters, "logs": logs, "settings": settings,
    "checkpoints": lambda folder, _: checkpoint_report(folder, _DEADLINE_S),
}  # fmt: skip


def number(query: UrlQuery, name: str, default: int, most: int) -> int:
    """Return a number of a query. Raises UserError for none, or one above `most`."""
    text = query.get(name, str(default))
    if not text.isdecimal() or len(text) > 9 or int(text) > most:
        raise UserError(f"{name} is a whole number up to {most}; got {text[:20]!r}")
    return int(text)
