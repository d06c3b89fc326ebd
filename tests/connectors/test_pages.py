"""The Python in the pages of connectors runs, with their servers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.test_docs_code import ROOT, SERVED, a_folder_for_what_it_writes, run_page

__all__ = ["a_folder_for_what_it_writes"]

pytestmark = [pytest.mark.integration, pytest.mark.server]


@pytest.mark.parametrize("page", SERVED)
def test_the_code_of_a_page_runs(page: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    run_page(ROOT / "docs" / page, tmp_path, request)
