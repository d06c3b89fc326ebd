"""Checks the paths that sources and sinks are given."""

from __future__ import annotations

import os
from typing import Any

from topo.errors import ConfigError


def check_path(owner: str, path: Any) -> None:
    """Raise ConfigError for something that an `owner`, a spout or a sink, was given as its path and that is none."""
    if not isinstance(path, str | os.PathLike) or path == "":
        what = f"{owner} was given {path!r:.60} ({type(path).__name__}) as its path"
        raise ConfigError(f"{what}; give a text or a pathlib.Path, such as 'data/orders.jsonl'")
