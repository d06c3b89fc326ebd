"""No test and no part of the test kit replaces a name of the package at run time, except where a line here has the reason.

What tests want to know of a task they get by `topo.task.observer.TaskObserver`, and what they want to give it by its environment.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("topo", "cli")

PLANTS = "plants a fault into the engine, to see that it is caught"
LIMIT = "makes a limit small, to reach it"
SYSTEM = "a call of the operating system fails or is seen"
COUNTS = "counts calls"

EXCEPTIONS = {
    "tests/connectors/test_iceberg_rest.py": LIMIT,
    "tests/connectors/test_kafka_sink_faults.py": LIMIT,
    "tests/connectors/test_kafka_sink_refusals.py": LIMIT,
    "tests/contract/test_async_sinks.py": LIMIT,
    "tests/contract/test_killed_sinks.py": LIMIT,
    "tests/connectors/test_nats_sink.py": f"{LIMIT}, and breaks a publication off",
    "tests/connectors/test_postgres_sink.py": LIMIT,
    "tests/connectors/test_postgres_sink_rows.py": LIMIT,
    "tests/connectors/test_redis_group_spout.py": "looks at the lag at each turn",
    "tests/connectors/test_redis_stream_sink.py": LIMIT,
    "tests/integration/test_served_checkpoints.py": PLANTS,
    "tests/integration/repeating_worker.py": "a worker process whose transport sends frames twice",
    "tests/properties/test_windows_direct.py": COUNTS,
    "tests/simulation/planted.py": PLANTS,
    "tests/simulation/planted_chains.py": PLANTS,
    "tests/simulation/planted_checkpoints.py": PLANTS,
    "tests/simulation/planted_control.py": PLANTS,
    "tests/simulation/planted_decisions.py": PLANTS,
    "tests/simulation/planted_keyed_streams.py": PLANTS,
    "tests/simulation/planted_partitions.py": PLANTS,
    "tests/simulation/planted_savepoints.py": PLANTS,
    "tests/simulation/planted_storage.py": PLANTS,
    "tests/simulation/planted_streams.py": PLANTS,
    "tests/simulation/planted_tracked_streams.py": PLANTS,
    "tests/simulation/test_chains.py": "gives a chain to each spout",
    "tests/simulation/test_ends.py": PLANTS,
    "tests/simulation/test_held_inputs.py": PLANTS,
    "tests/simulation/test_traces.py": "gives a tracer to each task, and marks roots in the simulator",
    "tests/simulation/test_waiting_ids.py": COUNTS,
    "tests/simulation/test_windows.py": PLANTS,
    "tests/spark/test_feed_link.py": LIMIT,
    "tests/spark/test_spark_sink.py": SYSTEM,
    "tests/unit/connectors/test_files_long_lines.py": LIMIT,
    "tests/unit/connectors/test_files_sink.py": LIMIT,
    "tests/unit/connectors/test_files_spout.py": LIMIT,
    "tests/unit/connectors/test_json_lines_sink.py": SYSTEM,
    "tests/unit/connectors/test_spilling.py": LIMIT,
    "tests/unit/connectors/test_sqlite_sink.py": LIMIT,
    "tests/unit/connectors/test_staged_rows.py": LIMIT,
    "tests/unit/dead_letters/test_pending.py": LIMIT,
    "tests/unit/master_process/test_shell.py": SYSTEM,
    "tests/unit/operators/test_state_costs.py": "counts copies",
    "tests/unit/storage/test_state_folder.py": SYSTEM,
    "tests/unit/streams/test_source_chains.py": "collects the tasks, to cut their slices short",
    "tests/unit/task/test_whole_windows.py": COUNTS,
    "tests/unit/test_user_errors.py": COUNTS,
    "tests/unit/testing/test_operator_harness_async.py": LIMIT,
    "tests/unit/testing/test_many_bad_records.py": LIMIT,
    "tests/unit/testing/test_topology_test_async.py": LIMIT,
    "tests/unit/testing/test_unaccounted.py": PLANTS,
    "tests/unit/user_code/own_folder.py": LIMIT,
    "tests/unit/user_code/test_load.py": LIMIT,
}
"""Files that replace a name of the package, and what for."""


def _files() -> Iterator[Path]:
    for folder in ("tests", "topo/testing"):
        yield from sorted((ROOT / folder).rglob("*.py"))


def _imported(tree: ast.Module) -> dict[str, bool]:
    """Return the names that a module has imported, and whether they are of the package: modules, classes, functions."""
    names: dict[str, bool] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                source = (node.module or "") if isinstance(node, ast.ImportFrom) else alias.name
                names[alias.asname or alias.name] = source.partition(".")[0] in PACKAGES
    return names


def _root(node: ast.expr) -> str:
    """Return the name that an expression such as `a.b.c` begins with."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _replacements(tree: ast.Module, *, is_harness: bool) -> Iterator[int]:
    """Yield the lines that replace names. In harnesses no object's methods are replaced either."""
    imported = _imported(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            function, first = node.func, node.args[0] if node.args else None
            name = function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""
            # `setattr`, that of a `MonkeyPatch`, or either of them by another name.
            is_renamed = name.startswith("set_") and len(node.args) > 2 and imported.get(_root(node.args[0]), False)
            if first is None or not (name == "setattr" or is_renamed):
                continue
            is_path = isinstance(first, ast.Constant) and str(first.value).partition(".")[0] in PACKAGES
            # A patch of a variable is taken for one of the package.
            is_of_package = imported.get(_root(first), bool(_root(first)) and isinstance(function, ast.Attribute))
            if is_path or is_of_package or is_renamed or is_harness:
                yield node.lineno
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                if not isinstance(target, ast.Attribute):
                    continue
                is_own = isinstance(target.value, ast.Name) and target.value.id in ("self", "cls")
                if imported.get(_root(target), False) or (is_harness and target.attr.startswith("_") and not is_own):
                    yield node.lineno


def _found(path: Path) -> list[int]:
    relative = path.relative_to(ROOT).as_posix()
    is_harness = relative.startswith(("topo/testing/", "tests/simulator/"))
    return sorted(set(_replacements(ast.parse(path.read_text()), is_harness=is_harness)))


@pytest.mark.parametrize("folder", ["topo/testing", "tests"])
def test_no_name_of_the_package_is_replaced_at_run_time(folder: str) -> None:
    files = [path for path in _files() if path.is_relative_to(ROOT / folder)]
    found = {path.relative_to(ROOT).as_posix(): lines for path in files if (lines := _found(path))}
    assert {path: lines for path, lines in found.items() if path not in EXCEPTIONS} == {}


def test_each_exception_is_still_needed() -> None:
    assert [path for path in EXCEPTIONS if not _found(ROOT / path)] == []


def test_a_replacement_is_noticed() -> None:
    source = "from topo.task.task import Task\nmonkeypatch.setattr(Task, 'x', 1)\nTask.y = 2\npatch.setattr('topo.ids.Z', 3)\n"
    assert sorted(_replacements(ast.parse(source), is_harness=False)) == [2, 3, 4]
    assert list(_replacements(ast.parse("task._act = watched"), is_harness=True)) == [1]
