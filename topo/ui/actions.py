"""Actions of the page: each is a `topo` command, run as a child. The decision which is pure."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from topo.config import format_duration, parse_duration
from topo.errors import UserError
from topo.storage.state_folder import TopologyFolder, append_lines

_LOOK_S = 0.05
_MOST = 20_000
_KEYS: Mapping[str, set[str]] = {
    "drain": {"within"}, "rebalance": {"parallelism", "workers", "dry_run"}, "replay": {"ids", "dry_run"},
}  # fmt: skip


def arguments_of(action: str, name: str, asked: Mapping[str, Any]) -> list[str]:
    """Return the arguments of the command for an action. Raises UserError for unknown actions, keys or values."""
    keys = _KEYS.get(action, set())
    if unknown := asked.keys() - keys:
        raise UserError(f"{action} takes {', '.join(sorted(keys)) or 'nothing'}; got {', '.join(sorted(unknown))}")
    dry_run = ["--dry-run"] if asked.get("dry_run") else []
    if action in ("activate", "deactivate", "savepoint", "resume"):
        return [action, name]
    if action == "kill":
        return ["kill", name, "--yes"]
    if action == "drain":
        return ["kill", name, "-w", format_duration(parse_duration(asked.get("within", "30s"))), "--yes"]
    if action == "rebalance":
        return ["rebalance", name, *_numbers(asked.get("parallelism", {}), asked.get("workers")), *dry_run]
    if action == "replay":
        return ["dead-letters", "replay", name, "--ids", ",".join(map(str, _ids(asked.get("ids")))), *dry_run]
    raise UserError(f"there is no action {action!r}")


def worker_of(asked: Mapping[str, Any]) -> int:
    """Return the worker that is to be replaced, which has no command. Raises UserError."""
    worker = asked.get("worker")
    if type(worker) is not int or not 0 <= worker < 1_000_000 or len(asked) > 1:
        raise UserError('replace takes {"worker": N}, the number of a worker')
    return int(worker)


def _ids(ids: Any) -> list[int]:
    if not isinstance(ids, list) or not 0 < len(ids) <= 1000 or not all(type(one) is int and one > 0 for one in ids):
        raise UserError('replay takes {"ids": [3, 7]}: the numbers of 1 to 1,000 dead letters')
    return ids


def _numbers(parallelism: Any, workers: Any) -> list[str]:
    counts = list(parallelism.values()) if isinstance(parallelism, dict) else [0]
    counts += [] if workers is None else [workers]
    if not counts or not all(type(count) is int and count > 0 for count in counts):
        raise UserError('rebalance takes {"parallelism": {component: tasks}, "workers": processes}, all 1 at least')
    if odd := [component for component in parallelism if not component.isprintable()]:
        raise UserError(f"{odd[0]!r} is the name of no component")
    pairs = [part for component, tasks in parallelism.items() for part in ("-e", f"{component}={tasks}")]
    return pairs if workers is None else [*pairs, "--workers", str(workers)]


async def run(folder: TopologyFolder, home: Path, action: str, arguments: list[str]) -> dict[str, Any]:
    """Run a command to its end, and return its exit code and output; a row of it goes to `operator.jsonl`.

    The command limits its time, as in a terminal. It outlives the page: of a rebalance the half would leave the topology ended.
    """
    began = time.monotonic()
    command = [sys.executable, "-P", "-m", "topo_cli", *arguments, "--home", str(home)]
    # A command that prints to a pipe would end when the page does.
    with TemporaryFile() as output:
        # Not one of asyncio, whose end kills its processes.
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
        while child.poll() is None:
            await asyncio.sleep(_LOOK_S)
        output.seek(max(0, os.fstat(output.fileno()).st_size - _MOST))
        text = output.read().decode(errors="replace")
    answer = {
        "command": " ".join(["topo", *arguments]),
        "exit": child.returncode,
        "output": text,
        "seconds": round(time.monotonic() - began, 3),
    }
    note(folder, {"action": action, **answer})
    return answer


def note(folder: TopologyFolder, facts: Mapping[str, Any]) -> None:
    """Append a row to `operator.jsonl`. The action is done: a full disk must not hide its answer."""
    with suppress(Exception):
        append_lines(folder.operator, [json.dumps({"at_ms": int(time.time() * 1000), **facts}).encode()])
