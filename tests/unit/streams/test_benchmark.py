"""The jobs of benchmarks/streams.py have the same results by hand as in streams."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks import streams
from topo.testing import TopologyTest


def results(form: str, monkeypatch: pytest.MonkeyPatch) -> int:
    """Return how many results a form gives; a WindowBolt emits them, all others call `ignore`."""
    seen: list[object] = []
    monkeypatch.setattr(streams, "ignore", seen.append)
    test = TopologyTest(lambda: getattr(streams, form)(4000, "exactly_once"))
    test.run()
    assert test.errors() == []
    rows: dict[str, Any] = {row["component"]: row for row in test.status()["components"]}
    return len(seen) or rows["window"]["counters"]["emitted"]


@pytest.mark.parametrize(("job", "expected"), [("window", 400), ("join", 2000), ("dedupe", 2000)])
def test_a_job_has_the_same_results_by_hand(job: str, expected: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert results(job, monkeypatch) == results(f"{job}_by_hand", monkeypatch) == expected


@pytest.mark.parametrize("form", ["three", "one"])
def test_the_words_are_counted_alike(form: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    counts: list[tuple[str, int]] = []
    monkeypatch.setattr(streams, "ignore", counts.append)
    for name in ("fused", form):
        TopologyTest(lambda name=name: getattr(streams, name)(4000, "exactly_once")).run()
    assert capsys.readouterr().out == f"{sum(number for _word, number in counts)} words\n"
