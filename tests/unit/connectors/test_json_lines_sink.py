from __future__ import annotations

import errno
import gc
import json
import os
import resource
import signal
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from uuid import UUID

import numpy
import pytest

from tests.contract.two_phase_sinks import started
from tests.unit.connectors.drive import TICK, prepared, tracked
from topo import ConfigError, JsonLinesSink, TopologyBuilder
from topo.api.spout import Spout
from topo.checkpoint.staged_output import StagedOutput
from topo.connectors.json_rows import json_line
from topo.errors import StagedRowsLostError, TopoEnvironmentError, UserError


def records(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_tuples_are_written_and_acked_together_when_a_batch_is_full(tmp_path: Path) -> None:
    path = tmp_path / "new" / "out.jsonl"
    collector = prepared(sink := JsonLinesSink(path, max_batch=2))
    first, second = tracked(word="owl", n=1), tracked(word="émeu", n=2)
    sink.execute(first)
    assert collector.acked == []
    assert path.read_bytes() == b""
    sink.execute(second)
    assert collector.acked == [first, second]
    assert records(path) == [{"word": "owl", "n": 1}, {"word": "émeu", "n": 2}]


def test_a_tick_writes_what_is_held_back(tmp_path: Path) -> None:
    path = tmp_path / "out"
    collector = prepared(sink := JsonLinesSink(path))
    sink.execute(TICK)
    sink.execute(held := tracked(word="owl"))
    sink.execute(TICK)
    assert collector.acked == [held]
    assert len(records(path)) == 1


def test_the_sink_asks_for_its_ticks_and_the_builder_has_the_last_word(tmp_path: Path) -> None:
    class Source(Spout):
        outputs = ("word",)

        def next_tuple(self) -> None:
            """Emit nothing."""

    builder = TopologyBuilder("t")
    builder.set_spout("s", Source())
    builder.set_bolt("sink", JsonLinesSink(tmp_path / "a", flush_interval="20ms")).shuffle_grouping("s")
    builder.set_bolt("slow", JsonLinesSink(tmp_path / "b"), tick_interval="1s").shuffle_grouping("s")
    topology = builder.build()
    assert topology.component("sink").settings == {"tick_interval": "20ms"}
    assert topology.component("slow").settings == {"tick_interval": "1s"}


def test_the_end_of_input_writes_the_rest_and_replays_after_it_at_once(tmp_path: Path) -> None:
    collector = prepared(sink := JsonLinesSink(tmp_path / "out"))
    sink.execute(tracked(n=1))
    sink.end_of_input()
    sink.execute(tracked(n=2))
    assert len(collector.acked) == 2
    assert [record["n"] for record in records(tmp_path / "out")] == [1, 2]


def test_a_reset_drops_what_is_held_back(tmp_path: Path) -> None:
    collector = prepared(sink := JsonLinesSink(tmp_path / "out"))
    sink.execute(tracked(n=1))
    sink.on_reset()
    sink.execute(TICK)
    assert collector.acked == []
    assert records(tmp_path / "out") == []


def test_closing_acks_nothing_that_was_not_written(tmp_path: Path) -> None:
    collector = prepared(sink := JsonLinesSink(tmp_path / "out"))
    sink.execute(tracked(n=1))
    sink.cleanup()
    assert collector.acked == []


def test_each_of_several_tasks_has_a_file_of_its_own(tmp_path: Path) -> None:
    for index in range(2):
        prepared(sink := JsonLinesSink(tmp_path / "out", max_batch=1), index=index, parallelism=2)
        sink.execute(tracked(n=index))
    assert records(tmp_path / "out.0") == [{"n": 0}]
    assert records(tmp_path / "out.1") == [{"n": 1}]


def test_values_beyond_json_are_written_as_texts(tmp_path: Path) -> None:
    prepared(sink := JsonLinesSink(tmp_path / "out", max_batch=1))
    sink.execute(tracked(at=datetime(2020, 1, 2), price=Decimal("1.50"), id=UUID(int=1), many=("a", 1)))
    assert records(tmp_path / "out") == [
        {"at": "2020-01-02T00:00:00", "price": "1.50", "id": "00000000-0000-0000-0000-000000000001", "many": ["a", 1]}
    ]


def test_numpy_values_are_written_as_numbers_and_lists(tmp_path: Path) -> None:
    prepared(sink := JsonLinesSink(tmp_path / "out", max_batch=1))
    array, moment = numpy.arange(4).reshape(2, 2), numpy.datetime64("2024-01-02T03:04:05", "ns")
    sink.execute(
        tracked(array=array, half=numpy.float32(1.5), one=numpy.int64(1), at=moment, dates=numpy.array(["2024-01-02"], "M8[D]"))
    )
    assert records(tmp_path / "out") == [
        {"array": [[0, 1], [2, 3]], "half": 1.5, "one": 1, "at": "2024-01-02T03:04:05.000000000", "dates": ["2024-01-02"]}
    ]


def test_a_value_that_cannot_be_written_fails_alone(tmp_path: Path) -> None:
    collector = prepared(sink := JsonLinesSink(tmp_path / "out"))
    sink.execute(good := tracked(n=1))
    with pytest.raises(UserError, match=r"field 'n' of a tuple from '\w+' has no form in JSON: .*object.*; emit a str"):
        sink.execute(tracked(m=1, n=object()))
    with pytest.raises(UserError, match=r"field 'd' of a tuple .* keys"):
        sink.execute(tracked(d={(1, 2): 3}))
    deep: list[object] = []
    refused = 0
    for _ in range(20_000):
        deep = [deep]
        try:
            json_line({"n": deep}, "source")
        except UserError as error:
            assert "from 'source' has no form in JSON" in str(error)
            refused += 1
            if refused == 3:
                break
    with pytest.raises(UserError, match=r"field 'n' of a tuple from '\w+' has no form in JSON"):
        sink.execute(tracked(n=deep))
    sink.execute(TICK)
    assert collector.acked == [good]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b'{"n":1}\n{"n":2', b'{"n":1}\n'),
        (b'{"n":', b""),
        (b'{"n":1}\n', b'{"n":1}\n'),
        (b'{"n":1}\n{"n":2}', b'{"n":1}\n{"n":2}\n'),
        (b'{"n":1}\n{"' + b"x" * 100_000, b'{"n":1}\n'),
        (b'{"n":1}\n' + bytes(9), b'{"n":1}\n'),
        (b"", b""),
        *((other, other + b"\n") for other in (b"time,value\n12:00,7", b"a note", b"[\n  1\n]", "größe".encode())),
    ],
)
def test_a_line_left_half_written_is_taken_away_unless_it_is_of_another_program(
    tmp_path: Path, before: bytes, after: bytes
) -> None:
    path = tmp_path / "out"
    path.write_bytes(before)
    prepared(sink := JsonLinesSink(path, max_batch=1))
    sink.execute(tracked(n=9))
    assert path.read_bytes() == after + b'{"n":9}\n'


