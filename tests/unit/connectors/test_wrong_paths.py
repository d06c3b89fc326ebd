"""Paths, columns and tables that are none are refused when a source or a sink is made."""

from __future__ import annotations

from pathlib import Path

import pytest

from topo import ConfigError, IterableSpout, SqliteSink, UserError
from topo.streams import StreamBuilder


def test_a_wrong_path_of_a_program_of_streams_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^TextFileSpout: path=None \(NoneType\) must be a text or a pathlib.Path$"):
        StreamBuilder("program").from_files(None)  # type: ignore[arg-type]


def test_a_text_is_no_tuple_of_fields() -> None:
    """Each of its characters was a field, and each item failed: it had one value for four fields."""
    with pytest.raises(UserError, match=r"fields='word', of which each character would be a name; give \('word',\)"):
        IterableSpout([1], "word")


def test_columns_that_differ_in_case_alone_are_one_to_sqlite(tmp_path: Path) -> None:
    """The table could not be made, when the worker opened the sink: "duplicate column name"."""
    with pytest.raises(ConfigError, match=r"columns=\('A', 'a'\) has names that differ in case alone"):
        SqliteSink(tmp_path / "orders.db", "orders", ("A", "a"))
    SqliteSink(tmp_path / "orders.db", "orders", ("\u00c4", "\u00e4"))


def test_a_table_has_a_name() -> None:
    with pytest.raises(ConfigError, match="table='' must be the name of a table"):
        SqliteSink("orders.db", "", ("a",))
