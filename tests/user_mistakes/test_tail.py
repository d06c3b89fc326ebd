"""What users do with a tail source, and the answer that they get."""

from __future__ import annotations

from pathlib import Path

import pytest

from topo import ConfigError, PrintBolt, TailSpout, Topology, TopologyBuilder, TopologyError
from topo.testing import TopologyTest


def follow(log: Path, parallelism: int = 1) -> Topology:
    builder = TopologyBuilder("follow")
    builder.set_spout("lines", TailSpout(log), parallelism)
    builder.set_bolt("print", PrintBolt()).shuffle_grouping("lines")
    return builder.build()


def test_a_log_that_is_not_there_yet_is_waited_for(tmp_path: Path) -> None:
    """The user starts the topology before the program that writes the log."""
    log = tmp_path / "app.log"
    test = TopologyTest(follow(log))
    test.advance("5s")
    log.write_text("a\n")
    test.advance("5s")
    test.assert_emitted("lines", ["a"])
    test.assert_all_acked()


def test_several_tasks_for_one_log_are_refused(tmp_path: Path) -> None:
    """The user raises the parallelism of a tail source to read one file faster."""
    with pytest.raises(TopologyError, match=r"'lines': TailSpout needs one task for each of its paths, .* parallelism to 1"):
        follow(tmp_path / "app.log", 2)


def test_several_logs_for_one_task_are_refused(tmp_path: Path) -> None:
    """The user gives several logs and leaves the parallelism at 1."""
    builder = TopologyBuilder("follow")
    builder.set_spout("lines", TailSpout([tmp_path / "a.log", tmp_path / "b.log"]))
    builder.set_bolt("print", PrintBolt()).shuffle_grouping("lines")
    with pytest.raises(TopologyError, match=r"'lines': TailSpout needs one task for each of its paths, .* parallelism to 2"):
        builder.build()


def test_a_pattern_is_refused_where_it_is_written(tmp_path: Path) -> None:
    """The user gives a pattern, as to `tail -F *.log` in a shell; nothing would ever have that name."""
    with pytest.raises(ConfigError, match=r"'.*\*\.log' is a pattern; list them, such as TailSpout\(sorted\(glob\.glob\("):
        TailSpout(tmp_path / "*.log")


def test_a_start_that_is_none_is_refused_where_it_is_written() -> None:
    """The user knows the word from a broker."""
    with pytest.raises(ConfigError, match="start='latest' must be 'beginning' or 'end'"):
        TailSpout("app.log", start="latest")  # type: ignore[arg-type]


def test_a_folder_is_refused(tmp_path: Path) -> None:
    """The user gives the folder of the logs instead of one of its files."""
    with pytest.raises(AssertionError, match=r"TailSpout 'lines' follows one file, but .* is a folder; give the path of a file"):
        TopologyTest(follow(tmp_path)).advance("1s")


def test_a_log_that_was_rotated_away_unread_is_an_error_that_names_it(tmp_path: Path) -> None:
    """The user's logrotate compresses at once, and the topology was down meanwhile."""
    log = tmp_path / "app.log"
    log.write_text("a\n" * 10)
    test = TopologyTest(lambda: follow(log))
    test.advance("10s")
    log.unlink()
    log.write_text("b\n")
    test.crash("lines")
    test.advance("10s")
    test.assert_emitted("lines", [*"a" * 10, "b"])
    assert any("what followed them is lost" in row.message and str(log) in row.message for row in test.errors())


def test_an_encoding_with_wide_newlines_is_refused_where_it_is_written() -> None:
    """The user's log is UTF-16."""
    with pytest.raises(ConfigError, match="have the file written in UTF-8"):
        TailSpout("app.log", encoding="utf-16")
