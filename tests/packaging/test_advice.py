"""No message, page or file advises to install `topo` from a package index: that is another project."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from topo.extras import EXTRAS, WORKER, pip_install
from topo.launch.spark.host_probe import PACKAGES

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
FOLDERS = ("topo", "cli", "docs", "deploy", "topologies", "benchmarks", "scripts", ".ci")
TOP = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "Makefile", "pyproject.toml", "setup.py")
NAME = r"""["']?topo(-engine)?(?![\w/.-])"""
BAD_ADVICE = re.compile(
    rf"(pip3?|uv|conda|poetry|pdm|pipx)\b[^\n]*\b(install|add)\b[^\n|;:&]*\s{NAME}"  # by the name on the index
    rf"|(?<![\w/])topo(-engine)?\[\w"  # by an extra of it
    rf"|\binstall(ing)?\s+topo(?!\w)(?! from)",  # in words, without saying from where
    re.IGNORECASE,
)


def pages() -> Iterator[Path]:
    yield from (ROOT / name for name in TOP)
    for folder in FOLDERS:
        yield from (path for path in (ROOT / folder).rglob("*") if path.is_file() and "__pycache__" not in path.parts)


@pytest.mark.parametrize(
    "advice",
    [
        "pip install topo",
        "pip install 'topo[spark]'",
        'needs `pip install "topo[java]"`.',
        "python -m pip install -U topo",
        "RUN pip install --no-cache-dir topo==0.1",
        "uv add topo",
        "pip install topo-engine",
        "install topo into the environment",
    ],
)
def test_advice_by_the_name_on_the_index_is_recognised(advice: str) -> None:
    assert BAD_ADVICE.search(advice)


@pytest.mark.parametrize(
    "advice",
    [
        'pip install "path/to/the/checkout[spark]"',
        "pip uninstall topo",
        "pip install path/to/topo-engine/checkout && topo doctor",
        "pip install --user . ; topo run words.py",
        "install topo from its checkout: pip install path/to/the/checkout",
        "pip install 'pyzmq>=27.2,<28'",
    ],
)
def test_advice_that_works_is_not(advice: str) -> None:
    assert not BAD_ADVICE.search(advice)


def test_nobody_is_told_to_install_another_projects_package() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in pages()
        for match in BAD_ADVICE.finditer(path.read_text(errors="ignore"))
    ]

    assert found == []


def test_the_distribution_has_a_name_of_its_own() -> None:
    assert PROJECT["name"] == "topo-engine"
    assert PROJECT["scripts"] == {"topo-cli": "topo_cli.entry:main"}


def test_what_messages_tell_to_install_is_what_the_extras_are() -> None:
    extras = PROJECT["optional-dependencies"]

    assert {name: list(packages) for name, packages in EXTRAS.items()} == {name: extras[name] for name in EXTRAS}
    assert set(WORKER) <= set(PROJECT["dependencies"])
    assert len(WORKER) == len(PACKAGES)
    assert pip_install(WORKER).startswith("pip install 'msgpack>=")
