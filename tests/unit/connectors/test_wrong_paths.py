"""Arguments that are no path, or name no columns, are refused when a source or a sink is made."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from topo import ConfigError, FilesSink, FilesSpout, IterableSpout, JsonLinesSink, SqliteSink, TailSpout, TextFileSpout, UserError
from topo.streams import StreamBuilder


def sqlite(path: Any) -> SqliteSink:
    return SqliteSink(path, "t", ("a",))


@pytest.mark.parametrize("path", [None, 5, len, ""])
@pytest.mark.parametrize("made", [FilesSpout, FilesSink])
def test_what_is_no_path_of_files_is_refused(made: Callable[[Any], object], path: Any) -> None:
    with pytest.raises(ConfigError, match=r"^Files\w+: url=.* must be a text or a pathlib.Path$"):
        made(path)


@pytest.mark.parametrize("path", [None, 5, len, ""])
@pytest.mark.parametrize("made", [TextFileSpout, TailSpout, JsonLinesSink, sqlite])
def test_what_is_no_path_is_refused(made: Callable[[Any], object], path: Any) -> None:
    """It raised a bare TypeError, or none before a worker opened it."""
    with pytest.raises(ConfigError, match=r"^\w+S\w+ was given .* as its path; give a text or a pathlib.Path, such as"):
        made(path)


def test_a_wrong_path_of_a_program_of_streams_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^TextFileSpout was given None \(NoneType\) as its path"):
        StreamBuilder("program").from_files(None)  # type: ignore[arg-type]


def test_a_list_with_something_that_is_no_path_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^TailSpout was given 5 \(int\) as its path"):
        TailSpout(["a.log", 5])  # type: ignore[list-item]


def test_a_pattern_is_a_text() -> None:
    with pytest.raises(ConfigError, match=r"pattern=5 \(int\) must be a text"):
        TextFileSpout("words", pattern=5)  # type: ignore[arg-type]


def test_a_text_is_no_tuple_of_fields() -> None:
    """Each of its characters was a field, and each item failed: it had one value for four fields."""
    with pytest.raises(UserError, match=r"fields='word', of which each character would be a name; give \('word',\)"):
        IterableSpout([1], "word")


@pytest.mark.parametrize(("columns", "key"), [(5, None), ([1], None), ("a", 5), (None, None)])
def test_columns_are_names(columns: Any, key: Any) -> None:
    with pytest.raises(ConfigError, match="must be names of columns, such as"):
        SqliteSink("orders.db", "orders", columns, key=key)


def test_columns_that_differ_in_case_alone_are_one_to_sqlite(tmp_path: Path) -> None:
    """The table could not be made, when the worker opened the sink: "duplicate column name"."""
    with pytest.raises(ConfigError, match=r"columns=\('A', 'a'\) has names that differ in case alone"):
        SqliteSink(tmp_path / "orders.db", "orders", ("A", "a"))
    SqliteSink(tmp_path / "orders.db", "orders", ("\u00c4", "\u00e4"))


def test_a_table_has_a_name() -> None:
    """The table "None" was made."""
    with pytest.raises(ConfigError, match="table=None must be the name of a table"):
        SqliteSink("orders.db", None, ("a",))  # type: ignore[arg-type]
