"""The private folder of a topology's ipc sockets."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from topo.errors import TopoEnvironmentError

_SOCKETS = "topo-"
"""Prefix of the names of socket folders."""


def make_socket_folder(environment: Mapping[str, str]) -> Path:
    """Make a private folder with a short path for ipc sockets; the process that ends the topology removes it.

    It is not below XDG_RUNTIME_DIR, which a logout removes while a background topology runs on.

    Raises:
        TopoEnvironmentError: no folder for temporary files can be written to.
    """
    wanted = environment.get("TMPDIR")
    try:
        parent = wanted if wanted and os.access(wanted, os.W_OK) else tempfile.gettempdir()
        # Clients in other folders use it, too.
        return Path(tempfile.mkdtemp(prefix=_SOCKETS, dir=os.path.abspath(parent)))
    except OSError as error:
        raise TopoEnvironmentError(f"cannot make a folder for sockets: {error}; set TMPDIR to a folder of your own") from error


def remove_socket_folder(folder: Path) -> None:
    """Remove what `make_socket_folder` made, sockets included; gone already is fine. A folder with another name stays."""
    # The path may come from a record on disk, which somebody can have edited or damaged.
    if folder.name.startswith(_SOCKETS):
        shutil.rmtree(folder, ignore_errors=True)
