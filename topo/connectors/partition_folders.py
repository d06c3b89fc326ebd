"""Folders named field=value, as Spark and Hive name those of a partitioned dataset."""

from __future__ import annotations

from typing import Any

_NULL = "__HIVE_DEFAULT_PARTITION__"
_ESCAPED = frozenset("\"#%'*/:=?\\{}[]^") | {chr(code) for code in (*range(32), 127)}
NAME_BYTES = 255
"""What a file system takes for the name of one folder."""


def folder_of(column: str, value: Any) -> str:
    """Return the folder of a partition value. None and the empty string have the same, and Spark reads both as null."""
    if value is None or value == "":
        text = _NULL
    elif isinstance(value, bool):
        text = str(value).lower()
    else:
        text = escaped(str(value))
    return f"{escaped(column)}={text}"


def escaped(text: str) -> str:
    """Return a text in which characters that mean something in paths are written as %XX."""
    if _ESCAPED.isdisjoint(text):
        return text
    return "".join(f"%{ord(char):02X}" if char in _ESCAPED else char for char in text)
