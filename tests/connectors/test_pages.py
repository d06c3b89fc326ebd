"""The Python in the pages of connectors runs, with their servers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.test_docs_code import ROOT, SERVED, a_folder_for_what_it_writes, local_cluster, run_page
from tests.servers.server import need

__all__ = ["a_folder_for_what_it_writes", "local_cluster"]

NEEDS = {"http.md": ("aiohttp",), "mqtt.md": ("paho",)}
"""Packages that a page needs beside its server."""

pytestmark = [pytest.mark.integration, pytest.mark.server]


@pytest.mark.parametrize("page", SERVED)
def test_the_code_of_a_page_runs(page: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    need(NEEDS.get(page, ()))
    run_page(ROOT / "docs" / page, tmp_path, request)
