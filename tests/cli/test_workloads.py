from __future__ import annotations

import ast
from itertools import islice
from pathlib import Path

import pytest

from tests.unit.connectors.drive import drain, opened
from topo.api.context import TaskContext
from topo.testing import run_bolt
from topo_cli import batch_workloads
from topo_cli.workloads import (
    WORDS_PER_SENTENCE,
    CountWords,
    Numbers,
    PacedCount,
    PacedNumbers,
    PacedSink,
    PacedSplit,
    SampleFile,
    Sentences,
    Split,
    pipe,
    read_latencies,
    sentences,
    word_count,
)


def test_every_sentence_has_ten_words_and_the_text_is_always_the_same() -> None:
    text = sentences()
    assert {len(sentence.split()) for sentence in text} == {WORDS_PER_SENTENCE}
    assert len(text) == 2000
    assert text == sentences()
    assert text[0] == "w1 w10 w6 w1 w2 w2 w3 w6 w1 w1"


def test_batches_have_the_same_text_and_their_file_needs_no_other() -> None:
    assert batch_workloads.sentences() == sentences()
    tree = ast.parse(Path(batch_workloads.__file__).read_text())
    modules = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert modules == {"__future__", "time", "topo"}


def test_the_closed_loop_ends_when_its_time_is_over() -> None:
    spout = Numbers(seconds=0.02)
    emitted = drain(spout, opened(spout))
    assert [message for _, message in emitted] == list(range(len(emitted)))
    assert len(emitted) >= 256


def test_what_fails_is_emitted_again_with_the_same_values() -> None:
    spout = Sentences(seconds=0)
    collector = opened(spout)
    for _ in range(2003):
        spout.next_tuple()
    spout.fail(2001)
    assert collector.messages[0][-1] == 2001
    assert collector.streams[0].rows[-1] == (sentences()[1],)


def test_the_open_loop_emits_on_its_schedule_and_all_that_is_late_at_once() -> None:
    spout = PacedNumbers(seconds=0.05, rate=1000, samples="")
    rows = [values for values, _ in drain(spout, opened(spout))]
    assert [number for number, _ in rows] == list(range(50))
    due = [moment for _, moment in rows]
    assert [later - due[0] for later in due] == [number * 1_000_000 for number in range(50)]


def test_the_open_loop_keeps_the_time_at_which_a_failed_message_was_due() -> None:
    spout = PacedNumbers(seconds=0.01, rate=1000, samples="")
    collector = opened(spout)
    first = drain(spout, collector)[0]
    spout.fail(first[1])
    assert collector.streams[0].rows[-1] == first[0]


def test_words_are_split_and_counted() -> None:
    split = run_bolt(Split(), [("a b a",)], fields=("sentence",))
    words = [tup.values[0] for tup in split.emitted["default"]]
    assert words == ["a", "b", "a"]
    run = run_bolt(CountWords(), [(word,) for word in words], fields=("word",))
    assert run.metrics.counters["words"] == 3


def test_paced_bolts_hand_on_when_a_sentence_was_due(tmp_path: Path) -> None:
    split = run_bolt(PacedSplit(), [("a b", 5)], fields=("sentence", "due"))
    assert [tup.values for tup in split.emitted["default"]] == [("a", 5), ("b", 5)]
    counted = run_bolt(PacedCount(str(tmp_path)), [("a", 5), ("b", 5)], fields=("word", "due"))
    assert counted.metrics.counters["words"] == 2
    assert len(read_latencies(tmp_path / "bolt-0", 0.0)) == 2


def test_a_sink_without_a_folder_for_samples_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_bolt(PacedSink(""), [(1, 5)], fields=("number", "due"))
    assert list(tmp_path.iterdir()) == []


def test_latencies_leave_out_what_was_due_in_the_warm_up(tmp_path: Path) -> None:
    samples = SampleFile(str(tmp_path), TaskContext("t", "sink", 1))
    for due_s, there_s in ((1.0, 1.5), (2.9, 2.95), (3.0, 3.002), (3.5, 3.504)):
        samples.add((int(due_s * 1e9), int(there_s * 1e9)))
    samples.write()
    assert read_latencies(tmp_path / "sink-0", 2.0) == pytest.approx([2.0, 4.0])


def test_the_topologies_have_the_tasks_that_are_asked_for() -> None:
    assert [spec.parallelism for spec in word_count(splits=3, counts=2).components] == [1, 3, 2]
    assert [spec.id for spec in islice(pipe(rate=5.0).components, 3)] == ["spout", "identity", "sink"]
