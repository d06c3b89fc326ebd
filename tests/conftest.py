"""The base of every test: reproducible properties, and a temporary state folder."""

from __future__ import annotations

import gc
import os
import re
import shutil
import tempfile
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.progress import FailuresAtOnce, Wholeness
from topo.errors import TopoEnvironmentError
from topo.launch.spark.java import find_java
from topo.spark.session import check_spark

# A busy machine must not fail a property: no deadline. In CI the same examples run every time.
settings.register_profile("dev", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ci" if os.environ.get("CI") else "dev")

# Every task is a process: the others read the bytecode of the first, also in runs without make.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

_MEMORY = Path("/dev/shm")
if os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free > 4 << 30:
    # A process that is killed loses nothing that the kernel has, and power cuts are simulated: a disk would only add time.
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_MEMORY))

LONGEST = (
    "simulation/test_exactly_once.py",
    "simulation/test_seeds.py",
    "simulation/test_planted_faults.py",
)
"""Files that take longest, the longest first: a worker that begins one of them last would work alone in the end."""

LONGEST_GROUPS = ("kafka", "kafka-out", "postgres", "rabbitmq", "http")
"""Groups of tests with servers that take longest, the longest first."""

EVERY = int(os.environ.get("TOPO_EVERY", "1"))
"""Of a test with several cases one in EVERY runs, but of the contracts all: CI on a slow machine has no time for all."""

_SPARKLESS = pytest.StashKey[str]()


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Have each failed test named at once, and whether all have run noted, by the process that prints."""
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    if terminal is not None:
        config.pluginmanager.register(FailuresAtOnce(terminal))
        if (cache := getattr(config, "cache", None)) is not None:
            config.pluginmanager.register(Wholeness(cache))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Begin with what takes longest. Skip what needs Spark where it cannot run, and say so once at the end; CI tries it."""
    _leave_out_cases(config, items)
    items.sort(key=_when)
    marked = [item for item in items if item.get_closest_marker("spark")]
    missing = _missing_for_spark() if marked and not os.environ.get("CI") else None
    if missing is not None:
        config.stash[_SPARKLESS] = f"{len(marked)} tests of Spark were skipped: {missing}"
        for item in marked:
            item.add_marker(pytest.mark.skip(reason=missing))


def _leave_out_cases(config: pytest.Config, items: list[pytest.Item]) -> None:
    seen: Counter[str] = Counter()
    left_out = set()
    for item in items:
        test, _, cases = item.nodeid.partition("[")
        if cases and not test.startswith("tests/contract"):
            # The first that is kept depends on the name: it is not always the same mode of delivery.
            seen[test] += 1
            if (zlib.crc32(test.encode()) + seen[test]) % EVERY:
                left_out.add(item)
    if left_out:
        items[:] = [item for item in items if item not in left_out]
        config.hook.pytest_deselected(items=list(left_out))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out files without the one mark that is asked for: each process would import a thousand modules for nothing."""
    mark = config.option.markexpr
    if not mark.isidentifier() or collection_path.suffix != ".py":
        return None
    return True if f"mark.{mark}" not in collection_path.read_text() else None


def pytest_collection_finish() -> None:
    """Keep the tests out of the garbage collector's sight: there are ten thousand, which live as long as the process."""
    gc.collect()
    gc.freeze()


def pytest_itemcollected(item: pytest.Item) -> None:
    """Have tests in one process, one after the other, that share a Spark or a server, and those of one file. Those with servers
    have more time.

    A server's tests lie in files that begin with its name, test_kafka_sink.py, or are those of its page, kafka.md; others name
    their group.
    """
    if item.get_closest_marker("server") and not item.get_closest_marker("timeout"):
        # Their waits are as long as a busy machine needs: what they wait for is shown before the time of the test is up.
        item.add_marker(pytest.mark.timeout(400))
    # pytest-xdist makes one group of all that are named.
    if item.get_closest_marker("xdist_group"):
        return
    file = item.nodeid.partition("::")[0]
    server = None
    if item.get_closest_marker("server"):
        page = re.search(r"(\w+)\.md\]$", item.nodeid)
        server = page[1] if page else Path(file).stem.split("_")[1]
    group = "spark" if item.get_closest_marker("spark") else server or file
    item.add_marker(pytest.mark.xdist_group(group))


def _when(item: pytest.Item) -> int:
    """Return the place of a test in the order: the longest files begin first, one of them beside the tests that mostly wait."""
    if item.get_closest_marker("spark"):
        return 0
    if item.get_closest_marker("server") and (group := item.get_closest_marker("xdist_group")):
        return LONGEST_GROUPS.index(group.args[0]) if group.args[0] in LONGEST_GROUPS else len(LONGEST_GROUPS)
    file = item.nodeid.partition("::")[0].removeprefix("tests/")
    if file in LONGEST:
        return 1 if file == LONGEST[0] else 3 + LONGEST.index(file)
    return 2 if item.get_closest_marker("integration") else 3 + len(LONGEST)


def _missing_for_spark() -> str | None:
    try:
        check_spark()
        find_java()
    except TopoEnvironmentError as error:
        return str(error)
    return None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Report the tests that were not tried."""
    if text := config.stash.get(_SPARKLESS, ""):
        terminalreporter.write_line(text, yellow=True)


@pytest.fixture(autouse=True)
def no_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """No width limit applies to printed output, not even that of a runner that sets one for its processes."""
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture(autouse=True)
def topo_home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A state folder for one test, at a short path since sockets live below it; removed afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="topo-"))
    monkeypatch.setenv("TOPO_HOME", str(folder))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)
