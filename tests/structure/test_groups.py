"""Tests that share a server run in one process: pytest-xdist joins the names of all groups that a test is in."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import pytest_itemcollected

ROOT = Path(__file__).resolve().parents[2]


def groups(session: pytest.Session, file: str) -> dict[str, list[str]]:
    """The groups of the tests of a file, by what stands in brackets behind their name, or by the name."""
    found = {}
    for item in session.genitems(pytest.Module.from_parent(session, path=ROOT / "tests" / file)):
        pytest_itemcollected(item)
        found[item.name.partition("[")[2].rstrip("]") or item.name] = [mark.args[0] for mark in item.iter_markers("xdist_group")]
    return found


def test_kills_of_a_server_are_in_the_group_of_its_other_tests(request: pytest.FixtureRequest) -> None:
    found = groups(request.session, "connectors/test_server_kills.py")
    assert found["redis_streams"] == ["redis"] and found["rabbit_queues"] == ["rabbitmq"]


def test_a_test_that_names_no_group_is_in_that_of_its_file(request: pytest.FixtureRequest) -> None:
    names = groups(request.session, "structure/test_progress.py")
    assert set(map(tuple, names.values())) == {("tests/structure/test_progress.py",)}
