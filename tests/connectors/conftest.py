"""Servers that several files of tests share: one of each for a run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.servers import kafka


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[kafka.Broker]:
    """The broker of this run. A test that ends or freezes it leaves it running, with its data."""
    started = kafka.start(tmp_path_factory.mktemp("kafka"))
    yield started
    started.stop()
