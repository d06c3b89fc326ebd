from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.drive import call
from topo_cli.bench import _miscount

KEYS = {"acked_per_second", "tuples_per_second", "latency_ms", "cpu_seconds", "peak_rss_mb", "workers", "ackers"}


def ended(words: int, acked: int) -> dict[str, Any]:
    return {
        "components": [
            {"component": "count", "user": {"counters": {"words": words}}},
            {"component": "split", "user": {"counters": {}}},
        ],
        "totals": {"acked": acked},
    }


def test_a_word_that_was_not_counted_is_told() -> None:
    assert _miscount(ended(120, 12)) == ""
    assert _miscount(ended(119, 12)) == "119 words were counted, but 12 sentences of 10 words were acked"
    assert _miscount(ended(360, 12), 3) == ""
    assert _miscount(ended(120, 12), 3) == "120 words were counted, but 36 sentences of 10 words were acked"


def test_options_that_a_workload_does_not_have_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    wrong = call(capsys, "bench", "pipe", "--splits", 2)
    assert (wrong.code, "--splits is for word-count and windowed-sum alone" in wrong.err) == (2, True)
    for given in (("pipe",), ("word-count", "--rate", 10)):
        wrong = call(capsys, "bench", *given, "--batches", 64)
        assert (wrong.code, "--batches is for word-count alone, without --rate" in wrong.err) == (2, True)
    wrong = call(capsys, "bench", "some/topology.py", "--rate", 10)
    assert (wrong.code, "only they know when a message was due" in wrong.err) == (2, True)
    wrong = call(capsys, "bench", "pipe", "--seconds", 0)
    assert (wrong.code, "--seconds is more than 0" in wrong.err) == (2, True)


@pytest.mark.parametrize(("name", "meant"), [("wrd-count", "word-count"), ("wordcount", "word-count"), ("pipee", "pipe")])
def test_a_misspelt_workload_is_answered_with_the_one_that_was_meant(
    capsys: pytest.CaptureFixture[str], name: str, meant: str
) -> None:
    wrong = call(capsys, "bench", name)
    assert (wrong.code, wrong.err) == (2, f"Error: there is no workload {name!r}. Did you mean {meant!r}?\n")


@pytest.mark.integration
def test_the_word_count_is_measured_and_every_word_counted(capsys: pytest.CaptureFixture[str]) -> None:
    done = call(capsys, "bench", "word-count", "--counts", 2, "--workers", 2, "--seconds", "1s", "--warm-up", "100ms", "--json")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert found.keys() >= KEYS
    assert (found["tasks"], found["workers"], found["ackers"], found["failed"]) == (5, 2, 1, 0)
    assert found["emitted"] == found["acked"] > 0
    assert found["words_per_second"] == pytest.approx(10 * found["acked_per_second"], rel=0.5)
    assert len(found["processes"]) == 3


@pytest.mark.integration
@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_the_word_count_of_batches_counts_every_word(capsys: pytest.CaptureFixture[str], delivery: str) -> None:
    pytest.importorskip("pyarrow")
    options = ("--batches", 300, "--counts", 2, "--delivery", delivery, "--seconds", "1s", "--warm-up", "100ms", "--json")
    done = call(capsys, "bench", "word-count", *options, "-s", "checkpoint_interval=200ms")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert found["emitted"] == found["acked"] > 0
    assert found["words_per_second"] > 100 * found["tuples_per_second"] > 0, "words, and not batches"


@pytest.mark.integration
def test_a_schedule_gives_latencies_to_the_last_bolt_and_to_the_ack(capsys: pytest.CaptureFixture[str]) -> None:
    done = call(capsys, "bench", "pipe", "--rate", 100, "--seconds", "1s", "--warm-up", "0.5s", "--ackers", 1, "--json")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert 0 < found["latency_ms"]["p50"] <= found["latency_ms"]["p99"] <= found["latency_ms"]["p999"]
    assert found["latency_ms"]["p50"] < found["ack_latency_ms"]["p50"]


@pytest.mark.integration
def test_any_topology_is_measured_until_it_ends_or_time_is_up(capsys: pytest.CaptureFixture[str], flow: Path) -> None:
    done = call(
        capsys, "bench", flow, "-p", "items=50", "--seconds", "1s", "--warm-up", "100ms", "-s", "heartbeat=200ms", "--json"
    )
    assert done.code == 0, done.err
    assert json.loads(done.out)["acked"] == 50
    done = call(capsys, "bench", flow, "-p", "items=1000000", "-p", "pause=0.001", "--seconds", "1s", "--warm-up", "100ms")
    assert done.code == 0, done.err
    assert "messages acked" in done.out and not done.err


@pytest.mark.integration
def test_a_topology_that_ends_in_its_warm_up_is_not_measured(capsys: pytest.CaptureFixture[str], flow: Path) -> None:
    done = call(capsys, "bench", flow, "-p", "items=5", "--warm-up", "30s")
    assert done.code == 0 and "0/s over 0 s" in done.out
    assert "flow.py ended before its warm-up was over: nothing was measured" in done.err
