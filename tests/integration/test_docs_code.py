"""The Python in the documentation runs: the blocks of a page together, as one module; tests among them are called."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from topo.testing.fixtures import local_cluster

__all__ = ["local_cluster"]

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
SERVED = ("delta.md", "http.md", "iceberg.md", "kafka-sink.md", "mqtt.md", "nats.md", "postgres.md", "rabbitmq.md", "redis.md")
"""Pages whose code needs a server or an extra: tests/connectors/test_pages.py runs them, and has the fixtures of their tests."""
PAGES = [
    page
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
    if BLOCK.search(page.read_text()) and page.name not in SERVED
]

pytestmark = pytest.mark.integration


def code_of(page: Path) -> str:
    """The blocks of a page, each on the lines that it has there."""
    text = page.read_text()
    code = ""
    for block in BLOCK.finditer(text):
        code += "\n" * (text.count("\n", 0, block.start(1)) - code.count("\n")) + block[1]
    return code


def module_of(page: Path, folder: Path) -> ModuleType:
    name = f"page_{page.stem.lower().replace('-', '_')}"
    file = folder / f"{name}.py"
    file.write_text(code_of(page))
    spec = spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def calls_of(test: Any) -> Iterator[dict[str, Any]]:
    """The arguments that the marks of a test give it, once for each call."""
    marks = [mark.args for mark in getattr(test, "pytestmark", ()) if mark.name == "parametrize"]
    for values in product(*[argvalues for _, argvalues in marks]):
        yield {name: value for (name, _), value in zip(marks, values, strict=True)}


@pytest.fixture(autouse=True)
def a_folder_for_what_it_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before = set(sys.modules)
    monkeypatch.chdir(tmp_path)
    yield
    for name in set(sys.modules) - before:
        if name.startswith("page_"):
            del sys.modules[name]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_code_of_a_page_runs(page: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if "topo.spark" in code_of(page):
        pytest.importorskip("pyspark", reason='the page needs Spark: pip install -e ".[spark]"')
    run_page(page, tmp_path, request)


def run_page(page: Path, folder: Path, request: pytest.FixtureRequest) -> None:
    """Run the blocks of a page, and call the tests among them."""
    module = module_of(page, folder)
    for name, test in list(vars(module).items()):
        if name.startswith("test_"):
            for given in calls_of(test):
                fixtures = [found for found in inspect.signature(test).parameters if found not in given]
                test(**given, **{found: request.getfixturevalue(found) for found in fixtures})


def test_the_page_about_testing_holds_tests() -> None:
    assert len(re.findall(r"^def test_", code_of(ROOT / "docs" / "testing.md"), re.MULTILINE)) >= 8
