"""Output of a topology that is in no log: of child processes, C code and crashes, past Python's streams."""

from __future__ import annotations

from pathlib import Path


def raw_output_note(logs: Path) -> str:
    """Return a line that names the files of a folder of logs that have such output; "" where none has."""
    files = [str(file) for file in sorted(logs.glob("worker-*.out")) if file.stat().st_size]
    return f"output of child processes, C code or crashes: {', '.join(files)}" if files else ""