def test_while_the_disk_is_full_no_tuple_fails_and_no_half_line_stays(tmp_path: Path) -> None:
    path = tmp_path / "out"
    collector = prepared(sink := JsonLinesSink(path, max_batch=2))
    sink.execute(tracked(n=1))
    sink.execute(tracked(n=2))
    whole = path.read_bytes()
    held, errors = [tracked(text="x" * 50), tracked(text="y" * 50)], list[OSError]()
    collector.report_error = errors.append  # type: ignore[method-assign, assignment]
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(whole) + 70, limits[1]))
    try:
        sink.execute(held[0])
        sink.execute(held[1])
        sink.execute(TICK)
        assert not sink.has_room
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, ignored)
    assert [error.errno for error in errors] == [errno.EFBIG]
    assert path.read_bytes() == whole
    sink.execute(TICK)
    assert collector.failed == [] and collector.acked[2:] == held
    assert [record.get("n") for record in records(path)] == [1, 2, None, None]


def test_descriptors_are_closed(tmp_path: Path) -> None:
    prepared(sink := JsonLinesSink(tmp_path / "out"))
    before = len(os.listdir("/proc/self/fd"))
    sink.cleanup()
    assert len(os.listdir("/proc/self/fd")) == before - 1


def test_a_batch_of_nothing_is_refused() -> None:
    with pytest.raises(ConfigError):
        JsonLinesSink("out", max_batch=0)


def staging(sink: JsonLinesSink, state: object = None) -> StagedOutput:
    started(sink)
    output = StagedOutput(sink)
    output.restore(state)
    return output


def test_what_is_staged_is_hidden_and_carries_its_task(tmp_path: Path) -> None:
    started(sink := JsonLinesSink(tmp_path / "out"), 3, 4)
    output = StagedOutput(sink)
    output.restore(None)
    sink.execute(tracked(n=1))
    output.snapshot(1)
    (staged,) = tmp_path.glob(".*")
    assert staged.name.startswith(".out.staged.3.test.sink.")
    output.complete(1)
    assert [path.name for path in tmp_path.iterdir()] == ["out.3"]


