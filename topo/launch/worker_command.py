"""What starts a worker process: its command and its environment."""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path

WORKER_MODULE = "topo.worker.process"
WORKER_COMMAND = (sys.executable, "-P", "-m", WORKER_MODULE)
"""What a worker runs, before the path of its start file. `-P` keeps the working folder from shadowing installed packages."""

_SECRET_WORDS = ("KEY", "PASSWORD", "SECRET", "TOKEN")


def worker_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment that a worker gets: without topo's secrets, with topo importable and crashes reported with their line.

    Variables that are not topo's own are left alone: user code may need them.
    """
    kept = {
        name: value
        for name, value in environment.items()
        if not (name.startswith("TOPO_") and any(word in name for word in _SECRET_WORDS))
    }
    source = str(Path(__file__).parents[2])
    if source not in (sysconfig.get_path("purelib"), sysconfig.get_path("platlib")):
        present = kept.get("PYTHONPATH", "")
        kept["PYTHONPATH"] = f"{present}{os.pathsep}{source}" if present else source
    kept.setdefault("PYTHONFAULTHANDLER", "1")
    return kept
