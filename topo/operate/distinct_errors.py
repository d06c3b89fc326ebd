"""The errors of a topology, those of one kind from one line of code counted together. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from topo.user_errors import MOST_MESSAGES, error_key, message_key


def distinct(rows: Iterable[dict[str, Any]], *, has_times: bool = False) -> list[dict[str, Any]]:
    """Return one entry for each error that differs in component, kind or line, in the order of their last occurrence.

    Where no user code is at fault, the message distinguishes errors, apart from numbers in it: checkpoints, waits, durations.
    `others` has the last different messages but `message`, such as those of several files that one spout cannot read.
    With `has_times`, `times` has the milliseconds since 1970 and the count of each of the latest 200 rows.
    """
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in rows:
        key = (row["component"], error_key(row["kind"], row["file"], row["line"], row["message"]))
        none = {"count": 0, "first_ms": row["at_ms"], "workers": (), "tasks": (), "traceback": "", "times": (), "texts": {}}
        earlier = found.pop(key, none)
        texts = earlier["texts"]
        texts.pop(text := message_key(row["message"]), None)
        texts[text] = row["message"]
        while len(texts) > MOST_MESSAGES:
            del texts[next(iter(texts))]
        found[key] = {name: row[name] for name in ("component", "kind", "message", "file", "line", "task", "worker")} | {
            "count": row["count"] + earlier["count"],
            "first_ms": earlier["first_ms"],
            "last_ms": row["at_ms"],
            "workers": sorted({*earlier["workers"], row["worker"]} - {None}),
            "tasks": sorted({*earlier["tasks"], row["task"]} - {None}),
            "traceback": row["traceback"] or earlier["traceback"],
            "texts": texts,
        }
        if has_times:
            found[key]["times"] = [*earlier["times"], (row["at_ms"], row["count"])][-200:]
    for entry in found.values():
        entry["others"] = list(entry.pop("texts").values())[:-1]
    return list(found.values())
