"""The functions of the pages about Spark do as the pages describe."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.integration.support import Scene
from tests.integration.test_docs_code import ROOT, module_of
from topo.master.outcome import OutcomeKind

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.timeout(300)]


def test_the_page_about_the_sink(spark: Any, scene: Scene, tmp_path: Path) -> None:
    out, compact = str(tmp_path / "out"), str(tmp_path / "compact")
    page = module_of(ROOT / "docs" / "spark-sink.md", tmp_path)
    (tmp_path / "page.py").write_text(f"from page_spark_sink import delays\n\ndef topology():\n    return delays({out!r})\n")

    assert scene.run(f"{tmp_path / 'page.py'}:topology").outcome.kind is OutcomeKind.DONE

    assert {row["origin"]: row["avg(delay)"] for row in page.mean_delays(spark, out).collect()} == {
        "EWR": sum(range(0, 1000, 3)) / 334,
        "JFK": sum(n for n in range(1000) if n % 3) / 666,
    }
    page.compact(spark, out, compact)
    assert len(list(Path(compact).rglob("*.parquet"))) == 2
    assert spark.read.parquet(compact).count() == 1000
    assert page.stream_delays(spark, out).isStreaming