def test_files_that_an_earlier_version_has_staged_are_found(tmp_path: Path) -> None:
    """Their names have no writer."""
    (tmp_path / ".out.staged.0.0123456789ab.4").write_text('{"n":1}\n')
    (tmp_path / ".out.staged.0.0123456789ab.5").write_text('{"n":2}\n')
    (tmp_path / ".out.staged.0.0123456789ab.6.at.0").write_text('{"n":3}\n')
    token = [str(tmp_path / ".out.staged.0.0123456789ab.4"), 8, str(tmp_path / "out"), 8]
    staging(JsonLinesSink(tmp_path / "out"), [[1, token]])
    assert [record["n"] for record in records(tmp_path / "out")] == [1]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_full_disk_fails_the_checkpoint_and_loses_nothing(tmp_path: Path) -> None:
    output = staging(sink := JsonLinesSink(tmp_path / "out"))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    sink.execute(tracked(text="x" * 50))
    sink.execute(tracked(text="y" * 50))
    resource.setrlimit(resource.RLIMIT_FSIZE, (70, limits[1]))
    try:
        with pytest.raises(OSError):
            output.snapshot(1)
        sink.execute(tracked(text="z"))
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        output.snapshot(2)
        resource.setrlimit(resource.RLIMIT_FSIZE, (90, limits[1]))
        with pytest.raises(OSError):
            output.complete(2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, ignored)
    output.complete(2)
    assert [record["text"] for record in records(tmp_path / "out")] == ["x" * 50, "y" * 50, "z"]


def test_an_output_that_cannot_be_looked_at_fails_the_checkpoint_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(path: Path) -> int:
        raise OSError(errno.ESTALE, "Stale file handle", str(path))

    output = staging(sink := JsonLinesSink(tmp_path / "out"))
    sink.write(tracked(n=1))
    with monkeypatch.context() as patch:
        patch.setattr("topo.connectors.json_lines_sink.size_of", away)
        with pytest.raises(OSError, match="Stale"):
            output.snapshot(1)
    output.snapshot(2)
    sink.write(tracked(n=2))
    output.snapshot(3)
    output.complete(3)
    assert records(tmp_path / "out") == [{"n": 1}, {"n": 2}]


def test_a_line_torn_by_another_mode_is_taken_away_before_staged_lines_follow(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_bytes(b'{"n":0}\n{"n":')
    output = staging(sink := JsonLinesSink(path))
    sink.execute(tracked(n=1))
    output.snapshot(1)
    output.complete(1)
    assert [record["n"] for record in records(path)] == [0, 1]


def test_when_the_output_was_taken_away_the_next_lines_begin_another(tmp_path: Path) -> None:
    path = tmp_path / "out"
    output = staging(sink := JsonLinesSink(path))
    for n in (1, 2):
        sink.execute(tracked(n=n))
        output.snapshot(n)
        if n == 1:
            output.complete(1)
    path.rename(tmp_path / "kept")
    output.complete(2)
    assert [record["n"] for record in records(tmp_path / "kept")] == [1]
    assert [record["n"] for record in records(path)] == [2]


def test_a_half_appended_file_begins_anew_when_the_output_was_taken_away(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_text('{"n":0}\n')
    output = staging(sink := JsonLinesSink(path))
    sink.execute(tracked(n=1))
    state = output.snapshot(1)
    (staged,) = tmp_path.glob(".out*")
    staged.rename(staged.with_name(f"{staged.name}.at.8"))
    path.unlink()
    staging(JsonLinesSink(path), state)
    assert [record["n"] for record in records(path)] == [1]


def test_staged_lines_that_are_gone_are_reported(tmp_path: Path) -> None:
    output = staging(sink := JsonLinesSink(tmp_path / "out"))
    sink.execute(tracked(n=1))
    state = output.snapshot(1)
    (staged,) = tmp_path.glob(".out*")
    staged.unlink()
    with pytest.raises(StagedRowsLostError, match="had at least 8"):
        output.complete(1)
    with pytest.raises(StagedRowsLostError, match="had at least 8"):
        staging(JsonLinesSink(tmp_path / "out"), state)


def test_a_staged_file_of_another_length_is_not_appended(tmp_path: Path) -> None:
    output = staging(sink := JsonLinesSink(tmp_path / "out"))
    sink.execute(tracked(n=1))
    output.snapshot(1)
    (staged,) = tmp_path.glob(".out*")
    staged.write_text("{")
    with pytest.raises(TopoEnvironmentError, match="1 bytes; 8 were staged"):
        output.complete(1)
    assert (tmp_path / "out").read_bytes() == b""


def test_descriptors_of_staged_files_are_closed(tmp_path: Path) -> None:
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    output = staging(sink := JsonLinesSink(tmp_path / "out"))
    for checkpoint in range(3):
        for n in range(1500):
            sink.execute(tracked(n=n))
        output.snapshot(checkpoint)
    for n in range(1500):
        sink.execute(tracked(n=n))
    output.complete(1)
    sink.cleanup()
    assert len(os.listdir("/proc/self/fd")) == before
