"""The Python in the pages of connectors runs, with their servers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.test_docs_code import ROOT, SERVED, a_folder_for_what_it_writes, local_cluster, run_page
from tests.servers.server import need

__all__ = ["a_folder_for_what_it_writes", "local_cluster"]

NEEDS = {
    "delta.md": ("deltalake",),
    "http.md": ("aiohttp",),
    "iceberg.md": ("pyiceberg",),
    "mqtt.md": ("paho",),
    "rabbitmq.md": ("pika",),
}
"""Packages that a page needs beside its server."""

GROUPS = {"kafka-sink.md": "kafka-out", "rabbitmq.md": "rabbitmq"}
"""Pages whose server takes long to start: they run in the process of its other tests."""


def pages() -> Iterator[Any]:
    for page in SERVED:
        marks = [pytest.mark.xdist_group(GROUPS[page]), pytest.mark.timeout(600)] if page in GROUPS else []
        yield pytest.param(page, marks=marks)


pytestmark = [pytest.mark.integration, pytest.mark.server]


@pytest.mark.parametrize("page", pages())
def test_the_code_of_a_page_runs(page: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    need(NEEDS.get(page, ()))
    run_page(ROOT / "docs" / "connectors" / page, tmp_path, request)
