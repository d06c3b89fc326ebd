"""Folders are layers (docs/architecture.md): who may import whom, and what pure code never touches. Read from the sources."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]

BASE = {"deprecation", "digests", "durable", "errors", "expressions", "ids", "keys", "config", "extras", "nesting"}
BASE |= {"version", "user_errors"}
PURE_PARTS = {"api", "hot", "wire", "operators", "plan", "emission", "dead_letters", "tracking", "checkpoint"}
MACHINES = PURE_PARTS | {"task", "master"}
SHELLS = {"storage", "transport", "user_code", "worker", "master_process"}
MAY_IMPORT: dict[str, set[str]] = {
    "deprecation": set(),
    "digests": set(),
    "errors": {"deprecation"},
    "ids": {"errors"},
    "durable": set(),
    "extras": set(),
    "nesting": set(),
    "version": set(),
    "config": {"deprecation", "errors"},
    "expressions": {"errors"},
    "keys": {"digests", "errors", "config"},
    "hot": {"errors", "ids"},
    "user_errors": {"errors"},
    "": BASE | {"api", "builder", "connectors"},
    "api": BASE,
    "builder": BASE | {"api", "plan"},
    "connectors": BASE | {"api"},
    # `streams.run` and `streams.submit` start programs; all else needs the first line alone.
    "streams": BASE
    | {"api", "builder", "connectors"}
    | {"launch", "master", "master_process", "observability", "operate", "storage", "user_code"},
    "wire": BASE | {"api", "hot"},
    "operators": BASE | {"api", "hot"},
    "plan": BASE | {"api", "operators"},
    "emission": BASE | {"api", "hot", "wire", "operators", "dead_letters"},
    "dead_letters": BASE | {"hot", "wire"},
    "tracking": BASE | {"api", "hot", "wire", "operators", "emission", "dead_letters"},
    "checkpoint": BASE | {"api", "hot", "wire", "plan", "emission"},
    "task": BASE | PURE_PARTS,
    "master": BASE | PURE_PARTS,
    "observability": BASE | MACHINES,
    "storage": BASE | {"checkpoint", "master", "plan", "wire"},
    "transport": BASE | {"plan", "storage"},
    "user_code": BASE | {"api", "builder", "storage", "wire"},
    "worker": BASE | MACHINES | {"observability", "storage", "transport", "user_code"},
    "master_process": BASE | MACHINES | {"observability", "storage", "transport", "user_code", "worker"},
    "launch": BASE | MACHINES | SHELLS | {"observability"},
    "operate": BASE | MACHINES | SHELLS | {"observability", "launch"},
    "ui": BASE | MACHINES | SHELLS | {"observability", "launch", "operate"},
    "spark": BASE | {"api", "connectors", "launch"} | SHELLS,
    "testing": BASE | MACHINES | SHELLS | {"connectors", "observability", "launch", "streams"},
}
"""For each folder (or module) of `topo` the others it may import, besides itself; "" is `topo/__init__.py`."""

EXCEPTIONS: dict[tuple[str, str], str] = {}

PURE = MACHINES | {"connectors"}
IO_MODULES = {
    "zmq",
    "socket",
    "select",
    "selectors",
    "ssl",
    "threading",
    "_thread",
    "multiprocessing",
    "subprocess",
    "asyncio",
    "time",
}
IO_EXCEPTIONS = {
    ("operators/mailbox/mailbox.py", "threading"): "other threads post to it, so it holds a lock",
    ("operators/time/clock.py", "time"): "the one place that may read a clock",
    ("connectors/table_publisher.py", "time"): "the wait before a commit that met another one is tried again",
    ("connectors/delta/log.py", "time"): "the time of a file, which readers of the table see",
    ("connectors/tls_context.py", "ssl"): "the context of connections over TLS, from files",
    ("connectors/postgres/session.py", "time"): "a task that begins waits for its server",
    ("connectors/file_folders.py", "time"): "the age of a file, which the same clock has stamped",
    ("connectors/followed_file.py", "time"): "the age of a file, which the same clock has stamped",
    ("connectors/http/http_sink.py", "asyncio"): "calls of an AsyncBolt, which the worker's loop runs",
    ("connectors/http/key_locks.py", "asyncio"): "locks of these calls",
    ("connectors/http/stream_reader.py", "asyncio"): "the pauses of a client on the loop of a LoopThread",
    ("connectors/http/websocket_client.py", "asyncio"): "coroutines of that client",
    ("connectors/http/webhook_server.py", "asyncio"): "a server of aiohttp, on the loop of a LoopThread",
    ("connectors/kafka/cluster.py", "time"): "how long a request may take",
    ("connectors/file_opener.py", "threading"): "threads that open the files of a store",
    ("connectors/kafka/group_offsets.py", "threading"): "offsets that two threads add and send",
    ("connectors/kafka/idle_wait.py", "threading"): "a thread that waits for records",
    ("connectors/kafka/transactions.py", "threading"): "a thread for a call that has no limit of time",
    ("connectors/kafka/reader.py", "time"): "the age of a record, which the clock of its producer has stamped",
    ("connectors/kafka/schemas.py", "time"): "how long a registry is waited for, and an unknown schema counts",
    ("connectors/kafka/sink.py", "time"): "how far the time of a record is from now",
    ("connectors/kafka/targets.py", "time"): "how long a request may take",
    ("connectors/kafka/tokens.py", "time"): "how long a token is valid",
    ("connectors/kafka/transactions.py", "time"): "how long a request may take",
    ("connectors/nats/connection.py", "asyncio"): "the loop of nats-py, which runs during calls on the task's helper thread",
    ("connectors/nats/outgoing.py", "asyncio"): "coroutines on that loop",
    ("connectors/nats/subject_feed.py", "asyncio"): "coroutines on that loop",
    ("connectors/rabbitmq/channel.py", "asyncio"): "the futures of a channel, on the loop of its user",
    ("connectors/rabbitmq/channel.py", "ssl"): "the files of certificates of a connection",
    ("connectors/rabbitmq/consumer.py", "asyncio"): "coroutines on the loop of a LoopThread",
    ("connectors/rabbitmq/publisher.py", "asyncio"): "the loop of pika, which runs during calls on the task's thread",
    ("connectors/loop_thread.py", "asyncio"): "the loop of clients that need one, on a thread beside the task's",
    ("connectors/loop_thread.py", "threading"): "that thread",
    ("connectors/ticker.py", "threading"): "a thread that waits while the engine does not call the spout",
}
ENVIRONMENT_EXCEPTIONS = {"hot/__init__.py": "TOPO_PURE chooses the implementation before anything else is imported"}
ONLY_THESE_NAMES = {"random": {"Random"}, "uuid": {"UUID"}}
"""Modules of which pure code may take certain names: generators with a seed, types of values."""

ZMQ_FILES = {
    "transport/control_client.py",
    "transport/feed.py",
    "transport/ipc.py",
    "transport/part_client.py",
    "transport/router.py",
    "transport/zap.py",
    "transport/zmq.py",
    "master_process/control_link.py",
    "master_process/part_server.py",
    "launch/spark/agent_link.py",
    "launch/spark/host_probe.py",
}


class Import(NamedTuple):
    """One import statement: the file, the module, the name taken from it, and the line."""

    file: str
    module: str
    name: str
    line: int


def imports_of(path: Path, file: str) -> Iterator[Import]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(file, alias.name, "", node.lineno)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}:{node.lineno}: imports are absolute in this project"
            for alias in node.names:
                yield Import(file, node.module or "", alias.name, node.lineno)


def sources() -> dict[str, Path]:
    return {str(path.relative_to(ROOT / "topo")): path for path in sorted((ROOT / "topo").rglob("*.py"))}


@cache
def all_imports() -> list[Import]:
    """Return every import of the package. Not at import: each process that collects the tests would parse all files."""
    return [found for file, path in sources().items() for found in imports_of(path, file)]


def layer_of(file: str) -> str:
    first, _, rest = file.partition("/")
    return first if rest else first.removesuffix(".py").replace("__init__", "")


def imported_layer(found: Import) -> str | None:
    """The folder or module of `topo` that is imported, or None for a module of another package."""
    parts = found.module.split(".")
    if parts[0] != "topo":
        return None
    if len(parts) > 1:
        return parts[1]
    return found.name if found.name in MAY_IMPORT else ""


def test_every_folder_has_its_place() -> None:
    assert {layer_of(file) for file in sources()} <= set(MAY_IMPORT)


def test_no_folder_imports_one_that_comes_after_it() -> None:
    wrong = []
    for found in all_imports():
        here, there = layer_of(found.file), imported_layer(found)
        if there is None or there == here or (found.file, there) in EXCEPTIONS:
            continue
        if there not in MAY_IMPORT[here]:
            wrong.append(
                f"topo/{found.file}:{found.line} imports {found.module}: {here or 'topo'} may not import {there or 'topo'}"
            )
    assert wrong == []


def test_the_exceptions_are_still_needed() -> None:
    seen = {(found.file, imported_layer(found)) for found in all_imports()}
    assert set(EXCEPTIONS) <= seen
    io_seen = {(found.file, found.module.split(".")[0]) for found in all_imports()}
    assert {key for key in IO_EXCEPTIONS if key[1] != "time"} <= io_seen


def test_pure_folders_do_no_input_or_output() -> None:
    wrong = []
    for found in all_imports():
        if layer_of(found.file) not in PURE:
            continue
        module = found.module.split(".")[0]
        if module in IO_MODULES and (found.file, module) not in IO_EXCEPTIONS:
            wrong.append(f"topo/{found.file}:{found.line} imports {module}")
        if module in ONLY_THESE_NAMES and found.name not in ONLY_THESE_NAMES[module]:
            wrong.append(f"topo/{found.file}:{found.line} takes more of {module} than {ONLY_THESE_NAMES[module]}")
    assert wrong == []


def test_pure_folders_read_neither_the_environment_nor_the_time_of_day() -> None:
    wrong = []
    for file, path in sources().items():
        if layer_of(file) not in PURE | BASE or file in ENVIRONMENT_EXCEPTIONS:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Attribute) or not isinstance(node.value, ast.Name):
                continue
            if (node.value.id, node.attr) in {
                ("os", "environ"),
                ("os", "getenv"),
                ("datetime", "now"),
                ("datetime", "utcnow"),
                ("date", "today"),
            }:
                wrong.append(f"topo/{file}:{node.lineno} uses {node.value.id}.{node.attr}")
    assert wrong == []


def test_zmq_is_used_in_these_files_alone() -> None:
    users = {found.file for found in all_imports() if found.module.split(".")[0] == "zmq"}
    assert users == ZMQ_FILES


def test_topo_never_imports_its_own_command_line() -> None:
    assert [found for found in all_imports() if found.module.split(".")[0] in {"topo_cli", "cli", "tests", "topologies"}] == []


def test_examples_use_the_public_names_alone() -> None:
    wrong = []
    for path in sorted((ROOT / "topologies").rglob("*.py")):
        for found in imports_of(path, path.name):
            is_public = found.module in ("topo.spark", "topo.streams") or found.module.startswith("topo.testing")
            if found.module.startswith("topo.") and not is_public:
                wrong.append(f"{path.relative_to(ROOT)}:{found.line} imports {found.module}")
    assert wrong == []


@pytest.mark.parametrize(
    ("file", "source", "expected"),
    [
        ("api/x.py", "from topo.plan.physical import PhysicalPlan", "plan"),
        ("api/x.py", "import topo.worker.loop", "worker"),
        ("api/x.py", "from topo import errors", "errors"),
        ("api/x.py", "from topo import Bolt", ""),
        ("api/x.py", "def f():\n    from topo.wire import frames", "wire"),
        ("api/x.py", "import json", None),
    ],
)
def test_the_reader_sees_every_way_to_import(tmp_path: Path, file: str, source: str, expected: str | None) -> None:
    path = tmp_path / "x.py"
    path.write_text(source)
    (found,) = imports_of(path, file)
    assert imported_layer(found) == expected
